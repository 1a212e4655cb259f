/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <copse/data.h>
#include <stdatomic.h>
#include <string.h>

static copse_error error;

/* ---- A dataset whose sample i is {i, ~i} with label i % 7 -----------------------------
 */

typedef struct numbers {
    size_t fail_at;           /* SIZE_MAX: never */
    atomic_size_t fail_after; /* reads of it that still work */
    bool closed;
} numbers;

static copse_status numbers_read(void *user, size_t index, void *features, void *labels,
                                 copse_error *err) {
    numbers *n = user;
    if (index == n->fail_at && atomic_fetch_sub(&n->fail_after, 1) == 0) {
        *err = (copse_error){.status = COPSE_IO, .text = "sample is gone"};
        return COPSE_IO;
    }
    const uint32_t pair[2] = {(uint32_t)index, ~(uint32_t)index};
    memcpy(features, pair, sizeof pair);
    *(int32_t *)labels = (int32_t)(index % 7);
    return COPSE_OK;
}

static void numbers_close(void *user) {
    ((numbers *)user)->closed = true;
}

static copse_dataset *make_numbers(numbers *n, size_t count) {
    *n = (numbers){.fail_at = SIZE_MAX};
    copse_data_callbacks calls = {.read = numbers_read,
                                  .close = numbers_close,
                                  .user = n,
                                  .name = "numbers",
                                  .count = count,
                                  .features = {COPSE_U32, 1, {2}},
                                  .labels = {.dtype = COPSE_I32},
                                  .has_labels = true,
                                  .classes = 7};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_from_callbacks(&set, &calls, &error));
    return set;
}

/* Checks a batch against itself and appends its samples. */
static void collect(const copse_batch *batch, uint64_t *out, size_t *count) {
    size_t row = 0;
    for (size_t r = 0; r < batch->part_count; r++) {
        const copse_batch_part *part = &batch->parts[r];
        ck_assert_uint_eq(part->first_row, row);
        ck_assert_ptr_nonnull(part->features);
        const uint32_t *features = part->features;
        const int32_t *labels = part->labels;
        for (size_t i = 0; i < part->rows; i++, row++) {
            uint64_t sample = batch->samples[row];
            ck_assert_uint_eq(features[2 * i], sample);
            ck_assert_uint_eq(features[2 * i + 1], (uint32_t)~sample);
            ck_assert_int_eq(labels[i], (int)(sample % 7));
            out[(*count)++] = sample;
        }
    }
    ck_assert_uint_eq(row, batch->rows);
}

/* Reads epochs whole epochs in one list; returns the number of samples. */
static size_t read_epochs(copse_pipeline *p, size_t epochs, uint64_t *out) {
    size_t count = 0;
    for (size_t e = 0; e < epochs;) {
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        if (!batch) {
            e++;
            continue;
        }
        collect(batch, out, &count);
        copse_pipeline_release(p, batch);
    }
    return count;
}

static size_t run(copse_dataset *set, const copse_pipeline_options *options,
                  size_t epochs, uint64_t *out) {
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, options, &error));
    size_t count = read_epochs(p, epochs, out);
    copse_pipeline_close(p);
    return count;
}

/* ---- Cases ----------------------------------------------------------------------------
 */

START_TEST(test_pipeline_sees_each_sample_once_an_epoch) {
    static const size_t counts[] = {1, 2, 7, 23, 64, 101};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t replicas = 1; replicas <= 5; replicas++)
            for (size_t batch = 1; batch <= counts[c] + 2; batch += batch < 5 ? 1 : 9)
                for (int drop = 0; drop < 2; drop++) {
                    size_t n = counts[c], expected = drop ? n / batch * batch : n;
                    if (expected == 0)
                        continue;
                    numbers state;
                    copse_dataset *set = make_numbers(&state, n);
                    copse_pipeline_options options = {.batch = batch,
                                                      .shuffle = COPSE_SHUFFLE_FULL,
                                                      .seed = 5,
                                                      .drop_remainder = drop,
                                                      .threads = 1 + batch % 3,
                                                      .replica_count = replicas};
                    uint64_t got[2 * 101];
                    ck_assert_uint_eq(run(set, &options, 2, got), 2 * expected);
                    for (size_t e = 0; e < 2; e++) {
                        char seen[101] = {0};
                        for (size_t i = 0; i < expected; i++) {
                            uint64_t sample = got[e * expected + i];
                            ck_assert_uint_lt(sample, n);
                            ck_assert(!seen[sample]);
                            seen[sample] = 1;
                        }
                    }
                    copse_dataset_close(set);
                    ck_assert(state.closed);
                }
}
END_TEST

START_TEST(test_pipeline_rows_do_not_depend_on_replicas_or_threads) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 103);
    uint64_t first[309], other[309];
    copse_pipeline_options options = {
        .batch = 16, .shuffle = COPSE_SHUFFLE_FULL, .seed = 11, .threads = 1};
    ck_assert_uint_eq(run(set, &options, 3, first), 309);
    ck_assert_mem_ne(first, first + 103, 103 * sizeof *first); /* epochs differ */
    for (size_t threads = 1; threads <= 4; threads++)
        for (size_t replicas = 1; replicas <= 5; replicas++) {
            const double weights[] = {1, 3, 0, 2.5, 1};
            options.threads = threads;
            options.replica_count = replicas;
            options.weights = replicas % 2 ? weights : NULL;
            options.prefetch = 1 + threads;
            ck_assert_uint_eq(run(set, &options, 3, other), 309);
            ck_assert_mem_eq(first, other, sizeof first);
        }
    options.seed = 12;
    options.weights = NULL;
    ck_assert_uint_eq(run(set, &options, 3, other), 309);
    ck_assert_mem_ne(first, other, sizeof first);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_pipeline_unshuffled_gives_n_rows_in_order) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 50);
    for (size_t batch = 1; batch <= 60; batch++) {
        copse_pipeline_options options = {
            .batch = batch, .epochs = 1, .replica_count = 3, .threads = 2};
        uint64_t got[50];
        ck_assert_uint_eq(run(set, &options, 1, got), 50);
        for (size_t i = 0; i < 50; i++)
            ck_assert_uint_eq(got[i], i);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_pipeline_reports_epochs_and_positions) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 10);
    copse_pipeline_options options = {.batch = 4, .epochs = 2};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    copse_dataset_close(set);
    ck_assert(!state.closed);
    ck_assert_uint_eq(copse_pipeline_batches(p), 3);
    const copse_batch *batch;
    for (size_t e = 0; e < 2; e++) {
        for (size_t i = 0; i < 3; i++) {
            ASSERT_OK(copse_pipeline_next(p, &batch, &error));
            ck_assert_ptr_nonnull(batch);
            ck_assert_uint_eq(batch->epoch, e);
            ck_assert_uint_eq(batch->index, i);
            ck_assert_uint_eq(batch->first_position, i * 4);
            ck_assert_uint_eq(batch->rows, i < 2 ? 4 : 2);
            ck_assert_int_eq(batch->last, i == 2);
            copse_pipeline_release(p, batch);
        }
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        ck_assert_ptr_null(batch);
    }
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        ck_assert_ptr_null(batch);
    }
    copse_pipeline_stats stats;
    copse_pipeline_get_stats(p, &stats);
    ck_assert_uint_eq(stats.samples, 20);
    copse_pipeline_close(p);
    ck_assert(state.closed);
}
END_TEST

START_TEST(test_pipeline_resumes_at_any_batch) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 29);
    copse_pipeline_options options = {
        .batch = 4, .shuffle = COPSE_SHUFFLE_FULL, .seed = 3, .epochs = 3};
    uint64_t whole[87];
    ck_assert_uint_eq(run(set, &options, 3, whole), 87);
    for (uint64_t epoch = 0; epoch < 3; epoch++)
        for (uint64_t index = 0; index <= 8; index++) {
            options.start_epoch = epoch;
            options.start_batch = index;
            uint64_t rest[87];
            size_t skipped = (size_t)(epoch * 29 + (index * 4 > 29 ? 29 : index * 4));
            ck_assert_uint_eq(run(set, &options, (size_t)(3 - epoch), rest),
                              87 - skipped);
            ck_assert_mem_eq(rest, whole + skipped, (87 - skipped) * sizeof *whole);
        }
    copse_pipeline *p;
    options.start_batch = 9;
    ASSERT_FAILS(COPSE_INVALID, copse_pipeline_open(&p, set, &options, &error));
    ck_assert_ptr_null(p);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_pipeline_shards_follow_weights) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 25);
    const size_t shards[] = {3, 0, 7};
    copse_pipeline_options options = {
        .batch = 10, .epochs = 1, .replica_count = 3, .shards = shards};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    ck_assert_mem_eq(copse_pipeline_get_shards(p), shards, sizeof shards);
    static const size_t expected[3][3] = {{3, 0, 7}, {3, 0, 7}, {2, 0, 3}};
    for (size_t i = 0; i < 3; i++) {
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        for (size_t r = 0; r < 3; r++)
            ck_assert_uint_eq(batch->parts[r].rows, expected[i][r]);
        copse_pipeline_release(p, batch);
    }
    copse_pipeline_close(p);
    const size_t wrong[] = {3, 1, 7};
    options.shards = wrong;
    ASSERT_FAILS(COPSE_INVALID, copse_pipeline_open(&p, set, &options, &error));
    copse_dataset_close(set);
}
END_TEST

/* 100 rows in groups of 32 over uneven replicas, and a last batch of 75: no group is cut. */
START_TEST(test_pipeline_unit_keeps_groups_of_rows_together) {
    numbers n;
    copse_dataset *set = make_numbers(&n, 175);
    static const size_t wanted[][3] = {{64, 36, 0}, {32, 64, 4}, {0, 96, 4}};
    for (size_t w = 0; w < 3; w++) {
        copse_pipeline_options options = {.batch = 100,
                                          .epochs = 1,
                                          .replica_count = 3,
                                          .shards = wanted[w],
                                          .unit = 32};
        copse_pipeline *p;
        ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
        for (size_t b = 0; b < 2; b++) {
            const copse_batch *batch;
            uint64_t samples[100];
            size_t count = 0;
            ASSERT_OK(copse_pipeline_next(p, &batch, &error));
            collect(batch, samples, &count);
            ck_assert_uint_eq(count, b == 0 ? 100 : 75);
            for (size_t r = 0; r < 3; r++)
                if (b == 0)
                    ck_assert_uint_eq(batch->parts[r].rows, wanted[w][r]);
                else if (batch->parts[r].rows > 0)
                    ck_assert_uint_eq(batch->parts[r].first_row % 32, 0);
            copse_pipeline_release(p, batch);
        }
        copse_pipeline_close(p);
    }
    static const size_t cut[] = {36, 64, 0};
    copse_pipeline_options options = {
        .batch = 100, .replica_count = 3, .shards = cut, .unit = 32};
    copse_pipeline *p;
    ASSERT_FAILS(COPSE_INVALID, copse_pipeline_open(&p, set, &options, &error));
    options.shards = NULL; /* by weights: groups of rows are what is weighed */
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    const size_t *made = copse_pipeline_get_shards(p);
    ck_assert_uint_eq(made[0] + made[1] + made[2], 100);
    ck_assert_uint_eq(made[0], 64);
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_pipeline_held_batches_stay_whole) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 40);
    copse_pipeline_options options = {.batch = 4, .prefetch = 1, .held = 3, .threads = 3};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    const copse_batch *held[4], *none;
    for (size_t i = 0; i < 4; i++)
        ASSERT_OK(copse_pipeline_next(p, &held[i], &error));
    ASSERT_FAILS(COPSE_INVALID, copse_pipeline_next(p, &none, &error));
    ck_assert_ptr_null(none);
    uint64_t got[16];
    size_t count = 0;
    for (size_t i = 0; i < 4; i++)
        collect(held[i], got, &count);
    for (size_t i = 0; i < 16; i++)
        ck_assert_uint_eq(got[i], i);
    copse_pipeline_release(p, held[2]);
    copse_pipeline_release(p, held[0]);
    ASSERT_OK(copse_pipeline_next(p, &none, &error));
    ck_assert_uint_eq(none->index, 4);
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

/* Sample 17 works in epochs 0 and 1 and is gone in epoch 2: what comes before it in the
 * run's order is delivered, then the error, again and again. */
START_TEST(test_pipeline_failing_sample_in_epoch_2) {
    for (size_t threads = 1; threads <= 4; threads++) {
        numbers state;
        copse_dataset *set = make_numbers(&state, 30);
        state.fail_at = 17;
        state.fail_after = 2;
        copse_pipeline_options options = {.batch = 5, .threads = threads, .prefetch = 4};
        copse_pipeline *p;
        ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
        uint64_t got[90];
        ck_assert_uint_eq(read_epochs(p, 2, got), 60);
        const copse_batch *batch;
        size_t count = 0;
        for (size_t i = 0; i < 3; i++) {
            ASSERT_OK(copse_pipeline_next(p, &batch, &error));
            collect(batch, got, &count);
            copse_pipeline_release(p, batch);
        }
        for (int again = 0; again < 3; again++) {
            ASSERT_FAILS(COPSE_IO, copse_pipeline_next(p, &batch, &error));
            ck_assert_str_eq(error.text, "sample is gone");
            ck_assert_ptr_null(batch);
        }
        copse_pipeline_close(p);
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_pipeline_label_out_of_range_is_named) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 30);
    copse_pipeline_options options = {.batch = 30, .label_classes = 6, .threads = 3};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    const copse_batch *batch;
    ASSERT_FAILS(COPSE_FORMAT, copse_pipeline_next(p, &batch, &error));
    ck_assert_str_eq(error.place, "numbers, sample 6");
    ck_assert_ptr_nonnull(strstr(error.text, "label is 6"));
    copse_pipeline_close(p);
    options.label_classes = 7;
    uint64_t got[30];
    ck_assert_uint_eq(run(set, &options, 1, got), 30);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_pipeline_bad_options_are_refused) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 3);
    copse_pipeline *p;
    copse_pipeline_options none = {0};
    ASSERT_FAILS(COPSE_CONFIG, copse_pipeline_open(&p, set, &none, &error));
    copse_pipeline_options empty = {.batch = 4, .drop_remainder = true};
    ASSERT_FAILS(COPSE_CONFIG, copse_pipeline_open(&p, set, &empty, &error));
    copse_pipeline_options huge = {.batch = SIZE_MAX / 2};
    ASSERT_FAILS(COPSE_NOMEM, copse_pipeline_open(&p, set, &huge, &error));
    copse_dataset_close(set);
    ck_assert(state.closed);
}
END_TEST

typedef struct counted {
    size_t live, made, fail_at;
} counted;

static copse_status counted_alloc(void *user, size_t replica, size_t bytes, void **out,
                                  copse_error *err) {
    counted *c = user;
    ck_assert_uint_lt(replica, 2);
    if (++c->made == c->fail_at) {
        *err = (copse_error){.status = COPSE_DEVICE_MEMORY};
        return COPSE_DEVICE_MEMORY;
    }
    c->live++;
    *out = malloc(bytes);
    return COPSE_OK;
}

static void counted_free(void *user, size_t replica, void *memory) {
    ck_assert_uint_lt(replica, 2);
    ((counted *)user)->live--;
    free(memory);
}

START_TEST(test_pipeline_memory_of_the_caller_is_given_back) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 30);
    for (size_t fail_at = 0; fail_at <= 12; fail_at++) {
        counted c = {.fail_at = fail_at};
        copse_pipeline_options options = {.batch = 5,
                                          .epochs = 1,
                                          .replica_count = 2,
                                          .alloc = counted_alloc,
                                          .free = counted_free,
                                          .alloc_user = &c};
        copse_pipeline *p;
        if (fail_at) {
            ASSERT_FAILS(COPSE_DEVICE_MEMORY,
                         copse_pipeline_open(&p, set, &options, &error));
        } else {
            uint64_t got[30];
            ck_assert_uint_eq(run(set, &options, 1, got), 30);
            ck_assert_uint_eq(c.made, 12); /* 3 slots, 2 replicas, features and labels */
        }
        ck_assert_uint_eq(c.live, 0);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_split_takes_the_last_part_as_keras_does) {
    numbers state;
    copse_dataset *set = make_numbers(&state, 1437), *train, *validation;
    ASSERT_OK(copse_dataset_split(&train, &validation, set, 0.2, &error));
    copse_dataset_close(set);
    ck_assert_uint_eq(copse_dataset_count(train), 1149); /* int(1437 * 0.8) */
    ck_assert_uint_eq(copse_dataset_count(validation), 288);
    uint32_t pair[2];
    int32_t label;
    ASSERT_OK(copse_dataset_read(validation, 0, pair, &label, &error));
    ck_assert_uint_eq(pair[0], 1149);
    copse_dataset *none;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_split(&none, &none, train, 1.0, &error));
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_split(&none, &none, train, 0.9999, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_dataset_slice(&none, train, 1149, 1, &error));
    copse_dataset_close(train);
    ck_assert(!state.closed);
    copse_dataset_close(validation);
    ck_assert(state.closed);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_pipeline");
    ADD_TEST(suite, test_pipeline_sees_each_sample_once_an_epoch);
    ADD_TEST(suite, test_pipeline_rows_do_not_depend_on_replicas_or_threads);
    ADD_TEST(suite, test_pipeline_unshuffled_gives_n_rows_in_order);
    ADD_TEST(suite, test_pipeline_reports_epochs_and_positions);
    ADD_TEST(suite, test_pipeline_resumes_at_any_batch);
    ADD_TEST(suite, test_pipeline_shards_follow_weights);
    ADD_TEST(suite, test_pipeline_unit_keeps_groups_of_rows_together);
    ADD_TEST(suite, test_pipeline_held_batches_stay_whole);
    ADD_TEST(suite, test_pipeline_failing_sample_in_epoch_2);
    ADD_TEST(suite, test_pipeline_label_out_of_range_is_named);
    ADD_TEST(suite, test_pipeline_bad_options_are_refused);
    ADD_TEST(suite, test_pipeline_memory_of_the_caller_is_given_back);
    ADD_TEST(suite, test_split_takes_the_last_part_as_keras_does);
    return run_suite(suite);
}
