/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "support/op_run.h"

enum { ROWS = 6, CLASSES = 11, COUNT = ROWS * CLASSES };

typedef struct losses {
    const double *x, *target;
    const int32_t *label;
    const float *soft; /* probabilities; instead of label */
    bool from_logits;
} losses;

static const float scale = 0.125f;

/* The losses alone, a row each. */
static void cross_entropy(const void *context, double *y) {
    const losses *l = context;
    for (size_t r = 0; r < ROWS; r++) {
        const double *x = l->x + r * CLASSES;
        double sum = 0;
        for (size_t c = 0; c < CLASSES; c++)
            sum += l->from_logits ? exp(x[c]) : x[c];
        double p = (l->from_logits ? exp(x[l->label[r]]) : x[l->label[r]]) / sum;
        y[r] =
            -log(fmin(fmax(p, l->from_logits ? 0 : 1e-7), l->from_logits ? 1 : 1 - 1e-7));
    }
}

static copse__node_spec cross_entropy_spec(bool from_logits) {
    return (copse__node_spec){
        .op = COPSE__OP_CROSS_ENTROPY,
        .attrs.loss.from_logits = from_logits,
        .in = {BATCHED(COPSE_F32, ROWS + 1, CLASSES), BATCHED(COPSE_I32, ROWS + 1)},
        .out = {BATCHED(COPSE_F32, ROWS + 1, 2), BATCHED(COPSE_F32, ROWS + 1, CLASSES)}};
}

/* Against probabilities, a row each; from probabilities x / sum(x) none of which is clamped. */
static void soft_cross_entropy(const void *context, double *y) {
    const losses *l = context;
    for (size_t r = 0; r < ROWS; r++) {
        const double *x = l->x + r * CLASSES;
        double sum = 0;
        for (size_t c = 0; c < CLASSES; c++)
            sum += l->from_logits ? exp(x[c]) : x[c];
        y[r] = 0;
        for (size_t c = 0; c < CLASSES; c++)
            y[r] -= (double)l->soft[r * CLASSES + c] *
                    log((l->from_logits ? exp(x[c]) : x[c]) / sum);
    }
}

START_TEST(test_soft_cross_entropy_and_gradient) {
    copse__device *device = open_host(1);
    for (int logits = 0; logits < 2; logits++) {
        float x[COUNT], soft[COUNT], metrics[2 * ROWS], dx[COUNT];
        double want[COUNT], cotangent[ROWS];
        fill_uniform(x, COUNT, 1, logits ? -3.0f : 0.01f, logits ? 3.0f : 1.0f);
        fill_uniform(soft, COUNT, 2, 0, 0.1f);
        soft[3 * CLASSES + 3] = x[3 * CLASSES + 3] = 4; /* a hit */
        double *xd = to_double(x, COUNT);
        losses l = {.x = xd, .soft = soft, .from_logits = logits};
        for (size_t r = 0; r < ROWS; r++)
            cotangent[r] = (double)scale;
        copse_error error = {0};
        copse_scalars scalars = {.loss_scale = scale};
        copse__node_spec spec = cross_entropy_spec(logits);
        spec.in[1] = spec.in[0];
        spec.in_place[1] = logits ? 1 : 0;
        ASSERT_OK(run_op(device, &spec, ROWS, &scalars, (const void *[8]){x, soft},
                         (void *[4]){metrics, dx}, &error));
        soft_cross_entropy(&l, want);
        for (size_t r = 0; r < ROWS; r++)
            ck_assert_double_lt(fabs((double)metrics[2 * r] - want[r]), 1e-5);
        ck_assert_float_eq(metrics[2 * 3 + 1], 1);
        central_differences(want, xd, COUNT, cotangent, ROWS, soft_cross_entropy, &l);
        ck_assert_double_lt(worst_error(dx, want, COUNT), 1e-6);
        free(xd);
    }
    copse__device_close(device);
}
END_TEST

/* One class is certain: the same numbers as with its label. */
START_TEST(test_soft_cross_entropy_of_one_class_is_that_of_its_label) {
    copse__device *device = open_host(1);
    const int32_t label[ROWS] = {0, 10, 3, 3, 7, 5};
    for (int logits = 0; logits < 2; logits++) {
        float x[COUNT], soft[COUNT] = {0}, got[2][2 * ROWS], dx[2][COUNT];
        fill_uniform(x, COUNT, 1, logits ? -3.0f : 0.01f, logits ? 3.0f : 1.0f);
        x[5] = logits ? -INFINITY : x[5]; /* a class that is impossible */
        for (size_t r = 0; r < ROWS; r++)
            soft[r * CLASSES + (size_t)label[r]] = 1;
        copse_error error = {0};
        copse_scalars scalars = {.loss_scale = scale};
        for (int s = 0; s < 2; s++) {
            copse__node_spec spec = cross_entropy_spec(logits);
            const void *labels = s ? (const void *)soft : (const void *)label;
            if (s)
                spec.in[1] = spec.in[0];
            ASSERT_OK(run_op(device, &spec, ROWS, &scalars, (const void *[8]){x, labels},
                             (void *[4]){got[s], dx[s]}, &error));
        }
        for (size_t i = 0; i < 2 * ROWS; i++)
            ck_assert_float_eq_tol(got[1][i], got[0][i], 1e-6f);
        for (size_t i = 0; i < COUNT; i++)
            ck_assert_float_eq_tol(dx[1][i], dx[0][i], 1e-7f);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_cross_entropy_and_gradient) {
    copse__device *device = open_host(1);
    const int32_t label[ROWS] = {0, 10, 3, 3, 7, 5};
    for (int logits = 0; logits < 2; logits++) {
        float x[COUNT], metrics[2 * ROWS], dx[COUNT];
        double want[COUNT], cotangent[ROWS];
        fill_uniform(x, COUNT, 1, logits ? -3.0f : 0.01f, logits ? 3.0f : 1.0f);
        x[3 * CLASSES + 3] = 4; /* a hit */
        double *xd = to_double(x, COUNT);
        losses l = {.x = xd, .label = label, .from_logits = logits};
        for (size_t r = 0; r < ROWS; r++)
            cotangent[r] = (double)scale;
        copse_error error = {0};
        copse_scalars scalars = {.loss_scale = scale};
        copse__node_spec spec = cross_entropy_spec(logits);
        spec.in_place[1] = logits ? 1 : 0;
        ASSERT_OK(run_op(device, &spec, ROWS, &scalars, (const void *[8]){x, label},
                         (void *[4]){metrics, dx}, &error));
        cross_entropy(&l, want);
        size_t hits = 0;
        for (size_t r = 0; r < ROWS; r++) {
            ck_assert_double_lt(fabs((double)metrics[2 * r] - want[r]), 1e-6);
            size_t best = 0;
            for (size_t c = 0; c < CLASSES; c++)
                best = x[r * CLASSES + c] > x[r * CLASSES + best] ? c : best;
            ck_assert_float_eq(metrics[2 * r + 1], best == (size_t)label[r] ? 1 : 0);
            hits += best == (size_t)label[r];
        }
        ck_assert_uint_ge(hits, 1);
        central_differences(want, xd, COUNT, cotangent, ROWS, cross_entropy, &l);
        ck_assert_double_lt(worst_error(dx, want, COUNT), 1e-6);
        ASSERT_OK(run_op(device, &spec, 0, &scalars, (const void *[8]){x, label},
                         (void *[4]){metrics, dx}, &error));
        free(xd);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_cross_entropy_clamped_probability_has_no_gradient) {
    copse__device *device = open_host(1);
    float x[3] = {0, 0.5f, 0.5f}, metrics[2], dx[3];
    const int32_t label[1] = {0};
    copse_error error = {0};
    copse_scalars scalars = {.loss_scale = 1};
    copse__node_spec spec = {.op = COPSE__OP_CROSS_ENTROPY,
                             .in = {BATCHED(COPSE_F32, 1, 3), BATCHED(COPSE_I32, 1)},
                             .out = {BATCHED(COPSE_F32, 1, 2), BATCHED(COPSE_F32, 1, 3)}};
    ASSERT_OK(run_op(device, &spec, 1, &scalars, (const void *[8]){x, label},
                     (void *[4]){metrics, dx}, &error));
    ck_assert_float_eq_tol(metrics[0], 16.118095f, 1e-5f);
    ck_assert(dx[0] == 0 && dx[1] == 0 && dx[2] == 0);
    copse__device_close(device);
}
END_TEST

START_TEST(test_cross_entropy_tie_is_a_hit_for_the_first_only) {
    copse__device *device = open_host(1);
    float x[4] = {1, 1, 1, 1}, metrics[4];
    const int32_t label[2] = {0, 1};
    copse_error error = {0};
    copse_scalars scalars = {0};
    copse__node_spec spec = {.op = COPSE__OP_CROSS_ENTROPY,
                             .attrs.loss.from_logits = true,
                             .in = {BATCHED(COPSE_F32, 2, 2), BATCHED(COPSE_I32, 2)},
                             .out = {BATCHED(COPSE_F32, 2, 2)}};
    ASSERT_OK(run_op(device, &spec, 2, &scalars, (const void *[8]){x, label},
                     (void *[4]){metrics}, &error));
    ck_assert(metrics[1] == 1 && metrics[3] == 0);
    copse__device_close(device);
}
END_TEST

static void squared_error(const void *context, double *y) {
    const losses *l = context;
    for (size_t n = 0; n < ROWS; n++) {
        y[n] = 0;
        for (size_t i = n * CLASSES; i < (n + 1) * CLASSES; i++)
            y[n] += pow(l->x[i] - l->target[i], 2) / CLASSES;
    }
}

START_TEST(test_mean_squared_error_and_gradient) {
    copse__device *device = open_host(1);
    float x[COUNT], target[COUNT], metrics[2 * ROWS], dx[COUNT];
    double want[COUNT], cotangent[ROWS];
    fill_uniform(x, COUNT, 1, -1, 1);
    fill_uniform(target, COUNT, 2, -1, 1);
    double *xd = to_double(x, COUNT), *targetd = to_double(target, COUNT);
    losses l = {.x = xd, .target = targetd};
    for (size_t n = 0; n < ROWS; n++)
        cotangent[n] = (double)scale;
    copse_error error = {0};
    copse_scalars scalars = {.loss_scale = scale};
    copse__node_spec spec = {
        .op = COPSE__OP_MEAN_SQUARED_ERROR,
        .in = {BATCHED(COPSE_F32, ROWS, CLASSES), BATCHED(COPSE_F32, ROWS, CLASSES)},
        .out = {BATCHED(COPSE_F32, ROWS, 2), BATCHED(COPSE_F32, ROWS, CLASSES)}};
    ASSERT_OK(run_op(device, &spec, ROWS, &scalars, (const void *[8]){x, target},
                     (void *[4]){metrics, dx}, &error));
    squared_error(&l, want);
    for (size_t n = 0; n < ROWS; n++) {
        ck_assert_double_lt(fabs((double)metrics[2 * n] - want[n]), 1e-6);
        ck_assert_float_eq(metrics[2 * n + 1], 0);
    }
    central_differences(want, xd, COUNT, cotangent, ROWS, squared_error, &l);
    ck_assert_double_lt(worst_error(dx, want, COUNT), 1e-6);
    free(xd), free(targetd);
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_loss");
    ADD_TEST(suite, test_cross_entropy_and_gradient);
    ADD_TEST(suite, test_soft_cross_entropy_and_gradient);
    ADD_TEST(suite, test_soft_cross_entropy_of_one_class_is_that_of_its_label);
    ADD_TEST(suite, test_cross_entropy_clamped_probability_has_no_gradient);
    ADD_TEST(suite, test_cross_entropy_tie_is_a_hit_for_the_first_only);
    ADD_TEST(suite, test_mean_squared_error_and_gradient);
    return run_suite(suite);
}
