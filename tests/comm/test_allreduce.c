/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over devices of plain memory: every path, number of ranks and size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/engine.h"
#include "comm/ranks.h"
#include "support/check.h"
#include "support/fake_device.h"

/* DIRECT: mapped, and where the host reaches it without a call; HALF_MAPPED: of all kinds. */
typedef enum mix { ALL_COPIED, ALL_MAPPED, ALL_DIRECT, HALF_MAPPED, MIXES } mix;

static void open_typed(ranks *all, copse_dtype dtype, size_t count,
                       const size_t *elements, size_t buckets, mix how,
                       size_t chunk_bytes, size_t reducers) {
    *all = (ranks){
        .count = count, .bucket_count = buckets, .elements = elements, .dtype = dtype};
    for (size_t r = 0; r < count; r++) {
        all->devices[r] =
            fake_device_new(r, how != ALL_COPIED && (how != HALF_MAPPED || r % 2 == 0));
        if (how == ALL_DIRECT || (how == HALF_MAPPED && r % 4 == 0))
            fake_share(all->devices[r]);
        for (size_t b = 0; b < buckets; b++)
            all->shared[r][b] = how == ALL_DIRECT || (r + b) % 2 == 0;
    }
    ranks_make_buffers(all);
    copse_error error;
    const copse__allreduce_options options = {
        .devices = all->devices,
        .rank_count = count,
        .bucket_elements = elements,
        .bucket_count = buckets,
        .dtype = dtype,
        .chunk_bytes = chunk_bytes,
        .path = how == ALL_MAPPED || how == ALL_DIRECT ? COPSE__PATH_MAPPED
                                                       : COPSE__PATH_AUTO,
        .reducer_threads = reducers};
    ASSERT_OK(copse__allreduce_new(&all->engine, &options, &error));
    for (size_t r = 0; r < count; r++)
        if (!copse__device_get(all->devices[r])->caps.unified)
            ck_assert_int_eq(copse__allreduce_path(all->engine, r), COPSE__PATH_COPIED);
}

static void open_ranks(ranks *all, size_t count, const size_t *elements, size_t buckets,
                       mix how, size_t chunk_bytes, size_t reducers) {
    open_typed(all, COPSE_F32, count, elements, buckets, how, chunk_bytes, reducers);
}

static void close_ranks(ranks *all) {
    copse__allreduce_free(all->engine);
    ranks_free_buffers(all);
    for (size_t r = 0; r < all->count; r++) {
        ck_assert_uint_eq(fake_live_objects(all->devices[r]), 0);
        fake_device_free(all->devices[r]);
    }
}

static void run_and_check(ranks *all, uint64_t step) {
    ranks_run_step(all, step, NULL);
    for (size_t r = 0; r < all->count; r++)
        if (!all->gone[r])
            ck_assert_msg(all->status[r] == COPSE_OK, "rank %zu: %s", r,
                          all->errors[r].text);
    ranks_check(all);
}

static const copse_dtype dtypes[] = {COPSE_F32, COPSE_F16};

/* Threads are the same for both types of numbers, and after some repetitions. */
#ifdef __SANITIZE_THREAD__
#define OFTEN 200
#define ONE_TYPE true
#else
#define OFTEN 1000
#define ONE_TYPE false
#endif

START_TEST(test_allreduce_of_1_to_16_ranks_is_the_trees_sum) {
    const size_t elements[] = {1, 0, 4099, 20001};
    for (size_t trial = 0; trial < 2 * RANKS_MAX; trial++) {
        const size_t count = 1 + trial / 2;
        if (ONE_TYPE && trial % 2 != count % 2)
            continue;
        for (int how = ALL_COPIED; how < MIXES; how++) {
            ranks all;
            open_typed(&all, dtypes[trial % 2], count, elements, 4, (mix)how,
                       4096 * (1 + count % 3), 1 + count % 4);
            for (uint64_t step = 7; step < 9; step++)
                run_and_check(&all, step);
            close_ranks(&all);
        }
    }
}
END_TEST

START_TEST(test_allreduce_of_a_mebi_and_one_elements) {
    const size_t elements[] = {(1 << 20) + 1};
    for (size_t trial = 0; trial < 2 * RANKS_MAX; trial++) {
        const size_t count = 1 + trial / 2;
        if (ONE_TYPE && (count < 2 || count > 5 || trial % 2 != count % 2))
            continue; /* one number of ranks of each kind */
        ranks all;
        open_typed(&all, dtypes[trial % 2], count, elements, 1, (mix)(trial / 2 % MIXES),
                   0, 0);
        run_and_check(&all, 0);
        close_ranks(&all);
    }
}
END_TEST

START_TEST(test_allreduce_of_nothing_is_done_at_once) {
    const size_t elements[] = {0, 0};
    ranks all;
    open_ranks(&all, 3, elements, 2, ALL_COPIED, 0, 0);
    for (uint64_t step = 0; step < 3; step++)
        run_and_check(&all, step);
    close_ranks(&all);
}
END_TEST

/* What is lifted at once may have been what a sleeping mover's bucket waited for. */
START_TEST(test_allreduce_takes_buckets_in_any_order) {
    const size_t elements[] = {300, 5000, 1, 700};
    for (mix how = 0; how < MIXES; how++) {
        ranks all;
        open_ranks(&all, 3, elements, 4, how, 4096, 2);
        all.backwards = true;
        for (uint64_t step = 0; step < 40; step++)
            run_and_check(&all, step);
        close_ranks(&all);
    }
}
END_TEST

START_TEST(test_allreduce_leaves_empty_shards_out) {
    const size_t elements[] = {1000, 5000};
    for (int how = ALL_COPIED; how < MIXES; how++) {
        ranks all;
        open_ranks(&all, 5, elements, 2, (mix)how, 4096, 2);
        all.empty[1] = all.empty[4] = true;
        run_and_check(&all, 0);
        all.empty[1] = false;
        all.empty[0] = true;
        run_and_check(&all, 1);
        close_ranks(&all);
    }
}
END_TEST

/* Every byte of every rank, each time. */
START_TEST(test_allreduce_very_often_gives_the_same_bits) {
    const size_t elements[] = {257, 6000};
    for (int half = 0; half < 2; half++) {
        ranks all;
        open_typed(&all, dtypes[half], 6, elements, 2, HALF_MAPPED, 4096, 3);
        all.same_values = true;
        uint64_t expected = 0;
        for (uint64_t repetition = 0; repetition < OFTEN; repetition++) {
            ranks_run_step(&all, repetition, NULL);
            if (repetition == 0) {
                ranks_check(&all);
                expected = ranks_hash(&all, 0);
            }
            for (size_t r = 0; r < all.count; r++)
                if (all.status[r] != COPSE_OK || ranks_hash(&all, r) != expected)
                    ck_abort_msg("repetition %d, rank %zu: %s", (int)repetition, r,
                                 all.status[r] == COPSE_OK ? "other bits"
                                                           : all.errors[r].text);
        }
        close_ranks(&all);
    }
}
END_TEST

START_TEST(test_allreduce_has_the_same_bits_for_any_chunks_and_threads) {
    const size_t elements[] = {30011};
    static float reference[30011], got[30011];
    for (size_t trial = 0; trial < 12; trial++) {
        ranks all;
        const size_t chunks[] = {4096, 8192, 65536, 0};
        open_ranks(&all, 7, elements, 1, (mix)(trial % MIXES), chunks[trial % 4],
                   1 + trial % 5);
        ranks_run_step(&all, 1, NULL);
        ranks_read(&all, trial % 7, 0, trial == 0 ? reference : got);
        if (trial > 0)
            ck_assert_int_eq(memcmp(reference, got, sizeof got), 0);
        close_ranks(&all);
    }
}
END_TEST

START_TEST(test_allreduce_reports_what_is_not_finite) {
    const size_t elements[] = {3000, 3000};
    for (int how = ALL_COPIED; how < MIXES; how++) {
        ranks all;
        open_ranks(&all, 4, elements, 2, (mix)how, 4096, 2);
        copse_error error;
        for (size_t r = 0; r < 4; r++)
            for (size_t b = 0; b < 2; b++) {
                float *values = fake_bytes(all.buffers[r][b]);
                for (size_t e = 0; e < 3000; e++)
                    values[e] = 1.0f;
            }
        ((float *)fake_bytes(all.buffers[2][1]))[2999] = NAN;
        ((float *)fake_bytes(all.buffers[3][1]))[0] = INFINITY;
        for (size_t r = 0; r < 4; r++)
            for (size_t b = 2; b-- > 0;)
                ASSERT_OK(copse__allreduce_submit(
                    all.engine, r, 5, b, (copse__view){all.buffers[r][b], 0, 12000}, NULL,
                    true, &error));
        for (size_t r = 0; r < 4; r++) {
            copse__allreduce_result result;
            ASSERT_OK(copse__allreduce_wait(all.engine, r, 5, &result, &error));
            ck_assert_uint_eq(result.nonfinite, 2);
            ck_assert_uint_eq(result.nonfinite_bucket, 1);
            ck_assert_uint_eq(result.nonfinite_rank, 2);
        }
        run_and_check(&all, 6); /* and nothing of it stays */
        ck_assert_uint_eq(all.results[1].nonfinite, 0);
        ck_assert_uint_eq(all.results[1].nonfinite_bucket, SIZE_MAX);
        close_ranks(&all);
    }
}
END_TEST

/* What a CPU device computes with is left to it until it has given all of its step. */
START_TEST(test_allreduce_leaves_cores_to_devices_that_compute) {
    const size_t elements[] = {100, 100};
    ranks all;
    copse_error error;
    open_ranks(&all, 3, elements, 2, ALL_COPIED, 0, 4);
    size_t limits[7], count = 0;
    for (size_t r = 0; r < 3; r++)
        for (size_t b = 0; b < 2; b++) {
            pthread_mutex_lock(&all.engine->lock);
            limits[count++] = copse__engine_sum_limit(all.engine);
            pthread_mutex_unlock(&all.engine->lock);
            memset(fake_bytes(all.buffers[r][b]), 0, 400);
            ASSERT_OK(copse__allreduce_submit(all.engine, r, 0, b,
                                              (copse__view){all.buffers[r][b], 0, 400},
                                              NULL, true, &error));
        }
    pthread_mutex_lock(&all.engine->lock);
    limits[count] = copse__engine_sum_limit(all.engine);
    pthread_mutex_unlock(&all.engine->lock);
    const size_t expected[] = {1, 1, 2, 2, 3, 3, 4};
    ck_assert_mem_eq(limits, expected, sizeof expected);
    for (size_t r = 0; r < 3; r++)
        ASSERT_OK(copse__allreduce_wait(all.engine, r, 0, NULL, &error));
    close_ranks(&all);
}
END_TEST

START_TEST(test_allreduce_refuses_wrong_calls) {
    const size_t elements[] = {100, 100};
    ranks all;
    copse_error error;
    open_ranks(&all, 2, elements, 2, ALL_COPIED, 0, 1);
    const copse__view part = {all.buffers[0][0], 0, 400};
    const copse__view small = {all.buffers[0][0], 0, 396};
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 2, 0, 0, part, NULL, true, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 0, 0, 2, part, NULL, true, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 0, 0, 0, small, NULL, true, &error));
    ASSERT_OK(copse__allreduce_submit(all.engine, 0, 0, 0, part, NULL, true, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 0, 0, 0, part, NULL, true, &error));
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 0, 1, 1, part, NULL, true, &error));
    ASSERT_FAILS(COPSE_INVALID, copse__allreduce_wait(all.engine, 0, 0, NULL, &error));
    close_ranks(&all); /* in the middle of a step */
    const copse__allreduce_options none = {.rank_count = 0};
    copse__allreduce *engine;
    ASSERT_FAILS(COPSE_INVALID, copse__allreduce_new(&engine, &none, &error));
    ck_assert_ptr_null(engine);
}
END_TEST

static Suite *make_suite(size_t part) {
    Suite *suite = suite_create("allreduce");
    if (part == 0) {
        ADD_TEST(suite, test_allreduce_of_1_to_16_ranks_is_the_trees_sum);
        return suite;
    }
    ADD_TEST(suite, test_allreduce_of_a_mebi_and_one_elements);
    ADD_TEST(suite, test_allreduce_of_nothing_is_done_at_once);
    ADD_TEST(suite, test_allreduce_takes_buckets_in_any_order);
    ADD_TEST(suite, test_allreduce_leaves_empty_shards_out);
    ADD_TEST(suite, test_allreduce_very_often_gives_the_same_bits);
    ADD_TEST(suite, test_allreduce_has_the_same_bits_for_any_chunks_and_threads);
    ADD_TEST(suite, test_allreduce_reports_what_is_not_finite);
    ADD_TEST(suite, test_allreduce_leaves_cores_to_devices_that_compute);
    ADD_TEST(suite, test_allreduce_refuses_wrong_calls);
    return suite;
}

int main(void) {
    return run_suites_at_once(make_suite, 2, 2);
}
