/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <philox.clh>

#include "support/op_run.h"

enum { ROWS = 5, COLUMNS = 37, COUNT = ROWS * COLUMNS };

static double activate(copse__activation act, double x) {
    switch (act) {
    case COPSE__ACT_RELU:
        return x > 0 ? x : 0;
    case COPSE__ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case COPSE__ACT_TANH:
        return (exp(2 * x) - 1) / (exp(2 * x) + 1);
    case COPSE__ACT_GELU:
        return x * erfc(-x / sqrt(2)) / 2;
    default:
        return x;
    }
}

typedef struct argument {
    copse__activation act;
    size_t count, columns;
    const double *x;
} argument;

static void activations(const void *context, double *y) {
    const argument *a = context;
    for (size_t i = 0; i < a->count; i++)
        y[i] = activate(a->act, a->x[i]);
}

static copse__node_spec plane_spec(copse__op op, size_t inputs) {
    copse__node_spec spec = {.op = op, .out = {BATCHED(COPSE_F32, ROWS + 2, COLUMNS)}};
    for (size_t i = 0; i < inputs; i++)
        spec.in[i] = spec.out[0];
    return spec;
}

START_TEST(test_activations_and_gradients) {
    copse__device *device = open_host(1);
    float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT];
    double want[COUNT];
    fill_uniform(x, COUNT, 1, -4, 4);
    fill_uniform(dy, COUNT, 2, -1, 1);
    double *xd = to_double(x, COUNT), *dyd = to_double(dy, COUNT);
    for (int act = 0; act < COPSE__ACT_COUNT; act++) {
        argument a = {(copse__activation)act, COUNT, COLUMNS, xd};
        copse_error error = {0};
        copse__node_spec spec = plane_spec(COPSE__OP_ACTIVATION, 1);
        spec.attrs.act = a.act;
        ASSERT_OK(run_op(device, &spec, ROWS, NULL, (const void *[8]){x}, (void *[4]){y},
                         &error));
        activations(&a, want);
        ck_assert_double_lt(worst_error(y, want, COUNT), 1e-7);
        spec = plane_spec(COPSE__OP_ACTIVATION_GRAD, 2);
        spec.attrs.act = a.act;
        const float *saved = a.act == COPSE__ACT_GELU ? x : y;
        ASSERT_OK(run_op(device, &spec, ROWS, NULL, (const void *[8]){saved, dy},
                         (void *[4]){dx}, &error));
        central_differences(want, xd, COUNT, dyd, COUNT, activations, &a);
        ck_assert_msg(worst_error(dx, want, COUNT) < 1e-6, "activation %d", act);
    }
    free(xd), free(dyd);
    copse__device_close(device);
}
END_TEST

START_TEST(test_relu_passes_nan_and_has_no_slope_at_zero) {
    copse__device *device = open_host(1);
    float x[4] = {NAN, -1, 0, 2}, y[4], ones[4] = {1, 1, 1, 1}, dx[4];
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_ACTIVATION,
                             .attrs.act = COPSE__ACT_RELU,
                             .in = {BATCHED(COPSE_F32, 1, 4)},
                             .out = {BATCHED(COPSE_F32, 1, 4)}};
    ASSERT_OK(
        run_op(device, &spec, 1, NULL, (const void *[8]){x}, (void *[4]){y}, &error));
    ck_assert(isnan(y[0]));
    ck_assert(y[1] == 0 && y[2] == 0 && y[3] == 2);
    spec.op = COPSE__OP_ACTIVATION_GRAD;
    spec.in[1] = spec.in[0];
    ASSERT_OK(run_op(device, &spec, 1, NULL, (const void *[8]){y, ones}, (void *[4]){dx},
                     &error));
    ck_assert(dx[1] == 0 && dx[2] == 0 && dx[3] == 1);
    copse__device_close(device);
}
END_TEST

static void softmax(const void *context, double *y) {
    const argument *a = context;
    for (size_t r = 0; r < a->count / a->columns; r++) {
        double sum = 0;
        for (size_t c = 0; c < a->columns; c++)
            sum += exp(a->x[r * a->columns + c]);
        for (size_t c = 0; c < a->columns; c++)
            y[r * a->columns + c] = exp(a->x[r * a->columns + c]) / sum;
    }
}

START_TEST(test_softmax_and_gradient) {
    copse__device *device = open_host(1);
    float x[COUNT], y[COUNT], dy[COUNT];
    double want[COUNT];
    fill_uniform(x, COUNT, 1, -4, 4);
    fill_uniform(dy, COUNT, 2, -1, 1);
    double *xd = to_double(x, COUNT), *dyd = to_double(dy, COUNT);
    argument a = {COPSE__ACT_NONE, COUNT, COLUMNS, xd};
    copse_error error = {0};
    copse__node_spec spec = plane_spec(COPSE__OP_SOFTMAX, 1);
    ASSERT_OK(
        run_op(device, &spec, ROWS, NULL, (const void *[8]){x}, (void *[4]){y}, &error));
    softmax(&a, want);
    ck_assert_double_lt(worst_error(y, want, COUNT), 1e-7);
    spec = plane_spec(COPSE__OP_SOFTMAX_GRAD, 2); /* in place: dx on dy */
    spec.in_place[0] = 2;
    ASSERT_OK(run_op(device, &spec, ROWS, NULL, (const void *[8]){y, dy}, (void *[4]){dy},
                     &error));
    central_differences(want, xd, COUNT, dyd, COUNT, softmax, &a);
    ck_assert_double_lt(worst_error(dy, want, COUNT), 1e-6);
    free(xd), free(dyd);
    copse__device_close(device);
}
END_TEST

START_TEST(test_softmax_of_huge_values_is_finite) {
    copse__device *device = open_host(1);
    float x[3] = {3e38f, 3e38f, -3e38f}, y[3];
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_SOFTMAX,
                             .in = {BATCHED(COPSE_F32, 1, 3)},
                             .out = {BATCHED(COPSE_F32, 1, 3)}};
    ASSERT_OK(
        run_op(device, &spec, 1, NULL, (const void *[8]){x}, (void *[4]){y}, &error));
    ck_assert(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0);
    copse__device_close(device);
}
END_TEST

/* Which elements are kept depends on the sample's place in the global batch, not on the
 * shard that holds it. */
START_TEST(test_dropout_draws_by_global_sample) {
    copse__device *device = open_host(1);
    float x[COUNT], y[COUNT], shard[COUNT];
    size_t kept = 0;
    for (size_t i = 0; i < COUNT; i++)
        x[i] = 1;
    copse_error error = {0};
    copse_scalars scalars = {.seed0 = 11, .seed1 = 12, .step = 3, .sample_base = 100};
    copse__node_spec spec = plane_spec(COPSE__OP_DROPOUT, 1);
    spec.attrs.dropout.rate = 0.25f;
    spec.attrs.dropout.call = 9;
    ASSERT_OK(run_op(device, &spec, ROWS, &scalars, (const void *[8]){x}, (void *[4]){y},
                     &error));
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t n = (uint32_t)(i / COLUMNS), e = (uint32_t)(i % COLUMNS);
        copse_philox4 draw =
            copse_philox((copse_philox4){{e / 4, 100 + n, 3, 9}}, 11, 12);
        bool keep = copse_philox_unit(draw.v[e % 4]) >= 0.25f;
        ck_assert_float_eq(y[i], keep ? 4.0f / 3.0f : 0.0f);
        kept += keep;
    }
    ck_assert(kept > COUNT / 2 && kept < COUNT);
    scalars.sample_base += 2;
    ASSERT_OK(run_op(device, &spec, ROWS - 2, &scalars, (const void *[8]){x},
                     (void *[4]){shard}, &error));
    ck_assert_mem_eq(shard, y + 2 * COLUMNS, (ROWS - 2) * COLUMNS * sizeof(float));
    copse__device_close(device);
}
END_TEST

START_TEST(test_add_in_place) {
    copse__device *device = open_host(1);
    float a[COUNT], b[COUNT], y[COUNT];
    fill_uniform(a, COUNT, 1, -1, 1);
    fill_uniform(b, COUNT, 2, -1, 1);
    for (int i = 0; i < 2; i++) {
        copse_error error = {0};
        copse__node_spec spec =
            plane_spec(i == 0 ? COPSE__OP_ADD : COPSE__OP_ACCUMULATE, 2);
        spec.in_place[0] = 1;
        ASSERT_OK(run_op(device, &spec, ROWS, NULL, (const void *[8]){a, b},
                         (void *[4]){y}, &error));
        for (size_t j = 0; j < COUNT; j++)
            ck_assert_float_eq(y[j], a[j] + b[j]);
    }
    copse__device_close(device);
}
END_TEST

static void check_cast(copse__device *device, copse_dtype dtype, const void *raw,
                       const double *values, size_t count) {
    float y[8];
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_CAST,
                             .attrs.cast = {0.5f, -1},
                             .in = {BATCHED(dtype, 8)},
                             .out = {BATCHED(COPSE_F32, 8)}};
    ASSERT_OK(run_op(device, &spec, count, NULL, (const void *[8]){raw}, (void *[4]){y},
                     &error));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(y[i] == (float)(values[i] * 0.5 - 1), "%s: %g -> %g",
                      copse_dtype_name(dtype), values[i], (double)y[i]);
}

START_TEST(test_cast_every_type) {
    copse__device *device = open_host(1);
    const uint8_t u8[] = {0, 255};
    const int8_t i8[] = {-128, 127};
    const uint16_t u16[] = {0, 65535};
    const int16_t i16[] = {-32768, 32767};
    const int32_t i32[] = {INT32_MIN, 5};
    const float f32[] = {-1.5f, 1e30f};
    const double f64[] = {-1.5, 1e-30};
    /* 1, -2, the least subnormal, the least normal, the largest */
    const uint16_t f16[] = {0x3C00, 0xC000, 0x0001, 0x0400, 0x7BFF};
    check_cast(device, COPSE_U8, u8, (double[]){0, 255}, 2);
    check_cast(device, COPSE_I8, i8, (double[]){-128, 127}, 2);
    check_cast(device, COPSE_U16, u16, (double[]){0, 65535}, 2);
    check_cast(device, COPSE_I16, i16, (double[]){-32768, 32767}, 2);
    check_cast(device, COPSE_I32, i32, (double[]){INT32_MIN, 5}, 2);
    check_cast(device, COPSE_F32, f32, (double[]){-1.5, (double)1e30f}, 2);
    check_cast(device, COPSE_F64, f64, f64, 2);
    check_cast(device, COPSE_F16, f16, (double[]){1, -2, 0x1p-24, 0x1p-14, 65504}, 5);
    float y[1];
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_CAST,
                             .attrs.cast = {1, 0},
                             .in = {BATCHED(COPSE_F16, 1)},
                             .out = {BATCHED(COPSE_F32, 1)}};
    const uint16_t infinite = 0xFC00, nan = 0x7E00;
    ASSERT_OK(run_op(device, &spec, 1, NULL, (const void *[8]){&infinite}, (void *[4]){y},
                     &error));
    ck_assert(isinf(y[0]) && y[0] < 0);
    ASSERT_OK(
        run_op(device, &spec, 1, NULL, (const void *[8]){&nan}, (void *[4]){y}, &error));
    ck_assert(isnan(y[0]));
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_elementwise");
    ADD_TEST(suite, test_activations_and_gradients);
    ADD_TEST(suite, test_relu_passes_nan_and_has_no_slope_at_zero);
    ADD_TEST(suite, test_softmax_and_gradient);
    ADD_TEST(suite, test_softmax_of_huge_values_is_finite);
    ADD_TEST(suite, test_dropout_draws_by_global_sample);
    ADD_TEST(suite, test_add_in_place);
    ADD_TEST(suite, test_cast_every_type);
    return run_suite(suite);
}
