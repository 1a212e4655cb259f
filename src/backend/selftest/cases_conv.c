/* SPDX-License-Identifier: Apache-2.0 */
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

void copse__cases_conv(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(shapes); i++)
        if (copse__case_wanted(sink, shapes[i].levels))
            one_shape(sink, i);
}
