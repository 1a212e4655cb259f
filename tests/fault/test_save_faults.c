/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <sys/wait.h>

#include "files_shim.h"
#include "io/jsonl.h"
#include "train/run_folder.h"

/* Saving while the disk fails at every possible call, is full, takes writes in pieces, or while
 * the process is killed: the checkpoint before stays whole, the next works again. */

static copse_error error;
static char run[600];
static float weights[1000];
static float large[(5 << 20) / sizeof(float)]; /* such files go past the page cache */
static const copse__safetensor tensors[] = {
    {"dense/kernel", COPSE_F32, 2, {10, 90}, weights},
    {"dense/bias", COPSE_F32, 1, {100}, weights},
    {"large/kernel", COPSE_F32, 1, {sizeof large / sizeof large[0]}, large}};
static size_t tensor_count = 2;

static void setup(void) {
    snprintf(run, sizeof run, "%s", make_folder());
}
static void teardown(void) {
    remove_folder(run);
}

static copse__run_folder *open_run(void) {
    copse__run_folder *folder;
    const copse__run_folder_options options = {.path = run};
    ASSERT_OK(copse__run_folder_open(&folder, &options, &error));
    return folder;
}

static copse_status save(const copse__run_folder *folder, uint64_t step) {
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)(step * 1000 + i);
    copse__checkpoint made = {
        .step = step, .tensors = tensors, .tensor_count = tensor_count};
    return copse__run_folder_save(folder, &made, true, 2, &error);
}

/* The step of the latest checkpoint, whose content must be that step's. */
static uint64_t latest_step(void) {
    copse__checkpoint *read;
    ASSERT_OK(copse__run_folder_load(run, &read, &error));
    uint64_t step = read->step;
    const float *values = copse__checkpoint_find(read, "dense/kernel")->data;
    for (size_t i = 0; i < 900; i++)
        ck_assert_float_eq(values[i], (float)(step * 1000 + i));
    copse__checkpoint_free(read);
    return step;
}

static unsigned count_entries(const char *path, const char *part) {
    unsigned count = 0;
    const struct dirent *entry;
    DIR *folder = opendir(path);
    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL)
        count += strstr(entry->d_name, part) != NULL;
    closedir(folder);
    return count;
}

/* The calls of saving once. */
static unsigned fail_each_call(int code) {
    copse__run_folder *folder = open_run();
    unsigned calls;
    uint64_t step = 1;
    ASSERT_OK(save(folder, step));
    unsigned open_before = count_entries("/proc/self/fd", "");
    for (unsigned call = 1;; call++) {
        shim_fail(call, code, false);
        copse_status status = save(folder, step + 1);
        calls = shim_calls();
        shim_fail(0, 0, false);
        uint64_t now = latest_step();
        if (status == COPSE_OK) {
            ck_assert_uint_eq(now, step + 1);
        } else {
            ck_assert_int_eq(status, COPSE_IO);
            ck_assert_int_eq(error.native, code);
            ck_assert_ptr_nonnull(strstr(error.place, run));
            ck_assert(now == step || now == step + 1);
        }
        ck_assert_uint_eq(count_entries("/proc/self/fd", ""), open_before);
        ck_assert_uint_eq(count_entries(run, ".tmp-"), 0);
        ASSERT_OK(save(folder, step + 2)); /* and training goes on */
        step += 2;
        if (calls < call)
            break; /* no call was left to fail */
    }
    ck_assert_uint_gt(step, 20);
    ck_assert_uint_eq(shim_unsafe_renames(), 0);
    copse__run_folder_close(folder);
    return calls;
}

START_TEST(test_save_any_failing_call_leaves_the_previous_whole) {
    unsigned calls = fail_each_call(EIO);
    remove_folder(run);
    fail_each_call(ENOSPC);
    remove_folder(run);
    tensor_count = 3;
    ck_assert_uint_gt(fail_each_call(EIO), calls + 3);
    remove_folder(run);
    fail_each_call(ENOSPC);
}
END_TEST

/* Cut short within a sector, what is left cannot go past the page cache. */
START_TEST(test_save_large_short_writes_go_on) {
    copse__run_folder *folder = open_run();
    tensor_count = 3;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        large[i] = (float)i;
    static const unsigned most[] = {524288, 100001};
    for (size_t i = 0; i < 2; i++) {
        copse__checkpoint *read;
        shim_short_writes(most[i]);
        ASSERT_OK(save(folder, i + 1));
        shim_short_writes(0);
        ck_assert_uint_eq(latest_step(), i + 1);
        ASSERT_OK(copse__run_folder_load(run, &read, &error));
        ck_assert_mem_eq(copse__checkpoint_find(read, "large/kernel")->data, large,
                         sizeof large);
        copse__checkpoint_free(read);
    }
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_save_interrupted_and_short_writes_go_on) {
    copse__run_folder *folder = open_run();
    shim_short_writes(7);
    ASSERT_OK(save(folder, 1));
    ck_assert_uint_eq(latest_step(), 1);
    shim_short_writes(0);
    ck_assert_uint_eq(shim_unsafe_renames(), 0);
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_save_disk_stays_full) {
    copse__run_folder *folder = open_run();
    ASSERT_OK(save(folder, 1));
    for (unsigned call = 1; call < 12; call++) {
        shim_fail(call, ENOSPC, true);
        ASSERT_FAILS(COPSE_IO, save(folder, 2));
        shim_fail(0, 0, false);
        ck_assert_uint_eq(latest_step(), 1);
    }
    copse__run_folder_close(folder);
}
END_TEST

static unsigned whole_lines(const char *path) {
    char line[512];
    unsigned count = 0;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        json_t *object = json_loads(line, 0, NULL);
        ck_assert_msg(object != NULL, "a cut line: %s", line);
        json_decref(object);
        count++;
    }
    fclose(file);
    return count;
}

START_TEST(test_log_failing_write_leaves_whole_lines) {
    const char *path = in_folder(run, "log.jsonl");
    copse__jsonl *log;
    unsigned written = 0;
    ASSERT_OK(copse__jsonl_create(&log, path, &error));
    shim_short_writes(10); /* so that a line takes several calls */
    for (unsigned call = 0; call < 8; call++) {
        copse__jsonl_begin(log, "step");
        copse__jsonl_count(log, "step", call);
        copse__jsonl_text(log, "text", "something longer than ten bytes");
        shim_fail(call, ENOSPC, false);
        written += copse__jsonl_end(log, &error) == COPSE_OK;
        shim_fail(0, 0, false);
        ck_assert_uint_eq(whole_lines(path), written);
    }
    ck_assert_uint_ge(written, 1);
    ck_assert_uint_lt(written, 8);
    shim_short_writes(0);
    copse__jsonl_close(log);
}
END_TEST

/* A child saves without end until it is killed, at another instant each time. */
START_TEST(test_save_killed_at_any_instant_leaves_a_whole_one) {
    uint64_t step = 0;
    for (unsigned round = 0; round < 40; round++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            copse__run_folder *folder;
            const copse__run_folder_options options = {.path = run, .resume = round > 0};
            if (copse__run_folder_open(&folder, &options, NULL) != COPSE_OK)
                _exit(1);
            while (save(folder, ++step) == COPSE_OK)
                continue;
            _exit(2);
        }
        if (round == 0) /* the first checkpoint may take its time */
            while (access(in_folder(run, "latest"), F_OK) != 0)
                usleep(1000);
        usleep(1000 + round * 997 % 5000);
        ck_assert_int_eq(kill(child, SIGKILL), 0);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert(WIFSIGNALED(status));
        uint64_t now = latest_step();
        ck_assert_uint_ge(now, step);
        step = now;
    }
    copse__run_folder *folder;
    const copse__run_folder_options options = {.path = run, .resume = true};
    ASSERT_OK(copse__run_folder_open(&folder, &options, &error));
    ck_assert_uint_eq(count_entries(run, ".tmp-"), 0);
    copse__run_folder_close(folder);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 100)

int main(void) {
    Suite *suite = suite_create("save_faults");
    ADD(test_save_any_failing_call_leaves_the_previous_whole);
    ADD(test_save_interrupted_and_short_writes_go_on);
    ADD(test_save_large_short_writes_go_on);
    ADD(test_save_disk_stays_full);
    ADD(test_log_failing_write_leaves_whole_lines);
    ADD(test_save_killed_at_any_instant_leaves_a_whole_one);
    return run_suite(suite);
}
