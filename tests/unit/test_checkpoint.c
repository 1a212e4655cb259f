/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <fcntl.h>

#include "base/mem.h"
#include "io/checkpoint.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}
static void teardown(void) {
    remove_folder(folder);
}

static float kernel[12], bias[4], slot[12];

static const copse__safetensor tensors[] = {
    {"dense/kernel", COPSE_F32, 2, {3, 4}, kernel},
    {"dense/bias", COPSE_F32, 1, {4}, bias},
    {"optimizer/dense/kernel/m", COPSE_F32, 2, {3, 4}, slot},
    {"empty", COPSE_F32, 1, {0}, NULL}};

static copse__checkpoint sample(void) {
    for (int i = 0; i < 12; i++) {
        kernel[i] = 1.0f / (float)(i + 1);
        slot[i] = -(float)i;
    }
    return (copse__checkpoint){.step = 1200,
                               .epoch = 3,
                               .batch = 17,
                               .seed = UINT64_MAX,
                               .loss_scale = 32768,
                               .good_steps = 5,
                               .has_best = true,
                               .best = 1.0 / 3,
                               .log_bytes = 4711,
                               .config_hash = "0123456789abcdef0123456789abcdef",
                               .plan = "{\n  \"shards\": [96, 32]\n}\n",
                               .tensors = tensors,
                               .tensor_count = COPSE__COUNT(tensors)};
}

static const char *write_sample(void) {
    copse__checkpoint made = sample();
    const char *path = in_folder(folder, "c.safetensors");
    ASSERT_OK(copse__checkpoint_write(path, &made, &error));
    return path;
}

START_TEST(test_write_reads_back_to_the_same) {
    copse__checkpoint made = sample(), *read;
    const char *path = write_sample();
    ASSERT_OK(copse__checkpoint_read(&read, path, &error));
    ck_assert_uint_eq(read->step, made.step);
    ck_assert_uint_eq(read->epoch, made.epoch);
    ck_assert_uint_eq(read->batch, made.batch);
    ck_assert_uint_eq(read->seed, made.seed);
    ck_assert_double_eq(read->loss_scale, made.loss_scale);
    ck_assert_uint_eq(read->good_steps, made.good_steps);
    ck_assert(read->has_best);
    ck_assert_double_eq(read->best, made.best);
    ck_assert_uint_eq(read->log_bytes, made.log_bytes);
    ck_assert_str_eq(read->config_hash, made.config_hash);
    ck_assert_str_eq(read->plan, made.plan);
    ck_assert_uint_eq(read->tensor_count, COPSE__COUNT(tensors));
    for (size_t i = 0; i < COPSE__COUNT(tensors); i++) {
        const copse__safetensor *found = copse__checkpoint_find(read, tensors[i].name);
        ck_assert_ptr_nonnull(found);
        ck_assert_uint_eq(found->rank, tensors[i].rank);
        size_t elements = 1;
        for (size_t d = 0; d < found->rank; d++) {
            ck_assert_uint_eq(found->shape[d], tensors[i].shape[d]);
            elements *= found->shape[d];
        }
        if (elements > 0)
            ck_assert_mem_eq(found->data, tensors[i].data, elements * sizeof(float));
    }
    ck_assert_ptr_null(copse__checkpoint_find(read, "dense"));
    copse__checkpoint_free(read);
}
END_TEST

START_TEST(test_weights_alone_are_no_checkpoint) {
    copse__checkpoint *read;
    const char *path = in_folder(folder, "w.safetensors");
    ASSERT_OK(copse__safetensors_write(path, tensors, 1, NULL, 0, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse__checkpoint_read(&read, path, &error));
    ck_assert_ptr_null(read);
    ck_assert_ptr_nonnull(strstr(error.text, "init: FILE"));
    ASSERT_FAILS(COPSE_IO, copse__checkpoint_read(&read, "/nonexistent", &error));
}
END_TEST

START_TEST(test_every_truncation_is_refused) {
    size_t bytes;
    copse__checkpoint *read;
    const char *path = write_sample();
    free(read_whole(path, &bytes));
    while (bytes-- > 0) {
        ck_assert_int_eq(truncate(path, (off_t)bytes), 0);
        ASSERT_FAILS(COPSE_FORMAT, copse__checkpoint_read(&read, path, &error));
        ck_assert_ptr_null(read);
    }
}
END_TEST

/* Whatever bit is wrong: refused, or (in blanks between JSON's parts) without any effect. */
START_TEST(test_every_flipped_bit_is_refused_or_harmless) {
    size_t bytes, harmless = 0;
    const char *path = write_sample();
    unsigned char *whole = read_whole(path, &bytes);
    copse__checkpoint *first, *read;
    ASSERT_OK(copse__checkpoint_read(&first, path, &error));
    int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        unsigned char flipped = whole[bit / 8] ^ (unsigned char)(1u << bit % 8);
        ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)(bit / 8)), 1);
        copse_status status = copse__checkpoint_read(&read, path, &error);
        ck_assert_msg(status == COPSE_OK || status == COPSE_FORMAT, "bit %zu: %s", bit,
                      copse_status_name(status));
        if (status == COPSE_OK) {
            harmless++;
            ck_assert_uint_eq(read->step, first->step);
            ck_assert_uint_eq(read->seed, first->seed);
            ck_assert_uint_eq(read->tensor_count, first->tensor_count);
            for (size_t i = 0; i < read->tensor_count; i++)
                ck_assert_str_eq(read->tensors[i].name, first->tensors[i].name);
            ck_assert_mem_eq(copse__checkpoint_find(read, "dense/kernel")->data, kernel,
                             sizeof kernel);
            copse__checkpoint_free(read);
        }
        ck_assert_int_eq(pwrite(fd, &whole[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
    /* The padding's blanks (up to 7 bytes, three other blanks each), and the key "format". */
    ck_assert_uint_lt(harmless, 128);
    close(fd);
    copse__checkpoint_free(first);
    free(whole);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("checkpoint");
    ADD(test_write_reads_back_to_the_same);
    ADD(test_weights_alone_are_no_checkpoint);
    ADD(test_every_truncation_is_refused);
    ADD(test_every_flipped_bit_is_refused_or_harmless);
    return run_suite(suite);
}
