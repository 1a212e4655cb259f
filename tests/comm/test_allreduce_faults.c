/* SPDX-License-Identifier: Apache-2.0 */
/* A call of a device that fails, comes late or never returns, at every stage: the others
 * learn it in time, go on without it with the right bits, and never touch it again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/ranks.h"
#include "support/check.h"
#include "support/fake_device.h"

/* Stalls are judged early only where they are the test: a loaded machine makes its own. */
#define WARN_NS UINT64_C(200000000)
#define FAIL_NS UINT64_C(600000000)
#define PATIENT_NS UINT64_C(30000000000)
#define DEADLINE_NS UINT64_C(10000000000)

static const size_t elements[] = {3000, 1, 9001};

/* For the message of a failed check. */
static char now_striking[128];

typedef enum mix { COPIED, MAPPED, DIRECT, MIXED, MIXES } mix;

static const char *const mix_names[] = {"copied", "mapped", "direct", "mixed"};

static copse_status make(ranks *all, size_t count, mix how, uint64_t fail_ns,
                         copse_error *error) {
    copse__stage_path paths[RANKS_MAX];
    for (size_t r = 0; r < count; r++) /* of two ranks the second is struck */
        paths[r] = how == MAPPED || how == DIRECT || (how == MIXED && r % 2 == 1)
                       ? COPSE__PATH_MAPPED
                       : COPSE__PATH_COPIED;
    const copse__allreduce_options options = {.devices = all->devices,
                                              .rank_count = count,
                                              .bucket_elements = elements,
                                              .bucket_count = 3,
                                              .chunk_bytes = 4096,
                                              .paths = paths,
                                              .warn_ns = WARN_NS,
                                              .fail_ns = fail_ns,
                                              .reducer_threads = 2};
    return copse__allreduce_new(&all->engine, &options, error);
}

/* Buckets that the host reaches without a call: all of DIRECT, one of MIXED. */
static void open_devices(ranks *all, size_t count, mix how) {
    *all = (ranks){.count = count, .bucket_count = 3, .elements = elements};
    for (size_t r = 0; r < count; r++) {
        all->devices[r] = fake_device_new(r, true);
        if (how == DIRECT || how == MIXED)
            fake_share(all->devices[r]);
        for (size_t b = 0; b < 3; b++)
            all->shared[r][b] = how == DIRECT || (how == MIXED && b == 1);
    }
    ranks_make_buffers(all);
}

/* lost: the device whose objects may stay (no call was made to release them). */
static void close_all(ranks *all, size_t lost) {
    copse__allreduce_free(all->engine);
    if (lost < all->count) {
        ck_assert_uint_eq(fake_forbidden_calls(all->devices[lost]), 0);
        fake_release(all->devices[lost]);
    }
    ranks_free_buffers(all);
    for (size_t r = 0; r < all->count; r++) {
        if (r != lost && fake_live_objects(all->devices[r]) > 0)
            ck_abort_msg("rank %zu, %s", r, now_striking);
        fake_device_free(all->devices[r]);
    }
}

static void expect_ok(ranks *all, uint64_t step) {
    ranks_run_step(all, step, NULL);
    for (size_t r = 0; r < all->count; r++)
        if (!all->gone[r] && all->status[r] != COPSE_OK)
            ck_abort_msg("step %d, rank %zu: %s", (int)step, r, all->errors[r].text);
    ranks_check(all);
}

/* Strikes the nth call of a kind of rank `who`, and sees the run through. */
static bool strike(size_t count, mix how, fake_call call, size_t nth,
                   fake_action action) {
    const size_t who = count / 2;
    snprintf(now_striking, sizeof now_striking,
             "%zu ranks, %s, call %d, %zuth, action %d", count, mix_names[how], (int)call,
             nth, (int)action);
    ranks all;
    copse_error error;
    open_devices(&all, count, how);
    ASSERT_OK(make(&all, count, how, action == FAKE_HANG ? FAIL_NS : PATIENT_NS, &error));
    expect_ok(&all, 3);
    fake_fault(all.devices[who], call, nth, action, 20000000);
    const uint64_t begun = copse__now_ns();
    ranks_run_step(&all, 4, NULL);
    if (copse__now_ns() - begun > DEADLINE_NS)
        ck_abort_msg("call %d, %zuth: over the deadline", (int)call, nth);
    const bool struck = fake_struck(all.devices[who]);
    if (!struck) /* so many calls a step does not make */
        fake_fault(all.devices[who], call, SIZE_MAX, action, 0);
    if (!struck || action == FAKE_DELAY) {
        for (size_t r = 0; r < count; r++)
            if (all.status[r] != COPSE_OK)
                ck_abort_msg("rank %zu: %s", r, all.errors[r].text);
        ranks_check(&all);
        expect_ok(&all, 5);
        close_all(&all, SIZE_MAX);
        return struck;
    }
    /* Either all are told, or the step stands and only the lost one is. */
    size_t failed = 0;
    for (size_t r = 0; r < count; r++) {
        failed += all.status[r] != COPSE_OK;
        if (all.status[r] == COPSE_OK)
            continue;
        const copse_status expected = action == FAKE_HANG ? COPSE_TIMEOUT : COPSE_DEVICE;
        const bool named = strstr(all.errors[r].text, "step 4, bucket ") != NULL &&
                           strstr(all.errors[r].text, "chunk ") != NULL;
        const bool dropped = strstr(all.errors[r].text, "was dropped") != NULL;
        if (all.status[r] != (dropped ? COPSE_DEVICE : expected) ||
            all.results[r].failed_rank != who || (!named && !dropped) ||
            strcmp(all.errors[r].place,
                   copse__device_get(all.devices[who])->choice.label))
            ck_abort_msg("%s: rank %zu: %s: %s: %s; the lost rank: %s", now_striking, r,
                         copse_status_name(all.status[r]), all.errors[r].place,
                         all.errors[r].text, all.errors[who].text);
    }
    ck_assert(all.status[who] != COPSE_OK);
    ck_assert(failed == count || failed == 1);
    /* A call that another thread had all but begun may still come. */
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    fake_forbid(all.devices[who]);
    if (failed == 1) { /* the step stands: the survivors hold the sum of all */
        static float first[9001], other[9001];
        const size_t survivor = who == 0 ? 1 : 0;
        ranks_read(&all, survivor, 2, first);
        for (size_t r = 0; r < count; r++) {
            if (r == who)
                continue;
            ranks_read(&all, r, 2, other);
            ck_assert_int_eq(memcmp(first, other, sizeof first), 0);
        }
        float expected = ranks_value(0, 4, 2, 17);
        if (count == 2)
            ck_assert_float_eq(first[17], expected + ranks_value(1, 4, 2, 17));
    }
    ASSERT_OK(copse__allreduce_drop(all.engine, who, &error));
    all.gone[who] = true;
    const uint64_t next = failed == 1 ? 5 : 4;
    expect_ok(&all, next);
    fake_release(all.devices[who]); /* what hung comes back, and touches nothing */
    expect_ok(&all, next + 1);
    close_all(&all, who);
    return struck;
}

/* Every call that a step of so many ranks makes on these paths, up to the nth of its kind. */
static void strike_all(size_t count, mix how, fake_action action, size_t most) {
    const fake_call calls[] = {FAKE_READ,  FAKE_WRITE, FAKE_MAP,
                               FAKE_UNMAP, FAKE_WAIT,  FAKE_FLUSH};
    size_t struck = 0;
    for (size_t c = 0; c < COPSE__COUNT(calls); c++)
        for (size_t nth = 1; nth <= most; nth += 1 + nth / 3)
            struck += strike(count, how, calls[c], nth, action);
    ck_assert_uint_ge(struck, how == DIRECT ? 2 : 8); /* there only the wait for a part */
}

#define SPLITS (3 * MIXES) /* 2 to 4 ranks on each kind of paths */

static void strike_split(int split, fake_action action, size_t most) {
    strike_all(2 + (size_t)split / MIXES, (mix)(split % MIXES), action, most);
}

START_TEST(test_faults_that_hang_are_left_out_in_time) {
    strike_split(_i, FAKE_HANG, 2);
}
END_TEST

START_TEST(test_faults_that_fail_leave_equal_sums) {
    strike_split(_i, FAKE_FAIL, 15);
}
END_TEST

START_TEST(test_faults_that_are_late_change_nothing) {
    strike_split(_i, FAKE_DELAY, 8);
}
END_TEST

/* The k-th allocation and the k-th call of the measurement of paths: it works with less, or
 * fails as the device said; nothing leaks. */
START_TEST(test_faults_while_it_is_made_leak_nothing) {
    const fake_call calls[] = {FAKE_ALLOC, FAKE_READ, FAKE_WRITE, FAKE_MAP,
                               FAKE_UNMAP, FAKE_WAIT, FAKE_FLUSH};
    for (size_t c = 0; c < COPSE__COUNT(calls); c++) {
        size_t failed = 0;
        for (size_t nth = 1; nth < 60; nth += 1 + nth / 3) {
            ranks all;
            copse_error error;
            open_devices(&all, 3, COPIED);
            const copse__allreduce_options options = {.devices = all.devices,
                                                      .rank_count = 3,
                                                      .bucket_elements = elements,
                                                      .bucket_count = 3};
            fake_fault(all.devices[1], calls[c], nth, FAKE_FAIL, 0);
            const copse_status status =
                copse__allreduce_new(&all.engine, &options, &error);
            const bool struck = fake_struck(all.devices[1]);
            failed += status != COPSE_OK;
            if (!struck && status != COPSE_OK)
                ck_abort_msg("call %zu, %zuth: %s", c, nth, error.text);
            if (status == COPSE_OK && struck && calls[c] != FAKE_ALLOC)
                ck_abort_msg("call %zu, %zuth: a failure was not noticed", c, nth);
            if (status == COPSE_OK && !struck) {
                fake_fault(all.devices[1], calls[c], SIZE_MAX, FAKE_FAIL, 0);
                expect_ok(&all, 0);
            }
            close_all(&all, SIZE_MAX);
        }
        ck_assert_uint_gt(failed, 0);
    }
}
END_TEST

/* The same calls never return: told in time, with the call and whose it is; nothing is asked of the
 * device any more, also once the call has come back. */
START_TEST(test_faults_that_hang_while_it_is_made_are_told) {
    static const struct {
        fake_call call;
        const char *name;
    } calls[] = {{FAKE_ALLOC, "allocation of rank 1 (fake:1)"},
                 {FAKE_READ, "download of rank 1 (fake:1)"},
                 {FAKE_WRITE, "upload of rank 1 (fake:1)"},
                 {FAKE_MAP, "map of rank 1 (fake:1)"},
                 {FAKE_UNMAP, "unmap of rank 1 (fake:1)"}};
    for (size_t c = 0; c < COPSE__COUNT(calls); c++) {
        ranks all;
        copse_error error;
        size_t failed_rank = 0;
        open_devices(&all, 3, COPIED);
        const copse__allreduce_options options = {.devices = all.devices,
                                                  .rank_count = 3,
                                                  .bucket_elements = elements,
                                                  .bucket_count = 3,
                                                  .fail_ns = FAIL_NS / 3,
                                                  .failed_rank = &failed_rank};
        fake_fault(all.devices[1], calls[c].call, 1, FAKE_HANG, 0);
        const uint64_t begun = copse__now_ns();
        ASSERT_FAILS(COPSE_TIMEOUT, copse__allreduce_new(&all.engine, &options, &error));
        ck_assert_uint_lt(copse__now_ns() - begun, DEADLINE_NS);
        ck_assert_uint_eq(failed_rank, 1);
        ck_assert_str_eq(error.place, "fake:1");
        if (strstr(error.text, calls[c].name) == NULL)
            ck_abort_msg("%s: %s", calls[c].name, error.text);
        fake_forbid(all.devices[1]);
        fake_release(all.devices[1]);
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        ck_assert_uint_eq(fake_forbidden_calls(all.devices[1]), 0);
        ranks_free_buffers(&all);
        for (size_t r = 0; r < all.count; r++)
            fake_device_free(all.devices[r]);
    }
}
END_TEST

START_TEST(test_fault_of_an_allocation_makes_slots_smaller) {
    ranks all;
    copse_error error;
    for (size_t who = 0; who < 3; who++) {
        open_devices(&all, 3, COPIED);
        fake_fault(all.devices[who], FAKE_ALLOC, 1, FAKE_FAIL, 0);
        ASSERT_OK(make(&all, 3, COPIED, PATIENT_NS, &error));
        ck_assert(fake_struck(all.devices[who]));
        expect_ok(&all, 0);
        close_all(&all, SIZE_MAX);
    }
}
END_TEST

START_TEST(test_fault_of_a_replica_that_never_submits_is_found) {
    ranks all;
    copse_error error;
    open_devices(&all, 3, COPIED);
    ASSERT_OK(make(&all, 3, COPIED, FAIL_NS, &error));
    const uint64_t delays[] = {0, FAIL_NS * 3, 0};
    ranks_run_step(&all, 0, delays);
    for (size_t r = 0; r < 3; r++) {
        ck_assert_int_eq(all.status[r], COPSE_TIMEOUT);
        ck_assert_uint_eq(all.results[r].failed_rank, 1);
        ck_assert_ptr_nonnull(strstr(all.errors[r].text, "gradient of rank 1 (fake:1)"));
    }
    ASSERT_OK(copse__allreduce_drop(all.engine, 1, &error));
    all.gone[1] = true;
    fake_forbid(all.devices[1]);
    expect_ok(&all, 0);
    close_all(&all, 1);
}
END_TEST

typedef struct seen {
    size_t lines;
    char line[512];
} seen;

static void note(copse_log_level level, const char *line, void *user) {
    seen *all = user;
    if (level != COPSE_LOG_WARN)
        return;
    all->lines++;
    strncpy(all->line, line, sizeof all->line - 1);
}

START_TEST(test_fault_of_a_slow_replica_is_warned_of_once) {
    ranks all;
    copse_error error;
    seen lines = {0};
    open_devices(&all, 2, MAPPED);
    ASSERT_OK(make(&all, 2, MAPPED, PATIENT_NS, &error));
    copse_log_set(note, COPSE_LOG_WARN, &lines);
    const uint64_t delays[] = {0, WARN_NS * 2};
    ranks_run_step(&all, 12, delays);
    copse_log_set(NULL, COPSE_LOG_WARN, NULL);
    ck_assert_int_eq(all.status[0], COPSE_OK);
    ck_assert_uint_eq(lines.lines, 1);
    ck_assert_ptr_nonnull(strstr(lines.line, "step 12 waits for rank 1 (fake:1)"));
    ck_assert_ptr_nonnull(strstr(lines.line, "bucket 0, chunk 1 of 3, gradient"));
    close_all(&all, SIZE_MAX);
}
END_TEST

START_TEST(test_drop_between_steps_disturbs_nobody) {
    ranks all;
    copse_error error;
    open_devices(&all, 4, COPIED);
    ASSERT_OK(make(&all, 4, COPIED, PATIENT_NS, &error));
    expect_ok(&all, 0);
    ASSERT_OK(copse__allreduce_drop(all.engine, 2, &error));
    ASSERT_OK(copse__allreduce_drop(all.engine, 2, &error));
    fake_forbid(all.devices[2]);
    all.gone[2] = true;
    expect_ok(&all, 1);
    ASSERT_OK(copse__allreduce_drop(all.engine, 0, &error));
    fake_forbid(all.devices[0]);
    all.gone[0] = true;
    expect_ok(&all, 2);
    ASSERT_OK(copse__allreduce_drop(all.engine, 1, &error));
    all.gone[1] = true;
    expect_ok(&all, 3);
    ASSERT_FAILS(COPSE_INVALID, copse__allreduce_drop(all.engine, 3, &error));
    const copse__view part = {all.buffers[2][0], 0, 12000};
    ASSERT_FAILS(COPSE_INVALID,
                 copse__allreduce_submit(all.engine, 2, 4, 0, part, NULL, true, &error));
    copse__allreduce_free(all.engine);
    ck_assert_uint_eq(fake_forbidden_calls(all.devices[2]), 0);
    ranks_free_buffers(&all);
    for (size_t r = 0; r < 4; r++)
        fake_device_free(all.devices[r]);
}
END_TEST

/* One of the three for each split, the longest first; then all others. */
static Suite *make_suite(size_t part) {
    const TTest *const strikes[] = {test_faults_that_hang_are_left_out_in_time,
                                    test_faults_that_fail_leave_equal_sums,
                                    test_faults_that_are_late_change_nothing};
    Suite *suite = suite_create("allreduce_faults");
    if (part < SPLITS * COPSE__COUNT(strikes)) {
        const int split = (int)(part % SPLITS);
        TCase *one = tcase_create("strikes");
        tcase_set_timeout(one, 60);
        tcase_add_loop_test(one, strikes[part / SPLITS], split, split + 1);
        suite_add_tcase(suite, one);
        return suite;
    }
    ADD_TEST(suite, test_faults_while_it_is_made_leak_nothing);
    ADD_TEST(suite, test_faults_that_hang_while_it_is_made_are_told);
    ADD_TEST(suite, test_fault_of_an_allocation_makes_slots_smaller);
    ADD_TEST(suite, test_fault_of_a_replica_that_never_submits_is_found);
    ADD_TEST(suite, test_fault_of_a_slow_replica_is_warned_of_once);
    ADD_TEST(suite, test_drop_between_steps_disturbs_nobody);
    return suite;
}

int main(void) {
    return run_suites_at_once(make_suite, 3 * SPLITS + 1, 6);
}
