/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/op.h"

const char *copse__op_name(copse__op op) {
    static const char *const names[] = {
#define OP_NAME(code, name) name,
        COPSE__OP_MAP(OP_NAME)
#undef OP_NAME
    };
    return (unsigned)op < COPSE__OP_COUNT ? names[op] : "unknown";
}

const char *copse__activation_name(copse__activation activation) {
    static const char *const names[] = {"linear", "relu", "sigmoid", "tanh", "gelu"};
    return (unsigned)activation < COPSE__ACT_COUNT ? names[activation] : "unknown";
}

/* Bits of `optional_inputs` and `optional_outputs` count positions from 0. */
const copse__op_arity *copse__op_arity_of(copse__op op) {
    static const copse__op_arity arities[COPSE__OP_COUNT] = {
        [COPSE__OP_DENSE] = {3, 1, 1u << 2, 0},
        [COPSE__OP_DENSE_GRAD_INPUT] = {3, 1, 1u << 2, 0},
        [COPSE__OP_DENSE_GRAD_WEIGHT] = {2, 2, 0, 1u << 1},
        [COPSE__OP_BIAS_GRAD] = {1, 1, 0, 0},
        [COPSE__OP_CONV2D] = {3, 1, 1u << 2, 0},
        [COPSE__OP_CONV2D_GRAD_INPUT] = {2, 1, 0, 0},
        [COPSE__OP_CONV2D_GRAD_FILTER] = {2, 1, 0, 0},
        [COPSE__OP_CONV2D_MAX_POOL] = {3, 2, 1u << 2, 1u << 1},
        [COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT] = {3, 1, 0, 0},
        [COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER] = {3, 2, 0, 1u << 1},
        [COPSE__OP_MAX_POOL2D] = {1, 2, 0, 1u << 1},
        [COPSE__OP_MAX_POOL2D_GRAD] = {2, 1, 0, 0},
        [COPSE__OP_AVG_POOL2D] = {1, 1, 0, 0},
        [COPSE__OP_AVG_POOL2D_GRAD] = {1, 1, 0, 0},
        [COPSE__OP_GLOBAL_AVG_POOL] = {1, 1, 0, 0},
        [COPSE__OP_GLOBAL_AVG_POOL_GRAD] = {1, 1, 0, 0},
        [COPSE__OP_ACTIVATION] = {1, 1, 0, 0},
        [COPSE__OP_ACTIVATION_GRAD] = {2, 1, 0, 0},
        [COPSE__OP_SOFTMAX] = {1, 1, 0, 0},
        [COPSE__OP_SOFTMAX_GRAD] = {2, 1, 0, 0},
        [COPSE__OP_DROPOUT] = {1, 1, 0, 0},
        [COPSE__OP_ADD] = {2, 1, 0, 0},
        [COPSE__OP_ELEMENTWISE] = {8, 4, 0xfe, 0xe},
        [COPSE__OP_BN_MOMENTS] = {1, 1, 0, 0},
        [COPSE__OP_BN_NORMALIZE] = {4, 1, 3u << 2, 0},
        [COPSE__OP_BN_INFER] = {5, 1, 3u << 3, 0},
        [COPSE__OP_BN_FOLD] = {6, 2, 1u << 1 | 3u << 4, 0},
        [COPSE__OP_BN_GRAD_REDUCE] = {5, 3, 3u << 3, 3u << 1},
        [COPSE__OP_BN_GRAD_INPUT] = {6, 1, 3u << 4, 0},
        [COPSE__OP_CROSS_ENTROPY] = {2, 2, 0, 1u << 1},
        [COPSE__OP_MEAN_SQUARED_ERROR] = {2, 2, 0, 1u << 1},
        [COPSE__OP_CAST] = {1, 1, 0, 0},
        [COPSE__OP_UPDATE_SGD] = {6, 4, 15u << 2, 7u << 1},
        [COPSE__OP_UPDATE_ADAM] = {6, 4, 15u << 2, 7u << 1},
        [COPSE__OP_UPDATE_ADAMW] = {6, 4, 15u << 2, 7u << 1},
        [COPSE__OP_UPDATE_RMSPROP] = {6, 4, 15u << 2, 7u << 1},
        [COPSE__OP_FINITE_CHECK] = {2, 1, 1u << 1, 0},
        [COPSE__OP_PARAMETER_HASH] = {1, 1, 0, 0},
        [COPSE__OP_ACCUMULATE] = {2, 1, 0, 0},
    };
    return &arities[op];
}
