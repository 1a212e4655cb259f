/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a step are what devices of known slowness make them. */
#include "support/check.h"

#include "support/frail.h"
#include "support/run.h"
#include "train/bench.h"

static copse_error error;

static const char model[] =
    "model:\n"
    "  - flatten\n"
    "  - dense: {units: 16, activation: relu}\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 24, "
    "epochs: 100000}\n";
static const char micro[] =
    "model:\n"
    "  - flatten\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 24, "
    "epochs: 100000, reproducible: devices, micro_shard: 4}\n";

#define LAUNCH_S 2e-3

/* Two replicas with equal shards, of which the second sleeps at each launch. */
static void open_bench(test_run *run, copse__step_bench *bench, const char *yaml) {
    frail_reset();
    frail_slow_down(1, (uint64_t)(LAUNCH_S * 1e9), 0);
    test_run_open(run, yaml, 96, 2, NULL);
    copse__trainer_hooks hooks = copse__step_bench_hooks(bench);
    copse__trainer_options options = {.choices = run->choices,
                                      .choice_count = 2,
                                      .training = true,
                                      .backend = &frail_backend,
                                      .hooks = &hooks};
    ASSERT_OK(
        copse__trainer_open(&run->trainer, run->config, &run->sets, &options, &error));
    bench->trainer = run->trainer;
}

static void check_parts(const char *yaml, size_t least_launches) {
    test_run run;
    copse__step_bench bench = {0};
    copse__step_parts parts[2];
    copse__step_block block = {.parts = parts};
    open_bench(&run, &bench, yaml);
    ASSERT_OK(copse__step_bench_run(&bench, 0.05, true, &block, &error));
    const double step = block.seconds / (double)block.steps;
    ck_assert_uint_ge(block.steps, 3);
    ck_assert_uint_eq(block.rows, 24 * block.steps);
    ck_assert_double_ge(block.seconds, 0.05);
    /* The slow one sleeps in its passes, and the other waits for it; nobody for the other. */
    ck_assert_double_ge(parts[1].compute, (double)least_launches * LAUNCH_S);
    ck_assert_double_ge(parts[0].others, 0.5 * (parts[1].compute - parts[0].compute));
    ck_assert_double_gt(parts[0].others, 4 * parts[1].others);
    ck_assert_double_ge(block.exposed, parts[0].reduce);
    ck_assert_double_ge(block.exposed, parts[1].reduce);
    for (size_t r = 0; r < 2; r++) {
        const copse__step_parts *p = &parts[r];
        ck_assert_double_gt(p->compute, 0);
        ck_assert_double_gt(p->update, 0);
        ck_assert_double_le(block.data + p->upload + p->compute + p->others + p->reduce +
                                p->update,
                            step * 1.0001);
    }
    test_run_close(&run);
}

START_TEST(test_step_bench_parts_follow_the_devices) {
    check_parts(model, 6);
}
END_TEST

/* Where the host adds, the reduction is the download and the host's part. */
START_TEST(test_step_bench_parts_with_micro_shards) {
    check_parts(micro, 6);
}
END_TEST

/* Blocks go on where the one before ended, timed or not, over epochs. */
START_TEST(test_step_bench_blocks_follow_one_another) {
    test_run run;
    copse__step_bench bench = {0};
    open_bench(&run, &bench, model);
    frail_slow_down(1, 0, 0);
    uint64_t steps = 0;
    for (size_t i = 0; i < 6; i++) {
        copse__step_block block = {0};
        ASSERT_OK(copse__step_bench_run(&bench, 0.01, i % 2 == 1, &block, &error));
        steps += block.steps + 1; /* the one that began it */
        ck_assert_uint_eq(copse__trainer_position(run.trainer).step, steps);
        ck_assert_double_gt(block.cpu_seconds, 0);
        ck_assert((block.exposed > 0) == (i % 2 == 1));
    }
    ck_assert_uint_gt(copse__trainer_position(run.trainer).epoch, 0);
    test_run_close(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("step_bench");
    TCase *parts = tcase_create("parts");
    tcase_set_timeout(parts, 60);
    tcase_add_test(parts, test_step_bench_parts_follow_the_devices);
    tcase_add_test(parts, test_step_bench_parts_with_micro_shards);
    tcase_add_test(parts, test_step_bench_blocks_follow_one_another);
    suite_add_tcase(suite, parts);
    return run_suite(suite);
}
