/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_TOLERANCE_H
#define COPSE_BACKEND_TOLERANCE_H

#include "graph/op.h"

/* How far a device's float32 result may be from the host's double one: by at most
 * relative * |host's value| + of_largest * (the largest magnitude of the host's tensor) +
 * absolute. Sums are compared with the largest as terms cancel, functions of one element
 * with its own value; absolute is for results near 0 of arguments near 1 (the tail of
 * gelu, the loss of a sure prediction). Where all are 0, the operation is exact: its bits
 * must be equal. */
typedef struct copse__tolerance {
    double relative, of_largest, absolute;
} copse__tolerance;

static inline copse__tolerance copse__tolerance_of(copse__op op) {
    static const copse__tolerance table[COPSE__OP_COUNT] = {
        [COPSE__OP_DENSE] = {1e-6, 2e-5, 0},
        [COPSE__OP_DENSE_GRAD_INPUT] = {1e-6, 2e-5, 0},
        [COPSE__OP_DENSE_GRAD_WEIGHT] = {1e-6, 2e-5, 0},
        [COPSE__OP_BIAS_GRAD] = {1e-6, 1e-5, 0},
        [COPSE__OP_CONV2D] = {1e-6, 2e-5, 0},
        [COPSE__OP_CONV2D_GRAD_INPUT] = {1e-6, 2e-5, 0},
        [COPSE__OP_CONV2D_GRAD_FILTER] = {1e-6, 2e-5, 0},
        [COPSE__OP_CONV2D_MAX_POOL] = {1e-6, 2e-5, 0},
        [COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT] = {1e-6, 2e-5, 0},
        [COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER] = {1e-6, 2e-5, 0},
        [COPSE__OP_MAX_POOL2D_GRAD] = {1e-6, 1e-6, 0},
        [COPSE__OP_AVG_POOL2D] = {1e-6, 1e-5, 0},
        [COPSE__OP_AVG_POOL2D_GRAD] = {1e-6, 1e-6, 0},
        [COPSE__OP_GLOBAL_AVG_POOL] = {1e-6, 1e-5, 0},
        [COPSE__OP_GLOBAL_AVG_POOL_GRAD] = {1e-6, 0, 0},
        [COPSE__OP_ACTIVATION] = {2e-6, 0, 1e-6},
        [COPSE__OP_ACTIVATION_GRAD] = {2e-6, 0, 1e-6},
        [COPSE__OP_SOFTMAX] = {1e-5, 0, 1e-9},
        [COPSE__OP_SOFTMAX_GRAD] = {1e-6, 5e-6, 0},
        [COPSE__OP_DROPOUT] = {1e-6, 0, 0},
        [COPSE__OP_ELEMENTWISE] = {4e-6, 1e-6, 1e-6},
        [COPSE__OP_BN_MOMENTS] = {1e-5, 1e-7, 0},
        [COPSE__OP_BN_NORMALIZE] = {1e-5, 2e-6, 0},
        [COPSE__OP_BN_INFER] = {1e-5, 2e-6, 0},
        [COPSE__OP_BN_FOLD] = {1e-5, 2e-6, 0},
        [COPSE__OP_BN_GRAD_REDUCE] = {1e-6, 1e-5, 0},
        [COPSE__OP_BN_GRAD_INPUT] = {1e-5, 5e-6, 0},
        [COPSE__OP_CROSS_ENTROPY] = {1e-5, 0, 1e-6},
        [COPSE__OP_MEAN_SQUARED_ERROR] = {1e-5, 1e-6, 0},
        [COPSE__OP_CAST] = {1e-6, 5e-7, 0},
    };
    return table[op];
}

#endif
