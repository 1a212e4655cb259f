/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/host/conv.h"
#include "base/mem.h"

/* Channels handled together: they are neighbours in memory. */
enum { LANES = 64 };

typedef struct pooling {
    copse__host_geometry g;
    const float *from;
    float *to;
    void *index; /* u8 or i32, as wide_index says; NULL: none */
    bool wide_index;
} pooling;

static void store_index(const pooling *v, size_t at, size_t place) {
    if (v->index && v->wide_index)
        ((int32_t *)v->index)[at] = (int32_t)place;
    else if (v->index)
        ((uint8_t *)v->index)[at] = (uint8_t)place;
}

static size_t load_index(const pooling *v, size_t at) {
    return v->wide_index ? (size_t)((const int32_t *)v->index)[at]
                         : ((const uint8_t *)v->index)[at];
}

/* The first largest value of a window; a NaN is larger than any number, as nothing may
 * hide it. */
static bool beats(float candidate, float best) {
    return candidate > best || (isnan(candidate) && !isnan(best));
}

static void max_place(const pooling *v, size_t n, size_t p, size_t q, size_t c0,
                      size_t lanes) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    float best[LANES];
    size_t place[LANES];
    bool any = false;
    for (size_t r = 0; r < win->kernel_h; r++) {
        for (size_t s = 0; s < win->kernel_w; s++) {
            size_t h, w;
            if (!copse__host_tap(p, win->stride_h, r, win->dilation_h, win->pad_top, g->h,
                                 &h) ||
                !copse__host_tap(q, win->stride_w, s, win->dilation_w, win->pad_left,
                                 g->w, &w))
                continue;
            const float *x = v->from + ((n * g->h + h) * g->w + w) * g->c + c0;
            for (size_t c = 0; c < lanes; c++) {
                if (any && !beats(x[c], best[c]))
                    continue;
                best[c] = x[c];
                place[c] = r * win->kernel_w + s;
            }
            any = true;
        }
    }
    size_t at = ((n * g->p + p) * g->q + q) * g->c + c0;
    for (size_t c = 0; c < lanes; c++) {
        v->to[at + c] = best[c];
        store_index(v, at + c, place[c]);
    }
}

static void max_body(const void *context, size_t begin, size_t end) {
    const pooling *v = context;
    for (size_t i = begin; i < end; i++)
        for (size_t q = 0; q < v->g.q; q++)
            for (size_t c0 = 0; c0 < v->g.c; c0 += LANES)
                max_place(v, i / v->g.p, i % v->g.p, q, c0,
                          copse__min_size(LANES, v->g.c - c0));
}

static size_t row_cost(const copse__host_geometry *g) {
    return g->w * g->c * g->window.kernel_h * g->window.kernel_w;
}

void copse__host_pool(const copse__host_call *call, const copse__host_geometry *g,
                      const float *x, float *y, void *index, copse_dtype index_type) {
    pooling v = {.g = *g,
                 .from = x,
                 .to = y,
                 .index = index,
                 .wide_index = index_type == COPSE_I32};
    copse__host_for(call, v.g.n * v.g.p, row_cost(&v.g), max_body, &v);
}

void copse__host_max_pool2d(const copse__host_call *call) {
    const copse__tensor *index = copse__host_output(call, 1);
    copse__host_geometry g = copse__host_geometry_of(call, copse__host_input(call, 0),
                                                     copse__host_output(call, 0));
    copse__host_pool(call, &g, call->in[0], call->out[0], call->out[1],
                     index ? index->dtype : COPSE_U8);
}

/* Adds to sum what the windows over image place (h, w) send back: in order of p, then q.
 * Taps run downwards as then the output places run upwards. */
static void gather_place(const pooling *v, size_t n, size_t h, size_t w, size_t c0,
                         size_t lanes, double *sum,
                         void (*add)(const pooling *v, size_t p, size_t q, size_t at,
                                     size_t tap, size_t lanes, double *sum)) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    for (size_t r = win->kernel_h; r-- > 0;) {
        size_t p, q;
        if (!copse__host_untap(h, win->stride_h, r, win->dilation_h, win->pad_top, g->p,
                               &p))
            continue;
        for (size_t s = win->kernel_w; s-- > 0;)
            if (copse__host_untap(w, win->stride_w, s, win->dilation_w, win->pad_left,
                                  g->q, &q))
                add(v, p, q, ((n * g->p + p) * g->q + q) * g->c + c0,
                    r * win->kernel_w + s, lanes, sum);
    }
}

static void add_max(const pooling *v, size_t p, size_t q, size_t at, size_t tap,
                    size_t lanes, double *sum) {
    (void)p;
    (void)q;
    for (size_t c = 0; c < lanes; c++)
        if (load_index(v, at + c) == tap)
            sum[c] += (double)v->from[at + c];
}

/* Places of output (p, q) that lie inside the image. */
static size_t inside(const copse__host_geometry *g, size_t p, size_t q) {
    const copse__window *win = &g->window;
    size_t rows = 0, columns = 0, place;
    for (size_t r = 0; r < win->kernel_h; r++)
        rows += copse__host_tap(p, win->stride_h, r, win->dilation_h, win->pad_top, g->h,
                                &place);
    for (size_t s = 0; s < win->kernel_w; s++)
        columns += copse__host_tap(q, win->stride_w, s, win->dilation_w, win->pad_left,
                                   g->w, &place);
    return rows * columns;
}

static void add_average(const pooling *v, size_t p, size_t q, size_t at, size_t tap,
                        size_t lanes, double *sum) {
    (void)tap;
    double count = (double)inside(&v->g, p, q);
    for (size_t c = 0; c < lanes; c++)
        sum[c] += (double)v->from[at + c] / count;
}

static void gather_row(const pooling *v, size_t i,
                       void (*add)(const pooling *v, size_t p, size_t q, size_t at,
                                   size_t tap, size_t lanes, double *sum)) {
    const copse__host_geometry *g = &v->g;
    for (size_t w = 0; w < g->w; w++) {
        for (size_t c0 = 0; c0 < g->c; c0 += LANES) {
            size_t lanes = copse__min_size(LANES, g->c - c0);
            double sum[LANES] = {0};
            gather_place(v, i / g->h, i % g->h, w, c0, lanes, sum, add);
            float *to = v->to + (i * g->w + w) * g->c + c0;
            for (size_t c = 0; c < lanes; c++)
                to[c] = (float)sum[c];
        }
    }
}

static void max_grad_body(const void *context, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        gather_row(context, i, add_max);
}

void copse__host_unpool(const copse__host_call *call, const copse__host_geometry *g,
                        const float *dy, void *index, copse_dtype index_type, float *dx) {
    pooling v = {.g = *g,
                 .from = dy,
                 .to = dx,
                 .index = index,
                 .wide_index = index_type == COPSE_I32};
    copse__host_for(call, v.g.n * v.g.h, row_cost(&v.g), max_grad_body, &v);
}

void copse__host_max_pool2d_grad(const copse__host_call *call) {
    copse__host_geometry g = copse__host_geometry_of(call, copse__host_output(call, 0),
                                                     copse__host_input(call, 0));
    copse__host_unpool(call, &g, call->in[0], call->in[1],
                       copse__host_input(call, 1)->dtype, call->out[0]);
}

static void average_place(const pooling *v, size_t n, size_t p, size_t q, size_t c0,
                          size_t lanes) {
    const copse__host_geometry *g = &v->g;
    const copse__window *win = &g->window;
    double sum[LANES] = {0};
    for (size_t r = 0; r < win->kernel_h; r++) {
        for (size_t s = 0; s < win->kernel_w; s++) {
            size_t h, w;
            if (!copse__host_tap(p, win->stride_h, r, win->dilation_h, win->pad_top, g->h,
                                 &h) ||
                !copse__host_tap(q, win->stride_w, s, win->dilation_w, win->pad_left,
                                 g->w, &w))
                continue;
            const float *x = v->from + ((n * g->h + h) * g->w + w) * g->c + c0;
            for (size_t c = 0; c < lanes; c++)
                sum[c] += (double)x[c];
        }
    }
    double count = (double)inside(g, p, q);
    float *to = v->to + ((n * g->p + p) * g->q + q) * g->c + c0;
    for (size_t c = 0; c < lanes; c++)
        to[c] = (float)(sum[c] / count);
}

static void average_body(const void *context, size_t begin, size_t end) {
    const pooling *v = context;
    for (size_t i = begin; i < end; i++)
        for (size_t q = 0; q < v->g.q; q++)
            for (size_t c0 = 0; c0 < v->g.c; c0 += LANES)
                average_place(v, i / v->g.p, i % v->g.p, q, c0,
                              copse__min_size(LANES, v->g.c - c0));
}

void copse__host_avg_pool2d(const copse__host_call *call) {
    pooling v = {.g = copse__host_geometry_of(call, copse__host_input(call, 0),
                                              copse__host_output(call, 0)),
                 .from = call->in[0],
                 .to = call->out[0]};
    copse__host_for(call, v.g.n * v.g.p, row_cost(&v.g), average_body, &v);
}

static void average_grad_body(const void *context, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++)
        gather_row(context, i, add_average);
}

void copse__host_avg_pool2d_grad(const copse__host_call *call) {
    pooling v = {.g = copse__host_geometry_of(call, copse__host_output(call, 0),
                                              copse__host_input(call, 0)),
                 .from = call->in[0],
                 .to = call->out[0]};
    copse__host_for(call, v.g.n * v.g.h, row_cost(&v.g), average_grad_body, &v);
}

typedef struct global_pool {
    const float *from;
    float *to;
    size_t places, channels;
} global_pool;

static global_pool global_pool_of(const copse__host_call *call,
                                  const copse__tensor *image) {
    return (global_pool){.from = call->in[0],
                         .to = call->out[0],
                         .places = image->dim[1].size * image->dim[2].size,
                         .channels = image->dim[3].size};
}

static void global_body(const void *context, size_t begin, size_t end) {
    const global_pool *v = context;
    for (size_t n = begin; n < end; n++) {
        for (size_t c0 = 0; c0 < v->channels; c0 += LANES) {
            size_t lanes = copse__min_size(LANES, v->channels - c0);
            double sum[LANES] = {0};
            for (size_t i = 0; i < v->places; i++)
                for (size_t c = 0; c < lanes; c++)
                    sum[c] += (double)v->from[(n * v->places + i) * v->channels + c0 + c];
            for (size_t c = 0; c < lanes; c++)
                v->to[n * v->channels + c0 + c] = (float)(sum[c] / (double)v->places);
        }
    }
}

void copse__host_global_avg_pool(const copse__host_call *call) {
    global_pool v = global_pool_of(call, copse__host_input(call, 0));
    copse__host_for(call, copse__host_output_rows(call, 0), v.places * v.channels,
                    global_body, &v);
}

static void global_grad_body(const void *context, size_t begin, size_t end) {
    const global_pool *v = context;
    for (size_t n = begin; n < end; n++)
        for (size_t i = 0; i < v->places; i++)
            for (size_t c = 0; c < v->channels; c++)
                v->to[(n * v->places + i) * v->channels + c] =
                    (float)((double)v->from[n * v->channels + c] / (double)v->places);
}

void copse__host_global_avg_pool_grad(const copse__host_call *call) {
    global_pool v = global_pool_of(call, copse__host_output(call, 0));
    copse__host_for(call, copse__host_input_rows(call, 0), v.places * v.channels,
                    global_grad_body, &v);
}
