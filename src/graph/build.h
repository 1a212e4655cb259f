/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_BUILD_H
#define COPSE_GRAPH_BUILD_H

#include <stdbool.h>

#include "base/error.h"
#include "graph/graph.h"

/* Inside the room only: one function a family of operations that checks shapes and appends
 * nodes, and one gradient rule an operation.
 *
 * The builder says on whose behalf. Every node gets the next call number, and a graph for
 * inference spends the same numbers on the nodes it leaves out. Shape errors are
 * COPSE_CONFIG at `place` and name the layer. */
typedef struct copse__builder {
    copse__graph *graph;
    const char *layer; /* the name that nodes, tensors and parameters get */
    const char *place; /* in the configuration; may be NULL */
    uint32_t next_call;
    bool backward;
} copse__builder;

#define COPSE__SHAPE_TEXT 192

/* A tensor named "LAYER/SUFFIX", or LAYER where suffix is NULL. */
copse_status copse__build_tensor(copse__builder *b, const char *suffix, copse_dtype dtype,
                                 copse__role role, size_t rank, const copse__dim *dim,
                                 copse__tensor_id *out, copse_error *err);

/* A float32 activation of the shape of `like`. */
copse_status copse__build_like(copse__builder *b, const char *suffix,
                               copse__tensor_id like, copse__tensor_id *out,
                               copse_error *err);

copse_status copse__build_view(copse__builder *b, const char *suffix, copse__tensor_id of,
                               size_t rank, const copse__dim *dim, copse__tensor_id *out,
                               copse_error *err);

/* Appends a node "LAYER/SUFFIX" with all the operands that the operation's arity counts. */
copse_status copse__build_node(copse__builder *b, const char *suffix, copse__op op,
                               const copse__tensor_id *inputs,
                               const copse__tensor_id *outputs, const copse__attrs *attrs,
                               copse_error *err);

/* The shape of a tensor as text, in a buffer of COPSE__SHAPE_TEXT bytes. */
const char *copse__build_shape(const copse__builder *b, copse__tensor_id id,
                               char buffer[COPSE__SHAPE_TEXT]);

/* A fixed dimension. */
static inline copse__dim copse__fixed(size_t size) {
    return (copse__dim){size, COPSE__FIXED};
}

/* ---- parameters ---- */

/* "LAYER/SUFFIX", appended to the graph's parameters. */
copse_status copse__build_parameter(copse__builder *b, const char *suffix, size_t rank,
                                    const copse__dim *dim, copse__init init, bool decay,
                                    copse__tensor_id *out, copse_error *err);

/* ---- dense.c ---- */

/* y[..,U] = x[..,K] w[K,U] + b. bias may be NO_TENSOR. */
copse_status copse__build_dense(copse__builder *b, copse__tensor_id x, copse__tensor_id w,
                                copse__tensor_id bias, const char *suffix,
                                copse__tensor_id *out, copse_error *err);

/* ---- window.c ---- */

typedef enum copse__padding { COPSE__PADDING_VALID, COPSE__PADDING_SAME } copse__padding;

/* One axis of a window over `input` pixels: the output's size and the padding before the
 * first pixel; false where not even one window fits. */
bool copse__window_axis(size_t input, size_t kernel, size_t stride, size_t dilation,
                        copse__padding padding, size_t *output, size_t *pad_before);

/* Resolves window's pads over x[N,H,W,C] and gives P and Q. `what` is "kernel" or "pool".
 */
copse_status copse__window_resolve(const copse__builder *b, copse__tensor_id x,
                                   const char *what, copse__padding padding,
                                   copse__window *window, size_t *p, size_t *q,
                                   copse_error *err);

/* ---- conv.c, pool.c ---- */

/* y[N,P,Q,F]; window's pads are resolved here. */
copse_status copse__build_conv2d(copse__builder *b, copse__tensor_id x,
                                 copse__tensor_id w, copse__tensor_id bias,
                                 copse__window window, copse__padding padding,
                                 const char *suffix, copse__tensor_id *out,
                                 copse_error *err);

/* op is MAX_POOL2D or AVG_POOL2D. */
copse_status copse__build_pool2d(copse__builder *b, copse__op op, copse__tensor_id x,
                                 copse__window window, copse__padding padding,
                                 copse__tensor_id *out, copse_error *err);
copse_status copse__build_global_avg_pool(copse__builder *b, copse__tensor_id x,
                                          copse__tensor_id *out, copse_error *err);

/* ---- elementwise.c ---- */

/* out is x itself where act is NONE. */
copse_status copse__build_activation(copse__builder *b, copse__activation act,
                                     copse__tensor_id x, const char *suffix,
                                     copse__tensor_id *out, copse_error *err);
copse_status copse__build_softmax(copse__builder *b, copse__tensor_id x,
                                  const char *suffix, copse__tensor_id *out,
                                  copse_error *err);
/* One call number is spent whether or not a node comes of it: out is x itself where not
 * training or rate is 0. */
copse_status copse__build_dropout(copse__builder *b, float rate, bool training,
                                  copse__tensor_id x, copse__tensor_id *out,
                                  copse_error *err);
/* The sum of two or more tensors of one shape, from left to right. */
copse_status copse__build_add(copse__builder *b, const copse__tensor_id *inputs,
                              size_t count, copse__tensor_id *out, copse_error *err);
copse_status copse__build_cast(copse__builder *b, float scale, float offset,
                               copse__tensor_id x, copse__tensor_id *out,
                               copse_error *err);

/* ---- norm.c ---- */

typedef struct copse__norm_options {
    float momentum, epsilon;
    bool center, scale;
} copse__norm_options;

/* Creates gamma and beta, the pair of moving statistics, and the nodes. */
copse_status copse__build_batch_norm(copse__builder *b,
                                     const copse__norm_options *options, bool training,
                                     copse__tensor_id x, copse__tensor_id *out,
                                     copse_error *err);

/* ---- loss.c ---- */

/* Both make metrics [.., 2] (mean squared error: [N, 2]). The gradient's output is left
 * out: the backward pass adds it where it is wanted. */
copse_status copse__build_cross_entropy(copse__builder *b, copse__tensor_id x,
                                        copse__tensor_id label, bool from_logits,
                                        copse__tensor_id *metrics, copse_error *err);
copse_status copse__build_mean_squared_error(copse__builder *b, copse__tensor_id x,
                                             copse__tensor_id target,
                                             copse__tensor_id *metrics, copse_error *err);

/* ---- gradient rules ---- */

/* The state of a backward pass. Tensors are known by the storage they show: a view and
 * what it shows have one gradient, in the shape of the latter. */
typedef struct copse__backward {
    copse__builder builder;
    bool *wanted;           /* whether the loss's gradient in this storage is asked for */
    copse__tensor_id *sums; /* what has come together so far; NO_TENSOR: nothing yet */
    size_t count;           /* of both: the tensors before the pass */
} copse__backward;

/* A rule appends the backward nodes of one forward node, whose output's gradient is dy (in
 * the output's shape), and hands on what it made. node is a copy; index is its place. */
typedef copse_status copse__gradient_rule(copse__backward *pass, const copse__node *node,
                                          size_t index, copse__tensor_id dy,
                                          copse_error *err);

/* NULL: nothing flows back through this operation. */
copse__gradient_rule *copse__gradient_rule_of(copse__op op);

bool copse__wants(const copse__backward *pass, copse__tensor_id id);

/* A tensor for the gradient in `of`, of its shape. */
copse_status copse__gradient_tensor(copse__backward *pass, copse__tensor_id of,
                                    copse__tensor_id *out, copse_error *err);

/* Adds `gradient` (of the shape of `of`) to what `of` has got so far. */
copse_status copse__gradient_give(copse__backward *pass, copse__tensor_id of,
                                  copse__tensor_id gradient, copse_error *err);

/* A node with one output, the gradient in `of`, and hands it on. */
copse_status copse__gradient_node(copse__backward *pass, const char *suffix, copse__op op,
                                  const copse__tensor_id *inputs,
                                  const copse__attrs *attrs, copse__tensor_id of,
                                  copse_error *err);

copse__gradient_rule copse__gradient_dense, copse__gradient_conv2d,
    copse__gradient_max_pool2d, copse__gradient_avg_pool2d,
    copse__gradient_global_avg_pool, copse__gradient_activation, copse__gradient_softmax,
    copse__gradient_dropout, copse__gradient_add, copse__gradient_batch_norm;

#endif
