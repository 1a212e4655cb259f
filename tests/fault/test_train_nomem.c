/* SPDX-License-Identifier: Apache-2.0 */
#include "support/allocations.h"
#include "support/check.h"
#include "support/files.h"

#include "io/weights_file.h"
#include "train/config.h"
#include "train/run_folder.h"

/* Check's own assertions allocate: none stands where allocations may fail.
 *
 * Reads a configuration, saves and reads a checkpoint, again and again, each time with a later
 * allocation failing: every failure is COPSE_NOMEM, gives nothing and leaves nothing behind. The
 * linker sends the library's allocations here (--wrap); those of libfyaml and Jansson are their
 * own. */

static copse_error error;
static char folder[600];

typedef copse_status attempt(copse_error *err);

static copse_status read_config(copse_error *err) {
    copse__config *config;
    copse__text text = {0};
    char hash[33];
    const char *const overrides[] = {"train.optimizer.adam.beta_1=0.5",
                                     "log.tensorboard=true"};
    copse_status status =
        copse__config_load(&config, "examples/digits.yaml", overrides, 2, err);
    if (status == COPSE_OK)
        status = copse__config_write(config, &text, err);
    if (status == COPSE_OK)
        status = copse__config_hash(config, hash, err);
    copse__text_free(&text);
    copse__config_free(config);
    return status;
}

static copse_status save_and_load(copse_error *err) {
    static const float values[6] = {1, 2, 3, 4, 5, 6};
    const copse__safetensor tensor = {"a/kernel", COPSE_F32, 2, {2, 3}, values};
    const copse__run_folder_options options = {.path = folder, .resume = true};
    copse__checkpoint made = {.step = 5, .tensors = &tensor, .tensor_count = 1},
                      *read = NULL;
    copse__run_folder *run;
    copse_status status = copse__run_folder_open(&run, &options, err);
    if (status == COPSE_OK)
        status = copse__run_folder_save(run, &made, true, 1, err);
    if (status == COPSE_OK)
        status = copse__run_folder_load(folder, &read, err);
    copse__checkpoint_free(read);
    copse__run_folder_close(run);
    return status;
}

static copse_status open_weights(copse_error *err) {
    copse__weights_file *file;
    copse_status status = copse__weights_open(&file, "tests/data/import-keras.npz", err);
    float values[64];
    for (size_t i = 0; status == COPSE_OK && i < copse__weights_count(file); i++)
        if (copse__weights_get(file, i).elements <= 64)
            status = copse__weights_read(file, i, values, err);
    copse__weights_close(file);
    return status;
}

static void fail_each(attempt *try_once, size_t least) {
    ASSERT_OK(try_once(&error)); /* what is allocated once only is, from here on */
    size_t before = allocations_alive();
    ASSERT_OK(try_once(&error));
    size_t grows = allocations_alive() -
                   before; /* modulo: blocks of the C library that are freed here */
    for (size_t n = 0;; n++) {
        before = allocations_alive();
        allocations_allow(n);
        copse_status status = try_once(&error);
        allocations_allow(SIZE_MAX);
        if (status == COPSE_OK) {
            ck_assert_uint_ge(n, least);
            ck_assert_uint_eq(allocations_alive() - before, grows);
            break;
        }
        /* Not positive; below 0 by the C library's blocks that were freed. */
        ssize_t left = (ssize_t)(allocations_alive() - before);
        ck_assert_msg(status == COPSE_NOMEM, "allocation %zu: %s: %s", n,
                      copse_status_name(status), error.text);
        ck_assert_msg(left <= 0 && left >= (ssize_t)grows,
                      "allocation %zu: %zd blocks left", n, left);
    }
}

START_TEST(test_config_any_failing_allocation) {
    fail_each(read_config, 5);
}
END_TEST

START_TEST(test_checkpoint_any_failing_allocation) {
    snprintf(folder, sizeof folder, "%s", make_folder());
    write_file(in_folder(folder, "config.yaml"), "x", 1);
    fail_each(save_and_load, 10);
    remove_folder(folder);
}
END_TEST

START_TEST(test_weights_any_failing_allocation) {
    fail_each(open_weights, 5);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("train_nomem");
    ADD_TEST(suite, test_config_any_failing_allocation);
    ADD_TEST(suite, test_checkpoint_any_failing_allocation);
    ADD_TEST(suite, test_weights_any_failing_allocation);
    return run_suite(suite);
}
