/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/op_run.h"

typedef struct shape {
    size_t planned, n, h, w, c, p, q;
    copse__window win;
} shape;

static const shape shapes[] = {
    {1, 1, 2, 2, 1, 1, 1, {2, 2, 2, 2, 1, 1, 0, 0}},
    {3, 2, 6, 8, 3, 3, 4, {2, 2, 2, 2, 1, 1, 0, 0}},
    {2, 2, 7, 7, 2, 3, 3, {2, 2, 2, 2, 1, 1, 0, 0}},  /* a row and column left over */
    {2, 1, 7, 5, 2, 4, 3, {3, 3, 2, 2, 1, 1, 1, 1}},  /* same, overlapping */
    {2, 2, 5, 5, 65, 3, 3, {3, 3, 1, 1, 1, 1, 0, 0}}, /* overlapping, many channels */
    {2, 2, 6, 6, 1, 4, 4, {2, 2, 1, 1, 2, 2, 0, 0}},  /* dilation */
    {1, 1, 5, 9, 2, 2, 2, {2, 3, 3, 4, 1, 1, 0, 0}},  /* gaps between windows */
    {2, 0, 4, 4, 2, 2, 2, {2, 2, 2, 2, 1, 1, 0, 0}},
    {1, 1, 18, 18, 1, 2, 2, {17, 17, 1, 1, 1, 1, 0, 0}}, /* 289 places: i32 index */
};
#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

typedef struct pooling {
    const shape *s;
    const double *x;
} pooling;

/* Calls see with every place inside the window of output (p, q), channel c. */
static size_t places(const shape *s, size_t n, size_t p, size_t q, size_t c,
                     size_t at[static 400], size_t tap[static 400]) {
    size_t count = 0;
    for (size_t r = 0; r < s->win.kernel_h; r++)
        for (size_t t = 0; t < s->win.kernel_w; t++) {
            long h = (long)(p * s->win.stride_h + r * s->win.dilation_h) -
                     (long)s->win.pad_top;
            long w = (long)(q * s->win.stride_w + t * s->win.dilation_w) -
                     (long)s->win.pad_left;
            if (h < 0 || w < 0 || h >= (long)s->h || w >= (long)s->w)
                continue;
            at[count] = ((n * s->h + (size_t)h) * s->w + (size_t)w) * s->c + c;
            tap[count++] = r * s->win.kernel_w + t;
        }
    return count;
}

static void pool(const pooling *v, bool average, double *y, size_t *index) {
    const shape *s = v->s;
    size_t at[400], tap[400], j = 0;
    for (size_t n = 0; n < s->n; n++)
        for (size_t p = 0; p < s->p; p++)
            for (size_t q = 0; q < s->q; q++)
                for (size_t c = 0; c < s->c; c++, j++) {
                    size_t count = places(s, n, p, q, c, at, tap), best = 0;
                    double sum = 0;
                    for (size_t i = 0; i < count; i++) {
                        sum += v->x[at[i]];
                        if (v->x[at[i]] > v->x[at[best]])
                            best = i;
                    }
                    y[j] = average ? sum / (double)count : v->x[at[best]];
                    if (index)
                        index[j] = tap[best];
                }
}

static void forward_max(const void *context, double *y) {
    pool(context, false, y, NULL);
}

static void forward_average(const void *context, double *y) {
    pool(context, true, y, NULL);
}

static copse__node_operand image(const shape *s) {
    return BATCHED(COPSE_F32, s->planned, s->h, s->w, s->c);
}

static copse__node_operand map(const shape *s) {
    return BATCHED(COPSE_F32, s->planned, s->p, s->q, s->c);
}

static copse__node_operand index_of(const shape *s) {
    copse__node_operand made = map(s);
    made.dtype = s->win.kernel_h * s->win.kernel_w > 255 ? COPSE_I32 : COPSE_U8;
    return made;
}

static size_t index_at(const shape *s, const void *index, size_t i) {
    return index_of(s).dtype == COPSE_I32 ? (size_t)((const int32_t *)index)[i]
                                          : ((const uint8_t *)index)[i];
}

/* Both poolings, forward and backward, on a random image. */
static void check_shape(copse__device *device, const shape *s) {
    size_t x_count = s->n * s->h * s->w * s->c, y_count = s->n * s->p * s->q * s->c;
    float *x = checked_malloc(x_count * sizeof *x), *dx = checked_malloc(x_count * 4);
    float *y = checked_malloc(y_count * sizeof *y), *dy = checked_malloc(y_count * 4);
    void *index = checked_malloc(y_count * 4);
    size_t *want_index = checked_malloc(y_count * sizeof *want_index);
    double *want = checked_malloc((x_count + y_count) * sizeof *want);
    fill_uniform(x, x_count, 5, -2, -1); /* all below zero: padding must not win */
    fill_uniform(dy, y_count, 6, -1, 1);
    double *xd = to_double(x, x_count), *dyd = to_double(dy, y_count);
    pooling v = {s, xd};
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_MAX_POOL2D,
                             .attrs = {.window = s->win},
                             .in = {image(s)},
                             .out = {map(s), index_of(s)}};
    ASSERT_OK(run_op(device, &spec, s->n, NULL, (const void *[8]){x},
                     (void *[4]){y, index}, &error));
    pool(&v, false, want, want_index);
    for (size_t i = 0; i < y_count; i++) {
        ck_assert_double_eq((double)y[i], want[i]);
        ck_assert_uint_eq(index_at(s, index, i), want_index[i]);
    }
    spec = (copse__node_spec){.op = COPSE__OP_MAX_POOL2D_GRAD,
                              .attrs = {.window = s->win},
                              .in = {map(s), index_of(s)},
                              .out = {image(s)}};
    ASSERT_OK(run_op(device, &spec, s->n, NULL, (const void *[8]){dy, index},
                     (void *[4]){dx}, &error));
    central_differences(want, xd, x_count, dyd, y_count, forward_max, &v);
    ck_assert_double_lt(worst_error(dx, want, x_count), 1e-6);

    spec = (copse__node_spec){.op = COPSE__OP_AVG_POOL2D,
                              .attrs = {.window = s->win},
                              .in = {image(s)},
                              .out = {map(s)}};
    ASSERT_OK(
        run_op(device, &spec, s->n, NULL, (const void *[8]){x}, (void *[4]){y}, &error));
    forward_average(&v, want);
    ck_assert_double_lt(worst_error(y, want, y_count), 1e-6);
    spec = (copse__node_spec){.op = COPSE__OP_AVG_POOL2D_GRAD,
                              .attrs = {.window = s->win},
                              .in = {map(s)},
                              .out = {image(s)}};
    ASSERT_OK(run_op(device, &spec, s->n, NULL, (const void *[8]){dy}, (void *[4]){dx},
                     &error));
    central_differences(want, xd, x_count, dyd, y_count, forward_average, &v);
    ck_assert_double_lt(worst_error(dx, want, x_count), 1e-6);
    free(x), free(dx), free(y), free(dy), free(index), free(want_index), free(want);
    free(xd), free(dyd);
}

START_TEST(test_pool2d_shapes_match_double_loops) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        check_shape(device, &shapes[i]);
    copse__device_close(device);
}
END_TEST

START_TEST(test_max_pool2d_first_of_equals_and_nan_win) {
    copse__device *device = open_host(1);
    float x[8] = {1, 3, 3, 3, 7, NAN, 9, NAN}, y[2];
    uint8_t index[2];
    copse_error error = {0};
    copse__node_spec spec = {
        .op = COPSE__OP_MAX_POOL2D,
        .attrs = {.window = {2, 2, 2, 2, 1, 1, 0, 0}},
        .in = {BATCHED(COPSE_F32, 2, 2, 2, 1)},
        .out = {BATCHED(COPSE_F32, 2, 1, 1, 1), BATCHED(COPSE_U8, 2, 1, 1, 1)}};
    ASSERT_OK(run_op(device, &spec, 2, NULL, (const void *[8]){x}, (void *[4]){y, index},
                     &error));
    ck_assert_float_eq(y[0], 3);
    ck_assert_uint_eq(index[0], 1);
    ck_assert(isnan(y[1]));
    ck_assert_uint_eq(index[1], 1);
    copse__device_close(device);
}
END_TEST

START_TEST(test_global_avg_pool_and_gradient) {
    enum { N = 3, PLACES = 12, C = 70 };
    copse__device *device = open_host(1);
    float x[N * PLACES * C], y[N * C], dy[N * C], dx[N * PLACES * C];
    double want_y[N * C] = {0}, want_dx[N * PLACES * C];
    fill_uniform(x, N * PLACES * C, 1, -1, 1);
    fill_uniform(dy, N * C, 2, -1, 1);
    for (size_t i = 0; i < N * PLACES * C; i++) {
        size_t at = i / (PLACES * C) * C + i % C;
        want_y[at] += (double)x[i] / PLACES;
        want_dx[i] = (double)dy[at] / PLACES;
    }
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_GLOBAL_AVG_POOL,
                             .in = {BATCHED(COPSE_F32, 4, 3, 4, C)},
                             .out = {BATCHED(COPSE_F32, 4, C)}};
    ASSERT_OK(
        run_op(device, &spec, N, NULL, (const void *[8]){x}, (void *[4]){y}, &error));
    ck_assert_double_lt(worst_error(y, want_y, N * C), 1e-6);
    spec = (copse__node_spec){.op = COPSE__OP_GLOBAL_AVG_POOL_GRAD,
                              .in = {BATCHED(COPSE_F32, 4, C)},
                              .out = {BATCHED(COPSE_F32, 4, 3, 4, C)}};
    ASSERT_OK(
        run_op(device, &spec, N, NULL, (const void *[8]){dy}, (void *[4]){dx}, &error));
    ck_assert_double_lt(worst_error(dx, want_dx, N * PLACES * C), 1e-6);
    ASSERT_OK(
        run_op(device, &spec, 0, NULL, (const void *[8]){dy}, (void *[4]){dx}, &error));
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_pool");
    ADD_TEST(suite, test_pool2d_shapes_match_double_loops);
    ADD_TEST(suite, test_max_pool2d_first_of_equals_and_nan_win);
    ADD_TEST(suite, test_global_avg_pool_and_gradient);
    return run_suite(suite);
}
