/* SPDX-License-Identifier: Apache-2.0 */
/* The all-reduce over real drivers while the fault layer makes calls of one device fail, come
 * late or hang: the survivors go on with the right bits, in time. Needs the layer (the build
 * sets OPENCL_LAYERS) and devices; skips visibly without. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/ranks.h"
#include "support/check.h"
#include "topo/select.h"

#define LOST 1u /* the device that the orders are for */
#define STEPS 5u
/* Stalls are judged early only where they are the test: a loaded machine makes its own. */
#define FAIL_NS UINT64_C(1500000000)
#define PATIENT_NS UINT64_C(30000000000)
#define DEADLINE_NS UINT64_C(20000000000)

static const size_t elements[] = {3, 20011, 150001};

typedef struct scene {
    const char *order; /* COPSE_FAULT */
    copse__stage_path path;
    bool harmless; /* nothing fails */
    bool direct;   /* in memory that the host reaches without a call */
} scene;

static const scene scenes[] = {
    {"fail map 1 1", COPSE__PATH_MAPPED, false, false},
    {"fail map 5 1", COPSE__PATH_MAPPED, false, false},
    {"fail unmap 4 1", COPSE__PATH_MAPPED, false, false},
    {"fail unmap 6 1", COPSE__PATH_MAPPED, false, false},
    {"fail poll 12 1", COPSE__PATH_MAPPED, false, false},
    {"late map 4 300 1", COPSE__PATH_MAPPED, true, false},
    {"late unmap 5 300 1;late poll 30 200 1", COPSE__PATH_MAPPED, true, false},
    {"hang map 5 1", COPSE__PATH_MAPPED, false, false},
    {"hang unmap 5 1", COPSE__PATH_MAPPED, false, false},
    {"fail read 5 1", COPSE__PATH_COPIED, false, false},
    {"fail read 12 1", COPSE__PATH_COPIED, false, false},
    {"fail write 9 1", COPSE__PATH_COPIED, false, false},
    {"fail flush 20 1", COPSE__PATH_COPIED, false, false},
    {"fail poll 60 1", COPSE__PATH_COPIED, false, false},
    {"late read 5 300 1;late write 17 300 1", COPSE__PATH_COPIED, true, false},
    {"hang read 8 1", COPSE__PATH_COPIED, false, false},
    {"hang write 12 1", COPSE__PATH_COPIED, false, false},
    {"hang poll 50+ 1", COPSE__PATH_COPIED, false, false},
    {"fail poll 3 1", COPSE__PATH_MAPPED, false, true},
    {"fail poll 8 1", COPSE__PATH_MAPPED, false, true},
    {"late poll 7 300 1", COPSE__PATH_MAPPED, true, true},
    {"hang poll 8+ 1", COPSE__PATH_MAPPED, false, true},
};

static copse__topo *topo;
static ranks all;

static copse_status open_devices(copse_error *error) {
    copse__device_choice *choices = NULL;
    size_t count = 0;
    const copse__topo_options options = {.isolate = COPSE__ISOLATE_NONE};
    const copse__device_options opening = {0};
    copse_status status = copse__topo_open(&topo, &options, error);
    if (status == COPSE_OK)
        status = copse__select_devices(topo, "cpu/2,cpu", &choices, &count, error);
    all = (ranks){.count = count, .bucket_count = 3, .elements = elements};
    for (size_t r = 0; r < count && status == COPSE_OK; r++)
        status = copse__device_open(&all.devices[r], &choices[r], &opening, error);
    free(choices);
    return status;
}

/* Drops the lost device where some rank was told of a failure. Returns whether. */
static bool recover(uint64_t *step) {
    size_t failed = 0, first = 0;
    for (size_t r = 0; r < all.count; r++)
        if (!all.gone[r] && all.status[r] != COPSE_OK && failed++ == 0)
            first = r;
    if (failed == 0)
        return false;
    copse_error error = {0};
    if (all.gone[LOST] || all.results[first].failed_rank != LOST)
        ck_abort_msg("rank %zu failed: %s: %s", all.results[first].failed_rank,
                     all.errors[first].place, all.errors[first].text);
    ASSERT_OK(copse__allreduce_drop(all.engine, LOST, &error));
    all.gone[LOST] = true;
    /* The step is repeated, unless it stood: then only the lost rank was told. */
    if (failed == 1 && all.status[LOST] != COPSE_OK)
        ++*step;
    return true;
}

START_TEST(test_layer_faults_leave_the_survivors_right) {
    const scene *now = &scenes[_i];
    copse_error error = {0};
    setenv("COPSE_FAULT", now->order, 1);
    ASSERT_OK(open_devices(&error));
    for (size_t r = 0; r < all.count; r++)
        for (size_t b = 0; b < all.bucket_count; b++)
            all.shared[r][b] = now->direct;
    ranks_make_buffers(&all);
    const copse__allreduce_options options = {
        .devices = all.devices,
        .rank_count = all.count,
        .bucket_elements = elements,
        .bucket_count = 3,
        .chunk_bytes = 65536,
        .path = now->path,
        .warn_ns = FAIL_NS / 3,
        .fail_ns = strstr(now->order, "hang") ? FAIL_NS : PATIENT_NS};
    ASSERT_OK(copse__allreduce_new(&all.engine, &options, &error));
    const copse__backend *backend = copse__backend_of(all.devices[LOST]);
    if (now->direct && backend->buffer_host(all.buffers[LOST][0]) == NULL) {
        printf("SKIPPED: %s: the device has no fine-grained shared memory\n", now->order);
        return;
    }
    const uint64_t begun = copse__now_ns();
    bool lost = false;
    for (uint64_t step = 0; step < STEPS;) {
        ranks_run_step(&all, step, NULL);
        if (recover(&step)) {
            lost = true;
            continue;
        }
        ranks_check(&all);
        step++;
    }
    if (copse__now_ns() - begun > DEADLINE_NS)
        ck_abort_msg("%s: over the deadline", now->order);
    if (lost == now->harmless)
        ck_abort_msg("%s: the device was %slost", now->order, lost ? "" : "not ");
    copse__allreduce_free(all.engine);
    /* The lost device stays open: no call is made to it any more. */
}
END_TEST

/* A driver that hangs while the engine is made: told in time, with whose call it is. */
static const struct {
    const char *order, *name;
} openings[] = {{"coarse;hang alloc 5 1", "allocation of rank 1"},
                {"coarse;hang read 1 1", "download of rank 1"},
                {"coarse;hang write 1 1", "upload of rank 1"}};

START_TEST(test_layer_hangs_at_opening_are_told) {
    copse_error error = {0};
    setenv("COPSE_FAULT", openings[_i].order, 1);
    ASSERT_OK(open_devices(&error));
    ranks_make_buffers(&all);
    size_t failed_rank;
    const copse__allreduce_options options = {.devices = all.devices,
                                              .rank_count = all.count,
                                              .bucket_elements = elements,
                                              .bucket_count = 3,
                                              .fail_ns = FAIL_NS,
                                              .failed_rank = &failed_rank};
    const uint64_t begun = copse__now_ns();
    ASSERT_FAILS(COPSE_TIMEOUT, copse__allreduce_new(&all.engine, &options, &error));
    if (copse__now_ns() - begun > DEADLINE_NS || failed_rank != LOST ||
        strstr(error.text, openings[_i].name) == NULL)
        ck_abort_msg("%s: rank %zu: %s", openings[_i].order, failed_rank, error.text);
}
END_TEST

/* In a child: this process must make no OpenCL call before Check forks. */
static bool devices_are_there(void) {
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        copse_error error = {0};
        const copse_status status = open_devices(&error);
        if (status != COPSE_OK)
            printf("SKIPPED: %s\n", error.text);
        fflush(NULL);
        _exit(status == COPSE_OK ? 0 : 77);
    }
    int result = -1;
    waitpid(child, &result, 0);
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

int main(void) {
    if (getenv("OPENCL_LAYERS") == NULL) {
        puts("SKIPPED: OPENCL_LAYERS does not name the fault layer");
        return 77;
    }
    if (!devices_are_there())
        return 77;
    Suite *suite = suite_create("allreduce_layer");
    TCase *one = tcase_create("scenes");
    tcase_set_timeout(one, 60);
    tcase_add_loop_test(one, test_layer_faults_leave_the_survivors_right, 0,
                        COPSE__COUNT(scenes));
    tcase_add_loop_test(one, test_layer_hangs_at_opening_are_told, 0,
                        COPSE__COUNT(openings));
    suite_add_tcase(suite, one);
    return run_suite(suite);
}
