/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <dirent.h>
#include <malloc.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "train/saver.h"

static copse_error error;
static char *base;
static char run[600]; /* base/run */

static void setup(void) {
    base = make_folder();
    snprintf(run, sizeof run, "%s/run", base);
}
static void teardown(void) {
    remove_folder(base);
}

static float weights[4] = {1, 2, 3, 4};
static const copse__safetensor tensor = {"dense/kernel", COPSE_F32, 1, {4}, weights};

static copse__run_folder *open_run(const char *path, bool resume) {
    copse__run_folder *folder;
    const copse__run_folder_options options = {.path = path, .resume = resume};
    ASSERT_OK(copse__run_folder_open(&folder, &options, &error));
    return folder;
}

static void save(const copse__run_folder *folder, uint64_t step, bool is_best,
                 uint64_t keep) {
    copse__checkpoint made = {.step = step, .tensors = &tensor, .tensor_count = 1};
    ASSERT_OK(copse__run_folder_save(folder, &made, is_best, keep, &error));
}

static bool has(const char *path, const char *name) {
    return copse__file_exists(in_folder(path, name));
}

static void assert_latest(const char *path, uint64_t step) {
    copse__checkpoint *read;
    ASSERT_OK(copse__run_folder_load(path, &read, &error));
    ck_assert_uint_eq(read->step, step);
    copse__checkpoint_free(read);
}

START_TEST(test_open_default_name_is_new_each_time) {
    const copse__run_folder_options options = {.base = in_folder(base, "runs"),
                                               .name = "mnist"};
    copse__run_folder *a, *b;
    ASSERT_OK(copse__run_folder_open(&a, &options, &error));
    ASSERT_OK(copse__run_folder_open(&b, &options, &error));
    ck_assert_str_ne(copse__run_folder_path(a), copse__run_folder_path(b));
    ck_assert_ptr_nonnull(strstr(copse__run_folder_path(a), "/runs/mnist-2"));
    copse__run_folder_close(a);
    copse__run_folder_close(b);
}
END_TEST

START_TEST(test_open_locked_against_a_second_writer) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false), *second;
    const copse__run_folder_options options = {.path = path};
    ASSERT_FAILS(COPSE_INVALID, copse__run_folder_open(&second, &options, &error));
    ck_assert_ptr_null(second);
    char process[64];
    snprintf(process, sizeof process, "process %ld is writing", (long)getpid());
    ck_assert_ptr_nonnull(strstr(error.text, process));
    copse__run_folder_close(folder);
    copse__run_folder_close(open_run(path, false)); /* nothing was written yet */
}
END_TEST

START_TEST(test_open_lock_ends_with_a_killed_process) {
    const char *path = run;
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        open_run(path, false);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        pause();
    }
    char byte;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    copse__run_folder *folder;
    const copse__run_folder_options options = {.path = path};
    ASSERT_FAILS(COPSE_INVALID, copse__run_folder_open(&folder, &options, &error));
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    copse__run_folder_close(open_run(path, false));
}
END_TEST

START_TEST(test_open_run_is_continued_only_when_asked) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    ASSERT_OK(copse__run_folder_put(folder, "config.yaml", "a: 1\n", 5, &error));
    copse__run_folder_close(folder);
    const copse__run_folder_options again = {.path = path};
    ASSERT_FAILS(COPSE_INVALID, copse__run_folder_open(&folder, &again, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "--resume"));
    copse__run_folder_close(open_run(path, true));
    const copse__run_folder_options none = {.path = in_folder(base, "other"),
                                            .resume = true};
    ASSERT_FAILS(COPSE_INVALID, copse__run_folder_open(&folder, &none, &error));
    ck_assert(!has(base, "other"));
}
END_TEST

START_TEST(test_open_removes_what_a_killed_writer_left) {
    const char *path = run;
    copse__run_folder_close(open_run(path, false));
    write_file(in_folder(path, "latest.tmp-123-4"), "x", 1);
    write_file(in_folder(path, "notes.tmp-old"), "x", 1);
    copse__run_folder_close(open_run(path, false));
    ck_assert(!has(path, "latest.tmp-123-4"));
    ck_assert(has(path, "notes.tmp-old"));
}
END_TEST

START_TEST(test_open_unwritable_is_one_clear_error) {
    copse__run_folder *folder;
    write_file(in_folder(base, "file"), "x", 1);
    const copse__run_folder_options options = {.path = in_folder(base, "file/run")};
    ASSERT_FAILS(COPSE_IO, copse__run_folder_open(&folder, &options, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "--out"));
    if (geteuid() == 0)
        return; /* root may write everywhere */
    const char *closed = in_folder(base, "closed");
    ck_assert_int_eq(mkdir(closed, 0500), 0);
    const copse__run_folder_options denied = {.path = closed};
    ASSERT_FAILS(COPSE_IO, copse__run_folder_open(&folder, &denied, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "--out"));
}
END_TEST

START_TEST(test_save_keeps_the_newest_and_the_best) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    for (uint64_t step = 1; step <= 5; step++)
        save(folder, step, step == 2, 2);
    ck_assert(!has(path, "step-00000001.safetensors"));
    ck_assert(has(path, "step-00000002.safetensors"));
    ck_assert(!has(path, "step-00000003.safetensors"));
    ck_assert(has(path, "step-00000004.safetensors"));
    ck_assert(has(path, "step-00000005.safetensors"));
    assert_latest(path, 5);
    char *best;
    ASSERT_OK(copse__run_folder_find(path, COPSE__CHECKPOINT_BEST, &best, &error));
    ck_assert_ptr_nonnull(strstr(best, "step-00000002.safetensors"));
    free(best);
    save(folder, 6, true, 1); /* a new best: the old one goes */
    ck_assert(!has(path, "step-00000002.safetensors"));
    ck_assert(!has(path, "step-00000005.safetensors"));
    save(folder, 123456789, false, 0);
    ck_assert(has(path, "step-123456789.safetensors"));
    ck_assert(has(path, "step-00000006.safetensors"));
    assert_latest(path, 123456789);
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_save_below_an_older_run_s_steps_stays) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    save(folder, 100, false, 0);
    save(folder, 200, false, 0);
    save(folder, 50, false, 2); /* went back to an older state */
    ck_assert(has(path, "step-00000050.safetensors"));
    assert_latest(path, 50);
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_load_damaged_offers_the_next_older) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    copse__checkpoint *read;
    ASSERT_FAILS(COPSE_IO, copse__run_folder_load(path, &read, &error));
    for (uint64_t step = 1; step <= 3; step++)
        save(folder, step, false, 0);
    ck_assert_int_eq(truncate(in_folder(path, "step-00000003.safetensors"), 300), 0);
    ck_assert_int_eq(truncate(in_folder(path, "step-00000002.safetensors"), 0), 0);
    ASSERT_FAILS(COPSE_FORMAT, copse__run_folder_load(path, &read, &error));
    ck_assert_ptr_null(read);
    ck_assert_ptr_nonnull(strstr(error.place, "step-00000003.safetensors"));
    ck_assert_ptr_nonnull(strstr(error.text, "step 1 is whole"));
    ck_assert_int_eq(unlink(in_folder(path, "step-00000003.safetensors")), 0);
    ck_assert_int_eq(unlink(in_folder(path, "step-00000002.safetensors")), 0);
    assert_latest(path, 1); /* as the message said */
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_load_latest_that_says_nonsense_is_not_followed) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    save(folder, 7, false, 0);
    static const char *const texts[] = {"", "../../etc/passwd", "step-7.safetensors\n",
                                        "step-99999999999999999999999.safetensors\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        write_file(in_folder(path, "latest"), texts[i], strlen(texts[i]));
        assert_latest(path, 7);
    }
    copse__run_folder_close(folder);
}
END_TEST

/* ---- The saver ---- */

static void fill(copse__saver *saver, uint64_t step) {
    copse__checkpoint *made = copse__saver_begin(saver);
    made->step = step;
    float *values = copse__saver_memory(saver, 0);
    for (int i = 0; i < 4; i++)
        values[i] = (float)step + (float)i;
    copse__saver_submit(saver, false);
}

START_TEST(test_saver_writes_what_was_copied) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    copse__saver *saver;
    copse__saved saved;
    ASSERT_OK(copse__saver_open(&saver, folder, 2, NULL, &tensor, 1, &error));
    ck_assert(!copse__saver_result(saver, true, &saved));
    for (uint64_t step = 1; step <= 20; step++)
        fill(saver, step);
    ck_assert(copse__saver_result(saver, true, &saved));
    ck_assert_int_eq(saved.status, COPSE_OK);
    ck_assert_uint_eq(saved.step, 20);
    ck_assert(!copse__saver_result(saver, false, &saved));
    fill(saver, 21);
    copse__saver_close(saver); /* waits */
    copse__checkpoint *read;
    ASSERT_OK(copse__run_folder_load(path, &read, &error));
    ck_assert_uint_eq(read->step, 21);
    ck_assert_float_eq(((const float *)read->tensors[0].data)[3], 24);
    copse__checkpoint_free(read);
    copse__run_folder_close(folder);
}
END_TEST

START_TEST(test_saver_failure_is_told_and_the_next_goes_on) {
    const char *path = run;
    copse__run_folder *folder = open_run(path, false);
    copse__saver *saver;
    copse__saved saved;
    ASSERT_OK(copse__saver_open(&saver, folder, 2, NULL, &tensor, 1, &error));
    fill(saver, 1);
    ck_assert(copse__saver_result(saver, true, &saved));
    /* A folder in the way of the file: the rename fails. */
    ck_assert_int_eq(mkdir(in_folder(path, "step-00000002.safetensors"), 0777), 0);
    fill(saver, 2);
    fill(saver, 3);
    ck_assert(copse__saver_result(saver, true, &saved));
    ck_assert_int_eq(saved.status, COPSE_IO);
    ck_assert_uint_eq(saved.step, 2);
    ck_assert_ptr_nonnull(strstr(saved.error.place, "step-00000002"));
    assert_latest(path, 3);
    copse__saver_close(saver);
    copse__run_folder_close(folder);
}
END_TEST

static unsigned open_files(void) {
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

START_TEST(test_saver_many_saves_take_no_more_memory_or_files) {
    copse__run_folder *folder = open_run(run, false);
    copse__saver *saver;
    copse__saved saved;
    ASSERT_OK(copse__saver_open(&saver, folder, 2, NULL, &tensor, 1, &error));
    size_t bytes = 0;
    unsigned files = 0;
    for (uint64_t step = 1; step <= 300; step++) {
        fill(saver, step);
        ck_assert(copse__saver_result(saver, true, &saved));
        ck_assert_int_eq(saved.status, COPSE_OK);
        if (step == 20) {
            bytes = mallinfo2().uordblks;
            files = open_files();
        }
    }
    ck_assert_uint_eq(open_files(), files);
    ck_assert_uint_le(mallinfo2().uordblks, bytes + 4096);
    copse__saver_close(saver);
    copse__run_folder_close(folder);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("run_folder");
    ADD(test_open_default_name_is_new_each_time);
    ADD(test_open_locked_against_a_second_writer);
    ADD(test_open_lock_ends_with_a_killed_process);
    ADD(test_open_run_is_continued_only_when_asked);
    ADD(test_open_removes_what_a_killed_writer_left);
    ADD(test_open_unwritable_is_one_clear_error);
    ADD(test_save_keeps_the_newest_and_the_best);
    ADD(test_save_below_an_older_run_s_steps_stays);
    ADD(test_load_damaged_offers_the_next_older);
    ADD(test_load_latest_that_says_nonsense_is_not_followed);
    ADD(test_saver_writes_what_was_copied);
    ADD(test_saver_many_saves_take_no_more_memory_or_files);
    ADD(test_saver_failure_is_told_and_the_next_goes_on);
    return run_suite(suite);
}
