/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/selftest/cases.h"
#include "base/mem.h"

/* Images, height, width, channels, filters; the window; same or valid padding. */
static const struct {
    size_t n, h, w, c, f;
    size_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    bool same;
    copse__activation act;
    unsigned levels;
} shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, false, COPSE__ACT_NONE, COPSE__IN_MOST},
    {2, 5, 7, 3, 4, 3, 3, 1, 1, 1, 1, false, COPSE__ACT_RELU, COPSE__IN_ALL},
    {3, 5, 7, 2, 3, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_SIGMOID, COPSE__IN_MOST},
    {2, 8, 7, 2, 3, 3, 3, 2, 2, 1, 1, true, COPSE__ACT_NONE, COPSE__IN_MOST},
    {2, 9, 9, 1, 2, 3, 3, 1, 1, 2, 2, false, COPSE__ACT_TANH, COPSE__IN_MOST},
    {2, 7, 9, 2, 5, 3, 5, 1, 1, 2, 2, true, COPSE__ACT_GELU, COPSE__IN_FULL},
    {2, 6, 6, 3, 2, 2, 1, 3, 2, 1, 1, false, COPSE__ACT_NONE, COPSE__IN_FULL},
    {2, 4, 5, 33, 31, 1, 1, 1, 1, 1, 1, false, COPSE__ACT_RELU, COPSE__IN_FULL},
    {2, 9, 9, 16, 32, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_RELU, COPSE__IN_MOST},
    {1, 12, 11, 32, 65, 3, 3, 1, 1, 1, 1, false, COPSE__ACT_RELU, COPSE__IN_FULL},
    {1, 13, 14, 9, 8, 7, 7, 2, 2, 1, 1, true, COPSE__ACT_NONE, COPSE__IN_FULL},
    {2, 2, 3, 4, 5, 5, 5, 1, 1, 1, 1, true, COPSE__ACT_NONE, COPSE__IN_FULL},
    {9, 32, 32, 3, 32, 3, 3, 1, 1, 1, 1, false, COPSE__ACT_RELU, COPSE__IN_FULL},
    {9, 28, 28, 1, 32, 3, 3, 1, 1, 1, 1, false, COPSE__ACT_RELU, COPSE__IN_FULL},
    {1031, 4, 4, 1, 2, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_RELU, COPSE__IN_FULL},
    /* whole vectors of channels: what Winograd's algorithm takes */
    {1, 1, 1, 16, 16, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_NONE, COPSE__IN_ALL},
    {2, 3, 6, 16, 48, 3, 3, 1, 1, 1, 1, false, COPSE__ACT_SIGMOID, COPSE__IN_MOST},
    {3, 10, 7, 32, 16, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_TANH, COPSE__IN_FULL},
    {2, 5, 5, 208, 32, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_GELU, COPSE__IN_FULL},
    {37, 9, 9, 48, 64, 3, 3, 1, 1, 1, 1, true, COPSE__ACT_RELU, COPSE__IN_FULL},
};

/* One side of a window: output size and first pad, as Keras resolves them. */
static size_t resolve(size_t size, size_t kernel, size_t stride, size_t dilation,
                      bool same, size_t *pad) {
    size_t reach = (kernel - 1) * dilation + 1;
    *pad = 0;
    if (!same)
        return (size - reach) / stride + 1;
    size_t outputs = (size + stride - 1) / stride,
           covered = (outputs - 1) * stride + reach;
    *pad = covered > size ? (covered - size) / 2 : 0;
    return outputs;
}

static void one_shape(copse__case_sink *sink, size_t i) {
    size_t n = shapes[i].n, c = shapes[i].c, f = shapes[i].f;
    copse__window win = {.kernel_h = shapes[i].kernel_h,
                         .kernel_w = shapes[i].kernel_w,
                         .stride_h = shapes[i].stride_h,
                         .stride_w = shapes[i].stride_w,
                         .dilation_h = shapes[i].dilation_h,
                         .dilation_w = shapes[i].dilation_w};
    size_t p = resolve(shapes[i].h, win.kernel_h, win.stride_h, win.dilation_h,
                       shapes[i].same, &win.pad_top);
    size_t q = resolve(shapes[i].w, win.kernel_w, win.stride_w, win.dilation_w,
                       shapes[i].same, &win.pad_left);
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__node_operand image =
        COPSE__CASE_ROWS(COPSE_F32, n, shapes[i].h, shapes[i].w, c);
    copse__node_operand map = COPSE__CASE_ROWS(COPSE_F32, n, p, q, f);
    copse__node_operand filter =
        COPSE__CASE_FIXED(COPSE_F32, win.kernel_h, win.kernel_w, c, f);
    copse__node_spec specs[] = {
        {.op = COPSE__OP_CONV2D, .in = {image, filter}, .out = {map}},
        {.op = COPSE__OP_CONV2D_GRAD_INPUT, .in = {map, filter}, .out = {image}},
        {.op = COPSE__OP_CONV2D_GRAD_FILTER, .in = {image, map}, .out = {filter}}};
    specs[0].attrs.act = shapes[i].act;
    if (shapes[i].act != COPSE__ACT_NONE)
        specs[0].in[2] = COPSE__CASE_FIXED(COPSE_F32, f);
    for (size_t s = 0; s < COPSE__COUNT(specs); s++) {
        copse__case made = {.spec = specs[s], .fill = {uniform, uniform, uniform}};
        made.spec.attrs.window = win;
        copse__case_batches(&made, n);
        copse__case_add(sink, &made,
                        "%zux%zux%zux%zu*%zux%zux%zu stride %zu,%zu dilation "
                        "%zu,%zu %s",
                        n, shapes[i].h, shapes[i].w, c, win.kernel_h, win.kernel_w, f,
                        win.stride_h, win.stride_w, win.dilation_h, win.dilation_w,
                        shapes[i].same ? "same" : "valid");
    }
}

/* With the map pooled by 2 x 2: its sides p and q are those that pooling sees. */
static const struct {
    size_t n, h, w, c, f, p, q;
    copse__window win;
    copse__activation act;
    unsigned levels;
} pooled[] = {
    {1, 2, 2, 1, 1, 2, 2, {1, 1, 1, 1, 1, 1, 0, 0}, COPSE__ACT_NONE, COPSE__IN_MOST},
    {2, 7, 9, 3, 4, 4, 6, {3, 3, 1, 1, 1, 1, 0, 0}, COPSE__ACT_RELU, COPSE__IN_ALL},
    {3, 6, 8, 1, 3, 6, 8, {3, 3, 1, 1, 1, 1, 1, 1}, COPSE__ACT_SIGMOID, COPSE__IN_MOST},
    {2, 9, 8, 1, 5, 4, 4, {3, 3, 2, 2, 1, 1, 1, 0}, COPSE__ACT_TANH, COPSE__IN_FULL},
    {2, 9, 9, 1, 2, 4, 4, {3, 3, 1, 1, 2, 2, 0, 0}, COPSE__ACT_GELU, COPSE__IN_FULL},
    {2, 8, 6, 5, 33, 8, 6, {1, 1, 1, 1, 1, 1, 0, 0}, COPSE__ACT_RELU, COPSE__IN_FULL},
    {5,
     12,
     12,
     16,
     32,
     10,
     10,
     {3, 3, 1, 1, 1, 1, 0, 0},
     COPSE__ACT_RELU,
     COPSE__IN_FULL},
    {1, 16, 14, 9, 8, 8, 6, {7, 7, 2, 2, 1, 1, 3, 3}, COPSE__ACT_NONE, COPSE__IN_FULL},
    {2,
     11,
     11,
     40,
     20,
     10,
     10,
     {3, 3, 1, 1, 1, 1, 1, 1},
     COPSE__ACT_RELU,
     COPSE__IN_FULL},
    {3, 8, 10, 5, 8, 8, 10, {3, 3, 1, 1, 1, 1, 1, 1}, COPSE__ACT_NONE, COPSE__IN_MOST},
    {2, 9, 13, 2, 16, 6, 10, {5, 5, 1, 1, 1, 1, 1, 1}, COPSE__ACT_NONE, COPSE__IN_MOST},
    {9, 32, 32, 3, 32, 30, 30, {3, 3, 1, 1, 1, 1, 0, 0}, COPSE__ACT_RELU, COPSE__IN_FULL},
    {9, 28, 28, 1, 64, 26, 26, {3, 3, 1, 1, 1, 1, 0, 0}, COPSE__ACT_RELU, COPSE__IN_FULL},
    {1031, 4, 4, 1, 2, 2, 2, {3, 3, 1, 1, 1, 1, 0, 0}, COPSE__ACT_RELU, COPSE__IN_FULL},
};

static void add_pooled(copse__case_sink *sink, copse__case *made, size_t i,
                       const char *what) {
    const copse__window *win = &pooled[i].win;
    made->spec.attrs.window = *win;
    made->spec.attrs.pool = (copse__window){2, 2, 2, 2, 1, 1, 0, 0};
    copse__case_batches(made, pooled[i].n);
    copse__case_add(sink, made, "%zux%zux%zux%zu*%zux%zux%zu stride %zu,%zu%s",
                    pooled[i].n, pooled[i].h, pooled[i].w, pooled[i].c, win->kernel_h,
                    win->kernel_w, pooled[i].f, win->stride_h, win->stride_w, what);
}

/* Forward with numbers whose sums are exact, so that maxima and ties are the same on all devices. */
static void one_pooled(copse__case_sink *sink, size_t i) {
    size_t n = pooled[i].n, c = pooled[i].c, f = pooled[i].f;
    const copse__window *win = &pooled[i].win;
    copse__node_operand image =
        COPSE__CASE_ROWS(COPSE_F32, n, pooled[i].h, pooled[i].w, c);
    copse__node_operand map =
        COPSE__CASE_ROWS(COPSE_F32, n, pooled[i].p / 2, pooled[i].q / 2, f);
    copse__node_operand filter =
        COPSE__CASE_FIXED(COPSE_F32, win->kernel_h, win->kernel_w, c, f);
    copse__node_operand bias = COPSE__CASE_FIXED(COPSE_F32, f), index = map;
    index.dtype = COPSE_U8;
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__fill steps = {.kind = COPSE__FILL_STEPS, .low = -0.5f, .high = 0.75f};
    copse__case made = {.spec = {.op = COPSE__OP_CONV2D_MAX_POOL,
                                 .attrs = {.act = pooled[i].act},
                                 .in = {image, filter, bias},
                                 .out = {map, index}},
                        .fill = {steps, steps, steps},
                        .measure = {COPSE__MEASURE_NEAR, COPSE__MEASURE_BITS}};
    add_pooled(sink, &made, i, " ties");
    made.run_count = 0;
    made.spec.in[2].present = false;
    made.fill[0].special = NAN;
    made.fill[0].special_every = 41;
    add_pooled(sink, &made, i, " NaN");
    made.run_count = 0;
    made.spec.out[1].present = false;
    made.fill[0] = made.fill[1] = uniform;
    add_pooled(sink, &made, i, " no index");

    copse__fill places = {.kind = COPSE__FILL_INDEX};
    made = (copse__case){.spec = {.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT,
                                  .in = {map, index, filter},
                                  .out = {image}},
                         .fill = {uniform, places, uniform}};
    add_pooled(sink, &made, i, "");
    made = (copse__case){.spec = {.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER,
                                  .in = {image, map, index},
                                  .out = {filter, bias}},
                         .fill = {uniform, uniform, places}};
    add_pooled(sink, &made, i, " bias");
    made.run_count = 0;
    made.spec.out[1].present = false;
    add_pooled(sink, &made, i, "");
}

void copse__cases_conv(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(shapes); i++)
        if (copse__case_wanted(sink, shapes[i].levels))
            one_shape(sink, i);
    for (size_t i = 0; i < COPSE__COUNT(pooled); i++)
        if (copse__case_wanted(sink, pooled[i].levels))
            one_pooled(sink, i);
}
