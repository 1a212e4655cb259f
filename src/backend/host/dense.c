/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/conv.h"
#include "backend/host/gemm.h"
#include "backend/host/host.h"
#include "base/mem.h"

/* One product c[m, n] = act(a b + bias): a's element (i, d) at a[i * a_row + d * a_step],
 * b is [depth, n]. */
typedef struct product {
    const float *a, *b, *bias;
    float *c;
    size_t m, n, depth;
    size_t a_row, a_step;
    size_t row_blocks;
    copse__activation act;
} product;

static void product_block(const product *p, size_t i0, size_t j0) {
    size_t rows = copse__min_size(COPSE__HOST_ROWS, p->m - i0);
    size_t columns = copse__min_size(COPSE__HOST_COLUMNS, p->n - j0);
    const float *a[COPSE__HOST_ROWS] = {NULL};
    for (size_t r = 0; r < rows; r++)
        a[r] = p->a + (i0 + r) * p->a_row;
    copse__host_block block;
    copse__host_block_clear(&block);
    copse__host_block_add(&block, a, p->a_step, p->b + j0, p->n, p->depth, columns);
    for (size_t r = 0; r < rows; r++) {
        float *c = p->c + (i0 + r) * p->n + j0;
        for (size_t j = 0; j < columns; j++) {
            double bias = p->bias ? (double)p->bias[j0 + j] : 0;
            c[j] = (float)copse__host_activate(p->act, block.sum[r][j] + bias);
        }
    }
}

/* Rows vary fastest, so that a panel of b stays in the cache. */
static void product_body(const void *context, size_t begin, size_t end) {
    const product *p = context;
    for (size_t i = begin; i < end; i++)
        product_block(p, i % p->row_blocks * COPSE__HOST_ROWS,
                      i / p->row_blocks * COPSE__HOST_COLUMNS);
}

static void run_product(const copse__host_call *call, product *p) {
    p->row_blocks = (p->m + COPSE__HOST_ROWS - 1) / COPSE__HOST_ROWS;
    size_t column_blocks = (p->n + COPSE__HOST_COLUMNS - 1) / COPSE__HOST_COLUMNS;
    copse__host_for(call, p->row_blocks * column_blocks,
                    2 * COPSE__HOST_ROWS * COPSE__HOST_COLUMNS * (p->depth + 1),
                    product_body, p);
}

void copse__host_dense(const copse__host_call *call) {
    size_t depth = copse__tensor_columns(copse__host_input(call, 0));
    product p = {.a = call->in[0],
                 .b = call->in[1],
                 .bias = call->in[2],
                 .c = call->out[0],
                 .m = copse__host_output_rows(call, 0),
                 .n = copse__tensor_columns(copse__host_output(call, 0)),
                 .depth = depth,
                 .a_row = depth,
                 .a_step = 1,
                 .act = call->node->attrs.act};
    run_product(call, &p);
}

void copse__host_dense_grad_input(const copse__host_call *call) {
    size_t units = copse__tensor_columns(copse__host_input(call, 0));
    size_t depth = copse__tensor_columns(copse__host_output(call, 0));
    copse__host_transpose(call->workspace, call->in[1], depth, units);
    product p = {.a = call->in[0],
                 .b = call->workspace,
                 .c = call->out[0],
                 .m = copse__host_output_rows(call, 0),
                 .n = depth,
                 .depth = units,
                 .a_row = units,
                 .a_step = 1};
    run_product(call, &p);
    if (call->in[2])
        copse__host_slopes(call, call->in[2], call->out[0], call->out[0]);
}

void copse__host_dense_grad_weight(const copse__host_call *call) {
    size_t inputs = copse__tensor_columns(copse__host_input(call, 0));
    product p = {.a = call->in[0],
                 .b = call->in[1],
                 .c = call->out[0],
                 .m = inputs,
                 .n = copse__tensor_columns(copse__host_input(call, 1)),
                 .depth = copse__host_input_rows(call, 0),
                 .a_row = 1,
                 .a_step = inputs};
    run_product(call, &p);
    if (call->out[1])
        copse__host_sum_rows(call, call->in[1], p.depth, p.n, call->out[1]);
}

typedef struct column_sums {
    const float *from;
    float *to;
    size_t rows, columns;
} column_sums;

static void column_sums_body(const void *context, size_t begin, size_t end) {
    const column_sums *s = context;
    for (size_t c0 = begin; c0 < end; c0 += COPSE__HOST_COLUMNS) {
        size_t columns = copse__min_size(COPSE__HOST_COLUMNS, end - c0);
        double sum[COPSE__HOST_COLUMNS] = {0};
        for (size_t r = 0; r < s->rows; r++)
            for (size_t c = 0; c < columns; c++)
                sum[c] += (double)s->from[r * s->columns + c0 + c];
        for (size_t c = 0; c < columns; c++)
            s->to[c0 + c] = (float)sum[c];
    }
}

void copse__host_sum_rows(const copse__host_call *call, const float *from, size_t rows,
                          size_t columns, float *to) {
    column_sums s = {.from = from, .to = to, .rows = rows, .columns = columns};
    copse__host_for(call, columns, rows, column_sums_body, &s);
}

void copse__host_bias_grad(const copse__host_call *call) {
    copse__host_sum_rows(call, call->in[0], copse__host_input_rows(call, 0),
                         copse__tensor_columns(copse__host_input(call, 0)), call->out[0]);
}
