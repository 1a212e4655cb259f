/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows of a matrix, in a fixed order: the rows are shared out to `parts` (given by the sizes, not by the
 * device's mood), each part is summed by blocks, and the parts are added in order. The same bits at every run.
 * Items of the first pass: parts * ceil(columns / LANES); of the second: columns.
 */
#include "common.clh"

#ifdef COPSE_CHUNKED
#define LANES COPSE_VEC
#else
#define LANES 1
#endif
/* rows summed up before they are added to the part's sum: keeps the error small */
#define BLOCK 64

/* partial[part, c] = sum of the part's rows of x[rows, columns] */
kernel void sum_rows_f32(global const float *restrict x, global float *restrict partial,
                         ulong rows, uint columns, uint parts) {
    uint blocks = (columns + LANES - 1) / LANES;
    COPSE_FOR(i, (size_t)parts * blocks) {
        uint c0 = (uint)(i % blocks) * LANES;
        size_t part = i / blocks;
        ulong begin = rows / parts * part + min(rows % parts, (ulong)part);
        ulong end = rows / parts * (part + 1) + min(rows % parts, (ulong)part + 1);
#ifdef COPSE_CHUNKED
        if (c0 + LANES <= columns) {
            copse_wide sum = (copse_wide)(0.0f);
            for (ulong row = begin; row < end;) {
                copse_wide block = (copse_wide)(0.0f);
                for (ulong stop = min(end, row + BLOCK); row < stop; row++)
                    block += *(global const copse_wide_any *)(x + row * columns + c0);
                sum += block;
            }
            *(global copse_wide_any *)(partial + part * columns + c0) = sum;
            continue;
        }
#endif
        for (uint c = c0; c < min(c0 + LANES, columns); c++) {
            float sum = 0.0f;
            for (ulong row = begin; row < end;) {
                float block = 0.0f;
                for (ulong stop = min(end, row + BLOCK); row < stop; row++)
                    block += x[row * columns + c];
                sum += block;
            }
            partial[part * columns + c] = sum;
        }
    }
}

/* y[c] = sum over parts, in order, of partial[part, c]; items: columns */
kernel void sum_parts_f32(global const float *restrict partial, global float *restrict y,
                          ulong columns, uint parts) {
    COPSE_FOR(c, columns) {
        float sum = 0.0f;
        for (uint part = 0; part < parts; part++)
            sum += partial[part * columns + c];
        y[c] = sum;
    }
}
