/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/op_run.h"

typedef struct shape {
    size_t planned, n, h, w, c, p, q, f;
    copse__window win;
} shape;

/* kernel, stride, dilation, pads (top, left); p and q as valid or same makes them. */
static const shape shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1, 1, 0, 0}},
    {2, 2, 5, 6, 3, 3, 4, 4, {3, 3, 1, 1, 1, 1, 0, 0}},
    {3, 2, 5, 7, 2, 5, 7, 3, {3, 3, 1, 1, 1, 1, 1, 1}},    /* same */
    {2, 1, 8, 7, 2, 4, 4, 3, {3, 3, 2, 2, 1, 1, 0, 1}},    /* same, stride 2, odd pads */
    {2, 2, 9, 9, 1, 5, 5, 2, {3, 3, 1, 1, 2, 2, 0, 0}},    /* dilation 2 */
    {2, 2, 7, 9, 2, 7, 9, 2, {3, 5, 1, 1, 2, 2, 2, 4}},    /* same, dilation 2 */
    {2, 2, 6, 6, 3, 2, 3, 2, {2, 1, 3, 2, 1, 1, 0, 0}},    /* places never read */
    {1, 1, 4, 20, 9, 4, 20, 33, {1, 1, 1, 1, 1, 1, 0, 0}}, /* across a block's edges */
    {1, 1, 3, 11, 8, 3, 11, 32, {3, 3, 1, 1, 1, 1, 1, 1}},
    {2, 0, 5, 5, 2, 3, 3, 2, {3, 3, 1, 1, 1, 1, 0, 0}},
};
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

typedef struct convolution {
    const shape *s;
    const double *x, *filter, *bias;
} convolution;

static double image_at(const shape *s, const double *x, size_t n, long h, long w,
                       size_t c) {
    if (h < 0 || w < 0 || h >= (long)s->h || w >= (long)s->w)
        return 0;
    return x[((n * s->h + (size_t)h) * s->w + (size_t)w) * s->c + c];
}

static void forward(const void *context, double *y) {
    const convolution *v = context;
    const shape *s = v->s;
    size_t at = 0;
    for (size_t n = 0; n < s->n; n++)
        for (size_t p = 0; p < s->p; p++)
            for (size_t q = 0; q < s->q; q++)
                for (size_t f = 0; f < s->f; f++) {
                    double sum = v->bias[f];
                    for (size_t r = 0; r < s->win.kernel_h; r++)
                        for (size_t t = 0; t < s->win.kernel_w; t++)
                            for (size_t c = 0; c < s->c; c++) {
                                long h =
                                    (long)(p * s->win.stride_h + r * s->win.dilation_h) -
                                    (long)s->win.pad_top;
                                long w =
                                    (long)(q * s->win.stride_w + t * s->win.dilation_w) -
                                    (long)s->win.pad_left;
                                sum += image_at(s, v->x, n, h, w, c) *
                                       v->filter[((r * s->win.kernel_w + t) * s->c + c) *
                                                     s->f +
                                                 f];
                            }
                    y[at++] = sum;
                }
}

typedef struct data {
    size_t x_count, filter_count, y_count;
    float *x, *filter, *bias, *dy, *got;
    double *xd, *filterd, *biasd, *dyd, *want;
} data;

static data make_data(const shape *s) {
    data d = {.x_count = s->n * s->h * s->w * s->c,
              .filter_count = s->win.kernel_h * s->win.kernel_w * s->c * s->f,
              .y_count = s->n * s->p * s->q * s->f};
    size_t most = d.x_count + d.filter_count + d.y_count;
    d.x = checked_malloc(d.x_count * sizeof(float));
    d.filter = checked_malloc(d.filter_count * sizeof(float));
    d.bias = checked_malloc(s->f * sizeof(float));
    d.dy = checked_malloc(d.y_count * sizeof(float));
    d.got = checked_malloc(most * sizeof(float));
    d.want = checked_malloc(most * sizeof(double));
    fill_uniform(d.x, d.x_count, 1, -1, 1);
    fill_uniform(d.filter, d.filter_count, 2, -1, 1);
    fill_uniform(d.bias, s->f, 3, -1, 1);
    fill_uniform(d.dy, d.y_count, 4, -1, 1);
    d.xd = to_double(d.x, d.x_count);
    d.filterd = to_double(d.filter, d.filter_count);
    d.biasd = to_double(d.bias, s->f);
    d.dyd = to_double(d.dy, d.y_count);
    return d;
}

static void free_data(data *d) {
    free(d->x), free(d->filter), free(d->bias), free(d->dy), free(d->got);
    free(d->xd), free(d->filterd), free(d->biasd), free(d->dyd), free(d->want);
}

static copse__node_operand image(const shape *s) {
    return BATCHED(COPSE_F32, s->planned, s->h, s->w, s->c);
}

static copse__node_operand map(const shape *s) {
    return BATCHED(COPSE_F32, s->planned, s->p, s->q, s->f);
}

static copse__node_operand filter(const shape *s) {
    return FIXED(COPSE_F32, s->win.kernel_h, s->win.kernel_w, s->c, s->f);
}

START_TEST(test_conv2d_shapes_match_double_loops) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const shape *s = &shapes[i];
        data d = make_data(s);
        convolution v = {s, d.xd, d.filterd, d.biasd};
        copse_error error = {0};
        copse__node_spec spec = {.op = COPSE__OP_CONV2D,
                                 .attrs = {.act = COPSE__ACT_SIGMOID, .window = s->win},
                                 .in = {image(s), filter(s), FIXED(COPSE_F32, s->f)},
                                 .out = {map(s)}};
        ASSERT_OK(run_op(device, &spec, s->n, NULL,
                         (const void *[8]){d.x, d.filter, d.bias}, (void *[4]){d.got},
                         &error));
        forward(&v, d.want);
        for (size_t j = 0; j < d.y_count; j++)
            d.want[j] = 1 / (1 + exp(-d.want[j]));
        ck_assert_msg(worst_error(d.got, d.want, d.y_count) < 1e-6, "shape %zu", i);
        free_data(&d);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_conv2d_gradients_match_central_differences) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const shape *s = &shapes[i];
        data d = make_data(s);
        convolution v = {s, d.xd, d.filterd, d.biasd};
        copse_error error = {0};
        copse__node_spec spec = {.op = COPSE__OP_CONV2D_GRAD_INPUT,
                                 .attrs = {.window = s->win},
                                 .in = {map(s), filter(s)},
                                 .out = {image(s)}};
        ASSERT_OK(run_op(device, &spec, s->n, NULL, (const void *[8]){d.dy, d.filter},
                         (void *[4]){d.got}, &error));
        central_differences(d.want, d.xd, d.x_count, d.dyd, d.y_count, forward, &v);
        ck_assert_msg(worst_error(d.got, d.want, d.x_count) < 1e-6, "shape %zu", i);
        spec = (copse__node_spec){.op = COPSE__OP_CONV2D_GRAD_FILTER,
                                  .attrs = {.window = s->win},
                                  .in = {image(s), map(s)},
                                  .out = {filter(s)}};
        ASSERT_OK(run_op(device, &spec, s->n, NULL, (const void *[8]){d.x, d.dy},
                         (void *[4]){d.got}, &error));
        central_differences(d.want, d.filterd, d.filter_count, d.dyd, d.y_count, forward,
                            &v);
        ck_assert_msg(worst_error(d.got, d.want, d.filter_count) < 1e-6, "shape %zu", i);
        free_data(&d);
    }
    copse__device_close(device);
}
END_TEST

/* An infinite weight times padding would be NaN: padding takes no part at all. */
START_TEST(test_conv2d_padding_is_not_multiplied) {
    copse__device *device = open_host(1);
    float x[4] = {1, 1, 1, 1}, y[4];
    float w[9] = {INFINITY, 0, 0, 0, 1, 0, 0, 0, 0};
    copse_error error = {0};
    copse__node_spec spec = {
        .op = COPSE__OP_CONV2D,
        .attrs = {.window = {3, 3, 1, 1, 1, 1, 1, 1}},
        .in = {BATCHED(COPSE_F32, 1, 2, 2, 1), FIXED(COPSE_F32, 3, 3, 1, 1)},
        .out = {BATCHED(COPSE_F32, 1, 2, 2, 1)}};
    ASSERT_OK(
        run_op(device, &spec, 1, NULL, (const void *[8]){x, w}, (void *[4]){y}, &error));
    ck_assert_float_eq(y[0], 1.0f);
    ck_assert(isinf(y[3]));
    copse__device_close(device);
}
END_TEST

/* Images, sides, channels, filters; window; the map's sides; pooling; the pooled map's sides. */
static const struct {
    size_t n, h, w, c, f;
    copse__window win;
    size_t p, q;
    copse__window pool;
    size_t pp, pq;
} pooled[] = {
    {2, 8, 7, 2, 3, {3, 3, 1, 1, 1, 1, 0, 0}, 6, 5, {2, 2, 2, 2, 1, 1, 0, 0}, 3, 2},
    {2, 9, 9, 3, 4, {3, 3, 1, 1, 1, 1, 1, 1}, 9, 9, {3, 3, 2, 2, 1, 1, 0, 0}, 4, 4},
    {1, 9, 8, 1, 5, {3, 3, 2, 2, 1, 1, 1, 0}, 5, 4, {2, 3, 1, 1, 2, 1, 0, 0}, 3, 2},
};

static void run_two(copse__device *device, const copse__node_spec *first,
                    const copse__node_spec *second, size_t n, const void *in[8],
                    float *between, const void *in_second[8], void *out[4]) {
    copse_error error = {0};
    ASSERT_OK(run_op(device, first, n, NULL, in, (void *[4]){between}, &error));
    ASSERT_OK(run_op(device, second, n, NULL, in_second, out, &error));
}

/* Each fused operation has the bits of the two that it is made of. */
START_TEST(test_conv2d_max_pool_is_both_operations) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < sizeof pooled / sizeof pooled[0]; i++) {
        size_t n = pooled[i].n, c = pooled[i].c, f = pooled[i].f;
        const copse__window win = pooled[i].win, pool = pooled[i].pool;
        copse__node_operand image = BATCHED(COPSE_F32, n, pooled[i].h, pooled[i].w, c);
        copse__node_operand map = BATCHED(COPSE_F32, n, pooled[i].p, pooled[i].q, f);
        copse__node_operand y = BATCHED(COPSE_F32, n, pooled[i].pp, pooled[i].pq, f);
        copse__node_operand index = BATCHED(COPSE_U8, n, pooled[i].pp, pooled[i].pq, f);
        copse__node_operand filter = FIXED(COPSE_F32, win.kernel_h, win.kernel_w, c, f);
        copse__node_operand bias = FIXED(COPSE_F32, f);
        enum { MOST = 2 * 9 * 9 * 5 };
        float x[MOST], w[MOST], b[8], dy[MOST], between[MOST], got[MOST], want[MOST];
        float got_bias[8], want_bias[8];
        uint8_t got_index[MOST], want_index[MOST];
        fill_uniform(x, MOST, 1, -1, 1);
        fill_uniform(w, MOST, 2, -1, 1);
        fill_uniform(b, 8, 3, -1, 1);
        fill_uniform(dy, MOST, 4, -1, 1);
        size_t y_count = n * pooled[i].pp * pooled[i].pq * f;
        copse_error error = {0};

        copse__node_spec conv = {.op = COPSE__OP_CONV2D,
                                 .attrs = {.act = COPSE__ACT_RELU, .window = win},
                                 .in = {image, filter, bias},
                                 .out = {map}};
        copse__node_spec max = {.op = COPSE__OP_MAX_POOL2D,
                                .attrs = {.window = pool},
                                .in = {map},
                                .out = {y, index}};
        copse__node_spec both = {
            .op = COPSE__OP_CONV2D_MAX_POOL,
            .attrs = {.act = COPSE__ACT_RELU, .window = win, .pool = pool},
            .in = {image, filter, bias},
            .out = {y, index}};
        run_two(device, &conv, &max, n, (const void *[8]){x, w, b}, between,
                (const void *[8]){between}, (void *[4]){want, want_index});
        ASSERT_OK(run_op(device, &both, n, NULL, (const void *[8]){x, w, b},
                         (void *[4]){got, got_index}, &error));
        ck_assert_mem_eq(got, want, y_count * sizeof *got);
        ck_assert_mem_eq(got_index, want_index, y_count);

        copse__node_spec unpool = {.op = COPSE__OP_MAX_POOL2D_GRAD,
                                   .attrs = {.window = pool},
                                   .in = {y, index},
                                   .out = {map}};
        copse__node_spec input = {.op = COPSE__OP_CONV2D_GRAD_INPUT,
                                  .attrs = {.window = win},
                                  .in = {map, filter},
                                  .out = {image}};
        both = (copse__node_spec){.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT,
                                  .attrs = {.window = win, .pool = pool},
                                  .in = {y, index, filter},
                                  .out = {image}};
        run_two(device, &unpool, &input, n, (const void *[8]){dy, want_index}, between,
                (const void *[8]){between, w}, (void *[4]){want});
        ASSERT_OK(run_op(device, &both, n, NULL, (const void *[8]){dy, want_index, w},
                         (void *[4]){got}, &error));
        ck_assert_mem_eq(got, want, n * pooled[i].h * pooled[i].w * c * sizeof *got);

        copse__node_spec correlate = {.op = COPSE__OP_CONV2D_GRAD_FILTER,
                                      .attrs = {.window = win},
                                      .in = {image, map},
                                      .out = {filter}};
        copse__node_spec sum = {.op = COPSE__OP_BIAS_GRAD, .in = {y}, .out = {bias}};
        both = (copse__node_spec){.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER,
                                  .attrs = {.window = win, .pool = pool},
                                  .in = {image, y, index},
                                  .out = {filter, bias}};
        ASSERT_OK(run_op(device, &correlate, n, NULL, (const void *[8]){x, between},
                         (void *[4]){want}, &error));
        ASSERT_OK(run_op(device, &sum, n, NULL, (const void *[8]){dy},
                         (void *[4]){want_bias}, &error));
        ASSERT_OK(run_op(device, &both, n, NULL, (const void *[8]){x, dy, want_index},
                         (void *[4]){got, got_bias}, &error));
        ck_assert_mem_eq(got, want, win.kernel_h * win.kernel_w * c * f * sizeof *got);
        ck_assert_mem_eq(got_bias, want_bias, f * sizeof *got_bias);
    }
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_conv");
    ADD_TEST(suite, test_conv2d_shapes_match_double_loops);
    ADD_TEST(suite, test_conv2d_gradients_match_central_differences);
    ADD_TEST(suite, test_conv2d_padding_is_not_multiplied);
    ADD_TEST(suite, test_conv2d_max_pool_is_both_operations);
    return run_suite(suite);
}
