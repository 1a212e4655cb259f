/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_HOST_GEMM_H
#define COPSE_BACKEND_HOST_GEMM_H

#include <stddef.h>

/* The one inner loop of matrix products and convolutions: a block of sums in double. A
 * product of two floats is exact in double, so only the additions round. */
#define COPSE__HOST_ROWS 8
#define COPSE__HOST_COLUMNS 32

typedef struct copse__host_block {
    double sum[COPSE__HOST_ROWS][COPSE__HOST_COLUMNS];
} copse__host_block;

void copse__host_block_clear(copse__host_block *block);

/* sum[r][c] += sum over d < depth, ascending, of a[r][d * a_stride] * b[d * b_stride + c],
 * for c < columns. Rows whose a[r] is NULL (padding) are left alone. */
void copse__host_block_add(copse__host_block *block,
                           const float *const a[COPSE__HOST_ROWS], size_t a_stride,
                           const float *b, size_t b_stride, size_t depth, size_t columns);

/* to[c][r] = from[r][c] for a rows x columns matrix. */
void copse__host_transpose(float *to, const float *from, size_t rows, size_t columns);

#endif
