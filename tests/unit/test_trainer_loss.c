/* SPDX-License-Identifier: Apache-2.0 */
/* A device that fails, comes late or never answers, at any call of a step: the others go on with the
 * samples it had, so that the losses stay those of one replica alone, and it is never touched again. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "support/frail.h"
#include "support/run.h"

static copse_error error;

#define MODEL                                                                            \
    "model:\n"                                                                           \
    "  - conv2d: {filters: 4, kernel: 3, activation: relu}\n"                            \
    "  - max_pool2d: {pool: 2}\n"                                                        \
    "  - flatten\n"                                                                      \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy,\n"                                   \
    "  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}},\n"                         \
    "  batch: 24, epochs: 3, hash_every: 1"

/* Stalls are judged early only where they are the test: a loaded machine makes its own. */
static const char going_on[] = MODEL "}\ndevices: {stall_seconds: 20}\n";
static const char impatient[] = MODEL "}\ndevices: {stall_seconds: 0.5}\n";
static const char stopping[] =
    MODEL ", on_device_loss: stop}\ndevices: {stall_seconds: 20}\n";

/* Samples in batches of 24: the last of an epoch has 4. */
#define SAMPLES 100
#define STEPS 15
#define BEFORE 3 /* steps before the fault is set */

static double wanted[STEPS]; /* losses of one replica alone */

static void setup(void) {
    test_run one;
    frail_reset();
    test_run_open(&one, going_on, SAMPLES, 1, NULL);
    test_run_start(&one);
    ASSERT_OK(copse__trainer_fit(one.trainer, &error));
    ck_assert_uint_eq(one.loss_count, STEPS);
    memcpy(wanted, one.losses, sizeof wanted);
    test_run_close(&one);
}

static void forbid_lost(void *user, const copse__trainer_event *event) {
    const test_run *run = user;
    for (size_t r = 0; r < run->replicas; r++)
        if (strcmp(event->what, "device_lost") == 0 &&
            strcmp(event->device, run->choices[r].label) == 0)
            frail_forbid(r);
}

/* After a few steps. */
static void open_run(test_run *run, const char *yaml, size_t replicas) {
    static const double weights[] = {2, 1, 1};
    test_run_open(run, yaml, SAMPLES, replicas, weights);
    run->backend = &frail_backend;
    run->on_event = forbid_lost;
    run->stop_after_steps = BEFORE;
    test_run_start(run);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run->trainer, &error));
    run->stop_after_steps = 0;
}

static void check_losses(const test_run *run, const char *what) {
    ck_assert_msg(run->loss_count == STEPS, "%s: %zu steps", what, run->loss_count);
    for (size_t i = 0; i < STEPS; i++) {
        /* A step that stands may lack the samples that were lost with their device. */
        bool partial = run->events > 0 && i == run->lost_after;
        ck_assert_msg(partial ||
                          fabs(run->losses[i] - wanted[i]) <= 1e-4 * fabs(wanted[i]),
                      "%s: step %zu: loss %.9g, with one replica %.9g", what, i + 1,
                      run->losses[i], wanted[i]);
    }
}

static void close_run(test_run *run, const char *what) {
    bool lost[FRAIL_DEVICES] = {false};
    size_t replicas = run->replicas;
    frail_release();
    for (size_t r = 0; r < replicas; r++)
        lost[r] = copse__trainer_is_lost(run->trainer, r);
    test_run_close(run);
    for (size_t r = 0; r < replicas; r++) {
        ck_assert_msg(frail_forbidden_calls(r) == 0, "%s: %zu calls to the lost device",
                      what, frail_forbidden_calls(r));
        ck_assert_msg(lost[r] || frail_live_objects(r) == 0, "%s: device %zu has %zu",
                      what, r, frail_live_objects(r));
    }
}

/* False where there are not so many calls. */
static bool strike(size_t who, frail_call call, size_t nth, frail_action action) {
    test_run run;
    char what[96];
    uint64_t hash;
    snprintf(what, sizeof what, "device %zu, call %d, %zuth, action %d", who, (int)call,
             nth, (int)action);
    frail_reset();
    open_run(&run, action == FRAIL_HANG ? impatient : going_on, 3);
    frail_fault(who, call, nth, action);
    uint64_t begun = copse__now_ns();
    copse_status status = copse__trainer_fit(run.trainer, &error);
    ck_assert_msg(status == COPSE_OK, "%s: %s: %s", what, error.place, error.text);
    ck_assert_msg(copse__now_ns() - begun < UINT64_C(15000000000), "%s: too long", what);
    check_losses(&run, what);
    status = copse__trainer_hash(run.trainer, &hash, &error);
    ck_assert_msg(status == COPSE_OK, "%s: %s", what, error.text);
    bool struck = frail_struck(who);
    bool loses = struck && action != FRAIL_LATE;
    ck_assert_msg(copse__trainer_is_lost(run.trainer, who) == loses, "%s: lost?", what);
    if (loses &&
        run.lost_after + 1 < STEPS) { /* later there is nothing to share any more */
        ck_assert_uint_eq(copse__trainer_shard(run.trainer, who), 0);
        ck_assert_str_eq(run.last_event, "resharded");
        ck_assert_str_eq(run.last_device, run.choices[who].label);
    }
    close_run(&run, what);
    return struck;
}

static const frail_call calls[] = {FRAIL_ALLOC, FRAIL_WRITE, FRAIL_READ,  FRAIL_MAP,
                                   FRAIL_UNMAP, FRAIL_MARK,  FRAIL_FLUSH, FRAIL_FINISH,
                                   FRAIL_WAIT,  FRAIL_RUN};

/* Every call up to the middle of the second step from there; then some. */
START_TEST(test_loss_by_failure_at_any_call) {
    size_t struck = 0;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (size_t nth = 1; nth <= 40; nth += nth < 16 ? 1 : 7)
            struck += strike(1, calls[c], nth, FRAIL_FAIL);
    ck_assert_uint_gt(struck, 80);
}
END_TEST

/* The first rank leads: its hashes, states and graphs are looked at. */
START_TEST(test_loss_of_the_first_rank) {
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        for (size_t nth = 1; nth <= 9; nth += 4)
            strike(0, calls[c], nth, FRAIL_FAIL);
}
END_TEST

START_TEST(test_loss_by_hanging) {
    size_t struck = 0;
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        struck += strike(1, calls[c], 2 + c % 3, FRAIL_HANG);
    ck_assert_uint_ge(struck, 6);
}
END_TEST

START_TEST(test_loss_late_answers_are_waited_for) {
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++)
        strike(2, calls[c], 3, FRAIL_LATE);
}
END_TEST

/* Until one is left, which goes on alone; when that is lost too, there is a clear end. */
START_TEST(test_loss_one_after_the_other) {
    test_run run;
    open_run(&run, going_on, 3);
    frail_fault(0, FRAIL_RUN, 5, FRAIL_FAIL);
    run.stop_after_steps = 7;
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    ck_assert_str_eq(run.last_device, run.choices[0].label);
    frail_fault(2, FRAIL_MARK, 1, FRAIL_FAIL);
    run.stop_after_steps = 11;
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    ck_assert_uint_eq(copse__trainer_shard(run.trainer, 1), 24);
    run.stop_after_steps = 13;
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    for (size_t i = 0; i < 13; i++)
        ck_assert_double_eq_tol(run.losses[i], wanted[i], 1e-4);
    run.stop_after_steps = 0;
    frail_fault(1, FRAIL_RUN, 1, FRAIL_FAIL);
    ASSERT_FAILS(COPSE_DEVICE, copse__trainer_fit(run.trainer, &error));
    ck_assert_msg(strstr(error.text, "no device is left") &&
                      strstr(error.text, "the driver gave up"),
                  "%s", error.text);
    float values[4];
    ASSERT_FAILS(COPSE_DEVICE, copse__trainer_state_read(run.trainer, 1, values, &error));
    ck_assert_uint_eq(copse__trainer_position(run.trainer).step, 13);
    close_run(&run, "all");
}
END_TEST

/* stop: the weights are those before the step, whole, and the position with them. */
START_TEST(test_loss_stop_keeps_the_state) {
    test_run run, same;
    uint64_t hash, hash_same;
    open_run(&run, stopping, 3);
    frail_fault(1, FRAIL_RUN, 4, FRAIL_FAIL);
    ASSERT_FAILS(COPSE_DEVICE, copse__trainer_fit(run.trainer, &error));
    ck_assert_str_eq(error.place, run.choices[1].label);
    ck_assert_msg(strstr(error.text, "the driver gave up") &&
                      strstr(error.text, "on_device_loss"),
                  "%s", error.text);
    copse__position at = copse__trainer_position(run.trainer);
    ck_assert_uint_ge(at.step, BEFORE);
    ASSERT_OK(copse__trainer_hash(run.trainer, &hash, &error));
    test_run_open(&same, stopping, SAMPLES, 3, (const double[]){2, 1, 1});
    same.stop_after_steps = at.step;
    test_run_start(&same);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(same.trainer, &error));
    ASSERT_OK(copse__trainer_hash(same.trainer, &hash_same, &error));
    ck_assert_uint_eq(hash, hash_same);
    test_run_close(&same);
    close_run(&run, "stop");
}
END_TEST

/* In the middle of a pass over a set: every sample is counted once. */
START_TEST(test_loss_during_evaluation) {
    test_run run;
    copse__score before, after;
    open_run(&run, going_on, 3);
    ASSERT_OK(
        copse__trainer_evaluate(run.trainer, run.sets.test, "test", &before, &error));
    frail_fault(1, FRAIL_RUN, 2, FRAIL_FAIL);
    ASSERT_OK(
        copse__trainer_evaluate(run.trainer, run.sets.test, "test", &after, &error));
    ck_assert(copse__trainer_is_lost(run.trainer, 1));
    ck_assert_uint_eq(after.samples, before.samples);
    ck_assert_double_eq_tol(copse__score_loss(&after), copse__score_loss(&before), 1e-6);
    frail_fault(0, FRAIL_READ, 2, FRAIL_FAIL);
    ASSERT_OK(
        copse__trainer_evaluate(run.trainer, run.sets.test, "test", &after, &error));
    ck_assert(copse__trainer_is_lost(run.trainer, 0));
    ck_assert_uint_eq(after.samples, before.samples);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    check_losses(&run, "after evaluation");
    close_run(&run, "evaluation");
}
END_TEST

static copse_status keep_rows(void *user, const float *values, size_t rows,
                              size_t columns, copse_error *err) {
    (void)err;
    float **at = user;
    memcpy(*at, values, rows * columns * sizeof *values);
    *at += rows * columns;
    return COPSE_OK;
}

/* A device that fails, or hangs and comes back, at any call of a prediction: every row once, in order. What it
 * still writes then, nobody reads. */
START_TEST(test_loss_during_prediction) {
    static const struct {
        frail_call call;
        size_t nth;
        frail_action action;
    } faults[] = {
        {FRAIL_RUN, 1, FRAIL_FAIL},   {FRAIL_RUN, 2, FRAIL_FAIL},
        {FRAIL_READ, 1, FRAIL_FAIL},  {FRAIL_READ, 3, FRAIL_FAIL},
        {FRAIL_WRITE, 3, FRAIL_FAIL}, {FRAIL_WAIT, 2, FRAIL_FAIL},
        {FRAIL_RUN, 3, FRAIL_HANG},   {FRAIL_READ, 2, FRAIL_HANG},
        {FRAIL_WAIT, 1, FRAIL_HANG},
    };
    size_t lost = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        test_run run;
        float before[SAMPLES * 4], after[SAMPLES * 4], *end = before, *begin = after;
        frail_reset();
        open_run(&run, faults[i].action == FRAIL_HANG ? impatient : going_on, 3);
        ASSERT_OK(
            copse__trainer_predict(run.trainer, run.sets.test, keep_rows, &end, &error));
        frail_fault(1, faults[i].call, faults[i].nth, faults[i].action);
        ASSERT_OK(copse__trainer_predict(run.trainer, run.sets.test, keep_rows, &begin,
                                         &error));
        ck_assert_int_eq(begin - after, end - before);
        for (ptrdiff_t k = 0; k < end - before; k++)
            ck_assert_double_eq_tol(after[k], before[k], 1e-5);
        lost += copse__trainer_is_lost(run.trainer, 1);
        close_run(&run, "prediction");
    }
    ck_assert_uint_eq(lost, sizeof faults / sizeof *faults);
}
END_TEST

/* The one that the state is read from fails: the next has the same. */
START_TEST(test_loss_while_the_state_is_read) {
    test_run run;
    float first[36], second[36];
    open_run(&run, going_on, 3);
    ASSERT_OK(copse__trainer_state_read(run.trainer, 0, first, &error));
    frail_fault(0, FRAIL_READ, 1, FRAIL_FAIL);
    ASSERT_OK(copse__trainer_state_read(run.trainer, 0, second, &error));
    ck_assert(copse__trainer_is_lost(run.trainer, 0));
    ck_assert_mem_eq(first, second, sizeof first);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    check_losses(&run, "after the state was read");
    close_run(&run, "state");
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, NULL, 100)

int main(void) {
    Suite *suite = suite_create("trainer_loss");
    ADD(test_loss_by_failure_at_any_call);
    ADD(test_loss_of_the_first_rank);
    ADD(test_loss_by_hanging);
    ADD(test_loss_late_answers_are_waited_for);
    ADD(test_loss_one_after_the_other);
    ADD(test_loss_stop_keeps_the_state);
    ADD(test_loss_during_evaluation);
    ADD(test_loss_during_prediction);
    ADD(test_loss_while_the_state_is_read);
    return run_suite(suite);
}
