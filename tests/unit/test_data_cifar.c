/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <copse/data.h>

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static copse_status open_cifar(copse_dataset **out, copse_data_format format, bool coarse,
                               const char *path) {
    copse_data_source source = {.format = format,
                                .folder = folder,
                                .paths = &path,
                                .path_count = 1,
                                .coarse_labels = coarse};
    return copse_dataset_open(out, &source, &error);
}

/* Records whose byte i of sample s is a function of both. */
static unsigned char *make_records(size_t count, size_t label_bytes) {
    size_t bytes = label_bytes + 3072;
    unsigned char *data = malloc(count * bytes);
    ck_assert_ptr_nonnull(data);
    for (size_t s = 0; s < count; s++) {
        for (size_t i = 0; i < label_bytes; i++)
            data[s * bytes + i] = (unsigned char)((s + i) % 10);
        for (size_t i = 0; i < 3072; i++)
            data[s * bytes + label_bytes + i] =
                (unsigned char)(s * 31 + i * 7 + i / 1024);
    }
    return data;
}

/* 300 records: more than the reader takes at once. */
START_TEST(test_cifar10_planes_become_channels) {
    unsigned char *data = make_records(300, 1);
    write_file(in_folder(folder, "a.bin"), data, 300 * 3073);
    copse_dataset *set;
    ASSERT_OK(open_cifar(&set, COPSE_DATA_CIFAR10, false, "a.bin"));
    ck_assert_uint_eq(copse_dataset_count(set), 300);
    ck_assert_uint_eq(copse_dataset_classes(set), 10);
    ck_assert_ptr_null(copse_dataset_get_class_name(set, 0));
    for (size_t s = 0; s < 300; s += 299) {
        unsigned char pixels[3072];
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, s, pixels, &label, &error));
        ck_assert_int_eq(label, (int)(s % 10));
        for (size_t i = 0; i < 1024; i++)
            for (size_t c = 0; c < 3; c++)
                ck_assert_uint_eq(pixels[i * 3 + c], data[s * 3073 + 1 + c * 1024 + i]);
    }
    copse_dataset_close(set);
    free(data);
}
END_TEST

START_TEST(test_cifar100_fine_and_coarse_labels) {
    unsigned char *data = make_records(3, 2);
    write_gzip(in_folder(folder, "train.bin"), data, 3 * 3074);
    free(data);
    for (int coarse = 0; coarse < 2; coarse++) {
        copse_dataset *set;
        unsigned char pixels[3072];
        int32_t label;
        ASSERT_OK(open_cifar(&set, COPSE_DATA_CIFAR100, coarse, "train.bin"));
        ck_assert_uint_eq(copse_dataset_classes(set), coarse ? 20 : 100);
        ASSERT_OK(copse_dataset_read(set, 2, pixels, &label, &error));
        ck_assert_int_eq(label, coarse ? 2 : 3);
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_cifar10_names_come_from_the_text_beside_it) {
    unsigned char *data = make_records(1, 1);
    write_file(in_folder(folder, "a.bin"), data, 3073);
    free(data);
    const char names[] = "a\nb\nc\nd\ne\nf\ng\nh\r\ni\nzebra\n\n";
    write_file(in_folder(folder, "batches.meta.txt"), names, sizeof names - 1);
    copse_dataset *set;
    ASSERT_OK(open_cifar(&set, COPSE_DATA_CIFAR10, false, "a.bin"));
    ck_assert_str_eq(copse_dataset_get_class_name(set, 7), "h");
    ck_assert_str_eq(copse_dataset_get_class_name(set, 9), "zebra");
    ck_assert_ptr_null(copse_dataset_get_class_name(set, 10));
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_cifar10_damage_is_refused) {
    unsigned char *data = make_records(2, 1);
    copse_dataset *set;
    for (size_t n = 0; n < 2 * 3073; n += n < 3 || n > 3070 ? 1 : 61) {
        if (n == 3073)
            continue;
        write_file(in_folder(folder, "cut"), data, n);
        ASSERT_FAILS(COPSE_FORMAT, open_cifar(&set, COPSE_DATA_CIFAR10, false, "cut"));
    }
    data[3073] = 10;
    write_file(in_folder(folder, "label"), data, 2 * 3073);
    ASSERT_FAILS(COPSE_FORMAT, open_cifar(&set, COPSE_DATA_CIFAR10, false, "label"));
    ck_assert_ptr_nonnull(strstr(error.text, "sample 1 has label 10 at byte 3073"));
    ck_assert_ptr_nonnull(strstr(error.place, "label"));
    free(data);
}
END_TEST

static const char *real_data(char *buffer, size_t bytes, const char *name) {
    const char *base = getenv("COPSE_TEST_DATA");
    snprintf(buffer, bytes, "%s/%s", base ? base : "../shared/data", name);
    return access(buffer, R_OK) == 0 ? buffer : NULL;
}

START_TEST(test_cifar10_real_batch) {
    char path[512];
    if (!real_data(path, sizeof path, "cifar10/test_batch.bin")) {
        fprintf(stderr, "SKIPPED: %s is not there; set COPSE_TEST_DATA\n", path);
        return;
    }
    const char *pattern = path;
    copse_data_source source = {
        .format = COPSE_DATA_CIFAR10, .paths = &pattern, .path_count = 1};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    size_t count = copse_dataset_count(set), per_class[10] = {0};
    ck_assert_uint_eq(count, 1000);
    ck_assert_str_eq(copse_dataset_get_class_name(set, 8), "ship");
    for (size_t i = 0; i < count; i++) {
        unsigned char pixels[3072];
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, i, pixels, &label, &error));
        per_class[label]++;
    }
    for (size_t c = 0; c < 10; c++)
        ck_assert_uint_gt(per_class[c], 50);
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_cifar");
    TCase *tests = tcase_create("cifar");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_cifar10_planes_become_channels);
    tcase_add_test(tests, test_cifar100_fine_and_coarse_labels);
    tcase_add_test(tests, test_cifar10_names_come_from_the_text_beside_it);
    tcase_add_test(tests, test_cifar10_damage_is_refused);
    tcase_add_test(tests, test_cifar10_real_batch);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
