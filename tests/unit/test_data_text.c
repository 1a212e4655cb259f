/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for language models, and synthetic samples. */
#include "support/check.h"
#include "support/dataset.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static const char *file = "t.txt";

static copse_data_source text(const char *content, size_t length, size_t stride) {
    write_file(in_folder(folder, file), content, strlen(content));
    return (copse_data_source){.format = COPSE_DATA_TEXT,
                               .folder = folder,
                               .paths = &file,
                               .path_count = 1,
                               .sequence_length = length,
                               .stride = stride};
}

START_TEST(test_text_windows_and_next_characters) {
    copse_data_source source = text("b\xC3\xA9"
                                    "a\xE2\x82\xAC"
                                    "bab",
                                    3, 2);
    copse_dataset *set; /* b é a € b a b: vocabulary a b é € */
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_classes(set), 4);
    ck_assert_str_eq(copse_dataset_get_class_name(set, 2), "\xC3\xA9");
    ck_assert_str_eq(copse_dataset_get_class_name(set, 3), "\xE2\x82\xAC");
    ck_assert_uint_eq(copse_dataset_count(set), 2);
    static const int32_t tokens[] = {1, 2, 0, 3, 1, 0, 1};
    for (size_t i = 0; i < 2; i++) {
        int32_t features[3], labels[3];
        ASSERT_OK(copse_dataset_read(set, i, features, labels, &error));
        ck_assert_mem_eq(features, tokens + 2 * i, sizeof features);
        ck_assert_mem_eq(labels, tokens + 2 * i + 1, sizeof labels);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_text_number_of_windows) {
    for (size_t n = 2; n < 12; n++)
        for (size_t length = 1; length < n; length++)
            for (size_t stride = 1; stride < 5; stride++) {
                char content[16] = {0};
                memset(content, 'x', n);
                copse_data_source source = text(content, length, stride);
                copse_dataset *set;
                ASSERT_OK(copse_dataset_open(&set, &source, &error));
                size_t expected = 0;
                for (size_t at = 0; at + length + 1 <= n; at += stride)
                    expected++;
                ck_assert_uint_eq(copse_dataset_count(set), expected);
                copse_dataset_close(set);
            }
}
END_TEST

START_TEST(test_text_given_vocabulary) {
    static const char *const names[] = {"z", "b", "a"};
    copse_data_source source = text("abab", 3, 1);
    source.class_names = names;
    source.class_count = 3;
    copse_dataset *set;
    int32_t features[3], labels[3];
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ASSERT_OK(copse_dataset_read(set, 0, features, labels, &error));
    ck_assert_int_eq(features[0] * 100 + features[1] * 10 + features[2], 212);
    copse_dataset_close(set);
    source.class_count = 2;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "U+0061"));
    static const char *const twice[] = {"a", "b", "a"};
    source.class_names = twice;
    source.class_count = 3;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_text_of_invalid_utf8_is_refused_or_read_by_bytes) {
    static const char *const bad[] = {"abc\xff"
                                      "abc",
                                      "abc\xC3",
                                      "\xC0\x80 abc",
                                      "\xED\xA0\x80 abc",
                                      "abc\xE2\x82 abc",
                                      "\xF5\x80\x80\x80",
                                      "ab\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        copse_data_source source = text(bad[i], 2, 1);
        copse_dataset *set;
        ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
        ck_assert_ptr_nonnull(strstr(error.text, "no UTF-8 at byte"));
        source.by_bytes = true;
        ASSERT_OK(copse_dataset_open(&set, &source, &error));
        ck_assert_uint_eq(copse_dataset_count(set), strlen(bad[i]) - 2);
        copse_dataset_close(set);
    }
}
END_TEST

/* A character may lie over the border of two pieces that are read. */
START_TEST(test_text_long_with_wide_characters) {
    size_t n = 100000;
    char *content = malloc(3 * n + 2);
    content[0] = 'x';
    for (size_t i = 0; i < n; i++)
        memcpy(content + 1 + 3 * i, "\xE2\x82\xAC", 3);
    content[3 * n + 1] = '\0';
    copse_data_source source = text(content, 10, 0);
    free(content);
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(set), (n + 1 - 11) / 10 + 1);
    ck_assert_uint_eq(copse_dataset_classes(set), 2);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_text_too_short_or_without_length_is_refused) {
    copse_dataset *set;
    copse_data_source source = text("abc", 3, 1);
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    source = text("", 1, 1);
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    source = text("abc", 0, 0);
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_text_shakespeare) {
    const char *base = getenv("COPSE_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/tinyshakespeare/input.txt",
             base ? base : "../shared/data");
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "SKIPPED: %s is not there; set COPSE_TEST_DATA\n", path);
        return;
    }
    const char *pattern = path;
    copse_data_source source = {.format = COPSE_DATA_TEXT,
                                .paths = &pattern,
                                .path_count = 1,
                                .sequence_length = 64};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_classes(set), 65);
    ck_assert_uint_eq(copse_dataset_count(set), (1115394 - 65) / 64 + 1);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_synthetic_is_repeatable_and_has_classes) {
    copse_data_source source = {
        .format = COPSE_DATA_SYNTHETIC,
        .feature = {.dtype = COPSE_U8, .rank = 3, .shape = {4, 5, 3}},
        .class_count = 3,
        .count = 200,
        .seed = 5};
    copse_dataset *a, *b;
    ASSERT_OK(copse_dataset_open(&a, &source, &error));
    ASSERT_OK(copse_dataset_open(&b, &source, &error));
    size_t seen[3] = {0};
    /* Samples of one class are nearer to each other than to those of others. */
    unsigned char first[3][60], sample[60], again[60];
    for (size_t i = 0; i < 200; i++) {
        int32_t label, label_again;
        ASSERT_OK(copse_dataset_read(a, i, sample, &label, &error));
        ASSERT_OK(copse_dataset_read(b, i, again, &label_again, &error));
        ck_assert_mem_eq(sample, again, 60);
        ck_assert_int_eq(label, label_again);
        if (seen[label]++ == 0)
            memcpy(first[label], sample, 60);
        for (size_t e = 0; e < 60; e++)
            ck_assert_int_le(abs(sample[e] - first[label][e]), 64);
    }
    for (size_t c = 0; c < 3; c++)
        ck_assert_uint_gt(seen[c], 40);
    copse_dataset_close(a);
    copse_dataset_close(b);
    source.count = 0;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&a, &source, &error));
    source.count = 1;
    source.feature.shape[0] = SIZE_MAX / 2;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&a, &source, &error));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_text");
    TCase *tests = tcase_create("text");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_text_windows_and_next_characters);
    tcase_add_test(tests, test_text_number_of_windows);
    tcase_add_test(tests, test_text_given_vocabulary);
    tcase_add_test(tests, test_text_of_invalid_utf8_is_refused_or_read_by_bytes);
    tcase_add_test(tests, test_text_long_with_wide_characters);
    tcase_add_test(tests, test_text_too_short_or_without_length_is_refused);
    tcase_add_test(tests, test_text_shakespeare);
    tcase_add_test(tests, test_synthetic_is_repeatable_and_has_classes);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
