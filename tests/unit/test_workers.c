/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "train/workers.h"

#define COUNT 3
#define PATIENCE_NS UINT64_C(100000000)

static copse_error error;

static void sleep_ns(uint64_t ns) {
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

typedef struct work {
    atomic_int runs[COUNT];
    size_t fails, hangs; /* rank; COUNT: nobody */
    atomic_bool go_on;
    copse__workers *workers;
    bool doubts;
} work;

static copse_status work_one(size_t rank, void *user, copse_error *err) {
    work *w = user;
    atomic_fetch_add(&w->runs[rank], 1);
    while (rank == w->hangs && !atomic_load(&w->go_on))
        sleep_ns(1000000);
    if (rank == 0 && w->doubts)
        copse__workers_doubt(w->workers, w->hangs);
    return rank == w->fails ? copse__fail(err, COPSE_DEVICE, 0, NULL, "rank %zu", rank)
                            : COPSE_OK;
}

static void *release_later(void *user) {
    work *w = user;
    sleep_ns(5 * PATIENCE_NS);
    atomic_store(&w->go_on, true);
    return NULL;
}

static void make(work *w) {
    *w = (work){.fails = COUNT, .hangs = COUNT};
    ASSERT_OK(copse__workers_new(&w->workers, COUNT, &error));
}

START_TEST(test_run_calls_everyone_and_tells_who_failed) {
    work w;
    copse_status statuses[COUNT];
    make(&w);
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, statuses, &error));
    w.fails = 1;
    ASSERT_FAILS(COPSE_DEVICE,
                 copse__workers_run(w.workers, work_one, &w, statuses, &error));
    ck_assert_str_eq(error.text, "rank 1");
    ck_assert_str_eq(copse__workers_error(w.workers, 1)->text, "rank 1");
    ck_assert(statuses[0] == COPSE_OK && statuses[1] == COPSE_DEVICE);
    for (size_t r = 0; r < COUNT; r++)
        ck_assert_int_eq(atomic_load(&w.runs[r]), 2);
    ck_assert(copse__workers_free(w.workers));
}
END_TEST

START_TEST(test_run_leaves_out_who_rests_and_run_on_calls_one) {
    work w;
    make(&w);
    copse__workers_rest(w.workers, 2, true);
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
    ck_assert_int_eq(atomic_load(&w.runs[2]), 0);
    ASSERT_OK(copse__workers_run_on(w.workers, 2, work_one, &w, &error));
    ck_assert_int_eq(atomic_load(&w.runs[2]), 1);
    ck_assert_int_eq(atomic_load(&w.runs[0]), 1);
    copse__workers_rest(w.workers, 2, false);
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
    ck_assert_int_eq(atomic_load(&w.runs[2]), 2);
    ck_assert(copse__workers_free(w.workers));
}
END_TEST

/* Who does not come back is left alone after the patience, and joined once it does. */
static void hang(bool doubts, uint64_t patience_ns) {
    work w;
    copse_status statuses[COUNT];
    make(&w);
    copse__workers_set_patience(w.workers, patience_ns);
    w.hangs = 1;
    w.doubts = doubts;
    uint64_t begun = copse__now_ns();
    ASSERT_FAILS(COPSE_TIMEOUT,
                 copse__workers_run(w.workers, work_one, &w, statuses, &error));
    ck_assert(copse__now_ns() - begun < UINT64_C(5000000000));
    ck_assert(statuses[0] == COPSE_OK && statuses[2] == COPSE_OK);
    ck_assert(copse__workers_is_out(w.workers, 1));
    w.doubts = false;
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, statuses, &error));
    ck_assert_int_eq(atomic_load(&w.runs[0]), 2);
    ck_assert_int_eq(atomic_load(&w.runs[1]), 1);
    ASSERT_FAILS(COPSE_TIMEOUT,
                 copse__workers_run_on(w.workers, 1, work_one, &w, &error));
    atomic_store(&w.go_on, true);
    while (copse__workers_is_out(w.workers, 1))
        sleep_ns(1000000);
    ck_assert(copse__workers_free(w.workers));
}

START_TEST(test_run_patience_ends) {
    hang(false, PATIENCE_NS);
}
END_TEST

START_TEST(test_run_doubted_rank_is_not_waited_for) {
    hang(true, UINT64_C(3600000000000));
}
END_TEST

START_TEST(test_free_does_not_wait_for_who_is_out) {
    static work w; /* outlives the test: its thread looks at it */
    make(&w);
    copse__workers_set_patience(w.workers, PATIENCE_NS);
    w.hangs = 2;
    ASSERT_FAILS(COPSE_TIMEOUT,
                 copse__workers_run(w.workers, work_one, &w, NULL, &error));
    uint64_t begun = copse__now_ns();
    ck_assert(!copse__workers_free(w.workers));
    ck_assert(copse__now_ns() - begun < UINT64_C(3000000000));
    atomic_store(&w.go_on, true);
}
END_TEST

START_TEST(test_single_worker_is_the_caller) {
    work w = {.fails = COUNT, .hangs = COUNT};
    ASSERT_OK(copse__workers_new(&w.workers, 1, &error));
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
    ASSERT_OK(copse__workers_run_on(w.workers, 0, work_one, &w, &error));
    w.fails = 0;
    ASSERT_FAILS(COPSE_DEVICE, copse__workers_run(w.workers, work_one, &w, NULL, &error));
    ck_assert_int_eq(atomic_load(&w.runs[0]), 3);
    ck_assert(copse__workers_free(w.workers));
}
END_TEST

/* All hang: nobody returns whom the others could be judged by. */
START_TEST(test_run_ends_where_nobody_returns) {
    static work w; /* outlives the test */
    copse_status statuses[COUNT];
    make(&w);
    for (size_t r = 0; r < COUNT; r++)
        copse__workers_rest(w.workers, r, r != 2);
    copse__workers_set_patience(w.workers, PATIENCE_NS);
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, statuses, &error));
    w.hangs = 2;
    uint64_t begun = copse__now_ns();
    ASSERT_FAILS(COPSE_TIMEOUT,
                 copse__workers_run(w.workers, work_one, &w, statuses, &error));
    ck_assert_int_eq(statuses[2], COPSE_TIMEOUT);
    uint64_t took = copse__now_ns() - begun;
    ck_assert(took >= PATIENCE_NS && took < UINT64_C(5000000000));
    ck_assert(copse__workers_is_out(w.workers, 2));
    atomic_store(&w.go_on, true);
    (void)!copse__workers_free(w.workers); /* its thread ends now, or is left to itself */
}
END_TEST

/* A step may take 20 times as long as was expected, whatever the patience. */
START_TEST(test_run_waits_for_long_rounds) {
    work w;
    make(&w);
    copse__workers_rest(w.workers, 0, true);
    copse__workers_rest(w.workers, 1, true);
    copse__workers_set_patience(w.workers, 1000000);
    copse__workers_set_pace(w.workers, PATIENCE_NS);
    w.hangs = 2;
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, release_later, &w), 0);
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
    pthread_join(thread, NULL);
    ck_assert(copse__workers_free(w.workers));
}
END_TEST

static atomic_int told;

static void tell(void *user, double seconds) {
    work *w = user;
    ck_assert_double_ge(seconds, PATIENCE_NS * 1e-9);
    atomic_store(&w->go_on, true);
    sleep_ns(PATIENCE_NS / 2);
    atomic_fetch_add(&told, 1); /* the caller is still held up */
}

START_TEST(test_single_worker_is_watched) {
    work w = {.fails = COUNT, .hangs = COUNT};
    ASSERT_OK(copse__workers_new(&w.workers, 1, &error));
    ASSERT_OK(copse__workers_watch(w.workers, tell, &w, &error));
    ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
    copse__workers_set_patience(w.workers, PATIENCE_NS);
    sleep_ns(2 * PATIENCE_NS); /* between two rounds nobody is waited for */
    for (int hangs = 1; hangs <= 2; hangs++) {
        w.hangs = 0;
        atomic_store(&w.go_on, false);
        ASSERT_OK(copse__workers_run(w.workers, work_one, &w, NULL, &error));
        ck_assert_int_eq(atomic_load(&told), hangs);
        copse__workers_set_pace(w.workers, 0); /* that long one is no measure */
    }
    w.hangs = COUNT;
    ASSERT_OK(copse__workers_run_on(w.workers, 0, work_one, &w, &error));
    ck_assert_int_eq(atomic_load(&told), 2);
    ck_assert(copse__workers_free(w.workers));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("workers");
    ADD_TEST(suite, test_run_calls_everyone_and_tells_who_failed);
    ADD_TEST(suite, test_run_leaves_out_who_rests_and_run_on_calls_one);
    ADD_TEST(suite, test_run_patience_ends);
    ADD_TEST(suite, test_run_doubted_rank_is_not_waited_for);
    ADD_TEST(suite, test_free_does_not_wait_for_who_is_out);
    ADD_TEST(suite, test_run_ends_where_nobody_returns);
    ADD_TEST(suite, test_run_waits_for_long_rounds);
    ADD_TEST(suite, test_single_worker_is_the_caller);
    ADD_TEST(suite, test_single_worker_is_watched);
    return run_suite(suite);
}
