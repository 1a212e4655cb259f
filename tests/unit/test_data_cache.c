/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/dataset.h"

#include <fcntl.h>
#include <sys/stat.h>

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static const char *const records_file = "tests/data/tensorflow/gzip.tfrecord";

static copse_data_source records(void) {
    return (copse_data_source){.format = COPSE_DATA_TFRECORD,
                               .paths = &records_file,
                               .path_count = 1,
                               .label_name = "label"};
}

static void check_records(copse_dataset *set) {
    ck_assert_uint_eq(copse_dataset_count(set), 7);
    for (size_t i = 0; i < 7; i++) {
        unsigned char pixels[60];
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, i, pixels, &label, &error));
        ck_assert_int_eq(label, (int)(i % 4));
        for (size_t j = 0; j < 60; j++)
            ck_assert_uint_eq(pixels[j], (i * 60 + j) * 7 % 256);
    }
}

START_TEST(test_cache_memory_makes_a_stream_indexable) {
    copse_data_source source = records();
    copse_dataset *stream, *cached, *again;
    ASSERT_OK(copse_dataset_open(&stream, &source, &error));
    ASSERT_OK(copse_dataset_cache_memory(&cached, stream, 0, &error));
    copse_dataset_close(stream);
    check_records(cached);
    ASSERT_OK(copse_dataset_cache_memory(&again, cached, 0, &error));
    ck_assert_ptr_eq(again, cached);
    copse_dataset_close(again);
    copse_dataset_close(cached);
}
END_TEST

START_TEST(test_cache_memory_limit) {
    copse_data_source source = records();
    copse_dataset *stream, *cached;
    ASSERT_OK(copse_dataset_open(&stream, &source, &error));
    ASSERT_FAILS(COPSE_NOMEM, copse_dataset_cache_memory(&cached, stream, 200, &error));
    ck_assert_ptr_null(cached);
    copse_dataset_close(stream);
}
END_TEST

/* Opens records through the cache; says whether it was built. */
static bool open_cached(const copse_data_source *source, const char *path) {
    copse_dataset *set, *cached;
    bool built;
    ASSERT_OK(copse_dataset_open(&set, source, &error));
    ASSERT_OK(copse_dataset_cache_file(&cached, set, path, &built, &error));
    copse_dataset_close(set);
    check_records(cached);
    copse_dataset_close(cached);
    return built;
}

START_TEST(test_cache_file_is_built_once) {
    copse_data_source source = records();
    const char *path = in_folder(folder, "cache");
    ck_assert(open_cached(&source, path));
    ck_assert(!open_cached(&source, path));
    /* Another source, another cache. */
    source.skip_errors = true;
    ck_assert(open_cached(&source, path));
    ck_assert(!open_cached(&source, path));
}
END_TEST

START_TEST(test_cache_file_of_a_changed_source_is_built_again) {
    size_t bytes;
    unsigned char *data = read_whole(records_file, &bytes);
    const char *path = in_folder(folder, "records"), *cache = in_folder(folder, "cache");
    write_file(path, data, bytes);
    copse_data_source source = records();
    source.paths = &path;
    ck_assert(open_cached(&source, cache));
    ck_assert(!open_cached(&source, cache));
    struct timespec times[2] = {{1, 0}, {1, 0}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    ck_assert(open_cached(&source, cache));
    free(data);
}
END_TEST

START_TEST(test_cache_file_damaged_or_cut_is_built_again) {
    copse_data_source source = records();
    const char *path = in_folder(folder, "cache");
    ck_assert(open_cached(&source, path));
    size_t bytes;
    unsigned char *data = read_whole(path, &bytes);
    ck_assert_uint_eq(bytes, 4096 + 7 * (60 + 4 + 8));
    for (size_t n = 0; n < bytes; n += 300) {
        write_file(path, data, n);
        ck_assert(open_cached(&source, path));
    }
    /* Every byte of the header counts, but for the 8 of padding none is unused. */
    for (size_t i = 0; i < 64; i++) {
        data[i] ^= 1;
        write_file(path, data, bytes);
        data[i] ^= 1;
        ck_assert(open_cached(&source, path));
    }
    free(data);
}
END_TEST

START_TEST(test_cache_file_damaged_sample_is_named) {
    copse_data_source source = records();
    const char *path = in_folder(folder, "cache");
    ck_assert(open_cached(&source, path));
    size_t bytes;
    unsigned char *data = read_whole(path, &bytes), pixels[60];
    data[4096 + 3 * 72 + 5] ^= 8;
    write_file(path, data, bytes);
    free(data);
    copse_dataset *set, *cached;
    int32_t label;
    bool built;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ASSERT_OK(copse_dataset_cache_file(&cached, set, path, &built, &error));
    ck_assert(!built);
    ASSERT_OK(copse_dataset_read(cached, 2, pixels, &label, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_read(cached, 3, pixels, &label, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "sample 3"));
    copse_dataset_close(cached);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_cache_file_failing_leaves_nothing) {
    copse_data_source source = records();
    copse_dataset *set, *cached;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ASSERT_FAILS(COPSE_IO,
                 copse_dataset_cache_file(&cached, set, in_folder(folder, "no/cache"),
                                          NULL, &error));
    ck_assert_ptr_null(cached);
    copse_dataset_close(set);
    source.format = COPSE_DATA_SYNTHETIC;
    copse_data_source made = {.format = COPSE_DATA_SYNTHETIC,
                              .feature = {.dtype = COPSE_U8, .rank = 1, .shape = {4}},
                              .count = 5};
    bool built;
    ASSERT_OK(copse_dataset_open(&set, &made, &error));
    ASSERT_OK(
        copse_dataset_cache_file(&cached, set, in_folder(folder, "c"), &built, &error));
    ck_assert(built);
    copse_dataset_close(cached);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_cache_of_a_slice_is_not_that_of_another) {
    copse_data_source source = {.format = COPSE_DATA_SYNTHETIC,
                                .feature = {.dtype = COPSE_U8, .rank = 1, .shape = {4}},
                                .count = 10};
    const char *path = in_folder(folder, "cache");
    copse_dataset *set, *slice, *cached;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    for (size_t first = 0; first < 3; first++)
        for (int again = 0; again < 2; again++) {
            unsigned char wanted[4], got[4];
            bool built;
            ASSERT_OK(copse_dataset_slice(&slice, set, first, 5, &error));
            ASSERT_OK(copse_dataset_cache_file(&cached, slice, path, &built, &error));
            ck_assert_int_eq(built, !again);
            ASSERT_OK(copse_dataset_read(set, first + 4, wanted, NULL, &error));
            ASSERT_OK(copse_dataset_read(cached, 4, got, NULL, &error));
            ck_assert_mem_eq(wanted, got, 4);
            copse_dataset_close(cached);
            copse_dataset_close(slice);
        }
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_cache");
    TCase *tests = tcase_create("cache");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_cache_memory_makes_a_stream_indexable);
    tcase_add_test(tests, test_cache_memory_limit);
    tcase_add_test(tests, test_cache_file_is_built_once);
    tcase_add_test(tests, test_cache_file_of_a_changed_source_is_built_again);
    tcase_add_test(tests, test_cache_file_damaged_or_cut_is_built_again);
    tcase_add_test(tests, test_cache_file_damaged_sample_is_named);
    tcase_add_test(tests, test_cache_file_failing_leaves_nothing);
    tcase_add_test(tests, test_cache_of_a_slice_is_not_that_of_another);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
