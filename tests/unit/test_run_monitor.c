/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that stop early and lower their learning rate: interrupted anywhere and resumed, they decide and end as
 * if they had never stopped. */
#include "support/check.h"
#include "support/files.h"

#include <math.h>

#include "support/run.h"
#include "train/run.h"

static copse_error error;
static char *base;
static char folder[600];
static copse__run *open_one; /* which the hooks log to */

/* 100 samples in batches of 24: 5 steps an epoch. */
#define HEAD                                                                             \
    "model:\n"                                                                           \
    "  - flatten\n"                                                                      \
    "  - dropout: {rate: 0.3}\n"                                                         \
    "  - batch_norm\n"                                                                   \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, batch: 24, epochs: 12,\n"            \
    "  optimizer: {adam: {learning_rate: 0.05}},\n"
static const char both[] =
    HEAD "  early_stopping: {monitor: loss, patience: 3, min_delta: 0.02,\n"
         "    restore_best_weights: true},\n"
         "  reduce_lr_on_plateau: {monitor: val_accuracy, patience: 1, factor: 0.5}}\n"
         "checkpoint: {every: {steps: 2}, keep: 2}\n";
static const char patient[] =
    HEAD "  early_stopping: {monitor: loss, patience: 50, min_delta: 0.02,\n"
         "    restore_best_weights: true},\n"
         "  reduce_lr_on_plateau: {monitor: val_accuracy, patience: 1, factor: 0.5}}\n"
         "checkpoint: {every: {steps: 2}, keep: 2}\n";
static const char unnormed[] =
    "model: [flatten, {dense: {units: 4}}]\n"
    "train: {loss: sparse_categorical_crossentropy, batch: 24, epochs: 12,\n"
    "  optimizer: {adam: {learning_rate: 0.05}},\n"
    "  early_stopping: {monitor: val_loss, patience: 2, min_delta: 0.05},\n"
    "  reduce_lr_on_plateau: {monitor: loss, patience: 1, min_delta: 0.3}}\n";
static const char neither[] = HEAD "  steps: 60}\n";

static void setup(void) {
    base = make_folder();
    snprintf(folder, sizeof folder, "%s/run", base);
}
static void teardown(void) {
    remove_folder(base);
}

static copse_status log_step(void *user, const copse__progress *now, copse_error *err) {
    test_run *run = user;
    if (run->stop_after_steps > 0 && now->step == run->stop_after_steps)
        copse__trainer_stop(run->trainer);
    return copse__run_step(open_one, now, err);
}

static copse_status log_epoch(void *user, const copse__epoch_report *report,
                              copse_error *err) {
    (void)user;
    return copse__run_epoch(open_one, report, err);
}

static void in_validation(void *user, const copse__progress *now) {
    test_run *run = user;
    if (run->stop_after_steps == UINT64_MAX && now->index == 1)
        copse__trainer_stop(run->trainer);
}

typedef struct outcome {
    copse_status status;
    uint64_t hash;
    copse__position at;
    double rate;
    bool restored;
} outcome;

/* stop_after: steps; UINT64_MAX: within the validation of each epoch; 0: never. */
static outcome train(const char *yaml, size_t replicas, uint64_t stop_after,
                     bool resume) {
    test_run run;
    outcome made = {0};
    copse_error why = {0};
    test_run_open(&run, yaml, 100, replicas, NULL);
    run.sets.validation = run.sets.test;
    run.sets.validation_name = "test";
    run.sets.validation_is_test = true;
    run.stop_after_steps = stop_after;
    ASSERT_OK(copse__run_open(&open_one, run.config, folder, resume, &error));
    copse__trainer_hooks hooks = {.on_step = log_step,
                                  .on_epoch = log_epoch,
                                  .on_evaluate = in_validation,
                                  .user = &run};
    copse__trainer_options options = {.choices = run.choices,
                                      .choice_count = replicas,
                                      .training = true,
                                      .hooks = &hooks};
    options.shards = copse__run_shards(open_one, run.choices, replicas, &options.cuts);
    ASSERT_OK(copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
    ASSERT_OK(copse__run_start(open_one, run.trainer, &error));
    made.status = copse__trainer_fit(run.trainer, &why);
    if (made.status == COPSE_OK)
        ASSERT_OK(copse__run_restore_best(open_one, &made.restored, &error));
    ASSERT_OK(copse__run_end(open_one, made.status, &why, NULL, &error));
    ASSERT_OK(copse__trainer_hash(run.trainer, &made.hash, &error));
    made.at = copse__trainer_position(run.trainer);
    made.rate = copse__trainer_rate(run.trainer, made.at.step);
    copse__run_close(open_one);
    run.sets.validation = NULL; /* borrowed from the test */
    test_run_close(&run);
    return made;
}

static unsigned count_in_log(const char *wanted) {
    size_t bytes;
    unsigned found = 0;
    char *text = (char *)read_whole(in_folder(folder, "log.jsonl"), &bytes);
    text[bytes] = '\0'; /* read_whole leaves room for it */
    for (char *at = text; (at = strstr(at, wanted)) != NULL; at++)
        found++;
    free(text);
    return found;
}

static void assert_same(outcome a, outcome b) {
    ck_assert_uint_eq(a.hash, b.hash);
    ck_assert_uint_eq(a.at.step, b.at.step);
    ck_assert_uint_eq(a.at.epoch, b.at.epoch);
    ck_assert_double_eq(a.rate, b.rate);
    ck_assert_int_eq(a.restored, b.restored);
}

START_TEST(test_run_stops_early_with_the_best_weights) {
    outcome made = train(both, 2, 0, false);
    ASSERT_OK(made.status);
    ck_assert_uint_lt(made.at.epoch, 12);
    ck_assert(made.restored);
    ck_assert_double_lt(made.rate, 0.05);
    ck_assert_uint_eq(count_in_log("\"what\":\"stopped_early\""), 1);
    ck_assert_uint_ge(count_in_log("\"what\":\"learning_rate_reduced\""), 1);
    ck_assert_uint_eq(count_in_log("\"kind\":\"epoch\""), made.at.epoch);
    /* What is resumed are the last weights, and there is nothing more to do. */
    assert_same(train(both, 2, 0, true), made);
    ck_assert_uint_eq(count_in_log("\"kind\":\"epoch\""), made.at.epoch);
    /* With more patience it goes on, as if it had had it from the start. */
    outcome on = train(patient, 2, 0, true);
    ck_assert_uint_eq(on.at.epoch, 12);
    remove_folder(folder);
    assert_same(train(patient, 2, 0, false), on);
}
END_TEST

START_TEST(test_run_interrupted_anywhere_decides_the_same) {
    outcome wanted = train(both, 2, 0, false);
    unsigned epochs = count_in_log("\"kind\":\"epoch\"");
    unsigned reductions = count_in_log("\"what\":\"learning_rate_reduced\"");
    for (uint64_t step = 1; step < wanted.at.step; step += 3) {
        remove_folder(folder);
        ck_assert_int_eq(train(both, 2, step, false).status, COPSE_INTERRUPTED);
        assert_same(train(both, 2, 0, true), wanted);
        ck_assert_uint_eq(count_in_log("\"kind\":\"epoch\""), epochs);
        ck_assert_uint_eq(count_in_log("\"what\":\"learning_rate_reduced\""), reductions);
        ck_assert_uint_eq(count_in_log("\"kind\":\"step\""), wanted.at.step);
    }
}
END_TEST

/* The epoch's end is made up for where its validation was interrupted. */
START_TEST(test_run_interrupted_in_validations_decides_the_same) {
    outcome wanted = train(both, 1, 0, false), made;
    remove_folder(folder);
    made = train(both, 1, UINT64_MAX, false);
    for (unsigned round = 0; round < 3; round++) {
        ck_assert_int_eq(made.status, COPSE_INTERRUPTED);
        ck_assert_uint_eq(made.at.epoch, 0);
        ck_assert_uint_eq(made.at.batch, 5);
        made = train(both, 1, UINT64_MAX, true);
    }
    assert_same(train(both, 1, 0, true), wanted);
    ck_assert_uint_eq(count_in_log("\"kind\":\"epoch\""), wanted.at.epoch);
}
END_TEST

/* Replicas, however many, are told the same. */
START_TEST(test_run_decides_once_for_all_replicas) {
    outcome one = train(unnormed, 1, 0, false);
    remove_folder(folder);
    outcome four = train(unnormed, 4, 0, false);
    ck_assert_uint_lt(one.at.epoch, 12);
    ck_assert_double_lt(one.rate, 0.05);
    ck_assert_uint_eq(one.at.epoch, four.at.epoch);
    ck_assert_double_eq(one.rate, four.rate);
}
END_TEST

/* The best epoch's weights, as the checkpoint has them; and a run without all that has no other bits. */
START_TEST(test_run_restores_what_the_best_checkpoint_holds) {
    outcome made = train(both, 1, 0, false);
    char *path;
    test_run run;
    uint64_t hash;
    ASSERT_OK(copse__run_folder_find(folder, COPSE__CHECKPOINT_BEST, &path, &error));
    test_run_open(&run, both, 100, 1, NULL);
    run.sets.validation = run.sets.test;
    run.sets.validation_is_test = true;
    test_run_start(&run);
    ASSERT_OK(copse__run_load_weights(run.trainer, path, &error));
    ASSERT_OK(copse__trainer_hash(run.trainer, &hash, &error));
    ck_assert_uint_eq(hash, made.hash);
    ASSERT_OK(copse__run_load_weights(run.trainer, in_folder(folder, "best.safetensors"),
                                      &error));
    ASSERT_OK(copse__trainer_hash(run.trainer, &hash, &error));
    ck_assert_uint_eq(hash, made.hash);
    run.sets.validation = NULL; /* borrowed from the test */
    test_run_close(&run);
    free(path);
    remove_folder(folder);
    made = train(neither, 1, 0, false);
    ck_assert_uint_eq(made.at.step, 60);
    ck_assert(!made.restored);
    ck_assert_double_eq(made.rate, 0.05);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 100)

int main(void) {
    Suite *suite = suite_create("run_monitor");
    ADD(test_run_stops_early_with_the_best_weights);
    ADD(test_run_interrupted_anywhere_decides_the_same);
    ADD(test_run_interrupted_in_validations_decides_the_same);
    ADD(test_run_decides_once_for_all_replicas);
    ADD(test_run_restores_what_the_best_checkpoint_holds);
    return run_suite(suite);
}
