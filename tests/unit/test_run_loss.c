/* SPDX-License-Identifier: Apache-2.0 */
/* A lost device as the run's folder tells it, and going on from there. */
#include "support/check.h"
#include "support/files.h"

#include "support/frail.h"
#include "support/run.h"
#include "train/run.h"

static copse_error error;
static char *base;
static char folder[1024];
static copse__run *open_one; /* which the hooks log to */

#define MODEL                                                                            \
    "model:\n"                                                                           \
    "  - flatten\n"                                                                      \
    "  - batch_norm\n"                                                                   \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 24,\n"       \
    "  epochs: 3, on_device_loss: "

static void setup(void) {
    frail_reset();
    base = make_folder();
    snprintf(folder, sizeof folder, "%s/run", base);
}
static void teardown(void) {
    remove_folder(base);
}

static copse_status log_step(void *user, const copse__progress *now, copse_error *err) {
    test_run *run = user;
    if (run->stop_after_steps > 0 && now->step == run->stop_after_steps)
        frail_fault(1, FRAIL_RUN, 1, FRAIL_FAIL);
    return copse__run_step(open_one, now, err);
}

static copse_status log_epoch(void *user, const copse__epoch_report *report,
                              copse_error *err) {
    (void)user;
    return copse__run_epoch(open_one, report, err);
}

static void log_event(void *user, const copse__trainer_event *event) {
    (void)user;
    copse__run_event(open_one, event);
}

/* Trains to the end on `replicas` devices; device 1 is lost after fault_after steps (0: never). */
static copse_status train(const char *policy, size_t replicas, uint64_t fault_after,
                          bool resume, uint64_t *hash) {
    test_run run;
    char yaml[1024];
    copse_error why = {0};
    snprintf(yaml, sizeof yaml, "%s%s}\n", MODEL, policy);
    test_run_open(&run, yaml, 100, replicas, NULL);
    run.stop_after_steps = fault_after;
    ASSERT_OK(copse__run_open(&open_one, run.config, folder, resume, &error));
    copse__trainer_hooks hooks = {
        .on_step = log_step, .on_epoch = log_epoch, .on_event = log_event, .user = &run};
    copse__trainer_options options = {.choices = run.choices,
                                      .choice_count = replicas,
                                      .training = true,
                                      .backend = &frail_backend,
                                      .hooks = &hooks};
    options.shards = copse__run_shards(open_one, run.choices, replicas, &options.cuts);
    ASSERT_OK(copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
    ASSERT_OK(copse__run_start(open_one, run.trainer, &error));
    copse_status status = copse__trainer_fit(run.trainer, &why);
    ASSERT_OK(copse__run_end(open_one, status, &why, NULL, &error));
    ASSERT_OK(copse__trainer_hash(run.trainer, hash, &error));
    copse__run_close(open_one);
    test_run_close(&run);
    return status;
}

static char *read_text(const char *name) {
    size_t bytes;
    char *text = (char *)read_whole(in_folder(folder, name), &bytes);
    text = realloc(text, bytes + 1);
    ck_assert_ptr_nonnull(text);
    text[bytes] = '\0';
    return text;
}

static void assert_has(const char *name, const char *wanted) {
    char *text = read_text(name);
    ck_assert_msg(strstr(text, wanted) != NULL, "%s has no %s:\n%s", name, wanted, text);
    free(text);
}

START_TEST(test_run_continue_logs_the_loss_and_the_new_shards) {
    uint64_t hash;
    ASSERT_OK(train("continue", 3, 4, false, &hash));
    assert_has("log.jsonl",
               "\"what\":\"device_lost\",\"step\":4,\"device\":\"host@1\",\"why\":\"");
    assert_has("log.jsonl", "the driver gave up");
    assert_has("log.jsonl", "\"what\":\"resharded\",\"step\":4,\"shards\":[12,0,12]");
    assert_has("log.jsonl", "\"status\":\"done\",\"steps\":15");
    assert_has("plan.json", "\"device\": \"host@2\"");
    char *plan = read_text("plan.json");
    ck_assert_ptr_null(strstr(plan, "host@1"));
    free(plan);
}
END_TEST

/* The checkpoint is that of the last whole step, and a resumed run ends with the bits of one that was
 * never interrupted. */
START_TEST(test_run_stop_saves_and_resumes) {
    uint64_t hash, wanted;
    ASSERT_OK(train("stop", 3, 0, false, &wanted));
    remove_folder(folder);
    ASSERT_FAILS(COPSE_DEVICE, train("stop", 3, 7, false, &hash));
    assert_has("log.jsonl", "\"what\":\"device_lost\",\"step\":7");
    assert_has("log.jsonl", "\"status\":\"failed\",\"steps\":7");
    frail_reset();
    ASSERT_OK(train("stop", 3, 0, true, &hash));
    ck_assert_uint_eq(hash, wanted);
    assert_has("log.jsonl", "\"what\":\"resumed\",\"step\":7,\"replanned\":false");
}
END_TEST

/* Interrupted after the loss and resumed on those left, it goes on as it would have. */
START_TEST(test_run_resumes_with_the_survivors) {
    uint64_t hash;
    ASSERT_OK(train("continue", 2, 6, false, &hash));
    frail_reset();
    uint64_t again;
    ASSERT_OK(
        train("continue", 1, 0, true, &again)); /* at its end: nothing is left to do */
    ck_assert_uint_eq(again, hash);
    assert_has("log.jsonl", "\"replanned\":false");
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("run_loss");
    ADD(test_run_continue_logs_the_loss_and_the_new_shards);
    ADD(test_run_stop_saves_and_resumes);
    ADD(test_run_resumes_with_the_survivors);
    return run_suite(suite);
}
