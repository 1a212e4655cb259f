/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/gemm.h"

#include <string.h>

void copse__host_block_clear(copse__host_block *block) {
    memset(block, 0, sizeof *block);
}

/* With a constant trip count the compiler makes whole vectors of it. */
static void add_full(copse__host_block *block, const float *const a[COPSE__HOST_ROWS],
                     size_t a_stride, const float *b, size_t b_stride, size_t depth) {
    for (size_t d = 0; d < depth; d++) {
        double wide[COPSE__HOST_COLUMNS];
        for (size_t c = 0; c < COPSE__HOST_COLUMNS; c++)
            wide[c] = (double)b[d * b_stride + c];
        for (size_t r = 0; r < COPSE__HOST_ROWS; r++) {
            if (!a[r])
                continue;
            double factor = (double)a[r][d * a_stride];
            double *sum = block->sum[r];
            for (size_t c = 0; c < COPSE__HOST_COLUMNS; c++)
                sum[c] += factor * wide[c];
        }
    }
}

void copse__host_block_add(copse__host_block *block,
                           const float *const a[COPSE__HOST_ROWS], size_t a_stride,
                           const float *b, size_t b_stride, size_t depth,
                           size_t columns) {
    if (columns == COPSE__HOST_COLUMNS) {
        add_full(block, a, a_stride, b, b_stride, depth);
        return;
    }
    for (size_t d = 0; d < depth; d++) {
        for (size_t r = 0; r < COPSE__HOST_ROWS; r++) {
            if (!a[r])
                continue;
            double factor = (double)a[r][d * a_stride];
            double *sum = block->sum[r];
            for (size_t c = 0; c < columns; c++)
                sum[c] += factor * (double)b[d * b_stride + c];
        }
    }
}

void copse__host_transpose(float *to, const float *from, size_t rows, size_t columns) {
    enum { SIDE = 16 };
    for (size_t r0 = 0; r0 < rows; r0 += SIDE)
        for (size_t c0 = 0; c0 < columns; c0 += SIDE)
            for (size_t r = r0; r < rows && r < r0 + SIDE; r++)
                for (size_t c = c0; c < columns && c < c0 + SIDE; c++)
                    to[c * rows + r] = from[r * columns + c];
}
