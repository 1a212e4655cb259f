/* SPDX-License-Identifier: Apache-2.0
 *
 * What copse_dataset_save writes is read back as the same samples. */
#include "support/check.h"
#include "support/dataset.h"

#include <sys/stat.h>

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

enum { COUNT = 23 };

static copse_dataset *make_images(size_t height, size_t width, size_t channels,
                                  copse_dtype dtype, size_t classes) {
    copse_data_source source = {
        .format = COPSE_DATA_SYNTHETIC,
        .feature = {.dtype = dtype, .rank = 3, .shape = {height, width, channels}},
        .class_count = classes,
        .count = COUNT,
        .seed = 3};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    return set;
}

/* Every sample of a, somewhere in b (in order where `ordered`), with an equal label. */
static void check_same(copse_dataset *a, copse_dataset *b, bool ordered) {
    copse_dataset *held;
    ASSERT_OK(copse_dataset_cache_memory(&held, b, 0, &error));
    ck_assert_uint_eq(copse_dataset_count(held), copse_dataset_count(a));
    size_t bytes = copse_data_spec_bytes(copse_dataset_get_features(a));
    ck_assert_uint_eq(copse_data_spec_bytes(copse_dataset_get_features(held)), bytes);
    ck_assert_int_eq(copse_dataset_get_features(held)->dtype,
                     copse_dataset_get_features(a)->dtype);
    unsigned char *x = malloc(bytes), *y = malloc(bytes);
    for (size_t i = 0; i < copse_dataset_count(a); i++) {
        int32_t label = -1, other = -1;
        ASSERT_OK(copse_dataset_read(a, i, x, &label, &error));
        bool found = false;
        size_t from = ordered ? i : 0, to = ordered ? i + 1 : copse_dataset_count(a);
        for (size_t k = from; k < to && !found; k++) {
            ASSERT_OK(copse_dataset_read(held, k, y, &other, &error));
            found = memcmp(x, y, bytes) == 0 && label == other;
        }
        ck_assert_msg(found, "sample %zu is not there", i);
    }
    free(x);
    free(y);
    copse_dataset_close(held);
}

typedef struct trip {
    copse_data_format format;
    const char *path, *labels, *feature_name, *label_name;
} trip;

static void check_trip(copse_dataset *set, const trip *t, const copse_data_field *field) {
    const char *path = in_folder(folder, t->path);
    const char *labels = t->labels ? in_folder(folder, t->labels) : NULL;
    copse_data_target target = {.format = t->format,
                                .path = path,
                                .label_path = labels,
                                .feature_name = t->feature_name,
                                .label_name = t->label_name};
    ASSERT_OK(copse_dataset_save(set, &target, &error));
    const copse_data_spec *spec = copse_dataset_get_features(set);
    copse_data_source source = {.format = t->format,
                                .paths = &path,
                                .path_count = 1,
                                .label_paths = &labels,
                                .label_path_count = labels != NULL,
                                .feature_name = t->feature_name,
                                .label_name = t->label_name,
                                .image = {.channels = spec->shape[2]}};
    if (field)
        source.feature = *field;
    copse_dataset *read;
    ASSERT_OK(copse_dataset_open(&read, &source, &error));
    check_same(set, read, t->format != COPSE_DATA_FOLDER);
    copse_dataset_close(read);
}

START_TEST(test_save_images_in_every_format) {
    static const trip trips[] = {
        {COPSE_DATA_IDX, "images", "labels", NULL, NULL},
        {COPSE_DATA_IDX, "images.gz", "labels.gz", NULL, NULL},
        {COPSE_DATA_NPY, "x.npy", "y.npy", NULL, NULL},
        {COPSE_DATA_NPY, "both.npz", NULL, "pixels", "classes"},
        {COPSE_DATA_TFRECORD, "a.tfrecord", NULL, NULL, "label"},
        {COPSE_DATA_TFRECORD, "a.tfrecord.gz", NULL, "pic", "class"},
        {COPSE_DATA_FOLDER, "tree", NULL, NULL, NULL},
    };
    static const size_t channels[] = {1, 3, 4};
    for (size_t c = 0; c < 3; c++) {
        copse_dataset *set = make_images(5, 7, channels[c], COPSE_U8, 3);
        for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++) {
            check_trip(set, &trips[i], NULL);
            if (trips[i].format == COPSE_DATA_FOLDER) {
                char command[600];
                snprintf(command, sizeof command, "rm -r '%s/tree'", folder);
                ck_assert_int_eq(system(command), 0);
            }
        }
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_save_floats_in_every_format_for_them) {
    static const trip trips[] = {
        {COPSE_DATA_IDX, "images", "labels", NULL, NULL},
        {COPSE_DATA_NPY, "x.npy", "y.npy", NULL, NULL},
        {COPSE_DATA_NPY, "both.npz", NULL, "x", "y"},
        {COPSE_DATA_TFRECORD, "a.tfrecord", NULL, NULL, "label"},
        {COPSE_DATA_CSV, "a.csv", NULL, NULL, "label"},
        {COPSE_DATA_CSV, "a.csv.gz", NULL, NULL, "class"},
    };
    copse_data_field field = {.rank = 3, .shape = {2, 3, 2}};
    copse_dataset *set = make_images(2, 3, 2, COPSE_F32, 4);
    for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++)
        check_trip(set, &trips[i], &field);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_save_cifar10) {
    static const trip t = {COPSE_DATA_CIFAR10, "batch.bin", NULL, NULL, NULL};
    copse_dataset *set = make_images(32, 32, 3, COPSE_U8, 10);
    check_trip(set, &t, NULL);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_save_without_labels) {
    static const trip trips[] = {{COPSE_DATA_IDX, "images", NULL, NULL, NULL},
                                 {COPSE_DATA_NPY, "both.npz", NULL, NULL, NULL},
                                 {COPSE_DATA_TFRECORD, "a.tfrecord", NULL, NULL, NULL},
                                 {COPSE_DATA_FOLDER, "tree/", NULL, NULL, NULL}};
    copse_dataset *set = make_images(4, 4, 1, COPSE_U8, 0);
    for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++)
        check_trip(set, &trips[i], NULL);
    copse_dataset_close(set);
}
END_TEST

/* A gzip TFRecord is a stream: it is counted first. */
START_TEST(test_save_of_a_stream) {
    copse_dataset *set = make_images(4, 5, 3, COPSE_U8, 3), *stream;
    copse_data_target target = {.format = COPSE_DATA_TFRECORD,
                                .path = in_folder(folder, "a.tfrecord.gz")};
    ASSERT_OK(copse_dataset_save(set, &target, &error));
    copse_data_source source = {.format = COPSE_DATA_TFRECORD,
                                .paths = &target.path,
                                .path_count = 1,
                                .label_name = "label"};
    ASSERT_OK(copse_dataset_open(&stream, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(stream), COPSE_COUNT_UNKNOWN);
    static const trip t = {COPSE_DATA_NPY, "x.npy", "y.npy", NULL, NULL};
    copse_data_target npy = {.format = t.format,
                             .path = in_folder(folder, t.path),
                             .label_path = in_folder(folder, t.labels)};
    ASSERT_OK(copse_dataset_save(stream, &npy, &error));
    copse_data_source read = {.format = COPSE_DATA_NPY,
                              .paths = &npy.path,
                              .path_count = 1,
                              .label_paths = &npy.label_path,
                              .label_path_count = 1};
    copse_dataset *back;
    ASSERT_OK(copse_dataset_open(&back, &read, &error));
    check_same(set, back, true);
    copse_dataset_close(back);
    copse_dataset_close(stream);
    copse_dataset_close(set);
}
END_TEST

static bool stop_at_5(void *user, size_t done, size_t count) {
    ck_assert_uint_eq(count, COUNT);
    *(size_t *)user = done;
    return done < 5;
}

START_TEST(test_save_stopped_leaves_nothing) {
    static const trip trips[] = {{COPSE_DATA_IDX, "images", "labels", NULL, NULL},
                                 {COPSE_DATA_NPY, "both.npz", NULL, NULL, NULL},
                                 {COPSE_DATA_TFRECORD, "a.tfrecord", NULL, NULL, NULL},
                                 {COPSE_DATA_FOLDER, "tree", NULL, NULL, NULL},
                                 {COPSE_DATA_CSV, "a.csv", NULL, NULL, NULL}};
    copse_dataset *set = make_images(4, 4, 1, COPSE_U8, 2);
    for (size_t i = 0; i < sizeof trips / sizeof trips[0]; i++) {
        size_t done = 0;
        copse_data_target target = {
            .format = trips[i].format,
            .path = in_folder(folder, trips[i].path),
            .label_path = trips[i].labels ? in_folder(folder, trips[i].labels) : NULL,
            .progress = stop_at_5,
            .progress_user = &done};
        ASSERT_FAILS(COPSE_INTERRUPTED, copse_dataset_save(set, &target, &error));
        ck_assert_uint_eq(done, 5);
        ck_assert_int_eq(rmdir(folder), 0); /* it is empty */
        ck_assert_int_eq(mkdir(folder, 0777), 0);
    }
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_save_refuses_what_a_format_cannot_hold) {
    copse_dataset *images = make_images(4, 4, 1, COPSE_U8, 300);
    copse_dataset *floats = make_images(4, 4, 1, COPSE_F32, 3);
    copse_data_target target = {.format = COPSE_DATA_CIFAR10,
                                .path = in_folder(folder, "a")};
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse_dataset_save(images, &target, &error));
    target.format = COPSE_DATA_FOLDER;
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse_dataset_save(floats, &target, &error));
    target.format = COPSE_DATA_TEXT;
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse_dataset_save(floats, &target, &error));
    target.format = COPSE_DATA_IDX;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_save(floats, &target, &error));
    target.label_path = in_folder(folder, "b");
    ASSERT_FAILS(COPSE_UNSUPPORTED, copse_dataset_save(images, &target, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "holds 0 to 255"));
    ck_assert_int_eq(mkdir(in_folder(folder, "a"), 0777), 0);
    target.format = COPSE_DATA_FOLDER;
    ASSERT_FAILS(COPSE_IO, copse_dataset_save(images, &target, &error));
    copse_dataset_close(images);
    copse_dataset_close(floats);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_save");
    TCase *tests = tcase_create("save");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_save_images_in_every_format);
    tcase_add_test(tests, test_save_floats_in_every_format_for_them);
    tcase_add_test(tests, test_save_cifar10);
    tcase_add_test(tests, test_save_without_labels);
    tcase_add_test(tests, test_save_of_a_stream);
    tcase_add_test(tests, test_save_stopped_leaves_nothing);
    tcase_add_test(tests, test_save_refuses_what_a_format_cannot_hold);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
