/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_OP_H
#define COPSE_GRAPH_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Every operation a backend may be asked for, with its exact meaning: the host backend
 * computes it so with plain loops, and every other backend must agree with that.
 *
 * Notation: x, y … are float32 unless said; [N,H,W,C] shapes; rows(x) = product of all but
 * the last dimension, C = the last; (…)? is optional (COPSE__NO_TENSOR). "act" is attrs.act,
 * applied as an epilogue. Sums run over the rows of the moment (extents), never over the
 * planned ones; with zero rows a reduction gives 0. Outputs are overwritten, not added to.
 * An output may share its storage with an input only where the list says "in place".
 *
 * DENSE               x[..,K], w[K,U], b[U]?        -> y[..,U] = act(x w + b)
 * DENSE_GRAD_INPUT    dy[..,U], w[K,U], s[..,K]?    -> dx[..,K] = dy wT; with s ACTIVATION_GRAD
 *                     (attrs.act) of s and that
 * DENSE_GRAD_WEIGHT   x[..,K], dy[..,U]             -> dw[K,U] = xT dy, db[U]? = BIAS_GRAD of dy
 * BIAS_GRAD           dy[..,U]                      -> db[U] = sum over rows
 * CONV2D              x[N,H,W,C], w[R,S,C,F], b[F]? -> y[N,P,Q,F] =
 *                     act(sum_{r,s,c} x[n, p*stride+r*dilation-pad, …, c] w[r,s,c,f] + b)
 * CONV2D_GRAD_INPUT   dy[N,P,Q,F], w                -> dx[N,H,W,C]
 * CONV2D_GRAD_FILTER  x, dy                         -> dw[R,S,C,F]
 * CONV2D_MAX_POOL     x[N,H,W,C], w[R,S,C,F], b[F]? -> y[N,P,Q,F], index[N,P,Q,F]? =
 *                     MAX_POOL2D, with the window attrs.pool, of CONV2D's result. Pooling
 *                     has no padding; only the pixels that its windows see are computed
 * CONV2D_MAX_POOL_GRAD_INPUT dy[N,P,Q,F], index, w  -> dx[N,H,W,C] = CONV2D_GRAD_INPUT of
 *                     MAX_POOL2D_GRAD of dy and index
 * CONV2D_MAX_POOL_GRAD_FILTER x, dy[N,P,Q,F], index -> dw[R,S,C,F] = CONV2D_GRAD_FILTER of
 *                     the same, db[F]? = BIAS_GRAD of dy
 * MAX_POOL2D          x[N,H,W,C]                    -> y[N,P,Q,C], index[N,P,Q,C]?
 *                     index (u8; i32 where the window has more than 255 places): r*S+s of
 *                     the first largest value in row-major order; padding never wins; a NaN
 *                     wins
 * MAX_POOL2D_GRAD     dy, index                     -> dx[N,H,W,C]
 *                     (windows may overlap: sum in order of p, then q)
 * AVG_POOL2D          x                             -> y: mean over the places inside the
 *                     image
 * AVG_POOL2D_GRAD     dy                            -> dx
 * GLOBAL_AVG_POOL     x[N,H,W,C]                    -> y[N,C]
 * GLOBAL_AVG_POOL_GRAD dy[N,C]                      -> dx[N,H,W,C]
 * ACTIVATION          x                             -> y = act(x); in place
 * ACTIVATION_GRAD     s, dy                         -> dx = dy * act'(.), s = y for relu,
 *                     sigmoid, tanh; s = x for gelu. relu'(0) = 0. in place (dx on dy)
 * SOFTMAX             x[..,C]                       -> y, over the last axis, shifted by the
 *                     row's maximum; in place
 * SOFTMAX_GRAD        y, dy                         -> dx = y (dy - sum(dy y)); in place (dx
 *                     on dy)
 * DROPOUT             x                             -> y = keep ? x/(1-rate) : 0; in place.
 *                     Its gradient is DROPOUT of dy with the same call and rate.
 *                     keep: unit(philox(counter {e/4, sample_base+n, step, call},
 *                     seed)[e%4]) >= rate, for element e of sample n (n = first dimension)
 * ADD                 a, b (equal shapes)           -> y = a + b; in place (y on a)
 * ELEMENTWISE         1 to 8 tensors of one size    -> 1 to 4 of the same: attrs.expression,
 *                     whose terms are the operations of their names, element by element, each
 *                     result a float32; in place (the first output on any input)
 * BN_MOMENTS          x[..,C]                       -> stats[2,C] = mean and biased variance
 *                     over rows (two passes or better; never E[x2]-E[x]2); zero rows: 0, 0
 * BN_NORMALIZE        x, stats, gamma?, beta?       -> y =
 *                     act((x-mean)*rsqrt(variance+epsilon)*gamma+beta); act of all BN_*: none or
 *                     relu
 * BN_INFER            x, moving_mean, moving_variance, gamma?, beta? -> y, the same with
 *                     moving statistics
 * BN_FOLD             w[..,F], b[F]?, moving_mean, moving_variance, gamma?, beta? -> v[..,F] = w*s,
 *                     c[F] = (b-mean)*s+beta, s = rsqrt(variance+epsilon)*gamma: BN_INFER of a product
 *                     with w and b is the product with v and c
 * BN_GRAD_REDUCE      x, dy, stats, gamma?, beta?   -> sums[2,C] = (sum dy, sum dy*xhat),
 *                     dgamma[C]? = sums[1], dbeta[C]? = sums[0]. With relu, dy is 0 where
 *                     BN_NORMALIZE's y is not above 0 (gamma and beta matter only then)
 * BN_GRAD_INPUT       x, dy, stats, sums, gamma?, beta? -> dx =
 *                     gamma*rstd/n*(n dy - sums[0] - xhat*sums[1]), n = rows(x); dy and beta as
 *                     above
 * CROSS_ENTROPY       x[..,C], label i32[..]        -> metrics[..,2] = (loss, hit), dx?
 *                     from logits (attrs.loss.from_logits): loss = logsumexp(x) - x[label],
 *                     dx = (softmax(x) - onehot) * loss_scale;
 *                     from probabilities: p = clamp(x/sum(x), 1e-7, 1-1e-7), loss =
 *                     -log p[label], with the gradient of just that.
 *                     hit = 1 where label is the first largest x of the row. loss_scale is
 *                     scalars.loss_scale. dx in place on x. label is in [0, C) (the host
 *                     checks). Or with targets t f32[..,C] instead of label, probabilities of
 *                     the classes: loss = sum t * (the loss of each label), with the gradient
 *                     of just that; hit = 1 where the first largest x and t are at one place.
 * MEAN_SQUARED_ERROR  x[N,..], target f32[N,..]     -> metrics[N,2] = (mean over the sample's
 *                     elements of (x-t)^2, 0), dx? = 2 (x-t)/elements * loss_scale
 * CAST                x (u8, i8, u16, i16, i32, f16, f32, f64) -> y f32 =
 *                     x * attrs.cast.scale + attrs.cast.offset
 *
 * On flat buffers, without rows; sizes are the tensors' planned ones:
 * UPDATE_SGD, UPDATE_ADAM, UPDATE_ADAMW, UPDATE_RMSPROP
 *                     w, g, slot0?, slot1?, slot2?, held u32[1]? (inputs) -> w, slot…
 *                     (outputs: the same tensors, in place; nothing changes where held is
 *                     not 0); formulas in cl/update.clh; bits equal to the host's.
 *                     SGD: slot0 = m where momentum > 0. Adam, AdamW: m, v. RMSprop: v,
 *                     average where centered, m where momentum > 0
 * FINITE_CHECK        g, before u32[1]?             -> count u32[1]: before (absent: 0) and
 *                     the elements that are not finite (any number > 0 where there are
 *                     some); count may be before's own memory
 * PARAMETER_HASH      w                             -> partial u64[256]: their sum modulo
 *                     2^64 is sum_i mix(i + attrs.hash.base, bits of w[i]); cl/hash.clh
 * ACCUMULATE          a, b                          -> y = a + b; in place (y on a) */
#define COPSE__OP_MAP(X)                                                                 \
    X(DENSE, "dense")                                                                    \
    X(DENSE_GRAD_INPUT, "dense_grad_input")                                              \
    X(DENSE_GRAD_WEIGHT, "dense_grad_weight")                                            \
    X(BIAS_GRAD, "bias_grad")                                                            \
    X(CONV2D, "conv2d")                                                                  \
    X(CONV2D_GRAD_INPUT, "conv2d_grad_input")                                            \
    X(CONV2D_GRAD_FILTER, "conv2d_grad_filter")                                          \
    X(CONV2D_MAX_POOL, "conv2d_max_pool")                                                \
    X(CONV2D_MAX_POOL_GRAD_INPUT, "conv2d_max_pool_grad_input")                          \
    X(CONV2D_MAX_POOL_GRAD_FILTER, "conv2d_max_pool_grad_filter")                        \
    X(MAX_POOL2D, "max_pool2d")                                                          \
    X(MAX_POOL2D_GRAD, "max_pool2d_grad")                                                \
    X(AVG_POOL2D, "avg_pool2d")                                                          \
    X(AVG_POOL2D_GRAD, "avg_pool2d_grad")                                                \
    X(GLOBAL_AVG_POOL, "global_avg_pool")                                                \
    X(GLOBAL_AVG_POOL_GRAD, "global_avg_pool_grad")                                      \
    X(ACTIVATION, "activation")                                                          \
    X(ACTIVATION_GRAD, "activation_grad")                                                \
    X(SOFTMAX, "softmax")                                                                \
    X(SOFTMAX_GRAD, "softmax_grad")                                                      \
    X(DROPOUT, "dropout")                                                                \
    X(ADD, "add")                                                                        \
    X(ELEMENTWISE, "elementwise")                                                        \
    X(BN_MOMENTS, "bn_moments")                                                          \
    X(BN_NORMALIZE, "bn_normalize")                                                      \
    X(BN_INFER, "bn_infer")                                                              \
    X(BN_FOLD, "bn_fold")                                                                \
    X(BN_GRAD_REDUCE, "bn_grad_reduce")                                                  \
    X(BN_GRAD_INPUT, "bn_grad_input")                                                    \
    X(CROSS_ENTROPY, "cross_entropy")                                                    \
    X(MEAN_SQUARED_ERROR, "mean_squared_error")                                          \
    X(CAST, "cast")                                                                      \
    X(UPDATE_SGD, "update_sgd")                                                          \
    X(UPDATE_ADAM, "update_adam")                                                        \
    X(UPDATE_ADAMW, "update_adamw")                                                      \
    X(UPDATE_RMSPROP, "update_rmsprop")                                                  \
    X(FINITE_CHECK, "finite_check")                                                      \
    X(PARAMETER_HASH, "parameter_hash")                                                  \
    X(ACCUMULATE, "accumulate")

typedef enum copse__op {
#define COPSE__OP_ENUM(code, name) COPSE__OP_##code,
    COPSE__OP_MAP(COPSE__OP_ENUM)
#undef COPSE__OP_ENUM
        COPSE__OP_COUNT
} copse__op;

/* "conv2d_grad_filter". Static. */
const char *copse__op_name(copse__op op);

/* How many operands an operation has by the list above, the optional ones counted: a node
 * holds COPSE__NO_TENSOR where one is left out. Bit i of a mask: operand i is optional. */
typedef struct copse__op_arity {
    uint8_t inputs, outputs;
    uint8_t optional_inputs, optional_outputs;
} copse__op_arity;

/* Static. op is below COPSE__OP_COUNT. */
const copse__op_arity *copse__op_arity_of(copse__op op);

typedef enum copse__activation {
    COPSE__ACT_NONE,
    COPSE__ACT_RELU,
    COPSE__ACT_SIGMOID,
    COPSE__ACT_TANH,
    COPSE__ACT_GELU, /* x/2 (1 + erf(x/sqrt 2)), as Keras with approximate=False */
    COPSE__ACT_COUNT
} copse__activation;

/* "linear", "relu", … Static. */
const char *copse__activation_name(copse__activation activation);

/* Geometry of a convolution or pooling; pads are of the top and left, resolved from valid/same
 * (same: output = ceil(input/stride), the odd pixel of padding goes to the bottom and right). */
typedef struct copse__window {
    size_t kernel_h, kernel_w;
    size_t stride_h, stride_w;
    size_t dilation_h, dilation_w;
    size_t pad_top, pad_left;
} copse__window;

/* ELEMENTWISE. Values are numbered: below COPSE__MAX_INPUTS the inputs, from there on the results of
 * the terms, each of which uses earlier values only. */
typedef struct copse__term {
    uint8_t op; /* ADD: a, b; ACTIVATION: a; ACTIVATION_GRAD: s = a, dy = b; DROPOUT: a */
    uint8_t act;  /* ACTIVATION, ACTIVATION_GRAD */
    uint8_t a, b; /* values */
    float rate;   /* DROPOUT, as call */
    uint32_t call;
} copse__term;

#define COPSE__MAX_TERMS 8

typedef struct copse__expression {
    uint8_t term_count;
    uint8_t results[4]; /* the value of each output */
    copse__term terms[COPSE__MAX_TERMS];
} copse__expression;

typedef struct copse__attrs {
    /* The epilogue of DENSE, DENSE_GRAD_INPUT, CONV2D, CONV2D_MAX_POOL, BN_NORMALIZE and BN_INFER;
     * also of BN_GRAD_*, ACTIVATION and ACTIVATION_GRAD. */
    copse__activation act;
    copse__window pool; /* CONV2D_MAX_POOL*: pads are 0 */
    union {
        copse__window window; /* CONV2D*, *_POOL2D* */
        struct {
            float rate;
            uint32_t call; /* of the forward node, whose draw its gradient repeats */
        } dropout;
        struct {
            float epsilon;
        } norm; /* BN_* */
        struct {
            bool from_logits;
        } loss; /* CROSS_ENTROPY */
        struct {
            float scale, offset;
        } cast;
        struct {
            /* double, so that 1 - beta2 is made exactly as Keras makes it before it
             * is rounded to float32 */
            double momentum;              /* SGD, RMSprop */
            bool nesterov;                /* SGD */
            double beta1, beta2, epsilon; /* Adam, AdamW; epsilon RMSprop too */
            double rho;                   /* RMSprop */
            bool centered;                /* RMSprop */
        } update;
        copse__expression expression; /* ELEMENTWISE */
        struct {
            uint64_t base; /* of the first element in the model's flat parameters */
        } hash;
    };
} copse__attrs;

#endif
