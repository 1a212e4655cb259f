/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/monitor.h"

/* Epoch for epoch what Keras decides (tests/data/golden/make_monitor.py). Keras compares in float32, so its
 * series keep clear of ties that only rounding would break. */

static FILE *golden;

static void read_golden(void) {
    char line[256];
    golden = fopen("tests/data/golden/monitor.golden", "r");
    ck_assert_ptr_nonnull(golden);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, golden)); /* the origin */
}

static void read_monitor(copse__config_monitor *monitor, char metric[32]) {
    char mode[8];
    unsigned long long patience;
    ck_assert_int_eq(
        fscanf(golden, "%31s %7s %lf %llu", metric, mode, &monitor->min_delta, &patience),
        4);
    monitor->metric = metric;
    monitor->patience = patience;
    monitor->mode = strcmp(mode, "min") == 0   ? COPSE__MODE_MIN
                    : strcmp(mode, "max") == 0 ? COPSE__MODE_MAX
                                               : COPSE__MODE_AUTO;
}

static void assert_best(const copse__monitor_state *state, double best) {
    ck_assert_int_eq(state->has_best, !isnan(best));
    if (state->has_best)
        ck_assert_double_eq(state->best, best);
}

static unsigned check_early(unsigned stops) {
    copse__config_early_stopping config = {.enabled = true};
    copse__monitor_state state = {0};
    char metric[32];
    unsigned long long start, epochs, wait;
    double value, best;
    int stop = 0, better;
    read_monitor(&config.monitor, metric);
    ck_assert_int_eq(fscanf(golden, "%lf %llu %llu", &config.baseline, &start, &epochs),
                     3);
    config.start_from_epoch = start;
    for (uint64_t e = 0; e < epochs; e++) {
        ck_assert_int_eq(
            fscanf(golden, "%lf %llu %lf %d %d", &value, &wait, &best, &stop, &better),
            5);
        copse__early_decision made =
            copse__early_stopping_epoch(&config, &state, e, value);
        ck_assert_uint_eq(state.wait, wait);
        assert_best(&state, best);
        ck_assert_int_eq(made.stop, stop);
        ck_assert_int_eq(made.better, better);
        ck_assert_int_eq(copse__early_stopping_stands(&config, &state), stop);
    }
    return stops + (stop != 0);
}

static unsigned check_plateau(unsigned reductions) {
    copse__config_plateau config = {.enabled = true};
    copse__monitor_state state = {0};
    char metric[32];
    unsigned long long cooldown, epochs, wait, left;
    double value, best, rate, wanted;
    read_monitor(&config.monitor, metric);
    ck_assert_int_eq(fscanf(golden, "%lf %llu %lf %lf %llu", &config.factor, &cooldown,
                            &config.min_lr, &rate, &epochs),
                     5);
    config.cooldown = cooldown;
    for (uint64_t e = 0; e < epochs; e++) {
        ck_assert_int_eq(
            fscanf(golden, "%lf %llu %lf %llu %lf", &value, &wait, &best, &left, &wanted),
            5);
        double now = copse__plateau_epoch(&config, &state, value, rate);
        reductions += now < rate;
        rate = now;
        ck_assert_uint_eq(state.wait, wait);
        ck_assert_uint_eq(state.cooldown, left);
        assert_best(&state, best);
        ck_assert_float_eq((float)rate, (float)wanted);
    }
    return reductions;
}

START_TEST(test_decisions_are_those_of_keras) {
    char kind[16];
    unsigned stops = 0, reductions = 0;
    read_golden();
    while (fscanf(golden, "%15s", kind) == 1)
        if (strcmp(kind, "early") == 0)
            stops = check_early(stops);
        else
            reductions = check_plateau(reductions);
    fclose(golden);
    ck_assert_uint_gt(stops, 20);
    ck_assert_uint_gt(reductions, 100);
}
END_TEST

START_TEST(test_what_is_not_finite_is_never_better) {
    copse__config_early_stopping stop = {
        .enabled = true, .baseline = NAN, .monitor = {.metric = "loss", .patience = 2}};
    copse__config_plateau plateau = {
        .enabled = true, .factor = 0.5, .monitor = {.metric = "accuracy", .patience = 2}};
    copse__monitor_state early = {0}, flat = {0};
    ck_assert(!copse__early_stopping_epoch(&stop, &early, 0, (double)-INFINITY).better);
    ck_assert(copse__early_stopping_epoch(&stop, &early, 1, (double)NAN).stop);
    ck_assert(!early.has_best);
    ck_assert_double_eq(copse__plateau_epoch(&plateau, &flat, (double)INFINITY, 1), 1);
    ck_assert_double_eq(copse__plateau_epoch(&plateau, &flat, (double)INFINITY, 1), 0.5);
    ck_assert(!flat.has_best);
}
END_TEST

/* A run that had stopped goes on where it is given more patience, and not otherwise. */
START_TEST(test_stopping_stands_with_its_patience) {
    copse__config_early_stopping stop = {
        .enabled = true, .baseline = NAN, .monitor = {.metric = "loss", .patience = 2}};
    copse__monitor_state state = {0};
    for (uint64_t e = 0; e < 3; e++)
        copse__early_stopping_epoch(&stop, &state, e, 1);
    ck_assert(copse__early_stopping_stands(&stop, &state));
    stop.monitor.patience = 3;
    ck_assert(!copse__early_stopping_stands(&stop, &state));
    stop.monitor.patience = 2;
    stop.enabled = false;
    ck_assert(!copse__early_stopping_stands(&stop, &state));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("monitor");
    ADD_TEST(suite, test_decisions_are_those_of_keras);
    ADD_TEST(suite, test_what_is_not_finite_is_never_better);
    ADD_TEST(suite, test_stopping_stands_with_its_patience);
    return run_suite(suite);
}
