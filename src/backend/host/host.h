/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_HOST_HOST_H
#define COPSE_BACKEND_HOST_HOST_H

#include "backend/backend.h"

/* The host backend: plain loops over float storage with double accumulation. It is the
 * numerical reference of every other backend, and serves machines without an ICD.
 *
 * Everything is done when the call returns. Large operations are spread over the cores;
 * each output element is made by one thread in one fixed order, so the bits do not depend
 * on their number. */

/* One operation with its operands' addresses, at the sizes of the moment. Absent operands
 * are NULL. */
typedef struct copse__host_call {
    const copse__graph *graph;
    const copse__node *node;
    const copse__extents *extents;
    const copse_scalars *scalars;
    void *in[COPSE__MAX_INPUTS];
    void *out[COPSE__MAX_OUTPUTS];
    void *workspace;
    size_t threads;
} copse__host_call;

typedef void copse__host_op(const copse__host_call *call);

/* The operand's tensor; NULL where it is absent. */
const copse__tensor *copse__host_input(const copse__host_call *call, size_t position);
const copse__tensor *copse__host_output(const copse__host_call *call, size_t position);

/* Rows (all dimensions but the last) and elements of an operand at the call's extents. */
size_t copse__host_input_rows(const copse__host_call *call, size_t position);
size_t copse__host_output_rows(const copse__host_call *call, size_t position);
size_t copse__host_output_elements(const copse__host_call *call, size_t position);

/* Runs body over [0, count) in contiguous ranges on up to call->threads threads; `cost` is
 * about the number of floating-point operations of one item: little work stays on the
 * calling thread. */
typedef void copse__host_body(const void *context, size_t begin, size_t end);
void copse__host_for(const copse__host_call *call, size_t count, size_t cost,
                     copse__host_body *body, const void *context);

/* Whether the node's operands are present, of the right types and of shapes that fit each
 * other at their planned sizes: afterwards no loop leaves its memory. */
copse_status copse__host_check(const copse__graph *graph, const copse__node *node,
                               copse_error *err);

/* Bytes of workspace the node's loops want; SIZE_MAX where that overflows. */
size_t copse__host_workspace(const copse__graph *graph, const copse__node *node);

/* Whether the operation reads copse_scalars. */
bool copse__host_reads_scalars(copse__op op);

/* Layout of one convolution or pooling, of its image side [N,H,W,C] and its map side
 * [N,P,Q,F]; N at the call's extents. */
typedef struct copse__host_geometry {
    size_t n, h, w, c, p, q, f;
    copse__window window;
} copse__host_geometry;

copse__host_geometry copse__host_geometry_of(const copse__host_call *call,
                                             const copse__tensor *image,
                                             const copse__tensor *map);

/* Whether output place `at` with kernel place `tap` lies inside [0, size), and where. */
static inline bool copse__host_tap(size_t at, size_t stride, size_t tap, size_t dilation,
                                   size_t pad, size_t size, size_t *place) {
    size_t padded = at * stride + tap * dilation;
    if (padded < pad || padded - pad >= size)
        return false;
    *place = padded - pad;
    return true;
}

/* Whether kernel place `tap` of some output place hits `place`, and which. */
static inline bool copse__host_untap(size_t place, size_t stride, size_t tap,
                                     size_t dilation, size_t pad, size_t outputs,
                                     size_t *at) {
    size_t padded = place + pad;
    if (padded < tap * dilation || (padded - tap * dilation) % stride != 0)
        return false;
    *at = (padded - tap * dilation) / stride;
    return *at < outputs;
}

double copse__host_activate(copse__activation act, double x);
/* act'(.) from what ACTIVATION_GRAD saved: the result, for gelu the argument. */
double copse__host_slope(copse__activation act, double saved);
/* dx = dy act'(saved), of as many elements as output 0 has; dx may be dy. */
void copse__host_slopes(const copse__host_call *call, const float *saved, const float *dy,
                        float *dx);

#define COPSE__HOST_OPS(X)                                                               \
    X(dense)                                                                             \
    X(dense_grad_input)                                                                  \
    X(dense_grad_weight)                                                                 \
    X(bias_grad)                                                                         \
    X(conv2d)                                                                            \
    X(conv2d_grad_input)                                                                 \
    X(conv2d_grad_filter)                                                                \
    X(conv2d_max_pool)                                                                   \
    X(conv2d_max_pool_grad_input)                                                        \
    X(conv2d_max_pool_grad_filter)                                                       \
    X(max_pool2d)                                                                        \
    X(max_pool2d_grad)                                                                   \
    X(avg_pool2d)                                                                        \
    X(avg_pool2d_grad)                                                                   \
    X(global_avg_pool)                                                                   \
    X(global_avg_pool_grad)                                                              \
    X(activation)                                                                        \
    X(activation_grad)                                                                   \
    X(softmax)                                                                           \
    X(softmax_grad)                                                                      \
    X(dropout)                                                                           \
    X(add)                                                                               \
    X(elementwise)                                                                       \
    X(bn_moments)                                                                        \
    X(bn_normalize)                                                                      \
    X(bn_infer)                                                                          \
    X(bn_fold)                                                                           \
    X(bn_grad_reduce)                                                                    \
    X(bn_grad_input)                                                                     \
    X(cross_entropy)                                                                     \
    X(mean_squared_error)                                                                \
    X(cast)                                                                              \
    X(update)                                                                            \
    X(finite_check)                                                                      \
    X(parameter_hash)

#define COPSE__HOST_DECLARE(name) copse__host_op copse__host_##name;
COPSE__HOST_OPS(COPSE__HOST_DECLARE)
#undef COPSE__HOST_DECLARE

#endif
