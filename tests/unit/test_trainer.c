/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/run.h"

static copse_error error;

static const char mlp[] =
    "model:\n"
    "  - flatten\n"
    "  - dense: {units: 16, activation: relu}\n"
    "  - dropout: {rate: 0.25}\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam,\n"
    "  batch: 24, epochs: 3, hash_every: 1}\n";

static const char cnn[] = "model:\n"
                          "  - conv2d: {filters: 4, kernel: 3, activation: relu}\n"
                          "  - max_pool2d: {pool: 2}\n"
                          "  - flatten\n"
                          "  - dense: {units: 4}\n"
                          "train: {loss: sparse_categorical_crossentropy,\n"
                          "  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}},\n"
                          "  batch: 24, epochs: 3, hash_every: 1}\n";

static const char normed[] =
    "model:\n"
    "  - batch_norm\n"
    "  - flatten\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 24,\n"
    "  epochs: 1, hash_every: 1}\n";

static void fit(test_run *run, const char *yaml, size_t samples, size_t replicas,
                const double *weights) {
    test_run_open(run, yaml, samples, replicas, weights);
    test_run_start(run);
    ASSERT_OK(copse__trainer_fit(run->trainer, &error));
}

static uint64_t hash_of(test_run *run) {
    uint64_t hash;
    ASSERT_OK(copse__trainer_hash(run->trainer, &hash, &error));
    return hash;
}

/* Losses of several uneven replicas against one: 100 samples in batches of 24 leave a tail of 4, of which
 * replicas get 3, 1 and 0 samples, or none at all. */
static void compare_with_one(const char *yaml, size_t replicas, const double *weights) {
    test_run one, many;
    fit(&one, yaml, 100, 1, NULL);
    fit(&many, yaml, 100, replicas, weights);
    ck_assert_uint_eq(one.loss_count, 15);
    ck_assert_uint_eq(many.loss_count, one.loss_count);
    for (size_t i = 0; i < one.loss_count; i++)
        ck_assert_msg(fabs(one.losses[i] - many.losses[i]) <= 1e-4 * fabs(one.losses[i]),
                      "step %zu: loss %.9g with one replica, %.9g with %zu", i + 1,
                      one.losses[i], many.losses[i], replicas);
    double first = 0, last = 0; /* epochs */
    for (size_t i = 0; i < 5; i++) {
        first += one.losses[i];
        last += one.losses[10 + i];
    }
    ck_assert_msg(last < first, "it does not learn: %g, then %g", first, last);
    hash_of(&many); /* fails where the replicas' parameters differ */
    test_run_close(&one);
    test_run_close(&many);
}

START_TEST(test_fit_uneven_replicas_learn_as_one) {
    static const double weights[] = {3, 1, 1};
    compare_with_one(mlp, 3, weights);
    compare_with_one(cnn, 3, weights);
}
END_TEST

START_TEST(test_fit_many_equal_replicas_learn_as_one) {
    compare_with_one(mlp, 2, NULL);
    compare_with_one(cnn, 5, NULL);
}
END_TEST

START_TEST(test_fit_empty_shard_contributes_nothing) {
    test_run run, one;
    fit(&one, cnn, 100, 1, NULL);
    test_run_open(&run, cnn, 100, 2, NULL);
    run.shards[0] = 24; /* the second replica gets no sample, ever */
    test_run_start(&run);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    ck_assert_uint_eq(hash_of(&run), hash_of(&one));
    test_run_close(&run);
    test_run_close(&one);
}
END_TEST

START_TEST(test_fit_twice_gives_the_same_bits) {
    static const double weights[] = {1, 2};
    test_run a, b;
    fit(&a, mlp, 70, 2, weights);
    fit(&b, mlp, 70, 2, weights);
    ck_assert_uint_eq(hash_of(&a), hash_of(&b));
    test_run_close(&a);
    test_run_close(&b);
}
END_TEST

START_TEST(test_fit_interrupted_and_continued_gives_the_same_bits) {
    test_run a, b;
    fit(&a, mlp, 70, 2, NULL);
    test_run_open(&b, mlp, 70, 2, NULL);
    b.stop_after_steps = 4; /* in the middle of the second epoch */
    test_run_start(&b);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(b.trainer, &error));
    copse__position at = copse__trainer_position(b.trainer);
    ck_assert_uint_eq(at.step, 4);
    ck_assert_uint_eq(at.epoch, 1);
    ck_assert_uint_eq(at.batch, 1);
    b.stop_after_steps = 0;
    ASSERT_OK(copse__trainer_fit(b.trainer, &error));
    ck_assert_uint_eq(hash_of(&a), hash_of(&b));
    test_run_close(&a);
    test_run_close(&b);
}
END_TEST

/* The merged moments of three uneven shards are those of the whole batch. */
START_TEST(test_fit_moving_statistics_do_not_depend_on_shards) {
    static const double weights[] = {3, 1, 1};
    test_run one, many;
    fit(&one, normed, 24, 1, NULL);
    fit(&many, normed, 24, 3, weights);
    float a[1], b[1];
    size_t found = 0;
    for (size_t i = 0; i < copse__trainer_state_count(one.trainer); i++) {
        copse__state_item item = copse__trainer_state_item(one.trainer, i);
        if (!strstr(item.name, "moving_"))
            continue;
        ASSERT_OK(copse__trainer_state_read(one.trainer, i, a, &error));
        ASSERT_OK(copse__trainer_state_read(many.trainer, i, b, &error));
        ck_assert_msg(fabsf(a[0] - b[0]) <= 1e-6f * fabsf(a[0]), "%s: %.9g and %.9g",
                      item.name, (double)a[0], (double)b[0]);
        ck_assert(strstr(item.name, "mean") ? a[0] > 0 : a[0] < 1);
        found++;
    }
    ck_assert_uint_eq(found, 2);
    test_run_close(&one);
    test_run_close(&many);
}
END_TEST

START_TEST(test_fit_infinite_rate_names_step_and_layer) {
    test_run run;
    static const char yaml[] =
        "model: [flatten, {dense: {units: 8, activation: relu, name: first}},\n"
        "        {dense: {units: 4}}]\n"
        "train: {loss: sparse_categorical_crossentropy,\n"
        "  optimizer: {sgd: {learning_rate: 1.0e+30}}, batch: 10, epochs: 9}\n";
    test_run_open(&run, yaml, 50, 2, NULL);
    test_run_start(&run);
    ASSERT_FAILS(COPSE_NUMERIC, copse__trainer_fit(run.trainer, &error));
    ck_assert_msg(strstr(error.text, "step ") && strstr(error.text, "dense"), "%s",
                  error.text);
    ck_assert_str_eq(error.place, "host@0");
    float values[64 * 8];
    ASSERT_OK(copse__trainer_state_read(run.trainer, 0, values, &error));
    for (size_t i = 0; i < 64 * 8; i++)
        ck_assert(isfinite(values[i])); /* the last good weights are kept */
    test_run_close(&run);
}
END_TEST

/* ---- Steps enqueued ahead of the one before --------------------------------------------- */

static bool never(void *user, uint64_t step) {
    (void)user;
    (void)step;
    return false;
}

static bool at_look(void *user, uint64_t step) {
    const test_run *run = user;
    return step == run->look_at;
}

/* 100 samples in batches of 24, the last one smaller: the same bits as when every step waits. */
START_TEST(test_fit_ahead_changes_no_bit) {
    static const char *const nets[] = {mlp, cnn, normed};
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        test_run waits, ahead;
        fit(&waits, nets[i], 100, 1, NULL);
        test_run_open(&ahead, nets[i], 100, 1, NULL);
        ahead.needs_state = never;
        test_run_start(&ahead);
        ASSERT_OK(copse__trainer_fit(ahead.trainer, &error));
        ck_assert_uint_eq(ahead.loss_count, waits.loss_count);
        ck_assert_mem_eq(ahead.losses, waits.losses,
                         waits.loss_count * sizeof *waits.losses);
        ck_assert_uint_eq(hash_of(&ahead), hash_of(&waits));
        for (size_t s = 0; s < copse__trainer_state_count(ahead.trainer); s++) {
            float a[6 * 6 * 16 * 4] = {0}, b[6 * 6 * 16 * 4] = {0};
            copse__state_item item = copse__trainer_state_item(ahead.trainer, s);
            size_t elements = 1;
            for (size_t d = 0; d < item.rank; d++)
                elements *= item.shape[d];
            ck_assert_uint_le(elements, sizeof a / sizeof *a);
            ASSERT_OK(copse__trainer_state_read(ahead.trainer, s, a, &error));
            ASSERT_OK(copse__trainer_state_read(waits.trainer, s, b, &error));
            ck_assert_mem_eq(a, b, sizeof a);
        }
        test_run_close(&waits);
        test_run_close(&ahead);
    }
}
END_TEST

START_TEST(test_fit_ahead_rests_where_the_weights_are_looked_at) {
    test_run waits, ahead;
    test_run_open(&waits, mlp, 100, 1, NULL);
    test_run_open(&ahead, mlp, 100, 1, NULL);
    waits.look_at = ahead.look_at = 7; /* in the middle of an epoch of 5 */
    ahead.needs_state = at_look;
    test_run_start(&waits);
    test_run_start(&ahead);
    ASSERT_OK(copse__trainer_fit(waits.trainer, &error));
    ASSERT_OK(copse__trainer_fit(ahead.trainer, &error));
    ck_assert_uint_eq(ahead.seen_hash, waits.seen_hash);
    ck_assert_uint_ne(ahead.seen_hash, hash_of(&ahead));
    test_run_close(&waits);
    test_run_close(&ahead);
}
END_TEST

/* The step behind the one that fails is under way by then: it must change nothing either. */
START_TEST(test_fit_ahead_not_finite_ends_where_waiting_does) {
    static const char yaml[] =
        "model: [flatten, {dense: {units: 8, activation: relu, name: first}},\n"
        "        {dense: {units: 4}}]\n"
        "train: {loss: sparse_categorical_crossentropy,\n"
        "  optimizer: {sgd: {learning_rate: 1.0e+30}}, batch: 10, epochs: 9}\n";
    test_run runs[2];
    copse_error errors[2] = {0};
    for (size_t i = 0; i < 2; i++) {
        test_run_open(&runs[i], yaml, 50, 1, NULL);
        runs[i].needs_state = i > 0 ? never : NULL;
        test_run_start(&runs[i]);
        ck_assert_int_eq(copse__trainer_fit(runs[i].trainer, &errors[i]), COPSE_NUMERIC);
    }
    ck_assert_str_eq(errors[0].text, errors[1].text);
    ck_assert(strstr(errors[1].text, "step "));
    ck_assert_uint_eq(copse__trainer_position(runs[0].trainer).step,
                      copse__trainer_position(runs[1].trainer).step);
    ck_assert_uint_eq(runs[0].loss_count, runs[1].loss_count);
    ck_assert_uint_eq(hash_of(&runs[0]), hash_of(&runs[1]));
    test_run_close(&runs[0]);
    test_run_close(&runs[1]);
}
END_TEST

/* The batch behind a step that is under way cannot be read, and then that step turns out not to be finite: what
 * came first is told, and nothing of it stays. Of a step that is finite the weights do. */
START_TEST(test_fit_ahead_tells_of_the_step_before_lost_data) {
    static const char yaml[] =
        "model: [flatten, {dense: {units: 8, activation: relu, name: first}},\n"
        "        {dense: {units: 4}}]\n"
        "train: {loss: sparse_categorical_crossentropy,\n"
        "  optimizer: {sgd: {learning_rate: 1.0e+30}}, batch: 10, epochs: 9}\n";
    test_run runs[2];
    copse_error errors[2] = {0};
    uint64_t fails = 0;
    for (size_t i = 0; i < 2; i++) {
        test_run_open(&runs[i], yaml, 50, 1, NULL);
        runs[i].config->data.shuffle = COPSE_SHUFFLE_NONE;
        runs[i].needs_state = i > 0 ? never : NULL;
        /* a batch is asked for before the step that it follows begins */
        runs[i].lost_from = i > 0 ? (size_t)(fails + 1) * 10 : 0;
        test_run_start(&runs[i]);
        ck_assert_int_eq(copse__trainer_fit(runs[i].trainer, &errors[i]), COPSE_NUMERIC);
        fails = copse__trainer_position(runs[i].trainer).step + 1;
        ck_assert_uint_lt(fails, 4); /* in the first epoch of 5 */
    }
    ck_assert_str_eq(errors[0].text, errors[1].text);
    ck_assert_uint_eq(hash_of(&runs[0]), hash_of(&runs[1]));
    test_run lost, whole;
    test_run_open(&lost, mlp, 100, 1, NULL);
    test_run_open(&whole, mlp, 100, 1, NULL);
    lost.config->data.shuffle = COPSE_SHUFFLE_NONE;
    whole.config->data.shuffle = COPSE_SHUFFLE_NONE;
    lost.needs_state = never;
    lost.lost_from = 72; /* batches of 24 */
    whole.stop_after_steps = 2;
    test_run_start(&lost);
    test_run_start(&whole);
    ASSERT_FAILS(COPSE_IO, copse__trainer_fit(lost.trainer, &error));
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(whole.trainer, &error));
    ck_assert_uint_eq(copse__trainer_position(lost.trainer).step, 2);
    ck_assert_uint_eq(lost.loss_count, 2);
    ck_assert_uint_eq(hash_of(&lost), hash_of(&whole));
    for (size_t i = 0; i < 2; i++)
        test_run_close(&runs[i]);
    test_run_close(&lost);
    test_run_close(&whole);
}
END_TEST

START_TEST(test_fit_ahead_stops_and_counts_what_was_done) {
    test_run run, rest;
    test_run_open(&run, mlp, 100, 1, NULL);
    run.stop_after_steps = 6;
    run.needs_state = never;
    test_run_start(&run);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
    uint64_t done = copse__trainer_position(run.trainer).step;
    ck_assert_uint_ge(done, 6);
    ck_assert_uint_le(done, 7);
    ck_assert_uint_eq(run.loss_count, done);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error)); /* goes on where it stands */
    fit(&rest, mlp, 100, 1, NULL);
    ck_assert_uint_eq(run.loss_count, rest.loss_count);
    ck_assert_uint_eq(hash_of(&run), hash_of(&rest));
    test_run_close(&run);
    test_run_close(&rest);
}
END_TEST

/* Skipped steps are counted and told, leave the weights and the epoch's loss alone, and the count is part
 * of the position that a checkpoint keeps. */
START_TEST(test_fit_skip_counts_what_is_not_finite) {
    test_run one, run;
    static const char yaml[] =
        "model: [flatten, {dense: {units: 8, activation: relu}}, {dense: {units: 4}}]\n"
        "train: {loss: sparse_categorical_crossentropy, on_nonfinite: %s,\n"
        "  optimizer: {sgd: {learning_rate: 1.0e+30}}, batch: 10, epochs: 2, steps: "
        "%d}\n";
    char text[512];
    snprintf(text, sizeof text, yaml, "stop", 1);
    fit(&one, text, 50, 2, NULL); /* the only step that can be made */
    snprintf(text, sizeof text, yaml, "skip", 7);
    test_run_open(&run, text, 50, 2, NULL);
    test_run_start(&run);
    ASSERT_OK(copse__trainer_fit(run.trainer, &error));
    copse__position at = copse__trainer_position(run.trainer);
    ck_assert_uint_eq(at.step, 7);
    ck_assert_uint_eq(at.skipped, 6);
    ck_assert_uint_eq(run.events, 6);
    ck_assert_str_eq(run.last_event, "step_skipped");
    ck_assert(isfinite(at.score.loss_sum));
    ck_assert_uint_eq(hash_of(&run), hash_of(&one));
    test_run_close(&one);
    test_run_close(&run);
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

/* 51 samples in batches of 24 over three replicas: every row once, in order, whatever the shards. */
START_TEST(test_predict_gives_all_rows_in_order) {
    static const double weights[] = {1, 2, 4};
    test_run one, many;
    test_run_open(&one, cnn, 100, 1, NULL);
    test_run_open(&many, cnn, 100, 3, weights);
    test_run_start(&one);
    test_run_start(&many);
    float a[51 * 4], b[51 * 4], *end_a = a, *end_b = b;
    ASSERT_OK(
        copse__trainer_predict(one.trainer, one.sets.test, keep_rows, &end_a, &error));
    ASSERT_OK(
        copse__trainer_predict(many.trainer, many.sets.test, keep_rows, &end_b, &error));
    ck_assert_int_eq(end_a - a, 51 * 4);
    ck_assert_int_eq(end_b - b, 51 * 4);
    ck_assert_mem_eq(a, b, sizeof a);
    copse__score score;
    ASSERT_OK(
        copse__trainer_evaluate(many.trainer, many.sets.test, "test", &score, &error));
    ck_assert_uint_eq(score.samples, 51);
    test_run_close(&one);
    test_run_close(&many);
}
END_TEST

typedef struct passed {
    uint64_t calls, rows, samples;
} passed;

static void count_batch(void *user, const copse__progress *now) {
    passed *p = user;
    p->calls++;
    p->rows += now->rows;
    ck_assert_uint_eq(now->index, p->calls);
    ck_assert_uint_eq(now->count, 3);
    ck_assert_uint_gt(now->epoch_score.samples, p->samples);
    p->samples = now->epoch_score.samples;
    ck_assert_uint_eq(p->samples, p->rows);
}

/* A batch is reported when it is done, though the next one is begun before. */
START_TEST(test_evaluate_reports_each_batch_once) {
    for (size_t replicas = 1; replicas <= 3; replicas += 2) {
        test_run run;
        passed seen = {0};
        copse__score score;
        test_run_open(&run, cnn, 100, replicas, NULL);
        copse__trainer_hooks hooks = {.on_evaluate = count_batch, .user = &seen};
        copse__trainer_options options = {
            .choices = run.choices, .choice_count = replicas, .hooks = &hooks};
        ASSERT_OK(
            copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
        ASSERT_OK(
            copse__trainer_evaluate(run.trainer, run.sets.test, "test", &score, &error));
        ck_assert_uint_eq(seen.calls, 3);
        ck_assert_uint_eq(seen.rows, 51);
        ck_assert_uint_eq(score.samples, 51);
        test_run_close(&run);
    }
}
END_TEST

static void stop_behind_the_first(void *user, const copse__progress *now) {
    if (now->index == 1)
        copse__trainer_stop(*(copse__trainer **)user);
}

/* What was begun and never ended does not show in the next pass. */
START_TEST(test_evaluate_stopped_and_begun_anew) {
    test_run run;
    copse__score whole, stopped, again;
    float a[51 * 4], b[51 * 4], *end_a = a, *end_b = b;
    test_run_open(&run, cnn, 100, 2, NULL);
    copse__trainer_hooks hooks = {.user = &run.trainer};
    copse__trainer_options options = {
        .choices = run.choices, .choice_count = 2, .hooks = &hooks};
    ASSERT_OK(copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
    ASSERT_OK(
        copse__trainer_evaluate(run.trainer, run.sets.test, "test", &whole, &error));
    ASSERT_OK(
        copse__trainer_predict(run.trainer, run.sets.test, keep_rows, &end_a, &error));
    copse__trainer_close(run.trainer);
    hooks.on_evaluate = stop_behind_the_first;
    ASSERT_OK(copse__trainer_open(&run.trainer, run.config, &run.sets, &options, &error));
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_evaluate(run.trainer, run.sets.test,
                                                            "test", &stopped, &error));
    ck_assert_uint_eq(stopped.samples, 24);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_predict(run.trainer, run.sets.test,
                                                           keep_rows, &end_b, &error));
    ck_assert_int_eq(end_b - b, 24 * 4);
    ck_assert_mem_eq(a, b, 24 * 4 * sizeof *a);
    /* The last batch, where nobody stops it any more. */
    copse_dataset *tail;
    ASSERT_OK(copse_dataset_slice(&tail, run.sets.test, 0, 24, &error));
    ASSERT_FAILS(COPSE_INTERRUPTED,
                 copse__trainer_evaluate(run.trainer, tail, "test", &again, &error));
    ck_assert_uint_eq(again.samples, 24);
    ck_assert(again.loss_sum == stopped.loss_sum);
    copse_dataset_close(tail);
    test_run_close(&run);
}
END_TEST

/* Shares of several micro-batches, which do not run ahead: the same rows. */
START_TEST(test_predict_in_micro_batches) {
    static const char cut[] = "model:\n"
                              "  - conv2d: {filters: 4, kernel: 3, activation: relu}\n"
                              "  - max_pool2d: {pool: 2}\n"
                              "  - flatten\n"
                              "  - dense: {units: 4}\n"
                              "train: {loss: sparse_categorical_crossentropy,\n"
                              "  optimizer: adam, batch: 24, epochs: 1,\n"
                              "  reproducible: devices, micro_shard: 5}\n";
    test_run one, many;
    test_run_open(&one, cnn, 100, 1, NULL);
    test_run_open(&many, cut, 100, 2, NULL);
    test_run_start(&one);
    test_run_start(&many);
    float a[51 * 4], b[51 * 4], *end_a = a, *end_b = b;
    ASSERT_OK(
        copse__trainer_predict(one.trainer, one.sets.test, keep_rows, &end_a, &error));
    ASSERT_OK(
        copse__trainer_predict(many.trainer, many.sets.test, keep_rows, &end_b, &error));
    ck_assert_int_eq(end_b - b, 51 * 4);
    ck_assert_mem_eq(a, b, sizeof a);
    test_run_close(&one);
    test_run_close(&many);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trainer");
    ADD_TEST(suite, test_fit_uneven_replicas_learn_as_one);
    ADD_TEST(suite, test_fit_many_equal_replicas_learn_as_one);
    ADD_TEST(suite, test_fit_empty_shard_contributes_nothing);
    ADD_TEST(suite, test_fit_twice_gives_the_same_bits);
    ADD_TEST(suite, test_fit_interrupted_and_continued_gives_the_same_bits);
    ADD_TEST(suite, test_fit_moving_statistics_do_not_depend_on_shards);
    ADD_TEST(suite, test_fit_infinite_rate_names_step_and_layer);
    ADD_TEST(suite, test_fit_ahead_changes_no_bit);
    ADD_TEST(suite, test_fit_ahead_rests_where_the_weights_are_looked_at);
    ADD_TEST(suite, test_fit_ahead_not_finite_ends_where_waiting_does);
    ADD_TEST(suite, test_fit_ahead_tells_of_the_step_before_lost_data);
    ADD_TEST(suite, test_fit_ahead_stops_and_counts_what_was_done);
    ADD_TEST(suite, test_fit_skip_counts_what_is_not_finite);
    ADD_TEST(suite, test_predict_gives_all_rows_in_order);
    ADD_TEST(suite, test_evaluate_reports_each_batch_once);
    ADD_TEST(suite, test_evaluate_stopped_and_begun_anew);
    ADD_TEST(suite, test_predict_in_micro_batches);
    return run_suite(suite);
}
