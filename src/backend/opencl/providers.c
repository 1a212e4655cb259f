/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"

/* An operation's implementations, in the order in which equal costs are preferred. A new
 * provider is one more entry here. */
#define LIST(...)                                                                        \
    (const copse__cl_provider *const[]) {                                                \
        __VA_ARGS__, NULL                                                                \
    }

#define DENSE                                                                            \
    LIST(&copse__cl_dense_clblast, &copse__cl_dense_rows, &copse__cl_dense_packed,       \
         &copse__cl_dense_small, &copse__cl_dense_tiled)

#define POOLED LIST(&copse__cl_conv2d_max_pool_packed, &copse__cl_conv2d_max_pool_tiled)

static const copse__cl_provider *const none[] = {NULL};

static const copse__cl_provider *const *const table[COPSE__OP_COUNT] = {
    [COPSE__OP_DENSE] = DENSE,
    [COPSE__OP_DENSE_GRAD_INPUT] = DENSE,
    [COPSE__OP_DENSE_GRAD_WEIGHT] = DENSE,
    [COPSE__OP_BIAS_GRAD] = LIST(&copse__cl_bias_grad),
    [COPSE__OP_CONV2D] = LIST(&copse__cl_conv2d_direct, &copse__cl_conv2d_packed,
                              &copse__cl_conv2d_winograd, &copse__cl_conv2d_winograd4,
                              &copse__cl_conv2d_columns),
    [COPSE__OP_CONV2D_GRAD_INPUT] =
        LIST(&copse__cl_conv2d_grad_input_direct, &copse__cl_conv2d_packed,
             &copse__cl_conv2d_winograd, &copse__cl_conv2d_winograd4,
             &copse__cl_conv2d_columns),
    [COPSE__OP_CONV2D_GRAD_FILTER] =
        LIST(&copse__cl_conv2d_grad_filter_direct, &copse__cl_conv2d_packed,
             &copse__cl_conv2d_winograd, &copse__cl_conv2d_winograd4,
             &copse__cl_conv2d_columns),
    [COPSE__OP_CONV2D_MAX_POOL] = POOLED,
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT] = POOLED,
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER] = POOLED,
    [COPSE__OP_MAX_POOL2D] = LIST(&copse__cl_max_pool2d),
    [COPSE__OP_MAX_POOL2D_GRAD] = LIST(&copse__cl_max_pool2d_grad),
    [COPSE__OP_AVG_POOL2D] = LIST(&copse__cl_avg_pool2d),
    [COPSE__OP_AVG_POOL2D_GRAD] = LIST(&copse__cl_avg_pool2d),
    [COPSE__OP_GLOBAL_AVG_POOL] = LIST(&copse__cl_global_avg_pool),
    [COPSE__OP_GLOBAL_AVG_POOL_GRAD] = LIST(&copse__cl_global_avg_pool),
    [COPSE__OP_ACTIVATION] = LIST(&copse__cl_activation),
    [COPSE__OP_ACTIVATION_GRAD] = LIST(&copse__cl_activation_grad),
    [COPSE__OP_ADD] = LIST(&copse__cl_add),
    [COPSE__OP_ELEMENTWISE] = LIST(&copse__cl_elementwise),
    [COPSE__OP_ACCUMULATE] = LIST(&copse__cl_add),
    [COPSE__OP_SOFTMAX] = LIST(&copse__cl_softmax),
    [COPSE__OP_SOFTMAX_GRAD] = LIST(&copse__cl_softmax_grad),
    [COPSE__OP_BN_MOMENTS] = LIST(&copse__cl_bn_moments),
    [COPSE__OP_BN_NORMALIZE] = LIST(&copse__cl_bn_apply),
    [COPSE__OP_BN_INFER] = LIST(&copse__cl_bn_apply),
    [COPSE__OP_BN_FOLD] = LIST(&copse__cl_bn_fold),
    [COPSE__OP_BN_GRAD_REDUCE] = LIST(&copse__cl_bn_grad_reduce),
    [COPSE__OP_BN_GRAD_INPUT] = LIST(&copse__cl_bn_grad_input),
    [COPSE__OP_CROSS_ENTROPY] = LIST(&copse__cl_loss),
    [COPSE__OP_MEAN_SQUARED_ERROR] = LIST(&copse__cl_loss),
    [COPSE__OP_DROPOUT] = LIST(&copse__cl_dropout),
    [COPSE__OP_CAST] = LIST(&copse__cl_cast),
    [COPSE__OP_UPDATE_SGD] = LIST(&copse__cl_update_sgd),
    [COPSE__OP_UPDATE_ADAM] = LIST(&copse__cl_update_adam),
    [COPSE__OP_UPDATE_ADAMW] = LIST(&copse__cl_update_adam),
    [COPSE__OP_UPDATE_RMSPROP] = LIST(&copse__cl_update_rmsprop),
    [COPSE__OP_FINITE_CHECK] = LIST(&copse__cl_finite_check),
    [COPSE__OP_PARAMETER_HASH] = LIST(&copse__cl_parameter_hash),
};

const copse__cl_provider *const *copse__cl_providers(copse__op op) {
    return (size_t)op < COPSE__OP_COUNT && table[op] ? table[op] : none;
}
