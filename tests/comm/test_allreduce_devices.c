/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over real devices of several drivers at once: COPSE_TEST_DEVICES is the
 * selector. Skips visibly where there is no such device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/ranks.h"
#include "support/check.h"
#include "topo/select.h"

static copse__topo *topo;
static ranks all;

static const size_t elements[] = {5, 100003, 0, 300000};

static copse_status open_devices(copse_error *error) {
    copse__device_choice *choices = NULL;
    size_t count = 0;
    const copse__topo_options options = {.isolate = COPSE__ISOLATE_NONE};
    const copse__device_options opening = {0};
    copse_status status = copse__topo_open(&topo, &options, error);
    if (status == COPSE_OK)
        status = copse__select_devices(topo, getenv("COPSE_TEST_DEVICES"), &choices,
                                       &count, error);
    all = (ranks){.count = count, .bucket_count = 4, .elements = elements};
    for (size_t r = 0; r < count; r++)
        all.shared[r][r % 2] = all.shared[r][3] = true;
    for (size_t r = 0; r < count && status == COPSE_OK; r++)
        status = copse__device_open(&all.devices[r], &choices[r], &opening, error);
    free(choices);
    return status;
}

static void set_up(void) {
    copse_error error = {0};
    ASSERT_OK(open_devices(&error));
    ranks_make_buffers(&all);
}

static void tear_down(void) {
    ranks_free_buffers(&all);
    for (size_t r = 0; r < all.count; r++)
        copse__device_close(all.devices[r]);
    copse__topo_close(topo);
}

static void run_steps(copse__stage_path path, size_t chunk_bytes, uint64_t steps) {
    copse_error error = {0};
    const copse__allreduce_options options = {.devices = all.devices,
                                              .rank_count = all.count,
                                              .bucket_elements = elements,
                                              .bucket_count = 4,
                                              .chunk_bytes = chunk_bytes,
                                              .path = path};
    ASSERT_OK(copse__allreduce_new(&all.engine, &options, &error));
    for (uint64_t step = 0; step < steps; step++) {
        all.empty[0] = all.count > 1 && step % 3 == 2;
        ranks_run_step(&all, step, NULL);
        for (size_t r = 0; r < all.count; r++)
            if (all.status[r] != COPSE_OK)
                ck_abort_msg("rank %zu: %s: %s", r, all.errors[r].place,
                             all.errors[r].text);
        ranks_check(&all);
    }
    copse__allreduce_free(all.engine);
}

START_TEST(test_devices_copied_hold_the_trees_sum) {
    run_steps(COPSE__PATH_COPIED, 65536, 4);
    run_steps(COPSE__PATH_COPIED, 0, 2);
}
END_TEST

START_TEST(test_devices_mapped_hold_the_trees_sum) {
    run_steps(COPSE__PATH_AUTO, 65536, 4);
    run_steps(COPSE__PATH_AUTO, 0, 2);
}
END_TEST

START_TEST(test_device_without_host_memory_is_not_mapped) {
    copse_error error = {0};
    copse__allreduce *engine;
    bool unified = true;
    for (size_t r = 0; r < all.count; r++)
        unified = unified && copse__device_get(all.devices[r])->caps.unified;
    const copse__allreduce_options options = {.devices = all.devices,
                                              .rank_count = all.count,
                                              .bucket_elements = elements,
                                              .bucket_count = 4,
                                              .path = COPSE__PATH_MAPPED};
    ASSERT_FAILS(unified ? COPSE_OK : COPSE_UNSUPPORTED,
                 copse__allreduce_new(&engine, &options, &error));
    copse__allreduce_free(engine);
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
            printf("SKIPPED: %s: %s\n", getenv("COPSE_TEST_DEVICES"), error.text);
        fflush(NULL);
        _exit(status == COPSE_OK ? 0 : 77);
    }
    int result = -1;
    waitpid(child, &result, 0);
    return WIFEXITED(result) && WEXITSTATUS(result) == 0;
}

int main(void) {
    if (!devices_are_there())
        return 77;
    Suite *suite = suite_create("allreduce_devices");
    TCase *one = tcase_create("devices");
    tcase_set_timeout(one, 60);
    tcase_add_checked_fixture(one, set_up, tear_down);
    tcase_add_test(one, test_devices_copied_hold_the_trees_sum);
    tcase_add_test(one, test_devices_mapped_hold_the_trees_sum);
    tcase_add_test(one, test_device_without_host_memory_is_not_mapped);
    suite_add_tcase(suite, one);
    return run_suite(suite);
}
