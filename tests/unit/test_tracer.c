/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <jansson.h>

#include "support/run.h"
#include "train/tracer.h"
#include "train/trainer_private.h"

static copse_error error;
static test_run run;
static copse__tracer *tracer; /* NULL: steps are not traced */
static double losses[64];
static size_t loss_count, node_count; /* of a step's graph */

static const char mlp[] = "model: [flatten, {dense: {units: 8, activation: relu}},\n"
                          "        {dense: {units: 4}}]\n"
                          "train: {loss: sparse_categorical_crossentropy,\n"
                          "  optimizer: adam, batch: 24, epochs: 2}\n";

static bool needs_state(void *user, uint64_t step) {
    (void)user;
    copse__tracer_begin(tracer, run.trainer, step);
    return false;
}

static copse_status on_step(void *user, const copse__progress *now, copse_error *err) {
    (void)user;
    (void)err;
    losses[loss_count++] = copse__score_loss(&now->last);
    copse__tracer_step(tracer, run.trainer, now);
    return COPSE_OK;
}

/* 10 steps of 96 samples; the trace, where one is wanted, is of `count` from `first` on. */
static uint64_t train(size_t replicas, const char *path, uint64_t first, uint64_t count) {
    uint64_t hash;
    const copse__trainer_hooks hooks = {.on_step = on_step, .needs_state = needs_state};
    test_run_open(&run, mlp, 120, replicas, NULL);
    copse__trainer_options options = {.choices = run.choices,
                                      .choice_count = replicas,
                                      .training = true,
                                      .profile = path != NULL,
                                      .hooks = &hooks};
    ASSERT_OK(copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
    if (path)
        ASSERT_OK(copse__tracer_open(&tracer, path, first, count, &error));
    loss_count = 0;
    node_count = run.trainer->replicas[0].train_graph->node_count;
    copse__stages stages = {0};
    copse__stages_next(&stages, "opening");
    copse__stages_next(&stages, "the first step");
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    copse__stages_next(&stages, NULL);
    copse__tracer_start(tracer, &stages);
    ASSERT_OK(copse__trainer_hash(run.trainer, &hash, &error));
    ASSERT_OK(copse__tracer_close(tracer, &error));
    tracer = NULL;
    test_run_close(&run);
    return hash;
}

static double number(const json_t *event, const char *key) {
    return json_number_value(json_object_get(event, key));
}

static bool is_named(const json_t *event, const char *name) {
    return strcmp(json_string_value(json_object_get(event, "name")), name) == 0;
}

/* Whether the node ran within a pass of its replica, whose row is the one before. */
static bool lies_in_a_pass(const json_t *events, const json_t *node) {
    size_t i;
    const json_t *part;
    double begin = number(node, "ts"), end = begin + number(node, "dur");
    json_array_foreach(events, i, part) {
        double from = number(part, "ts"), to = from + number(part, "dur");
        if (is_named(part, "forward and backward") &&
            number(part, "tid") == number(node, "tid") - 1 && begin >= from - 0.01 &&
            end <= to + 0.01)
            return true;
    }
    return false;
}

static void check(const char *path, size_t replicas, size_t steps) {
    json_error_t detail;
    json_t *root = json_load_file(path, 0, &detail);
    ck_assert_msg(root != NULL, "line %d: %s", detail.line, detail.text);
    const json_t *events = json_object_get(root, "traceEvents");
    size_t i, parts = 0, nodes = 0, waits = 0, counts = 0, stages = 0;
    const json_t *event;
    json_array_foreach(events, i, event) {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0) {
            counts += is_named(event, "loss");
            continue;
        }
        unsigned track = (unsigned)number(event, "tid");
        ck_assert_uint_lt(track, 2 + 2 * replicas);
        if (track == 0) {
            ck_assert(is_named(event, stages == 0 ? "opening" : "the first step"));
            stages++;
        } else if (track == 1) {
            waits++;
        } else if (track % 2 == 0) {
            parts++;
        } else {
            nodes++;
            ck_assert(
                strstr(json_string_value(json_object_get(event, "name")), " (loops)"));
            ck_assert(lies_in_a_pass(events, event));
        }
    }
    ck_assert_uint_eq(stages, 2);
    ck_assert_uint_eq(waits, steps);
    ck_assert_uint_eq(counts, steps);
    ck_assert_uint_eq(parts, 4 * replicas * steps);
    ck_assert_uint_ge(node_count, 6);
    ck_assert_uint_eq(nodes, node_count * replicas * steps);
    json_decref(root);
}

START_TEST(test_rows_hold_the_wanted_steps_and_change_no_bit) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "trace.json");
    for (size_t replicas = 1; replicas <= 3; replicas += 2) {
        uint64_t plain = train(replicas, NULL, 0, 0);
        double before[64];
        size_t count = loss_count;
        memcpy(before, losses, sizeof before);
        ck_assert_uint_eq(train(replicas, path, 4, 3), plain);
        ck_assert_uint_eq(loss_count, count);
        ck_assert_mem_eq(losses, before, count * sizeof *losses);
        check(path, replicas, 3);
    }
    remove_folder(folder);
}
END_TEST

START_TEST(test_steps_that_never_come_leave_a_whole_file) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "trace.json");
    train(1, path, 1000, UINT64_MAX);
    check(path, 1, 0);
    train(1, path, 9, UINT64_MAX); /* to the end, which is step 10 */
    check(path, 1, 2);
    ASSERT_FAILS(COPSE_IO,
                 copse__tracer_open(&tracer, "/nonexistent/t.json", 1, 1, &error));
    ck_assert_ptr_null(tracer);
    remove_folder(folder);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tracer");
    ADD_TEST(suite, test_rows_hold_the_wanted_steps_and_change_no_bit);
    ADD_TEST(suite, test_steps_that_never_come_leave_a_whole_file);
    return run_suite(suite);
}
