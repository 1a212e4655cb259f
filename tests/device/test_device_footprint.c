/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "support/op_case.h"
#include "support/run.h"
#include "train/trainer.h"

/* What `copse summary` says that a replica takes, against what its device's buffers are counted to take while it
 * trains. */

enum { SAMPLES = 120, STEPS = 2 };

static copse_error error;
static copse__trainer *trainer;
static size_t seen_steps, seen_passes;
static const char *seen_case;

static const char mlp[] = "[flatten, {dense: {units: 32, activation: relu}},"
                          " {dense: {units: 4}}]";
static const char conv[] = "[{conv2d: {filters: 8, kernel: 3, activation: relu}},"
                           " {max_pool2d: {pool: 2}}, flatten,"
                           " {dense: {units: 16, activation: relu}},"
                           " {dense: {units: 4}}]";
static const char norm[] = "[{conv2d: {filters: 8, kernel: 3}}, batch_norm,"
                           " relu, {max_pool2d: {pool: 2}}, flatten,"
                           " {dropout: {rate: 0.25}}, {dense: {units: 4}}]";

static const struct {
    const char *name, *model, *optimizer, *train;
} cases[] = {
    {"mlp", mlp, "sgd", ""},
    {"mlp, momentum", mlp, "{sgd: {momentum: 0.9}}", ""},
    {"mlp, adam", mlp, "adam", ""},
    {"mlp, rmsprop", mlp, "rmsprop", ""},
    {"mlp, accumulated", mlp, "adam", ", accumulate: 3"},
    {"mlp, micro-shards", mlp, "sgd", ", reproducible: devices, micro_shard: 4"},
    {"convolution", conv, "adam", ""},
    {"convolution, accumulated", conv, "sgd", ", accumulate: 3"},
    {"batch norm", norm, "adam", ""},
    {"batch norm, micro-shards", norm, "{sgd: {momentum: 0.9}}",
     ", reproducible: devices, micro_shard: 4"},
};

static void check_near(const char *what, size_t rank, size_t counted, size_t planned) {
    ck_assert_msg(fabs((double)planned - (double)counted) <= 0.05 * (double)counted,
                  "%s, replica %zu: %s takes %zu bytes, planned are %zu", seen_case, rank,
                  what, counted, planned);
}

static copse_status on_step(void *user, const copse__progress *now, copse_error *err) {
    (void)user;
    (void)err;
    seen_steps++;
    if (now->step < STEPS)
        return COPSE_OK;
    for (size_t r = 0; r < copse__trainer_replicas(trainer); r++) {
        copse__memory_report m;
        copse__trainer_memory(trainer, r, &m);
        ck_assert_uint_gt(m.now.device, 4096);
        ck_assert_uint_gt(m.now.pinned, 0);
        ck_assert_uint_ge(m.peak.device, m.now.device);
        ck_assert_uint_ge(m.peak.pinned, m.now.pinned);
        check_near("device memory", r, m.now.device, m.planned.device);
        check_near("pinned memory", r, m.now.pinned, m.planned.pinned);
    }
    return COPSE_OK;
}

/* After the steps: their batches are gone. */
static void on_evaluate(void *user, const copse__progress *now) {
    (void)user;
    (void)now;
    seen_passes++;
    for (size_t r = 0; r < copse__trainer_replicas(trainer); r++) {
        copse__memory_report m;
        copse__trainer_memory(trainer, r, &m);
        check_near("device memory", r, m.now.device, m.planned.device);
        check_near("pinned memory in evaluation", r, m.now.pinned,
                   m.planned.pinned - m.batches + m.evaluation);
    }
}

static copse__trainer *open_trainer(const test_run *run, bool plan_only) {
    const copse__trainer_hooks hooks = {.on_step = on_step, .on_evaluate = on_evaluate};
    const copse__trainer_options options = {.choices = run->choices,
                                            .choice_count = run->replicas,
                                            .training = true,
                                            .plan_only = plan_only,
                                            .hooks = &hooks};
    copse__trainer *opened;
    ASSERT_OK(copse__trainer_open(&opened, run->config, &run->sets, &options, &error));
    return opened;
}

static void check_case(size_t i, size_t replicas) {
    char yaml[1024];
    test_run run;
    copse__memory_report planned[2], trained;
    seen_case = cases[i].name;
    seen_steps = seen_passes = 0;
    snprintf(yaml, sizeof yaml,
             "model: %s\ndevices: {tune: off}\n"
             "train: {loss: sparse_categorical_crossentropy, optimizer: %s, batch: 24,"
             " epochs: 1, steps: %d%s}\n",
             cases[i].model, cases[i].optimizer, STEPS, cases[i].train);
    test_run_open(&run, yaml, SAMPLES, replicas, NULL);
    for (size_t r = 0; r < replicas; r++) {
        run.choices[r] = copse__device_get(test_device)->choice;
        run.choices[r].weight = 1;
        run.choices[r].order = r;
    }
    trainer = open_trainer(&run, true);
    for (size_t r = 0; r < replicas; r++)
        copse__trainer_memory(trainer, r, &planned[r]);
    copse__trainer_close(trainer);
    trainer = run.trainer = open_trainer(&run, false);
    ASSERT_OK(copse__trainer_fit(trainer, &error));
    ck_assert_uint_eq(seen_steps, STEPS);
    for (size_t r = 0; r < replicas; r++) {
        copse__trainer_memory(trainer, r, &trained);
        ck_assert_uint_eq(planned[r].planned.device, trained.planned.device);
        ck_assert_uint_eq(planned[r].plan.pinned, trained.plan.pinned);
        ck_assert_uint_eq(planned[r].batches, trained.batches);
    }
    copse__score score;
    ASSERT_OK(copse__trainer_evaluate(trainer, run.sets.test, "test", &score, &error));
    ck_assert_uint_gt(seen_passes, 0);
    test_run_close(&run);
}

START_TEST(test_footprint_of_one_device_is_as_planned) {
    check_case((size_t)_i, 1);
}
END_TEST

START_TEST(test_footprint_of_two_devices_is_as_planned) {
    check_case((size_t)_i, 2);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device footprint");
    TCase *tests = device_case(suite, "footprint");
    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, test_footprint_of_one_device_is_as_planned, 0,
                        COPSE__COUNT(cases));
    tcase_add_loop_test(tests, test_footprint_of_two_devices_is_as_planned, 0,
                        COPSE__COUNT(cases));
    return run_device_suite(suite);
}
