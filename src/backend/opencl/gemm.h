/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_GEMM_H
#define COPSE_BACKEND_OPENCL_GEMM_H

#include "backend/opencl/provider.h"

/* c[m,n] = A B, row-major and dense. How A and B are stored: */
typedef enum copse__cl_layout {
    COPSE__CL_NN, /* a[m,k], b[k,n] */
    COPSE__CL_NT, /* a[m,k], b[n,k] */
    COPSE__CL_TN  /* a[k,m], b[k,n] */
} copse__cl_layout;

typedef struct copse__cl_product {
    copse__cl_layout layout;
    copse__view a, b, c;
    copse__view bias, sums,
        saved; /* may be absent: sums of b's columns; of the activation whose
                                      gradient c becomes */
    size_t m, n, k;
    copse__activation act;
} copse__cl_product;

/* What a DENSE, DENSE_GRAD_INPUT or DENSE_GRAD_WEIGHT node multiplies at these extents
 * (NULL: as planned). operands NULL: without the views. */
copse__cl_product copse__cl_dense_product(const copse__graph *graph,
                                          const copse__node *node,
                                          const copse__operands *operands,
                                          const copse__extents *extents);

/* Whether a gradient comes with something that fusing put into it. */
bool copse__cl_dense_fused(const copse__graph *graph, const copse__node *node);

/* The `fits` of a provider of products alone: the sizes of such a node fit the kernels' 32-bit counts. */
bool copse__cl_dense_fits(const copse__device *device, const copse__graph *graph,
                          const copse__node *node, const char **reason);

/* Items along a side of the groups that the tiled kernels have here; 0: groups are too small for them. */
size_t copse__cl_tile(const copse__device *device);

#endif
