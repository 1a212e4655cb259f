/* SPDX-License-Identifier: Apache-2.0 */
/* Micro-shards: the same bits from any number of devices. Micro-batches: the same numbers up to
 * rounding. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/frail.h"
#include "support/run.h"

static copse_error error;

/* Every kind of thing whose result could depend on where it runs: random numbers, batch moments, a
 * reduction over rows. */
#define MODEL                                                                            \
    "model:\n"                                                                           \
    "  - conv2d: {filters: 3, kernel: 3}\n"                                              \
    "  - batch_norm\n"                                                                   \
    "  - max_pool2d: {pool: 2}\n"                                                        \
    "  - flatten\n"                                                                      \
    "  - dropout: {rate: 0.25}\n"                                                        \
    "  - dense: {units: 4}\n"                                                            \
    "train: {loss: sparse_categorical_crossentropy, optimizer: adam,\n"

/* 67 samples in batches of 24 leave one of 19: 5 micro-shards, of which one has 4, and 4. */
#define SAMPLES 67
#define STEPS 200

static void open_micro(test_run *run, size_t micro, size_t replicas,
                       const double *weights) {
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             MODEL "  batch: 24, epochs: 1000, steps: %d, hash_every: 10,\n"
                   "  reproducible: devices, micro_shard: %zu}\n",
             STEPS, micro);
    test_run_open(run, yaml, SAMPLES, replicas, weights);
}

/* All that a run leaves. */
typedef struct outcome {
    uint64_t hash;
    double losses[STEPS];
    float moving[2][3];
    copse__score score;
} outcome;

static void finish(test_run *run, outcome *out) {
    size_t found = 0;
    memset(out, 0, sizeof *out);
    ASSERT_OK(copse__trainer_fit(run->trainer, &error));
    ASSERT_OK(copse__trainer_hash(run->trainer, &out->hash, &error));
    ck_assert_uint_eq(run->loss_count, STEPS);
    memcpy(out->losses, run->losses, sizeof out->losses);
    for (size_t i = 0; i < copse__trainer_state_count(run->trainer); i++) {
        copse__state_item item = copse__trainer_state_item(run->trainer, i);
        if (strstr(item.name, "moving_"))
            ASSERT_OK(
                copse__trainer_state_read(run->trainer, i, out->moving[found++], &error));
    }
    ck_assert_uint_eq(found, 2);
    ASSERT_OK(copse__trainer_evaluate(run->trainer, run->sets.test, "test", &out->score,
                                      &error));
    test_run_close(run);
}

static void run_on(size_t micro, size_t replicas, const double *weights, outcome *out) {
    test_run run;
    open_micro(&run, micro, replicas, weights);
    test_run_start(&run);
    finish(&run, out);
}

static void assert_same(const outcome *a, const outcome *b, const char *what) {
    ck_assert_msg(a->hash == b->hash, "%s: other weights", what);
    ck_assert_msg(memcmp(a->losses, b->losses, sizeof a->losses) == 0, "%s: other losses",
                  what);
    ck_assert_msg(memcmp(a->moving, b->moving, sizeof a->moving) == 0,
                  "%s: other moving statistics", what);
    ck_assert_msg(a->score.loss_sum == b->score.loss_sum &&
                      a->score.hits == b->score.hits &&
                      a->score.samples == b->score.samples,
                  "%s: another score", what);
}

START_TEST(test_micro_shards_any_devices_give_the_same_bits) {
    outcome one, more;
    char what[64];
    run_on(5, 1, NULL, &one);
    ck_assert(one.losses[STEPS - 1] < one.losses[0]); /* it learns */
    for (size_t replicas = 2; replicas <= 5; replicas++) {
        run_on(5, replicas, NULL, &more);
        snprintf(what, sizeof what, "%zu devices", replicas);
        assert_same(&one, &more, what);
    }
    run_on(5, 3, (const double[]){1, 3, 1}, &more);
    assert_same(&one, &more, "3 uneven devices");
    run_on(5, 2, (const double[]){1, 50}, &more);
    assert_same(&one, &more, "one with everything and one that rests");
}
END_TEST

START_TEST(test_micro_shards_of_other_sizes) {
    outcome one, more;
    static const size_t sizes[] = {1, 4, 24, 32};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        run_on(sizes[i], 1, NULL, &one);
        run_on(sizes[i], 3, NULL, &more);
        snprintf(what, sizeof what, "micro-shards of %zu", sizes[i]);
        assert_same(&one, &more, what);
    }
}
END_TEST

/* The size of micro-shards is part of the numbers: another size gives other bits. */
START_TEST(test_micro_shards_size_matters) {
    outcome a, b;
    run_on(4, 1, NULL, &a);
    run_on(8, 1, NULL, &b);
    ck_assert(a.hash != b.hash);
}
END_TEST

/* Neither does it matter that a device was lost on the way. */
START_TEST(test_micro_shards_loss_changes_no_bit) {
    outcome one, more;
    static const frail_call calls[] = {FRAIL_RUN, FRAIL_READ, FRAIL_WRITE, FRAIL_COPY};
    run_on(5, 1, NULL, &one);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        test_run run;
        char what[64];
        frail_reset();
        open_micro(&run, 5, 3, NULL);
        run.backend = &frail_backend;
        run.stop_after_steps = 50;
        test_run_start(&run);
        ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(run.trainer, &error));
        run.stop_after_steps = 0;
        frail_fault(1, calls[c], 11, FRAIL_FAIL);
        snprintf(what, sizeof what, "call %d", (int)calls[c]);
        ck_assert(!copse__trainer_is_lost(run.trainer, 1));
        size_t events = run.events;
        ASSERT_OK(copse__trainer_fit(run.trainer, &error));
        ck_assert_msg(run.events > events && copse__trainer_is_lost(run.trainer, 1),
                      "%s: not lost", what);
        finish(&run, &more);
        /* Where the update failed the step stands, without the metrics of that device. */
        more.losses[run.lost_after > 0 ? run.lost_after - 1 : 0] =
            one.losses[run.lost_after > 0 ? run.lost_after - 1 : 0];
        assert_same(&one, &more, what);
    }
}
END_TEST

START_TEST(test_micro_shards_interrupted_and_on_other_devices) {
    outcome one, more;
    test_run first, second;
    run_on(5, 1, NULL, &one);
    open_micro(&first, 5, 2, NULL);
    first.stop_after_steps = 77;
    test_run_start(&first);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(first.trainer, &error));
    open_micro(&second, 5, 3, NULL);
    test_run_start(&second);
    for (size_t i = 0; i < copse__trainer_state_count(first.trainer); i++) {
        float values[1024];
        ck_assert_uint_le(copse__trainer_state_item(first.trainer, i).elements, 1024);
        ASSERT_OK(copse__trainer_state_read(first.trainer, i, values, &error));
        ASSERT_OK(copse__trainer_state_write(second.trainer, i, values, &error));
    }
    copse__trainer_seek(second.trainer, copse__trainer_position(first.trainer));
    ASSERT_OK(copse__trainer_fit(second.trainer, &error));
    ASSERT_OK(copse__trainer_hash(second.trainer, &more.hash, &error));
    ck_assert_uint_eq(one.hash, more.hash);
    test_run_close(&first);
    test_run_close(&second);
}
END_TEST

/* ---- train.accumulate ------------------------------------------------------------------ */

static const char together[] =
    "model:\n"
    "  - flatten\n"
    "  - dense: {units: 16, activation: relu}\n"
    "  - dropout: {rate: 0.25}\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy,\n"
    "  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}},\n"
    "  batch: 24, epochs: 3, hash_every: 1, accumulate: ";

static void train_in(size_t pieces, size_t replicas, const double *weights,
                     test_run *run) {
    char yaml[1024];
    snprintf(yaml, sizeof yaml, "%s%zu}\n", together, pieces);
    test_run_open(run, yaml, 100, replicas, weights);
    test_run_start(run);
    ASSERT_OK(copse__trainer_fit(run->trainer, &error));
}

/* Pieces of any size, of the last, smaller batch too, weighted by their samples. */
START_TEST(test_accumulate_is_one_big_batch) {
    test_run one, many;
    static const struct {
        size_t pieces, replicas;
        double weights[3];
    } cases[] = {
        {2, 1, {1}}, {5, 1, {1}}, {24, 1, {1}}, {3, 2, {1, 2}}, {4, 3, {3, 1, 1}}};
    train_in(1, 1, NULL, &one);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint64_t hash;
        train_in(cases[c].pieces, cases[c].replicas, cases[c].weights, &many);
        ck_assert_uint_eq(many.loss_count, one.loss_count);
        for (size_t i = 0; i < one.loss_count; i++)
            ck_assert_msg(
                fabs(one.losses[i] - many.losses[i]) <= 1e-4 * fabs(one.losses[i]),
                "%zu pieces, %zu replicas, step %zu: loss %.9g, not %.9g",
                cases[c].pieces, cases[c].replicas, i + 1, many.losses[i], one.losses[i]);
        ASSERT_OK(copse__trainer_hash(many.trainer, &hash, &error));
        test_run_close(&many);
    }
    test_run_close(&one);
}
END_TEST

START_TEST(test_accumulate_takes_less_memory) {
    test_run one, many;
    train_in(1, 1, NULL, &one);
    train_in(8, 1, NULL, &many);
    copse__memory_report of_one, of_many;
    copse__trainer_memory(one.trainer, 0, &of_one);
    copse__trainer_memory(many.trainer, 0, &of_many);
    ck_assert_uint_lt(of_many.planned.device, of_one.planned.device + 16 * 68 * 4 * 2);
    test_run_close(&one);
    test_run_close(&many);
}
END_TEST

START_TEST(test_accumulate_and_micro_shards_are_refused) {
    test_run run;
    test_run_open(&run,
                  MODEL "  batch: 24, epochs: 1, accumulate: 2, reproducible: devices}\n",
                  48, 1, NULL);
    copse__trainer_options options = {
        .choices = run.choices, .choice_count = 1, .training = true};
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse__trainer_open(&run.trainer, run.config,
                                                        &run.sets, &options, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "accumulate"));
    test_run_close(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trainer_reproducible");
    ADD_TEST(suite, test_micro_shards_any_devices_give_the_same_bits);
    ADD_TEST(suite, test_micro_shards_of_other_sizes);
    ADD_TEST(suite, test_micro_shards_size_matters);
    ADD_TEST(suite, test_micro_shards_loss_changes_no_bit);
    ADD_TEST(suite, test_micro_shards_interrupted_and_on_other_devices);
    ADD_TEST(suite, test_accumulate_is_one_big_batch);
    ADD_TEST(suite, test_accumulate_takes_less_memory);
    ADD_TEST(suite, test_accumulate_and_micro_shards_are_refused);
    return run_suite(suite);
}
