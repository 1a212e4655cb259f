/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/op_run.h"

/* Planned rows, rows of the moment, inputs, units. */
static const struct {
    size_t planned, rows, k, u;
} sizes[] = {
    {1, 1, 1, 1},   {3, 3, 5, 7},   {8, 8, 32, 32}, {9, 9, 33, 31},
    {7, 7, 31, 33}, {16, 0, 5, 3},  {16, 1, 9, 40}, {20, 13, 17, 65},
    {5, 5, 1, 100}, {5, 5, 100, 1}, {70, 64, 3, 2},
};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

typedef struct product {
    size_t m, k, u;
    const double *x, *w, *b;
} product;

static void forward(const void *context, double *y) {
    const product *p = context;
    for (size_t m = 0; m < p->m; m++)
        for (size_t u = 0; u < p->u; u++) {
            y[m * p->u + u] = p->b[u];
            for (size_t k = 0; k < p->k; k++)
                y[m * p->u + u] += p->x[m * p->k + k] * p->w[k * p->u + u];
        }
}

static float *uniform(size_t count, uint64_t seed) {
    float *made = checked_malloc(count * sizeof *made);
    fill_uniform(made, count, seed, -1, 1);
    return made;
}

START_TEST(test_dense_sizes_match_double_loops) {
    copse__device *device = open_host(1);
    for (size_t s = 0; s < SIZE_COUNT; s++) {
        size_t m = sizes[s].rows, k = sizes[s].k, u = sizes[s].u;
        float *x = uniform(m * k, 1), *w = uniform(k * u, 2), *b = uniform(u, 3);
        float *y = checked_malloc(m * u * sizeof *y);
        double *want = checked_malloc(m * u * sizeof *want);
        product p = {m, k, u, to_double(x, m * k), to_double(w, k * u), to_double(b, u)};
        forward(&p, want);
        copse__node_spec spec = {.op = COPSE__OP_DENSE,
                                 .in = {BATCHED(COPSE_F32, sizes[s].planned, k),
                                        FIXED(COPSE_F32, k, u), FIXED(COPSE_F32, u)},
                                 .out = {BATCHED(COPSE_F32, sizes[s].planned, u)}};
        copse_error error = {0};
        const void *in[COPSE__MAX_INPUTS] = {x, w, b};
        void *out[COPSE__MAX_OUTPUTS] = {y};
        ASSERT_OK(run_op(device, &spec, m, NULL, in, out, &error));
        ck_assert_double_lt(worst_error(y, want, m * u), 1e-6);
        spec.attrs.act = COPSE__ACT_RELU;
        for (size_t i = 0; i < m * u; i++)
            want[i] = want[i] > 0 ? want[i] : 0;
        ASSERT_OK(run_op(device, &spec, m, NULL, in, out, &error));
        ck_assert_double_lt(worst_error(y, want, m * u), 1e-6);
        free((void *)p.x), free((void *)p.w), free((void *)p.b);
        free(x), free(w), free(b), free(y), free(want);
    }
    copse__device_close(device);
}
END_TEST

static void check_gradients(copse__device *device, size_t planned, size_t m, size_t k,
                            size_t u) {
    float *x = uniform(m * k, 1), *w = uniform(k * u, 2), *b = uniform(u, 3);
    float *dy = uniform(m * u, 4);
    float *got = checked_malloc((m * k + k * u + u) * sizeof *got);
    double *want = checked_malloc((m * k + k * u + u) * sizeof *want);
    double *xd = to_double(x, m * k), *wd = to_double(w, k * u), *bd = to_double(b, u);
    double *dyd = to_double(dy, m * u);
    product p = {m, k, u, xd, wd, bd};
    copse_error error = {0};

    copse__node_spec spec = {
        .op = COPSE__OP_DENSE_GRAD_INPUT,
        .in = {BATCHED(COPSE_F32, planned, u), FIXED(COPSE_F32, k, u)},
        .out = {BATCHED(COPSE_F32, planned, k)}};
    ASSERT_OK(run_op(device, &spec, m, NULL, (const void *[8]){dy, w}, (void *[4]){got},
                     &error));
    central_differences(want, xd, m * k, dyd, m * u, forward, &p);
    ck_assert_double_lt(worst_error(got, want, m * k), 1e-6);

    spec = (copse__node_spec){
        .op = COPSE__OP_DENSE_GRAD_WEIGHT,
        .in = {BATCHED(COPSE_F32, planned, k), BATCHED(COPSE_F32, planned, u)},
        .out = {FIXED(COPSE_F32, k, u)}};
    ASSERT_OK(run_op(device, &spec, m, NULL, (const void *[8]){x, dy}, (void *[4]){got},
                     &error));
    central_differences(want, wd, k * u, dyd, m * u, forward, &p);
    ck_assert_double_lt(worst_error(got, want, k * u), 1e-6);

    spec = (copse__node_spec){.op = COPSE__OP_BIAS_GRAD,
                              .in = {BATCHED(COPSE_F32, planned, u)},
                              .out = {FIXED(COPSE_F32, u)}};
    ASSERT_OK(
        run_op(device, &spec, m, NULL, (const void *[8]){dy}, (void *[4]){got}, &error));
    central_differences(want, bd, u, dyd, m * u, forward, &p);
    ck_assert_double_lt(worst_error(got, want, u), 1e-6);
    free(x), free(w), free(b), free(dy), free(got), free(want);
    free(xd), free(wd), free(bd), free(dyd);
}

START_TEST(test_dense_gradients_match_central_differences) {
    copse__device *device = open_host(1);
    for (size_t s = 0; s < SIZE_COUNT; s++)
        check_gradients(device, sizes[s].planned, sizes[s].rows, sizes[s].k, sizes[s].u);
    copse__device_close(device);
}
END_TEST

/* A cancellation that float accumulation would get wrong. */
START_TEST(test_dense_accumulates_in_double) {
    copse__device *device = open_host(1);
    float x[3] = {1e8f, 1.0f, -1e8f}, w[3] = {1, 1, 1}, y[1];
    copse__node_spec spec = {.op = COPSE__OP_DENSE,
                             .in = {BATCHED(COPSE_F32, 1, 3), FIXED(COPSE_F32, 3, 1)},
                             .out = {BATCHED(COPSE_F32, 1, 1)}};
    copse_error error = {0};
    ASSERT_OK(
        run_op(device, &spec, 1, NULL, (const void *[8]){x, w}, (void *[4]){y}, &error));
    ck_assert_float_eq(y[0], 1.0f);
    copse__device_close(device);
}
END_TEST

START_TEST(test_dense_threads_do_not_change_bits) {
    enum { M = 130, K = 300, U = 70 };
    float *x = uniform(M * K, 1), *w = uniform(K * U, 2);
    float *y[2] = {checked_malloc(M * U * sizeof(float)),
                   checked_malloc(M * U * sizeof(float))};
    copse__node_spec spec = {.op = COPSE__OP_DENSE,
                             .in = {BATCHED(COPSE_F32, M, K), FIXED(COPSE_F32, K, U)},
                             .out = {BATCHED(COPSE_F32, M, U)}};
    copse_error error = {0};
    for (uint32_t i = 0; i < 2; i++) {
        copse__device *device = open_host(i == 0 ? 1 : 1000);
        ck_assert(i == 0 || copse__device_get(device)->caps.compute_units == 1);
        ASSERT_OK(run_op(device, &spec, M, NULL, (const void *[8]){x, w},
                         (void *[4]){y[i]}, &error));
        copse__device_close(device);
    }
    ck_assert_mem_eq(y[0], y[1], M * U * sizeof(float));
    free(x), free(w), free(y[0]), free(y[1]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_dense");
    ADD_TEST(suite, test_dense_sizes_match_double_loops);
    ADD_TEST(suite, test_dense_gradients_match_central_differences);
    ADD_TEST(suite, test_dense_accumulates_in_double);
    ADD_TEST(suite, test_dense_threads_do_not_change_bits);
    return run_suite(suite);
}
