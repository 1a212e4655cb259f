/* SPDX-License-Identifier: Apache-2.0 */
/* The power goes at every file call of a save, and what was not synced is gone, or there without its bytes, or
 * there by chance: the folder loads all the same, the checkpoint before or the new one, whole. */
#include "support/check.h"
#include "support/files.h"

#include <errno.h>

#include "files_shim.h"
#include "power.h"
#include "train/run_folder.h"

static copse_error error;
static char base[600], run[700];
static float weights[600];
static const copse__safetensor tensors[] = {
    {"dense/kernel", COPSE_F32, 2, {10, 50}, weights},
    {"optimizer/dense/kernel/momentum", COPSE_F32, 1, {100}, weights}};

static void setup(void) {
    snprintf(base, sizeof base, "%s", make_folder());
    snprintf(run, sizeof run, "%s/runs/run", base);
}
static void teardown(void) {
    remove_folder(base);
}

static copse__run_folder *open_run(bool resume) {
    copse__run_folder *folder;
    const copse__run_folder_options options = {.path = run, .resume = resume};
    ASSERT_OK(copse__run_folder_open(&folder, &options, &error));
    return folder;
}

static copse_status save(const copse__run_folder *folder, uint64_t step) {
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        weights[i] = (float)(step * 1000 + i);
    copse__checkpoint made = {.step = step, .tensors = tensors, .tensor_count = 2};
    return copse__run_folder_save(folder, &made, true, 1, &error);
}

static uint64_t step_in(const char *path) {
    copse__checkpoint *read;
    ASSERT_OK(copse__checkpoint_read(&read, path, &error));
    uint64_t step = read->step;
    const float *values = copse__checkpoint_find(read, "dense/kernel")->data;
    for (size_t i = 0; i < 500; i++)
        ck_assert_float_eq(values[i], (float)(step * 1000 + i));
    copse__checkpoint_free(read);
    return step;
}

static uint64_t step_of(copse__which_checkpoint which) {
    char *path;
    ASSERT_OK(copse__run_folder_find(run, which, &path, &error));
    uint64_t step = step_in(path);
    free(path);
    return step;
}

/* Whether the save had all calls that it makes. */
static bool cut_at(unsigned call, power_rest rest, unsigned seed) {
    copse__run_folder *folder = open_run(false);
    ASSERT_OK(save(folder, 1));
    power_watch(run);
    shim_fail(call, EIO, true); /* nothing after it is done */
    bool saved = save(folder, 2) == COPSE_OK;
    bool complete = shim_calls() < call;
    power_cut(rest, seed);
    shim_fail(0, 0, false);
    copse__run_folder_close(folder);
    uint64_t latest = step_of(COPSE__CHECKPOINT_LATEST);
    uint64_t best = step_of(COPSE__CHECKPOINT_BEST);
    ck_assert_msg(latest == 2 || (latest == 1 && !saved),
                  "call %u, %d/%u: step %d after a save that %s", call, (int)rest, seed,
                  (int)latest, saved ? "succeeded" : "failed");
    ck_assert(best == 2 || (best == 1 && !saved));
    copse__safetensors *exported;
    ASSERT_OK(
        copse__safetensors_open(&exported, in_folder(run, "best.safetensors"), &error));
    ck_assert_uint_eq(copse__safetensors_count(exported), 1);
    copse__safetensors_close(exported);
    folder = open_run(true);
    ASSERT_OK(save(folder, 3));
    copse__run_folder_close(folder);
    ck_assert_uint_eq(step_of(COPSE__CHECKPOINT_LATEST), 3);
    remove_folder(run);
    return complete;
}

static void cut_everywhere(power_rest rest, unsigned seeds) {
    unsigned call = 1;
    for (bool complete = false; !complete; call++)
        for (unsigned seed = 0; seed < seeds; seed++)
            complete = cut_at(call, rest, seed);
    ck_assert_uint_gt(call, 25);
}

START_TEST(test_cut_loses_all_that_was_not_synced) {
    cut_everywhere(POWER_STRICT, 1);
}
END_TEST

START_TEST(test_cut_leaves_names_without_their_data) {
    cut_everywhere(POWER_EAGER, 1);
}
END_TEST

START_TEST(test_cut_leaves_what_chance_will) {
    cut_everywhere(POWER_MIXED, 6);
}
END_TEST

/* The model itself: what is written without care is lost by it. */
START_TEST(test_cut_punishes_what_is_not_synced) {
    char wanted[8] = "";
    copse__run_folder_close(open_run(false));
    const char *path = in_folder(run, "a"), *there = in_folder(run, "b");
    write_file(there, "old", 3);
    power_watch(run);
    write_file(path, "new", 3);
    ck_assert_int_eq(rename(path, there), 0);
    power_cut(POWER_EAGER, 0);
    size_t bytes;
    free(read_whole(there, &bytes));
    ck_assert_uint_eq(bytes, 0); /* renamed without its data */
    ck_assert_int_ne(access(path, F_OK), 0);
    write_file(there, "old", 3);
    power_watch(run);
    write_file(path, "new", 3);
    ck_assert_int_eq(rename(path, there), 0);
    power_cut(POWER_STRICT, 0);
    FILE *file = fopen(there, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(wanted, sizeof wanted, file));
    fclose(file);
    ck_assert_str_eq(wanted, "old");
}
END_TEST

START_TEST(test_new_folders_are_synced_into_theirs) {
    copse__run_folder_close(open_run(false));
    const copse__run_folder_options options = {.base = in_folder(base, "others")};
    copse__run_folder *folder;
    ASSERT_OK(copse__run_folder_open(&folder, &options, &error));
    copse__run_folder_close(folder);
    ck_assert_uint_eq(shim_unsynced_folders(), 0);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *function) {
    TCase *tcase = tcase_create(name);
    tcase_set_timeout(tcase, 100);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, function);
    suite_add_tcase(suite, tcase);
}
#define ADD(function) add(suite, #function, function)

int main(void) {
    Suite *suite = suite_create("power_cut");
    ADD(test_cut_loses_all_that_was_not_synced);
    ADD(test_cut_leaves_names_without_their_data);
    ADD(test_cut_leaves_what_chance_will);
    ADD(test_cut_punishes_what_is_not_synced);
    ADD(test_new_folders_are_synced_into_theirs);
    return run_suite(suite);
}
