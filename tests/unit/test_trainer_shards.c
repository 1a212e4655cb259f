/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <string.h>

#include "support/files.h"
#include "support/frail.h"
#include "support/run.h"
#include "train/run_plan.h"
#include "train/trainer_private.h"

static copse_error error;

#define MODEL                                                                            \
    "model:\n"                                                                           \
    "  - flatten\n"                                                                      \
    "  - dense: {units: 16, activation: relu}\n"                                         \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam,\n"                  \
    "  batch: 120, epochs: 1, hash_every: 1"

static const char plain[] = MODEL "}\n";
static const char equal[] = MODEL "}\ndevices: {shards: equal}\n";
static const char accumulating[] = MODEL ", accumulate: 2}\n";
static const char micro[] = MODEL ", reproducible: devices, micro_shard: 8}\n";

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

/* Device 0 sleeps 50 us a row and launch, device 1 three times as long: 90 and 30 rows, give or take what
 * a busy machine adds. */
static void measure(const char *yaml) {
    test_run run;
    frail_slow_down(0, 0, 50000);
    frail_slow_down(1, 0, 150000);
    open_run(&run, yaml, 2);
    test_run_start(&run);
    size_t first = copse__trainer_shard(run.trainer, 0);
    ck_assert_str_eq(copse__trainer_shards_are(run.trainer), "measured");
    ck_assert_msg(first >= 80 && first <= 100, "shard %zu of 120", first);
    ck_assert_uint_eq(first + copse__trainer_shard(run.trainer, 1), 120);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    hash_of(&run);
    test_run_close(&run);
    for (size_t r = 0; r < 2; r++)
        ck_assert_uint_eq(frail_live_objects(r), 0);
}

START_TEST(test_shards_follow_measured_speed) {
    measure(plain);
}
END_TEST

START_TEST(test_shards_follow_measured_speed_of_micro_batches) {
    measure(accumulating);
}
END_TEST

START_TEST(test_shards_are_whole_micro_shards) {
    test_run run;
    frail_slow_down(0, 0, 50000);
    frail_slow_down(1, 0, 150000);
    open_run(&run, micro, 2);
    test_run_start(&run);
    size_t first = copse__trainer_shard(run.trainer, 0);
    ck_assert_msg(first >= 80 && first <= 104 && first % 8 == 0, "%zu of 120", first);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    test_run_close(&run);
}
END_TEST

/* Measuring leaves nothing behind: recorded, the same shards give the same bits. */
START_TEST(test_shards_recorded_give_the_bits_of_measured_ones) {
    test_run a, b;
    frail_slow_down(0, 0, 50000);
    frail_slow_down(1, 0, 150000);
    open_run(&a, plain, 2);
    test_run_start(&a);
    ASSERT_OK(copse__trainer_fit(a.trainer, &error));
    open_run(&b, plain, 2);
    for (size_t r = 0; r < 2; r++)
        b.shards[r] = copse__trainer_shard(a.trainer, r);
    test_run_start(&b);
    ck_assert_str_eq(copse__trainer_shards_are(b.trainer), "as recorded");
    ASSERT_OK(copse__trainer_fit(b.trainer, &error));
    ck_assert_uint_eq(hash_of(&a), hash_of(&b));
    test_run_close(&a);
    test_run_close(&b);
}
END_TEST

START_TEST(test_shards_weights_and_equal_are_not_measured) {
    test_run run;
    open_run(&run, plain, 2);
    run.choices[0].weight = 3;
    frail_slow_down(0, 0, 30000);
    test_run_start(&run);
    ck_assert_str_eq(copse__trainer_shards_are(run.trainer), "by weight");
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 90);
    test_run_close(&run);
    open_run(&run, equal, 2);
    test_run_start(&run);
    ck_assert_str_eq(copse__trainer_shards_are(run.trainer), "equal");
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 60);
    test_run_close(&run);
    open_run(&run, plain, 1);
    test_run_start(&run);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 120);
    test_run_close(&run);
}
END_TEST

/* ---- Speeds that drift ----------------------------------------------------------------- */

#define LONG                                                                             \
    "model:\n"                                                                           \
    "  - flatten\n"                                                                      \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam,\n"                  \
    "  batch: 120, epochs: 6, hash_every: 1}\n"
#define LONG_STEPS 60

/* The first epoch with one device three times as slow, the others with the other one so. */
static void drift(test_run *run, const char *yaml, double weight, bool drifts) {
    frail_slow_down(0, 0, 50000);
    frail_slow_down(1, 0, 150000);
    test_run_open(run, yaml, LONG_STEPS / 6 * 120, 2, NULL);
    run->backend = &frail_backend;
    run->choices[0].weight = weight;
    run->choices[1].weight = weight / 3;
    test_run_start(run);
    run->stop_after_steps = LONG_STEPS / 6;
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run->trainer, &error));
    run->stop_after_steps = 0;
    if (drifts) {
        frail_slow_down(0, 0, 150000);
        frail_slow_down(1, 0, 50000);
    }
    ASSERT_OK(copse__trainer_fit(run->trainer, &error));
    ck_assert_uint_eq(run->loss_count, LONG_STEPS);
}

/* Written to plan.json and read again, a step has the shards it had. */
static void check_plan(test_run *run) {
    const copse__cuts *cuts = &run->trainer->cuts;
    const char *folder = make_folder();
    const char *path = in_folder(folder, "run");
    copse__run_folder *opened;
    copse__run_plan *plan, *copy;
    copse__text text = {0};
    ASSERT_OK(copse__run_folder_open(&opened, &(copse__run_folder_options){.path = path},
                                     &error));
    ASSERT_OK(copse__trainer_plan(run->trainer, &text, &error));
    ASSERT_OK(copse__run_plan_load(&plan, opened, NULL, &error));
    ck_assert_ptr_null(plan);
    ASSERT_OK(copse__run_plan_load(&copy, opened, text.data, &error));
    ASSERT_OK(copse__run_folder_put(opened, "plan.json", text.data, text.length, &error));
    ASSERT_OK(copse__run_plan_load(&plan, opened, "not read", &error));
    for (uint64_t step = 0; step <= LONG_STEPS; step++) {
        size_t now = 0;
        while (now + 1 < cuts->count && cuts->steps[now + 1] <= step)
            now++;
        ck_assert_mem_eq(copse__run_plan_match(plan, run->choices, 2, step),
                         cuts->shards + 2 * now, 2 * sizeof(size_t));
        ck_assert_mem_eq(copse__run_plan_match(copy, run->choices, 2, step),
                         cuts->shards + 2 * now, 2 * sizeof(size_t));
    }
    copse__run_plan_free(copy);
    ck_assert_uint_eq(copse__run_plan_cuts(plan)->count, cuts->count);
    copse__run_plan_free(plan);
    char *at = strstr(text.data, "\"cuts\"");
    ck_assert_ptr_nonnull(at);
    at = strstr(at, "\"shards\": [") + strlen("\"shards\": [");
    *at = *at == '9' ? '8' : '9'; /* the first shard's first digit: they do not add up */
    ASSERT_OK(copse__run_folder_put(opened, "plan.json", text.data, text.length, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse__run_plan_load(&plan, opened, "", &error));
    copse__text_free(&text);
    copse__run_folder_close(opened);
    remove_folder(folder);
}

START_TEST(test_shards_follow_speeds_that_drift) {
    test_run run, one, again;
    drift(&run, LONG, 0, true);
    ck_assert_str_eq(run.last_event, "replanned");
    size_t first = copse__trainer_shard(run.trainer, 0);
    ck_assert_msg(first >= 20 && first <= 45, "shard %zu of 120", first);
    test_run_open(&one, LONG, LONG_STEPS / 6 * 120, 1, NULL);
    test_run_start(&one);
    ASSERT_OK(copse__trainer_fit(one.trainer, &error));
    for (size_t i = 0; i < LONG_STEPS; i++)
        ck_assert_double_eq_tol(run.losses[i], one.losses[i], 1e-4);
    /* Recorded, the same shards at the same steps give the same bits, whatever the speeds are then. */
    const copse__cuts *cuts = &run.trainer->cuts;
    ck_assert_uint_ge(cuts->count, 2);
    ck_assert_uint_eq(cuts->steps[0], 0);
    ck_assert_uint_eq(cuts->steps[1] % 10, 0);
    ck_assert_uint_ge(cuts->steps[1], 20);
    check_plan(&run);
    test_run_open(&again, LONG, LONG_STEPS / 6 * 120, 2, NULL);
    again.choices[0].weight = again.choices[1].weight = 1; /* nothing is decided anew */
    frail_slow_down(0, 0, 0);
    frail_slow_down(1, 0, 0);
    copse__trainer_hooks hooks = test_run_hooks(&again);
    copse__trainer_options options = {.choices = again.choices,
                                      .choice_count = 2,
                                      .shards = cuts->shards,
                                      .cuts = cuts,
                                      .training = true,
                                      .hooks = &hooks};
    ASSERT_OK(
        copse__trainer_open(&again.trainer, again.config, &again.sets, &options, &error));
    ASSERT_OK(copse__trainer_fit(again.trainer, &error));
    ck_assert_uint_eq(hash_of(&run), hash_of(&again));
    ck_assert_uint_eq(again.trainer->cuts.count, cuts->count);
    ck_assert_uint_eq(copse__trainer_shard(again.trainer, 0), first);
    test_run_close(&again);
    test_run_close(&one);
    test_run_close(&run);
    for (size_t r = 0; r < 2; r++)
        ck_assert_uint_eq(frail_live_objects(r), 0);
}
END_TEST

START_TEST(test_shards_stay_where_they_are_fixed_or_nothing_drifts) {
    test_run run;
    drift(&run, LONG, 0, false);
    ck_assert_uint_eq(run.events, 0);
    test_run_close(&run);
    drift(&run, LONG, 3, true);
    ck_assert_uint_eq(run.events, 0);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 90);
    test_run_close(&run);
    drift(&run, LONG "devices: {shards: equal}\n", 0, true);
    ck_assert_uint_eq(run.events, 0);
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 0), 60);
    test_run_close(&run);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, NULL, 60)

int main(void) {
    Suite *suite = suite_create("trainer_shards");
    ADD(test_shards_follow_measured_speed);
    ADD(test_shards_follow_measured_speed_of_micro_batches);
    ADD(test_shards_are_whole_micro_shards);
    ADD(test_shards_recorded_give_the_bits_of_measured_ones);
    ADD(test_shards_weights_and_equal_are_not_measured);
    ADD(test_shards_follow_speeds_that_drift);
    ADD(test_shards_stay_where_they_are_fixed_or_nothing_drifts);
    return run_suite(suite);
}
