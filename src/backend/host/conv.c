/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/conv.h"

#include "backend/host/gemm.h"
#include "base/mem.h"

copse__host_geometry copse__host_geometry_of(const copse__host_call *call,
                                             const copse__tensor *image,
                                             const copse__tensor *map) {
    return (copse__host_geometry){.n = copse__dim_at(image->dim[0], call->extents),
                                  .h = image->dim[1].size,
                                  .w = image->dim[2].size,
                                  .c = image->dim[3].size,
                                  .p = map->dim[1].size,
                                  .q = map->dim[2].size,
                                  .f = map->dim[3].size,
                                  .window = call->node->attrs.window};
}

/* A row of outputs, in blocks of COPSE__HOST_ROWS places and COPSE__HOST_COLUMNS
 * channels, each summed tap by tap. */
typedef struct convolution {
    copse__host_geometry g;
    const float *from, *filter, *bias;
    float *to;
    copse__activation act;
} convolution;

static void store_block(float *to, size_t stride, const copse__host_block *block,
                        size_t rows, size_t columns, const float *bias,
                        copse__activation act) {
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            to[r * stride + c] = (float)copse__host_activate(
                act, block->sum[r][c] + (bias ? (double)bias[c] : 0));
}

static void forward_block(const convolution *v, size_t n, size_t p, size_t q0,
                          size_t f0) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    size_t rows = copse__min_size(COPSE__HOST_ROWS, g->q - q0);
    size_t columns = copse__min_size(COPSE__HOST_COLUMNS, g->f - f0);
    copse__host_block block;
    copse__host_block_clear(&block);
    for (size_t r = 0; r < win->kernel_h; r++) {
        size_t h;
        if (!copse__host_tap(p, win->stride_h, r, win->dilation_h, win->pad_top, g->h,
                             &h))
            continue;
        for (size_t s = 0; s < win->kernel_w; s++) {
            const float *a[COPSE__HOST_ROWS] = {NULL};
            for (size_t i = 0; i < rows; i++) {
                size_t w;
                if (copse__host_tap(q0 + i, win->stride_w, s, win->dilation_w,
                                    win->pad_left, g->w, &w))
                    a[i] = v->from + ((n * g->h + h) * g->w + w) * g->c;
            }
            const float *b = v->filter + (r * win->kernel_w + s) * g->c * g->f + f0;
            copse__host_block_add(&block, a, 1, b, g->f, g->c, columns);
        }
    }
    store_block(v->to + ((n * g->p + p) * g->q + q0) * g->f + f0, g->f, &block, rows,
                columns, v->bias ? v->bias + f0 : NULL, v->act);
}

static void forward_body(const void *context, size_t begin, size_t end) {
    const convolution *v = context;
    for (size_t i = begin; i < end; i++)
        for (size_t f0 = 0; f0 < v->g.f; f0 += COPSE__HOST_COLUMNS)
            for (size_t q0 = 0; q0 < v->g.q; q0 += COPSE__HOST_ROWS)
                forward_block(v, i / v->g.p, i % v->g.p, q0, f0);
}

static size_t taps(const copse__window *window) {
    return window->kernel_h * window->kernel_w;
}

void copse__host_convolve(const copse__host_call *call, const copse__host_geometry *g,
                          const float *x, const float *filter, const float *bias,
                          float *y) {
    convolution v = {.g = *g,
                     .from = x,
                     .filter = filter,
                     .bias = bias,
                     .to = y,
                     .act = call->node->attrs.act};
    copse__host_for(call, v.g.n * v.g.p, 2 * v.g.q * v.g.f * v.g.c * taps(&v.g.window),
                    forward_body, &v);
}

void copse__host_conv2d(const copse__host_call *call) {
    copse__host_geometry g = copse__host_geometry_of(call, copse__host_input(call, 0),
                                                     copse__host_output(call, 0));
    copse__host_convolve(call, &g, call->in[0], call->in[1], call->in[2], call->out[0]);
}

/* v->filter is [R,S,F,C] here: the contraction runs over F. */
static void backward_block(const convolution *v, size_t n, size_t h, size_t w0,
                           size_t c0) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    size_t rows = copse__min_size(COPSE__HOST_ROWS, g->w - w0);
    size_t columns = copse__min_size(COPSE__HOST_COLUMNS, g->c - c0);
    copse__host_block block;
    copse__host_block_clear(&block);
    for (size_t r = 0; r < win->kernel_h; r++) {
        size_t p;
        if (!copse__host_untap(h, win->stride_h, r, win->dilation_h, win->pad_top, g->p,
                               &p))
            continue;
        for (size_t s = 0; s < win->kernel_w; s++) {
            const float *a[COPSE__HOST_ROWS] = {NULL};
            for (size_t i = 0; i < rows; i++) {
                size_t q;
                if (copse__host_untap(w0 + i, win->stride_w, s, win->dilation_w,
                                      win->pad_left, g->q, &q))
                    a[i] = v->from + ((n * g->p + p) * g->q + q) * g->f;
            }
            const float *b = v->filter + (r * win->kernel_w + s) * g->f * g->c + c0;
            copse__host_block_add(&block, a, 1, b, g->c, g->f, columns);
        }
    }
    store_block(v->to + ((n * g->h + h) * g->w + w0) * g->c + c0, g->c, &block, rows,
                columns, NULL, COPSE__ACT_NONE);
}

static void backward_body(const void *context, size_t begin, size_t end) {
    const convolution *v = context;
    for (size_t i = begin; i < end; i++)
        for (size_t c0 = 0; c0 < v->g.c; c0 += COPSE__HOST_COLUMNS)
            for (size_t w0 = 0; w0 < v->g.w; w0 += COPSE__HOST_ROWS)
                backward_block(v, i / v->g.h, i % v->g.h, w0, c0);
}

void copse__host_convolve_back(const copse__host_call *call,
                               const copse__host_geometry *g, const float *dy,
                               const float *filter, float *turned, float *dx) {
    convolution v = {.g = *g, .from = dy, .filter = turned, .to = dx};
    size_t plane = v.g.c * v.g.f;
    for (size_t tap = 0; tap < taps(&v.g.window); tap++)
        copse__host_transpose(turned + tap * plane, filter + tap * plane, v.g.c, v.g.f);
    copse__host_for(call, v.g.n * v.g.h, 2 * v.g.w * v.g.f * v.g.c * taps(&v.g.window),
                    backward_body, &v);
}

void copse__host_conv2d_grad_input(const copse__host_call *call) {
    copse__host_geometry g = copse__host_geometry_of(call, copse__host_output(call, 0),
                                                     copse__host_input(call, 0));
    copse__host_convolve_back(call, &g, call->in[0], call->in[1], call->workspace,
                              call->out[0]);
}

typedef struct filter_gradient {
    copse__host_geometry g;
    const float *x, *dy;
    float *dw;
    size_t row_blocks, column_blocks;
} filter_gradient;

/* The outputs [*begin, *end) of a row whose tap s lies inside the image. */
static void inside_range(const copse__host_geometry *g, size_t s, size_t *begin,
                         size_t *end) {
    const copse__window *win = &g->window;
    size_t w;
    *begin = 0;
    while (*begin < g->q && !copse__host_tap(*begin, win->stride_w, s, win->dilation_w,
                                             win->pad_left, g->w, &w))
        ++*begin;
    *end = *begin;
    while (*end < g->q && copse__host_tap(*end, win->stride_w, s, win->dilation_w,
                                          win->pad_left, g->w, &w))
        ++*end;
}

static void filter_block(const filter_gradient *v, size_t r, size_t s, size_t c0,
                         size_t f0) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    size_t rows = copse__min_size(COPSE__HOST_ROWS, g->c - c0);
    size_t columns = copse__min_size(COPSE__HOST_COLUMNS, g->f - f0);
    size_t q0, q1;
    inside_range(g, s, &q0, &q1);
    copse__host_block block;
    copse__host_block_clear(&block);
    for (size_t i = 0; i < g->n * g->p && q0 < q1; i++) {
        size_t n = i / g->p, h;
        if (!copse__host_tap(i % g->p, win->stride_h, r, win->dilation_h, win->pad_top,
                             g->h, &h))
            continue;
        size_t w = q0 * win->stride_w + s * win->dilation_w - win->pad_left;
        const float *a[COPSE__HOST_ROWS] = {NULL};
        for (size_t j = 0; j < rows; j++)
            a[j] = v->x + ((n * g->h + h) * g->w + w) * g->c + c0 + j;
        copse__host_block_add(&block, a, win->stride_w * g->c,
                              v->dy + (i * g->q + q0) * g->f + f0, g->f, q1 - q0,
                              columns);
    }
    store_block(v->dw + ((r * win->kernel_w + s) * g->c + c0) * g->f + f0, g->f, &block,
                rows, columns, NULL, COPSE__ACT_NONE);
}

static void filter_body(const void *context, size_t begin, size_t end) {
    const filter_gradient *v = context;
    for (size_t i = begin; i < end; i++) {
        size_t tap = i / (v->row_blocks * v->column_blocks);
        size_t block = i % (v->row_blocks * v->column_blocks);
        filter_block(v, tap / v->g.window.kernel_w, tap % v->g.window.kernel_w,
                     block / v->column_blocks * COPSE__HOST_ROWS,
                     block % v->column_blocks * COPSE__HOST_COLUMNS);
    }
}

void copse__host_correlate(const copse__host_call *call, const copse__host_geometry *g,
                           const float *x, const float *dy, float *dw) {
    filter_gradient v = {.g = *g, .x = x, .dy = dy, .dw = dw};
    v.row_blocks = (v.g.c + COPSE__HOST_ROWS - 1) / COPSE__HOST_ROWS;
    v.column_blocks = (v.g.f + COPSE__HOST_COLUMNS - 1) / COPSE__HOST_COLUMNS;
    copse__host_for(call, taps(&v.g.window) * v.row_blocks * v.column_blocks,
                    2 * COPSE__HOST_ROWS * COPSE__HOST_COLUMNS * v.g.n * v.g.p * v.g.q,
                    filter_body, &v);
}

void copse__host_conv2d_grad_filter(const copse__host_call *call) {
    copse__host_geometry g = copse__host_geometry_of(call, copse__host_input(call, 0),
                                                     copse__host_input(call, 1));
    copse__host_correlate(call, &g, call->in[0], call->in[1], call->out[0]);
}
