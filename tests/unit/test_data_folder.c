/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/dataset.h"

#include <sys/stat.h>

#include "data/image.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static void make_sub(const char *name) {
    ck_assert_int_eq(mkdir(in_folder(folder, name), 0777), 0);
}

/* A height x width image, all of `value`. */
static void make_image(const char *name, size_t height, size_t width,
                       unsigned char value) {
    unsigned char pixels[64 * 64];
    memset(pixels, value, sizeof pixels);
    ASSERT_OK(copse__png_save(in_folder(folder, name), pixels, height, width, 1, &error));
}

static copse_data_source images(void) {
    static const char *path;
    path = folder;
    return (copse_data_source){.format = COPSE_DATA_FOLDER,
                               .paths = &path,
                               .path_count = 1,
                               .image = {.channels = 1}};
}

/* Classes "b é" (3 images, one of them deeper) and "a" (6 images). */
static void make_tree(void) {
    make_sub("b \xC3\xA9");
    make_sub("b \xC3\xA9/deep");
    make_sub("a");
    make_image("b \xC3\xA9/1.png", 2, 3, 101);
    make_image("b \xC3\xA9/2.PNG", 2, 3, 102);
    make_image("b \xC3\xA9/deep/0.png", 2, 3, 103);
    for (unsigned char i = 0; i < 6; i++) {
        char name[16];
        snprintf(name, sizeof name, "a/%u.png", i);
        make_image(name, 2, 3, i);
    }
    write_file(in_folder(folder, "a/notes.txt"), "x", 1);
    write_file(in_folder(folder, "a/.hidden.png"), "x", 1);
    write_file(in_folder(folder, "README"), "x", 1);
}

START_TEST(test_folder_classes_are_spread_evenly) {
    make_tree();
    copse_data_source source = images();
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(set), 9);
    ck_assert_uint_eq(copse_dataset_classes(set), 2);
    ck_assert_str_eq(copse_dataset_get_class_name(set, 0), "a");
    ck_assert_str_eq(copse_dataset_get_class_name(set, 1), "b \xC3\xA9");
    static const unsigned char values[] = {0, 101, 1, 2, 102, 3, 4, 103, 5};
    for (size_t i = 0; i < 9; i++) {
        unsigned char pixels[6];
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, i, pixels, &label, &error));
        ck_assert_uint_eq(pixels[5], values[i]);
        ck_assert_int_eq(label, values[i] > 100);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_folder_given_classes_fix_the_numbers) {
    make_tree();
    static const char *const names[] = {"zebra", "b \xC3\xA9", "a"};
    copse_data_source source = images();
    source.class_names = names;
    source.class_count = 3;
    copse_dataset *set;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.place, "zebra")); /* it has no image */
    source.skip_errors = true;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    unsigned char pixels[6];
    int32_t label;
    ASSERT_OK(copse_dataset_read(set, 0, pixels, &label, &error));
    ck_assert_int_eq(label, 2);
    copse_dataset_close(set);
    source.class_count = 2;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "'a'"));
}
END_TEST

START_TEST(test_folder_without_classes_is_unlabelled) {
    make_image("2.png", 2, 3, 2);
    make_image("1.png", 2, 3, 1);
    copse_data_source source = images();
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_null(copse_dataset_get_labels(set));
    unsigned char pixels[6];
    ASSERT_OK(copse_dataset_read(set, 0, pixels, NULL, &error));
    ck_assert_uint_eq(pixels[0], 1);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_folder_mixed_sizes_are_named_or_scaled) {
    make_tree();
    make_image("a/6.png", 5, 4, 6);
    copse_data_source source = images();
    size_t rows;
    ASSERT_FAILS(COPSE_FORMAT, read_source(&source, &rows, &error));
    ck_assert_ptr_nonnull(strstr(error.place, "/a/6.png"));
    ck_assert_ptr_nonnull(strstr(error.text, "5 x 4"));
    source.image.height = source.image.width = 4;
    ASSERT_OK(read_source(&source, &rows, &error));
    ck_assert_uint_eq(rows, 10);
    source.image.height = 0;
    source.image.width = 0;
    source.skip_errors = true;
    ASSERT_OK(read_source(&source, &rows, &error));
    ck_assert_uint_eq(rows, 9);
}
END_TEST

START_TEST(test_folder_empty_damaged_and_missing) {
    copse_dataset *set;
    size_t rows;
    copse_data_source source = images();
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error)); /* empty */
    make_tree();
    write_file(in_folder(folder, "a/9.png"), "", 0);
    ASSERT_FAILS(COPSE_FORMAT, read_source(&source, &rows, &error));
    ck_assert_ptr_nonnull(strstr(error.place, "a/9.png"));
    ck_assert_ptr_nonnull(strstr(error.text, "empty"));
    source.skip_errors = true;
    ASSERT_OK(read_source(&source, &rows, &error));
    ck_assert_uint_eq(rows, 9);
    source.skip_errors = false;
    ck_assert_int_eq(unlink(in_folder(folder, "a/9.png")), 0);
    make_sub("c");
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.place, "/c"));
    const char *file = "README";
    source.paths = &file;
    source.folder = folder;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_folder_link_to_above_is_refused) {
    make_tree();
    ck_assert_int_eq(symlink("..", in_folder(folder, "a/up")), 0);
    copse_data_source source = images();
    copse_dataset *set;
    copse_status status = copse_dataset_open(&set, &source, &error);
    ck_assert(status == COPSE_FORMAT || status == COPSE_IO);
    ck_assert_ptr_null(set);
}
END_TEST

/* A file that goes away between two epochs fails only then. */
START_TEST(test_folder_file_gone_in_a_later_epoch) {
    make_tree();
    copse_data_source source = images();
    copse_dataset *set;
    copse_pipeline *p;
    const copse_batch *batch;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    copse_pipeline_options options = {.batch = 9, .prefetch = 1, .threads = 2};
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    ASSERT_OK(copse_pipeline_next(p, &batch, &error));
    ck_assert_int_eq(unlink(in_folder(folder, "a/3.png")), 0);
    copse_pipeline_release(p, batch);
    copse_status status = COPSE_OK;
    int calls = 0;
    while (status == COPSE_OK && calls++ < 10) {
        status = copse_pipeline_next(p, &batch, &error);
        copse_pipeline_release(p, batch);
    }
    ck_assert_int_eq(status, COPSE_IO);
    ck_assert_ptr_nonnull(strstr(error.place, "a/3.png"));
    copse_pipeline_close(p);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_folder_real_images) {
    const char *base = getenv("COPSE_TEST_DATA");
    char path[512];
    snprintf(path, sizeof path, "%s/image-folder/train", base ? base : "../shared/data");
    if (access(path, R_OK) != 0) {
        fprintf(stderr, "SKIPPED: %s is not there; set COPSE_TEST_DATA\n", path);
        return;
    }
    const char *pattern = path;
    copse_data_source source = {
        .format = COPSE_DATA_FOLDER, .paths = &pattern, .path_count = 1};
    size_t rows;
    ASSERT_OK(read_source(&source, &rows, &error));
    ck_assert_uint_eq(rows, 300);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_folder");
    TCase *tests = tcase_create("folder");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_folder_classes_are_spread_evenly);
    tcase_add_test(tests, test_folder_given_classes_fix_the_numbers);
    tcase_add_test(tests, test_folder_without_classes_is_unlabelled);
    tcase_add_test(tests, test_folder_mixed_sizes_are_named_or_scaled);
    tcase_add_test(tests, test_folder_empty_damaged_and_missing);
    tcase_add_test(tests, test_folder_link_to_above_is_refused);
    tcase_add_test(tests, test_folder_file_gone_in_a_later_epoch);
    tcase_add_test(tests, test_folder_real_images);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
