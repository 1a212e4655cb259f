/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/op_run.h"

/* Planned rows, rows of the moment, columns; images of 2 x 3 places where asked. */
static const struct {
    size_t planned, rows, columns;
} sizes[] = {{1, 1, 1}, {4, 4, 1}, {9, 7, 3}, {33, 33, 64}, {20, 17, 65}, {3, 0, 5}};
#define SIZE_COUNT (sizeof sizes / sizeof sizes[0])

static const float epsilon = 1e-3f;

typedef struct normalization {
    size_t rows, columns;
    const double *x, *gamma, *beta;
} normalization;

static void moments(const normalization *v, double *stats) {
    for (size_t c = 0; c < v->columns; c++) {
        double mean = 0, variance = 0;
        for (size_t r = 0; r < v->rows; r++)
            mean += v->x[r * v->columns + c] / (double)v->rows;
        for (size_t r = 0; r < v->rows; r++)
            variance += pow(v->x[r * v->columns + c] - mean, 2) / (double)v->rows;
        stats[c] = mean;
        stats[v->columns + c] = variance;
    }
}

static void normalize(const normalization *v, const double *stats, double *y) {
    for (size_t i = 0; i < v->rows * v->columns; i++) {
        size_t c = i % v->columns;
        y[i] = (v->x[i] - stats[c]) / sqrt(stats[v->columns + c] + (double)epsilon) *
                   v->gamma[c] +
               v->beta[c];
    }
}

/* The whole of it, so that the gradient flows through the moments too. */
static void forward(const void *context, double *y) {
    const normalization *v = context;
    double stats[2 * 65];
    moments(v, stats);
    normalize(v, stats, y);
}

typedef struct data {
    size_t planned, rows, columns, count;
    float *x, *gamma, *beta, *dy, *got, *stats, *sums;
    double *xd, *gammad, *betad, *dyd, *want;
} data;

static data make_data(size_t i, float low, float high) {
    data d = {.planned = sizes[i].planned,
              .rows = sizes[i].rows,
              .columns = sizes[i].columns,
              .count = sizes[i].rows * sizes[i].columns};
    size_t most = d.count + 4 * d.columns;
    d.x = checked_malloc(most * sizeof(float));
    d.dy = checked_malloc(most * sizeof(float));
    d.got = checked_malloc(most * sizeof(float));
    d.gamma = checked_malloc(most * sizeof(float));
    d.beta = checked_malloc(most * sizeof(float));
    d.stats = checked_malloc(most * sizeof(float));
    d.sums = checked_malloc(most * sizeof(float));
    d.want = checked_malloc(most * sizeof(double));
    fill_uniform(d.x, d.count, 1, low, high);
    fill_uniform(d.dy, d.count, 2, -1, 1);
    fill_uniform(d.gamma, d.columns, 3, 0.5f, 2);
    fill_uniform(d.beta, d.columns, 4, -1, 1);
    d.xd = to_double(d.x, d.count);
    d.dyd = to_double(d.dy, d.count);
    d.gammad = to_double(d.gamma, d.columns);
    d.betad = to_double(d.beta, d.columns);
    return d;
}

static void free_data(data *d) {
    free(d->x), free(d->dy), free(d->got), free(d->gamma), free(d->beta);
    free(d->stats), free(d->sums), free(d->want);
    free(d->xd), free(d->dyd), free(d->gammad), free(d->betad);
}

static copse_status run_moments(copse__device *device, const data *d, copse_error *err) {
    copse__node_spec spec = {.op = COPSE__OP_BN_MOMENTS,
                             .in = {BATCHED(COPSE_F32, d->planned, d->columns)},
                             .out = {FIXED(COPSE_F32, 2, d->columns)}};
    return run_op(device, &spec, d->rows, NULL, (const void *[8]){d->x},
                  (void *[4]){d->stats}, err);
}

/* Far from zero, where E[x2] - E[x]2 would lose everything. */
START_TEST(test_bn_moments_of_distant_values) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        data d = make_data(i, 1000, 1001);
        normalization v = {d.rows, d.columns, d.xd, d.gammad, d.betad};
        copse_error error = {0};
        ASSERT_OK(run_moments(device, &d, &error));
        memset(d.want, 0, 2 * d.columns * sizeof *d.want);
        if (d.rows > 0)
            moments(&v, d.want);
        for (size_t c = 0; c < 2 * d.columns; c++)
            ck_assert_double_lt(fabs((double)d.stats[c] - d.want[c]),
                                1e-7 * fabs(d.want[c]) + 1e-12);
        free_data(&d);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_bn_normalize_and_infer_match_double_loops) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        data d = make_data(i, -1, 3);
        normalization v = {d.rows, d.columns, d.xd, d.gammad, d.betad};
        copse__node_operand plane = BATCHED(COPSE_F32, d.planned, d.columns);
        copse__node_operand column = FIXED(COPSE_F32, d.columns);
        copse_error error = {0};
        ASSERT_OK(run_moments(device, &d, &error));
        double *stats = to_double(d.stats, 2 * d.columns);
        normalize(&v, stats, d.want);
        copse__node_spec spec = {
            .op = COPSE__OP_BN_NORMALIZE,
            .attrs.norm.epsilon = epsilon,
            .in = {plane, FIXED(COPSE_F32, 2, d.columns), column, column},
            .out = {plane}};
        ASSERT_OK(run_op(device, &spec, d.rows, NULL,
                         (const void *[8]){d.x, d.stats, d.gamma, d.beta},
                         (void *[4]){d.got}, &error));
        ck_assert_double_lt(worst_error(d.got, d.want, d.count), 1e-6);
        spec = (copse__node_spec){.op = COPSE__OP_BN_INFER,
                                  .attrs.norm.epsilon = epsilon,
                                  .in = {plane, column, column, column, column},
                                  .out = {plane}};
        ASSERT_OK(
            run_op(device, &spec, d.rows, NULL,
                   (const void *[8]){d.x, d.stats, d.stats + d.columns, d.gamma, d.beta},
                   (void *[4]){d.got}, &error));
        ck_assert_double_lt(worst_error(d.got, d.want, d.count), 1e-6);
        free(stats);
        free_data(&d);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_bn_fold_matches_double_loops) {
    copse__device *device = open_host(1);
    for (size_t absent = 0; absent < 8; absent++) {
        enum { ROWS = 3, COLUMNS = 70 };
        float w[ROWS * COLUMNS], column[5][COLUMNS], v[ROWS * COLUMNS], c[COLUMNS];
        copse_error error = {0};
        fill_uniform(w, ROWS * COLUMNS, 1, -1, 1);
        for (size_t i = 0; i < 5; i++) /* bias, mean, variance, gamma, beta */
            fill_uniform(column[i], COLUMNS, 2 + i, i == 2 ? 0.0f : -2, 2);
        copse__node_operand plane = FIXED(COPSE_F32, ROWS, COLUMNS);
        copse__node_operand of = FIXED(COPSE_F32, COLUMNS), none = {.present = false};
        copse__node_spec spec = {.op = COPSE__OP_BN_FOLD,
                                 .attrs.norm.epsilon = epsilon,
                                 .in = {plane, absent & 1 ? none : of, of, of,
                                        absent & 2 ? none : of, absent & 4 ? none : of},
                                 .out = {plane, of}};
        ASSERT_OK(run_op(
            device, &spec, 1, NULL,
            (const void *[8]){w, column[0], column[1], column[2], column[3], column[4]},
            (void *[4]){v, c}, &error));
        for (size_t i = 0; i < COLUMNS; i++) {
            double bias = absent & 1 ? 0 : (double)column[0][i];
            double s = (absent & 2 ? 1 : (double)column[3][i]) /
                       sqrt((double)column[2][i] + (double)epsilon);
            double want = (bias - (double)column[1][i]) * s +
                          (absent & 4 ? 0 : (double)column[4][i]);
            ck_assert_double_eq_tol(c[i], want, 1e-6 * (1 + fabs(want)));
            for (size_t r = 0; r < ROWS; r++) {
                want = (double)w[r * COLUMNS + i] * s;
                ck_assert_double_eq_tol(v[r * COLUMNS + i], want, 1e-6 * fabs(want));
            }
        }
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_bn_absent_gamma_and_beta_are_one_and_zero) {
    copse__device *device = open_host(1);
    float x[4] = {1, 2, 3, 6}, stats[4] = {2, 4, 1, 4}, y[4];
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_BN_NORMALIZE,
                             .in = {BATCHED(COPSE_F32, 2, 2), FIXED(COPSE_F32, 2, 2)},
                             .out = {BATCHED(COPSE_F32, 2, 2)}};
    ASSERT_OK(run_op(device, &spec, 2, NULL, (const void *[8]){x, stats}, (void *[4]){y},
                     &error));
    const float want[4] = {-1, -1, 1, 1};
    ck_assert_mem_eq(y, want, sizeof want);
    copse__device_close(device);
}
END_TEST

static void check_gradient(copse__device *device, data *d) {
    normalization v = {d->rows, d->columns, d->xd, d->gammad, d->betad};
    copse__node_operand plane = BATCHED(COPSE_F32, d->planned, d->columns);
    copse__node_operand column = FIXED(COPSE_F32, d->columns);
    copse__node_operand pair = FIXED(COPSE_F32, 2, d->columns);
    float *dgamma = d->got, *dbeta = d->got + d->columns;
    copse_error error = {0};
    ASSERT_OK(run_moments(device, d, &error));
    copse__node_spec spec = {.op = COPSE__OP_BN_GRAD_REDUCE,
                             .attrs.norm.epsilon = epsilon,
                             .in = {plane, plane, pair},
                             .out = {pair, column, column}};
    ASSERT_OK(run_op(device, &spec, d->rows, NULL,
                     (const void *[8]){d->x, d->dy, d->stats},
                     (void *[4]){d->sums, dgamma, dbeta}, &error));
    ck_assert_mem_eq(d->sums, dbeta, d->columns * sizeof(float));
    ck_assert_mem_eq(d->sums + d->columns, dgamma, d->columns * sizeof(float));
    central_differences(d->want, d->gammad, d->columns, d->dyd, d->count, forward, &v);
    ck_assert_double_lt(worst_error(dgamma, d->want, d->columns), 2e-6);
    central_differences(d->want, d->betad, d->columns, d->dyd, d->count, forward, &v);
    ck_assert_double_lt(worst_error(dbeta, d->want, d->columns), 2e-6);

    spec = (copse__node_spec){.op = COPSE__OP_BN_GRAD_INPUT,
                              .attrs.norm.epsilon = epsilon,
                              .in = {plane, plane, pair, pair, column},
                              .out = {plane}};
    ASSERT_OK(run_op(device, &spec, d->rows, NULL,
                     (const void *[8]){d->x, d->dy, d->stats, d->sums, d->gamma},
                     (void *[4]){d->got}, &error));
    central_differences(d->want, d->xd, d->count, d->dyd, d->count, forward, &v);
    if (d->rows > 1)
        ck_assert_double_lt(worst_error(d->got, d->want, d->count), 2e-6);
    else /* one row: its own mean, so nothing flows */
        for (size_t i = 0; i < d->count; i++)
            ck_assert_float_eq_tol(d->got[i], 0, 1e-5f);
}

START_TEST(test_bn_gradients_match_central_differences) {
    copse__device *device = open_host(1);
    for (size_t i = 0; i < SIZE_COUNT; i++) {
        data d = make_data(i, -1, 3);
        check_gradient(device, &d);
        free_data(&d);
    }
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_norm");
    ADD_TEST(suite, test_bn_moments_of_distant_values);
    ADD_TEST(suite, test_bn_normalize_and_infer_match_double_loops);
    ADD_TEST(suite, test_bn_fold_matches_double_loops);
    ADD_TEST(suite, test_bn_absent_gamma_and_beta_are_one_and_zero);
    ADD_TEST(suite, test_bn_gradients_match_central_differences);
    return run_suite(suite);
}
