/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams, shuffle windows, and leaving bad samples out. */
#include "support/check.h"

#include <copse/data.h>
#include <string.h>

static copse_error error;

/* ---- A stream of i = 0, 1, ... with label i % 7 --------------------------------------- */

typedef struct counter {
    uint32_t count, fail_at; /* fail_at: next() of it fails; UINT32_MAX: never */
    size_t open_passes;
    bool closed;
} counter;

typedef struct counter_pass {
    uint32_t at;
} counter_pass;

static copse_status counter_start(void *user, void **pass, copse_error *err) {
    (void)err;
    ((counter *)user)->open_passes++;
    *pass = calloc(1, sizeof(counter_pass));
    return COPSE_OK;
}

static copse_status counter_next(void *user, void *pass, void *features, void *labels,
                                 bool *end, copse_error *err) {
    counter *c = user;
    counter_pass *p = pass;
    *end = p->at == c->count;
    if (*end)
        return COPSE_OK;
    if (p->at == c->fail_at) {
        *err = (copse_error){.status = COPSE_IO, .text = "gone"};
        return COPSE_IO;
    }
    memcpy(features, &p->at, 4);
    *(int32_t *)labels = (int32_t)(p->at % 7);
    p->at++;
    return COPSE_OK;
}

static void counter_stop(void *user, void *pass) {
    ((counter *)user)->open_passes--;
    free(pass);
}

static void counter_close(void *user) {
    ((counter *)user)->closed = true;
}

static copse_dataset *make_stream(counter *c, uint32_t count) {
    *c = (counter){.count = count, .fail_at = UINT32_MAX};
    copse_data_stream_callbacks calls = {.start = counter_start,
                                         .next = counter_next,
                                         .stop = counter_stop,
                                         .close = counter_close,
                                         .user = c,
                                         .name = "counter",
                                         .features = {.dtype = COPSE_U32},
                                         .labels = {.dtype = COPSE_I32},
                                         .has_labels = true};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_from_stream(&set, &calls, &error));
    ck_assert_uint_eq(copse_dataset_count(set), COPSE_COUNT_UNKNOWN);
    return set;
}

/* The same numbers as a set that can be indexed; samples of bad[] fail. */
typedef struct listed {
    const uint32_t *bad;
    size_t bad_count;
    copse_status status;
} listed;

static copse_status listed_read(void *user, size_t index, void *features, void *labels,
                                copse_error *err) {
    const listed *l = user;
    for (size_t i = 0; i < l->bad_count; i++)
        if (l->bad[i] == index) {
            *err = (copse_error){.status = l->status, .text = "bad"};
            return l->status;
        }
    const uint32_t value = (uint32_t)index;
    memcpy(features, &value, 4);
    *(int32_t *)labels = (int32_t)(index % 7);
    return COPSE_OK;
}

static copse_dataset *make_listed(listed *l, size_t count) {
    copse_data_callbacks calls = {.read = listed_read,
                                  .user = l,
                                  .count = count,
                                  .features = {.dtype = COPSE_U32},
                                  .labels = {.dtype = COPSE_I32},
                                  .has_labels = true};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_from_callbacks(&set, &calls, &error));
    return set;
}

/* Reads until the run's end; checks rows; returns how many samples. */
static size_t run(copse_dataset *set, const copse_pipeline_options *options,
                  uint64_t *out, size_t *ends) {
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, options, &error));
    size_t count = 0, found_ends = 0, in_row = 0;
    while (in_row < 2) { /* the last epoch's end, and the run's */
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        if (!batch) {
            in_row++;
            found_ends++;
            continue;
        }
        in_row = 0;
        ck_assert_uint_ge(batch->rows, 1);
        size_t row = 0;
        for (size_t r = 0; r < batch->part_count; r++) {
            const uint32_t *features = batch->parts[r].features;
            const int32_t *labels = batch->parts[r].labels;
            ck_assert_uint_eq(batch->parts[r].first_row, row);
            for (size_t i = 0; i < batch->parts[r].rows; i++, row++) {
                ck_assert_uint_eq(features[i], batch->samples[row]);
                ck_assert_int_eq(labels[i], (int)(features[i] % 7));
                out[count++] = features[i];
            }
        }
        ck_assert_uint_eq(row, batch->rows);
        copse_pipeline_release(p, batch);
    }
    if (ends)
        *ends = found_ends - 1;
    copse_pipeline_close(p);
    return count;
}

static void check_once(const uint64_t *got, size_t count) {
    char seen[256] = {0};
    for (size_t i = 0; i < count; i++) {
        ck_assert_uint_lt(got[i], count);
        ck_assert(!seen[got[i]]);
        seen[got[i]] = 1;
    }
}

/* ---- Cases ---------------------------------------------------------------------------- */

START_TEST(test_stream_in_order_and_through_windows_sees_each_sample_once) {
    static const uint32_t counts[] = {1, 5, 64, 101};
    static const size_t windows[] = {0, 1, 3, 20, 1000};
    for (size_t c = 0; c < 4; c++)
        for (size_t w = 0; w < 5; w++)
            for (size_t batch = 1; batch < 70; batch = batch * 2 + 1) {
                counter state;
                size_t n = counts[c], ends;
                copse_dataset *set = make_stream(&state, counts[c]);
                copse_pipeline_options options = {
                    .batch = batch,
                    .epochs = 3,
                    .threads = 1 + w % 3,
                    .replica_count = 1 + batch % 3,
                    .shuffle = windows[w] ? COPSE_SHUFFLE_BUFFER : COPSE_SHUFFLE_NONE,
                    .shuffle_buffer = windows[w],
                    .seed = 4};
                uint64_t got[303];
                ck_assert_uint_eq(run(set, &options, got, &ends), 3 * n);
                ck_assert_uint_eq(ends, 3);
                for (size_t e = 0; e < 3; e++) {
                    check_once(got + e * n, n);
                    for (size_t i = 0; windows[w] <= 1 && i < n; i++)
                        ck_assert_uint_eq(got[e * n + i], i);
                    /* No sample comes before the window has reached it. */
                    for (size_t i = 0; windows[w] && i < n; i++)
                        ck_assert_uint_lt(got[e * n + i], i + windows[w]);
                }
                ck_assert_uint_eq(state.open_passes, 0);
                copse_dataset_close(set);
                ck_assert(state.closed);
            }
}
END_TEST

START_TEST(test_stream_window_gives_the_order_of_an_indexed_set) {
    counter state;
    listed none = {0};
    copse_dataset *stream = make_stream(&state, 100), *list = make_listed(&none, 100);
    copse_pipeline_options options = {.batch = 8,
                                      .epochs = 2,
                                      .shuffle = COPSE_SHUFFLE_BUFFER,
                                      .shuffle_buffer = 30,
                                      .seed = 9};
    uint64_t a[200], b[200];
    ck_assert_uint_eq(run(stream, &options, a, NULL), 200);
    ck_assert_uint_eq(run(list, &options, b, NULL), 200);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_mem_ne(a, a + 100, 100 * sizeof *a);
    copse_dataset_close(stream);
    copse_dataset_close(list);
}
END_TEST

START_TEST(test_stream_resumes_at_any_batch) {
    counter state;
    copse_dataset *set = make_stream(&state, 29);
    copse_pipeline_options options = {.batch = 4,
                                      .epochs = 2,
                                      .shuffle = COPSE_SHUFFLE_BUFFER,
                                      .shuffle_buffer = 10,
                                      .seed = 3};
    uint64_t whole[58], rest[58];
    ck_assert_uint_eq(run(set, &options, whole, NULL), 58);
    for (uint64_t epoch = 0; epoch < 2; epoch++)
        for (uint64_t index = 0; index <= 8; index++) {
            options.start_epoch = epoch;
            options.start_batch = index;
            size_t skipped = (size_t)(epoch * 29 + (index * 4 > 29 ? 29 : index * 4)),
                   ends;
            ck_assert_uint_eq(run(set, &options, rest, &ends), 58 - skipped);
            ck_assert_uint_eq(ends, 2 - epoch);
            ck_assert_mem_eq(rest, whole + skipped, (58 - skipped) * sizeof *whole);
        }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_stream_drop_remainder) {
    counter state;
    copse_dataset *set = make_stream(&state, 10);
    for (size_t batch = 1; batch <= 10; batch++) {
        copse_pipeline_options options = {
            .batch = batch, .epochs = 3, .drop_remainder = true};
        uint64_t got[30];
        size_t ends;
        ck_assert_uint_eq(run(set, &options, got, &ends), 3 * (10 / batch * batch));
        ck_assert_uint_eq(ends, 3);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_stream_failure_comes_after_the_batches_before_it) {
    counter state;
    copse_dataset *set = make_stream(&state, 30);
    for (state.fail_at = 0; state.fail_at < 12; state.fail_at++) {
        copse_pipeline_options options = {.batch = 4, .prefetch = 5, .threads = 2};
        copse_pipeline *p;
        ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
        const copse_batch *batch;
        for (size_t i = 0; i < state.fail_at / 4; i++) {
            ASSERT_OK(copse_pipeline_next(p, &batch, &error));
            ck_assert_uint_eq(batch->rows, 4);
            copse_pipeline_release(p, batch);
        }
        for (int again = 0; again < 2; again++) {
            ASSERT_FAILS(COPSE_IO, copse_pipeline_next(p, &batch, &error));
            ck_assert_str_eq(error.text, "gone");
        }
        copse_pipeline_close(p);
        ck_assert_uint_eq(state.open_passes, 0);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_stream_cannot_be_shuffled_whole_split_or_indexed) {
    counter state;
    copse_dataset *set = make_stream(&state, 10), *a, *b;
    copse_pipeline *p;
    copse_pipeline_options options = {.batch = 2, .shuffle = COPSE_SHUFFLE_FULL};
    ASSERT_FAILS(COPSE_CONFIG, copse_pipeline_open(&p, set, &options, &error));
    options.shuffle = COPSE_SHUFFLE_BUFFER;
    ASSERT_FAILS(COPSE_CONFIG, copse_pipeline_open(&p, set, &options, &error));
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_split(&a, &b, set, 0.5, &error));
    uint32_t value;
    int32_t label;
    ASSERT_FAILS(COPSE_INVALID, copse_dataset_read(set, 0, &value, &label, &error));
    copse_dataset_close(set);
    set = make_stream(&state, 0);
    options.shuffle = COPSE_SHUFFLE_NONE;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    const copse_batch *batch;
    ASSERT_FAILS(COPSE_FORMAT, copse_pipeline_next(p, &batch, &error));
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_skip_errors_leaves_bad_samples_out) {
    static const uint32_t bad[] = {0, 5, 6, 7, 8, 22, 40};
    listed state = {bad, 7, COPSE_FORMAT};
    copse_dataset *set = make_listed(&state, 41);
    const double weights[] = {1, 5, 2};
    for (size_t batch = 1; batch <= 50; batch++)
        for (size_t replicas = 1; replicas <= 3; replicas++) {
            copse_pipeline_options options = {.batch = batch,
                                              .epochs = 2,
                                              .skip_errors = true,
                                              .replica_count = replicas,
                                              .weights = weights,
                                              .threads = 1 + batch % 2,
                                              .shuffle = batch % 3 ? COPSE_SHUFFLE_FULL
                                                                   : COPSE_SHUFFLE_NONE};
            uint64_t got[82];
            size_t ends, count = run(set, &options, got, &ends);
            ck_assert_uint_eq(count, 2 * 34);
            ck_assert_uint_eq(ends, 2);
            for (size_t e = 0; e < 2; e++) {
                char seen[41] = {0};
                for (size_t i = 0; i < 34; i++) {
                    ck_assert(!seen[got[e * 34 + i]]);
                    seen[got[e * 34 + i]] = 1;
                }
                for (size_t i = 0; i < 7; i++)
                    ck_assert(!seen[bad[i]]);
            }
        }
    copse_dataset_close(set);
}
END_TEST

/* A batch of which nothing is left is counted by the one after it, at an epoch's end by the statistics alone. */
START_TEST(test_skip_errors_is_counted_by_batch) {
    static const uint32_t bad[] = {1, 2, 4};
    listed state = {bad, 3, COPSE_FORMAT};
    copse_dataset *set = make_listed(&state, 5);
    copse_pipeline_options options = {.batch = 1, .epochs = 2, .skip_errors = true};
    copse_pipeline *p;
    copse_pipeline_stats stats;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        ck_assert(batch->samples[0] == 0 && batch->skipped == 0);
        copse_pipeline_release(p, batch);
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        ck_assert(batch->samples[0] == 3 && batch->skipped == 2);
        copse_pipeline_release(p, batch);
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        ck_assert_ptr_null(batch);
        copse_pipeline_get_stats(p, &stats);
        ck_assert_uint_eq(stats.skipped, 3 * (epoch + 1));
    }
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_skip_errors_counts_and_keeps_other_failures) {
    static const uint32_t bad[] = {3};
    listed state = {bad, 1, COPSE_IO};
    copse_dataset *set = make_listed(&state, 14);
    copse_pipeline_options options = {
        .batch = 14, .epochs = 1, .skip_errors = true, .label_classes = 5};
    copse_pipeline *p;
    const copse_batch *batch;
    copse_pipeline_stats stats;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    ASSERT_OK(copse_pipeline_next(p, &batch, &error));
    ck_assert_uint_eq(batch->rows, 9); /* 3 is bad; 5, 6, 12, 13 have labels 5 and 6 */
    copse_pipeline_get_stats(p, &stats);
    ck_assert_uint_eq(stats.skipped, 5);
    copse_pipeline_close(p);
    state.status = COPSE_NOMEM;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    ASSERT_FAILS(COPSE_NOMEM, copse_pipeline_next(p, &batch, &error));
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

static copse_status wide_read(void *user, size_t index, void *features, void *labels,
                              copse_error *err) {
    (void)labels;
    (void)err;
    const int64_t *values = user;
    memcpy(features, &values[index], 8);
    return COPSE_OK;
}

START_TEST(test_narrow_gives_32_bits_or_refuses) {
    int64_t values[] = {-5, INT32_MAX, INT32_MIN, (int64_t)INT32_MAX + 1};
    copse_data_callbacks calls = {.read = wide_read,
                                  .user = values,
                                  .name = "wide",
                                  .count = 4,
                                  .features = {.dtype = COPSE_I64}};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_from_callbacks(&set, &calls, &error));
    copse_pipeline_options options = {.batch = 3, .epochs = 1, .narrow = true};
    copse_pipeline *p;
    const copse_batch *batch;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    ck_assert_int_eq(copse_pipeline_get_features(p)->dtype, COPSE_I32);
    ck_assert_ptr_null(copse_pipeline_get_labels(p));
    ASSERT_OK(copse_pipeline_next(p, &batch, &error));
    const int32_t *got = batch->parts[0].features;
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(got[i], values[i]);
    copse_pipeline_release(p, batch);
    ASSERT_FAILS(COPSE_FORMAT, copse_pipeline_next(p, &batch, &error));
    ck_assert_str_eq(error.place, "wide, sample 3");
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_stream");
    ADD_TEST(suite, test_stream_in_order_and_through_windows_sees_each_sample_once);
    ADD_TEST(suite, test_stream_window_gives_the_order_of_an_indexed_set);
    ADD_TEST(suite, test_stream_resumes_at_any_batch);
    ADD_TEST(suite, test_stream_drop_remainder);
    ADD_TEST(suite, test_stream_failure_comes_after_the_batches_before_it);
    ADD_TEST(suite, test_stream_cannot_be_shuffled_whole_split_or_indexed);
    ADD_TEST(suite, test_skip_errors_leaves_bad_samples_out);
    ADD_TEST(suite, test_skip_errors_is_counted_by_batch);
    ADD_TEST(suite, test_skip_errors_counts_and_keeps_other_failures);
    ADD_TEST(suite, test_narrow_gives_32_bits_or_refuses);
    return run_suite(suite);
}
