/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <string.h>

#include "base/mem.h"
#include "support/frail.h"
#include "support/run.h"
#include "train/trainer_private.h"

/* Devices too slow to pay their way: they rest, wake when they are needed, and are asked again. */

static copse_error error;

#define MODEL                                                                            \
    "model:\n"                                                                           \
    "  - flatten\n"                                                                      \
    "  - dense: {units: 16, activation: relu}\n"                                         \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam,\n"                  \
    "  batch: 120, hash_every: 1, epochs: "

static const char plain[] = MODEL "1}\n";
static const char long_run[] = MODEL "6}\n";

static void setup(void) {
    frail_reset();
}

/* Devices without weights, so that they are measured. */
static void open_run(test_run *run, const char *yaml, size_t replicas) {
    test_run_open(run, yaml, 300, replicas, NULL);
    for (size_t r = 0; r < replicas; r++)
        run->choices[r].weight = 0;
    run->backend = &frail_backend;
}

static uint64_t hash_of(test_run *run) {
    uint64_t hash;
    ASSERT_OK(copse__trainer_hash(run->trainer, &hash, &error));
    return hash;
}
/* A pass whatever the rows: more than another device takes for the whole batch, also under a sanitizer on a busy
 * machine. */
#define SLOW_NS UINT64_C(200000000)

START_TEST(test_too_slow_device_rests) {
    test_run run, one;
    frail_slow_passes(1, SLOW_NS);
    open_run(&run, plain, 2);
    test_run_start(&run);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 120);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 1), 0);
    size_t calls = frail_calls(1, FRAIL_RUN);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert_uint_eq(frail_calls(1, FRAIL_RUN), calls);
    test_run_open(&one, plain, 300, 1, NULL);
    test_run_start(&one);
    ASSERT_OK(copse__trainer_fit(one.trainer, &error));
    ck_assert_uint_eq(hash_of(&run), hash_of(&one));
    test_run_close(&run);
    test_run_close(&one);
}
END_TEST

/* When one of two that work is lost, the third is given a share, and the weights of the other. */
START_TEST(test_resting_device_wakes_when_needed) {
    test_run run, one;
    frail_slow_passes(2, SLOW_NS);
    frail_slow_down(0, 0, 50000);
    frail_slow_down(1, 0, 50000);
    open_run(&run, plain, 3);
    test_run_start(&run);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 2), 0);
    run.stop_after_steps = 1;
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    run.stop_after_steps = 0;
    frail_slow_passes(2, 0);
    frail_fault(0, FRAIL_RUN, 1, FRAIL_FAIL);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert(copse__trainer_is_lost(run.trainer, 0));
    test_run_open(&one, plain, 300, 1, NULL);
    test_run_start(&one);
    ASSERT_OK(copse__trainer_fit(one.trainer, &error));
    ck_assert_uint_eq(run.loss_count, one.loss_count);
    for (size_t i = 0; i < one.loss_count; i++)
        ck_assert_double_eq_tol(run.losses[i], one.losses[i], 1e-4);
    hash_of(&run);
    test_run_close(&run);
    test_run_close(&one);
}
END_TEST

/* Who rests is asked again behind the first epoch, the second, the fourth: once it is as fast as the other it
 * gets a share. */
START_TEST(test_resting_device_is_measured_again) {
    test_run run, one;
    frail_slow_down(0, 0, 50000);
    frail_slow_passes(1, SLOW_NS);
    open_run(&run, long_run, 2);
    run.stop_after_steps = 1;
    test_run_start(&run);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 1), 0);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    run.stop_after_steps = 0;
    frail_slow_passes(1, 0);
    frail_slow_down(1, 0, 50000);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert_uint_gt(copse__trainer_shard(run.trainer, 1), 0);
    ck_assert_str_eq(run.last_event, "replanned");
    const copse__cuts *cuts = &run.trainer->cuts;
    ck_assert_uint_ge(cuts->count, 2);
    ck_assert_uint_eq(cuts->steps[1], run.loss_count / 6);
    ck_assert_uint_eq(cuts->shards[0], 120);
    ck_assert_uint_gt(cuts->shards[3], 0);
    test_run_open(&one, long_run, 300, 1, NULL);
    test_run_start(&one);
    ASSERT_OK(copse__trainer_fit(one.trainer, &error));
    ck_assert_uint_eq(run.loss_count, one.loss_count);
    for (size_t i = 0; i < one.loss_count; i++)
        ck_assert_double_eq_tol(run.losses[i], one.losses[i], 1e-4);
    hash_of(&run);
    test_run_close(&run);
    test_run_close(&one);
    for (size_t r = 0; r < 2; r++)
        ck_assert_uint_eq(frail_live_objects(r), 0);
}
END_TEST

/* One that stays slow is asked for one pass, behind epochs 1, 2 and 4 of 6, and told of. */
START_TEST(test_resting_device_that_stays_slow_rests_on) {
    test_run run;
    frail_slow_passes(1, SLOW_NS);
    open_run(&run, long_run, 2);
    test_run_start(&run);
    size_t calls = frail_calls(1, FRAIL_RUN);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 1), 0);
    ck_assert_uint_eq(run.trainer->cuts.count, 0);
    ck_assert_uint_eq(run.events, 3);
    ck_assert_str_eq(run.last_event, "measured_again");
    ck_assert_uint_ge(frail_calls(1, FRAIL_RUN), calls + 3);
    hash_of(&run);
    test_run_close(&run);
}
END_TEST

/* One that fails when it is asked is lost, and the others go on. */
START_TEST(test_resting_device_that_fails_is_lost) {
    test_run run;
    frail_slow_passes(1, SLOW_NS);
    open_run(&run, long_run, 2);
    test_run_start(&run);
    frail_fault(1, FRAIL_RUN, 1, FRAIL_FAIL);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert(copse__trainer_is_lost(run.trainer, 1));
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 120);
    hash_of(&run);
    test_run_close(&run);
}
END_TEST

/* 40 ms a row and launch: a pass over 60 rows would take many seconds. No launch of it ever has more than a few rows. */
START_TEST(test_far_too_slow_device_is_measured_by_few_rows) {
    test_run run;
    frail_slow_down(1, 0, 40000000);
    open_run(&run, plain, 2);
    test_run_start(&run);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 1), 0);
    ck_assert_uint_le(frail_most_rows(1), 30);
    test_run_close(&run);
}
END_TEST

/* One that rested is fast enough for a share now, and fails or hangs at some call while it is asked, measured,
 * joined to the others or given the weights: it is lost, and what its thread does when it comes back hurts nobody. */
static size_t strike_who_is_asked(frail_call call, size_t nth, frail_action action) {
    static const char failing[] = MODEL "3}\ndevices: {stall_seconds: 20}\n";
    static const char hanging[] = MODEL "3}\ndevices: {stall_seconds: 0.5}\n";
    test_run run;
    frail_reset();
    frail_slow_down(0, 0, 50000);
    open_run(&run, action == FRAIL_HANG ? hanging : failing, 2);
    run.shards[0] = 120;
    test_run_start(&run);
    ck_assert_str_eq(copse__trainer_shards_are(run.trainer), "as recorded");
    frail_fault(1, call, nth, action);
    copse_status status = copse__trainer_fit(run.trainer, &error);
    const bool struck = frail_struck(1);
    ck_assert_msg(status == COPSE_OK, "call %d, %zuth, action %d: %s: %s", (int)call, nth,
                  (int)action, error.place, error.text);
    ck_assert_msg(copse__trainer_is_lost(run.trainer, 1) == struck, "call %d, %zuth",
                  (int)call, nth);
    ck_assert(!copse__trainer_is_lost(run.trainer, 0));
    if (struck)
        ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 120);
    else
        ck_assert_uint_gt(copse__trainer_shard(run.trainer, 1), 0);
    frail_release();
    hash_of(&run);
    test_run_close(&run);
    return struck;
}

START_TEST(test_resting_device_that_fails_while_it_joins_is_lost) {
    static const struct {
        frail_call call;
        size_t nth;
    } points[] = {{FRAIL_RUN, 1},   {FRAIL_RUN, 9},  {FRAIL_WRITE, 1}, {FRAIL_WRITE, 4},
                  {FRAIL_READ, 1},  {FRAIL_MAP, 1},  {FRAIL_ALLOC, 1}, {FRAIL_ALLOC, 3},
                  {FRAIL_ALLOC, 4}, {FRAIL_WAIT, 30}};
    size_t struck = 0;
    for (size_t i = 0; i < COPSE__COUNT(points); i++)
        struck += strike_who_is_asked(points[i].call, points[i].nth, FRAIL_FAIL);
    ck_assert_uint_ge(struck, 5);
}
END_TEST

START_TEST(test_resting_device_that_hangs_while_it_joins_is_lost) {
    size_t struck = strike_who_is_asked(FRAIL_RUN, 1, FRAIL_HANG) +
                    strike_who_is_asked(FRAIL_RUN, 9, FRAIL_HANG) +
                    strike_who_is_asked(FRAIL_WAIT, 9, FRAIL_HANG) +
                    strike_who_is_asked(FRAIL_FINISH, 1, FRAIL_HANG);
    ck_assert_uint_ge(struck, 3);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, NULL, 60)

int main(void) {
    Suite *suite = suite_create("trainer_resting");
    ADD(test_too_slow_device_rests);
    ADD(test_resting_device_wakes_when_needed);
    ADD(test_resting_device_is_measured_again);
    ADD(test_resting_device_that_stays_slow_rests_on);
    ADD(test_resting_device_that_fails_is_lost);
    ADD(test_far_too_slow_device_is_measured_by_few_rows);
    ADD(test_resting_device_that_fails_while_it_joins_is_lost);
    ADD(test_resting_device_that_hangs_while_it_joins_is_lost);
    return run_suite(suite);
}
