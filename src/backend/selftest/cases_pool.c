/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/selftest/cases.h"
#include "base/mem.h"

static const struct {
    size_t n, h, w, c, p, q;
    copse__window win; /* kernel, stride, dilation, pads of the top and left */
    unsigned levels;
} shapes[] = {
    {1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1, 1, 0, 0}, COPSE__IN_MOST},
    {3, 6, 8, 3, 3, 4, {2, 2, 2, 2, 1, 1, 0, 0}, COPSE__IN_ALL},
    {2, 7, 7, 5, 3, 3, {2, 2, 2, 2, 1, 1, 0, 0}, COPSE__IN_MOST},
    {2, 7, 5, 2, 4, 3, {3, 3, 2, 2, 1, 1, 1, 1}, COPSE__IN_MOST},
    {2, 5, 5, 65, 3, 3, {3, 3, 1, 1, 1, 1, 0, 0}, COPSE__IN_FULL},
    {2, 6, 6, 4, 4, 4, {2, 2, 1, 1, 2, 2, 0, 0}, COPSE__IN_FULL},
    {2, 5, 9, 2, 2, 2, {2, 3, 3, 4, 1, 1, 0, 0}, COPSE__IN_FULL},
    {1, 18, 18, 1, 2, 2, {17, 17, 1, 1, 1, 1, 0, 0}, COPSE__IN_FULL},
    {7, 30, 30, 32, 15, 15, {2, 2, 2, 2, 1, 1, 0, 0}, COPSE__IN_FULL},
    {4099, 4, 4, 3, 2, 2, {2, 2, 2, 2, 1, 1, 0, 0}, COPSE__IN_FULL},
};

static void add(copse__case_sink *sink, copse__case *made, size_t i, const char *what) {
    const copse__window *win = &shapes[i].win;
    made->spec.attrs.window = *win;
    copse__case_batches(made, shapes[i].n);
    copse__case_add(sink, made, "%zux%zux%zux%zu/%zux%zu stride %zu,%zu%s", shapes[i].n,
                    shapes[i].h, shapes[i].w, shapes[i].c, win->kernel_h, win->kernel_w,
                    win->stride_h, win->stride_w, what);
}

static void one_shape(copse__case_sink *sink, size_t i) {
    const copse__window *win = &shapes[i].win;
    copse__node_operand image =
        COPSE__CASE_ROWS(COPSE_F32, shapes[i].n, shapes[i].h, shapes[i].w, shapes[i].c);
    copse__node_operand map =
        COPSE__CASE_ROWS(COPSE_F32, shapes[i].n, shapes[i].p, shapes[i].q, shapes[i].c);
    copse__node_operand index = map;
    index.dtype = win->kernel_h * win->kernel_w > 255 ? COPSE_I32 : COPSE_U8;
    copse__fill uniform = copse__case_uniform(-1, 1);
    /* All below zero, so that padding taken for zero would win; often equal. */
    copse__fill ties = {.kind = COPSE__FILL_STEPS, .low = -2, .high = -0.5f};

    copse__case made = {
        .spec = {.op = COPSE__OP_MAX_POOL2D, .in = {image}, .out = {map, index}},
        .fill = {ties},
        .measure = {COPSE__MEASURE_NEAR, COPSE__MEASURE_BITS}};
    add(sink, &made, i, " ties");
    made.run_count = 0;
    made.fill[0] = (copse__fill){.kind = COPSE__FILL_UNIFORM,
                                 .low = -1,
                                 .high = 1,
                                 .special = NAN,
                                 .special_every = 5};
    add(sink, &made, i, " NaN");
    made.run_count = 0;
    made.spec.out[1].present = false;
    made.fill[0] = uniform;
    add(sink, &made, i, " no index");

    made = (copse__case){
        .spec = {.op = COPSE__OP_MAX_POOL2D_GRAD, .in = {map, index}, .out = {image}},
        .fill = {uniform, {.kind = COPSE__FILL_INDEX}}};
    add(sink, &made, i, "");
    made =
        (copse__case){.spec = {.op = COPSE__OP_AVG_POOL2D, .in = {image}, .out = {map}},
                      .fill = {uniform}};
    add(sink, &made, i, "");
    made = (copse__case){
        .spec = {.op = COPSE__OP_AVG_POOL2D_GRAD, .in = {map}, .out = {image}},
        .fill = {uniform}};
    add(sink, &made, i, "");
}

static const struct {
    size_t n, h, w, c;
    unsigned levels;
} images[] = {
    {1, 1, 1, 1, COPSE__IN_MOST},     {3, 4, 5, 7, COPSE__IN_ALL},
    {2, 8, 8, 64, COPSE__IN_FULL},    {2, 7, 7, 65, COPSE__IN_MOST},
    {1, 257, 129, 3, COPSE__IN_FULL}, {5003, 2, 2, 3, COPSE__IN_FULL},
};

static void one_image(copse__case_sink *sink, size_t i) {
    size_t n = images[i].n, c = images[i].c;
    copse__node_operand image =
        COPSE__CASE_ROWS(COPSE_F32, n, images[i].h, images[i].w, c);
    copse__node_operand pooled = COPSE__CASE_ROWS(COPSE_F32, n, c);
    copse__case made = {
        .spec = {.op = COPSE__OP_GLOBAL_AVG_POOL, .in = {image}, .out = {pooled}},
        .fill = {copse__case_uniform(-1, 1)}};
    copse__case_batches(&made, n);
    copse__case_add(sink, &made, "%zux%zux%zux%zu", n, images[i].h, images[i].w, c);
    made.spec = (copse__node_spec){
        .op = COPSE__OP_GLOBAL_AVG_POOL_GRAD, .in = {pooled}, .out = {image}};
    copse__case_add(sink, &made, "%zux%zux%zux%zu", n, images[i].h, images[i].w, c);
}

void copse__cases_pool(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(shapes); i++)
        if (copse__case_wanted(sink, shapes[i].levels))
            one_shape(sink, i);
    for (size_t i = 0; i < COPSE__COUNT(images); i++)
        if (copse__case_wanted(sink, images[i].levels))
            one_image(sink, i);
}
