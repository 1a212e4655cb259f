/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>

#include "train/speeds.h"

static copse_error error;

static void assert_shares(const copse__speed *speeds, size_t count, size_t batch,
                          const double *wanted) {
    bool in[8] = {true, true, true, true, true, true, true, true};
    double shares[8], seconds, sum = 0;
    ASSERT_OK(copse__speeds_share(speeds, count, in, batch, shares, &seconds, &error));
    for (size_t i = 0; i < count; i++) {
        ck_assert_double_eq_tol(shares[i], wanted[i], 1e-6);
        sum += shares[i];
    }
    ck_assert_double_eq_tol(sum, (double)batch, 1e-6);
}

START_TEST(test_share_without_fixed_time_is_proportional) {
    static const copse__speed speeds[] = {{.row_s = 1e-3}, {.row_s = 3e-3}};
    assert_shares(speeds, 2, 256, (const double[]){192, 64});
}
END_TEST

/* 10 + x = 2 (100 - x): both take 73.33 s. */
START_TEST(test_share_fixed_time_counts) {
    static const copse__speed speeds[] = {{.fixed_s = 10, .row_s = 1}, {.row_s = 2}};
    assert_shares(speeds, 2, 100, (const double[]){190.0 / 3, 110.0 / 3});
}
END_TEST

START_TEST(test_share_fixed_time_beyond_the_step_gives_nothing) {
    static const copse__speed speeds[] = {
        {.row_s = 1}, {.fixed_s = 60, .row_s = 0.1}, {.row_s = 1}};
    assert_shares(speeds, 3, 100, (const double[]){50, 0, 50});
}
END_TEST

START_TEST(test_share_memory_caps_and_the_rest_is_shared) {
    static const copse__speed speeds[] = {
        {.row_s = 1, .most_rows = 10}, {.row_s = 2}, {.row_s = 4}};
    assert_shares(speeds, 3, 100, (const double[]){10, 60, 30});
    static const copse__speed small[] = {{.row_s = 1, .most_rows = 10},
                                         {.row_s = 2, .most_rows = 20}};
    bool in[] = {true, true};
    double shares[2], seconds;
    ASSERT_FAILS(COPSE_DEVICE_MEMORY,
                 copse__speeds_share(small, 2, in, 31, shares, &seconds, &error));
    ASSERT_OK(copse__speeds_share(small, 2, in, 30, shares, &seconds, &error));
}
END_TEST

START_TEST(test_share_leaves_out_who_is_not_in) {
    static const copse__speed speeds[] = {{.row_s = 1}, {.row_s = 1}, {.row_s = 1}};
    const bool in[] = {true, false, true};
    double shares[3], seconds;
    ASSERT_OK(copse__speeds_share(speeds, 3, in, 10, shares, &seconds, &error));
    ck_assert(shares[0] == 5 && shares[1] == 0 && shares[2] == 5);
    ck_assert_double_eq_tol(seconds, 5, 1e-9);
}
END_TEST

/* user: the seconds of an all-reduce among any. */
static copse_status constant_cost(void *user, const bool *in, double *seconds,
                                  copse_error *err) {
    (void)in;
    (void)err;
    *seconds = *(const double *)user;
    return COPSE_OK;
}

static size_t planned(const copse__speed *speeds, size_t count, double cost,
                      double *shares) {
    bool in[8] = {true, true, true, true, true, true, true, true};
    size_t used = 0;
    ASSERT_OK(
        copse__speeds_plan(speeds, count, 100, constant_cost, &cost, in, shares, &error));
    for (size_t i = 0; i < count; i++) {
        ck_assert(in[i] == (shares[i] > 0));
        used += in[i];
    }
    return used;
}

/* Alone 100 s; with one 20 times slower 95.2 s and the all-reduce. */
START_TEST(test_plan_slow_device_stays_while_it_pays) {
    static const copse__speed speeds[] = {{.row_s = 1}, {.row_s = 20}};
    double shares[2];
    ck_assert_uint_eq(planned(speeds, 2, 2, shares), 2);
    ck_assert_uint_eq(planned(speeds, 2, 10, shares), 1);
    ck_assert(shares[0] == 100 && shares[1] == 0);
}
END_TEST

/* Between the other two the all-reduce goes on, so that only what the third brings counts. */
START_TEST(test_plan_leaves_out_one_by_one) {
    static const copse__speed speeds[] = {{.row_s = 1}, {.row_s = 1}, {.row_s = 500}};
    double shares[3];
    ck_assert_uint_eq(planned(speeds, 3, 5, shares),
                      2); /* it saves 0.1 %: within noise */
    ck_assert(shares[2] == 0 && shares[0] == 50);
    ck_assert_uint_eq(planned(speeds, 3, 60, shares), 1);
    ck_assert(shares[0] == 100);
}
END_TEST

START_TEST(test_plan_keeps_a_slow_device_that_memory_needs) {
    static const copse__speed speeds[] = {{.row_s = 1, .most_rows = 90}, {.row_s = 50}};
    double shares[2];
    ck_assert_uint_eq(planned(speeds, 2, 1000, shares), 2);
    ck_assert(shares[0] == 90 && shares[1] == 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("speeds");
    ADD_TEST(suite, test_share_without_fixed_time_is_proportional);
    ADD_TEST(suite, test_share_fixed_time_counts);
    ADD_TEST(suite, test_share_fixed_time_beyond_the_step_gives_nothing);
    ADD_TEST(suite, test_share_memory_caps_and_the_rest_is_shared);
    ADD_TEST(suite, test_share_leaves_out_who_is_not_in);
    ADD_TEST(suite, test_plan_slow_device_stays_while_it_pays);
    ADD_TEST(suite, test_plan_leaves_out_one_by_one);
    ADD_TEST(suite, test_plan_keeps_a_slow_device_that_memory_needs);
    return run_suite(suite);
}
