/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/tensorflow was written by TensorFlow; make_tensorflow.py there says what is in it. */
#include "support/check.h"
#include "support/dataset.h"

#include "base/hash.h"
#include "io/tfrecord.h"

#define FOLDER "tests/data/tensorflow"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static copse_data_source records(const char *const *path, const char *feature) {
    return (copse_data_source){.format = COPSE_DATA_TFRECORD,
                               .folder = FOLDER,
                               .paths = path,
                               .path_count = 1,
                               .feature_name = feature};
}

/* Reads the whole set through a pipeline: features of all rows into out, labels into labels. */
static size_t read_all(const copse_data_source *source, void *out, void *labels,
                       copse_data_spec *spec) {
    copse_dataset *set;
    copse_pipeline *p;
    ASSERT_OK(copse_dataset_open(&set, source, &error));
    *spec = *copse_dataset_get_features(set);
    size_t bytes = copse_data_spec_bytes(spec), rows = 0;
    size_t label_bytes = copse_dataset_get_labels(set)
                             ? copse_data_spec_bytes(copse_dataset_get_labels(set))
                             : 0;
    copse_pipeline_options options = {.batch = 3, .epochs = 1, .threads = 2};
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    for (;;) {
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        if (!batch)
            break;
        memcpy((char *)out + rows * bytes, batch->parts[0].features, batch->rows * bytes);
        if (labels)
            memcpy((char *)labels + rows * label_bytes, batch->parts[0].labels,
                   batch->rows * label_bytes);
        rows += batch->rows;
        copse_pipeline_release(p, batch);
    }
    copse_pipeline_close(p);
    copse_dataset_close(set);
    return rows;
}

static const char *const packed[] = {"plain.tfrecord", "gzip.tfrecord", "zlib.tfrecord"};

START_TEST(test_tfrecord_golden_bytes) {
    unsigned char head[12], tail[4];
    copse__tfrecord_frame(head, tail, "", 0);
    ck_assert_mem_eq(head, "\0\0\0\0\0\0\0\0\x29\x03\x98\x07", 12);
    ck_assert_mem_eq(tail, "\xd8\xea\x82\xa2", 4);
    ck_assert_uint_eq(copse__crc32c(0, "123456789", 9), 0xe3069283u);
    ck_assert_uint_eq(copse__crc32c_mask(0xe3069283u), 0xc78ab0e5u);
}
END_TEST

START_TEST(test_tfrecord_images_and_labels_however_packed) {
    for (size_t k = 0; k < 3; k++) {
        copse_data_source source = records(&packed[k], NULL);
        source.label_name = "label";
        unsigned char pixels[7 * 60];
        int32_t labels[7];
        copse_data_spec spec;
        ck_assert_uint_eq(read_all(&source, pixels, labels, &spec), 7);
        ck_assert_int_eq(spec.dtype, COPSE_U8);
        ck_assert_uint_eq(spec.shape[0] * 100 + spec.shape[1] * 10 + spec.shape[2], 453);
        for (size_t i = 0; i < 7; i++) {
            ck_assert_int_eq(labels[i], (int)(i % 4));
            for (size_t j = 0; j < 60; j++)
                ck_assert_uint_eq(pixels[i * 60 + j], (i * 60 + j) * 7 % 256);
        }
        copse_dataset *set;
        ASSERT_OK(copse_dataset_open(&set, &source, &error));
        ck_assert_uint_eq(copse_dataset_count(set), k ? COPSE_COUNT_UNKNOWN : 7);
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_tfrecord_jpeg_is_decoded) {
    copse_data_source source = records(&packed[0], "jpeg");
    source.image = (copse_image_options){.height = 4, .width = 4, .channels = 1};
    unsigned char pixels[7 * 16];
    copse_data_spec spec;
    ck_assert_uint_eq(read_all(&source, pixels, NULL, &spec), 7);
    ck_assert_uint_eq(spec.shape[2], 1);
    for (size_t i = 0; i < 7 * 16; i++)
        ck_assert_int_le(abs((int)pixels[i] - (int)(i / 16 * 30)), 1);
}
END_TEST

START_TEST(test_tfrecord_raw_bytes) {
    copse_data_source source = records(&packed[0], "raw");
    source.feature = (copse_data_field){.dtype = COPSE_F32, .rank = 1, .shape = {3}};
    source.label_name = "target";
    source.label.rank = 1;
    source.label.shape[0] = 2;
    float values[21], targets[14];
    copse_data_spec spec;
    ck_assert_uint_eq(read_all(&source, values, targets, &spec), 7);
    for (size_t i = 0; i < 7; i++) {
        double d = (double)i;
        ck_assert_double_eq((double)values[3 * i], d + 0.25);
        ck_assert_double_eq((double)values[3 * i + 1], d + 0.5);
        ck_assert_double_eq((double)values[3 * i + 2], -d);
        ck_assert_double_eq((double)targets[2 * i], d / 2);
        ck_assert_double_eq((double)targets[2 * i + 1], -d / 4);
    }
    source.feature.shape[0] = 4;
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_read(set, 0, values, targets, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "'raw' has 12 bytes where its shape asks"));
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_tfrecord_numbers_packed_and_unpacked) {
    static const char *const files[] = {"plain.tfrecord", "unpacked.tfrecord"};
    for (size_t f = 0; f < 2; f++) {
        copse_data_source source = records(&files[f], "floats");
        source.feature = (copse_data_field){.rank = 2, .shape = {2, 3}};
        source.label_name = "ints";
        source.label = (copse_data_field){.rank = 1, .shape = {3}};
        float values[42];
        int32_t ints[21];
        copse_data_spec spec;
        ck_assert_uint_eq(read_all(&source, values, ints, &spec), 7);
        ck_assert_int_eq(spec.dtype, COPSE_F32);
        ck_assert_uint_eq(spec.rank, 2);
        for (int i = 0; i < 42; i++)
            ck_assert_double_eq((double)values[i], i + 0.5);
        for (int i = 0; i < 7; i++) {
            ck_assert_int_eq(ints[3 * i], i - 3);
            ck_assert_int_eq(ints[3 * i + 1], INT32_MAX - i);
            ck_assert_int_eq(ints[3 * i + 2], INT32_MIN + i);
        }
    }
}
END_TEST

START_TEST(test_tfrecord_wrong_mappings_are_named) {
    copse_dataset *set;
    unsigned char sample[64];
    int32_t label;
    copse_data_source source = records(&packed[0], "picture");
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "no feature 'picture' but: "));
    ck_assert_ptr_nonnull(strstr(error.text, "floats"));
    source = records(&packed[0], "image");
    source.label_name = "big";
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_read(set, 2, sample, &label, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "'big' has a number that does not fit"));
    ck_assert_ptr_nonnull(strstr(error.place, "plain.tfrecord, record at byte 1"));
    copse_dataset_close(set);
    source.label_name = "image";
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    source = records(&packed[0], "label");
    source.feature.encoding = COPSE_ENCODING_IMAGE;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_tfrecord_damage_is_refused) {
    for (size_t k = 0; k < 3; k++) {
        size_t bytes;
        unsigned char *data = read_whole(in_folder(FOLDER, packed[k]), &bytes);
        copse_data_source source = {.format = COPSE_DATA_TFRECORD, .label_name = "label"};
        const char *path = in_folder(folder, "damaged");
        /* A cut between two records of a plain file leaves a whole, shorter file. */
        if (k > 0)
            check_truncated(source, path, data, bytes, 7);
        size_t noticed = check_flipped(source, path, data, bytes, k ? 29 : 101);
        ck_assert_uint_ge(noticed + 12, bytes * 8 / (k ? 29 : 101));
        free(data);
    }
}
END_TEST

START_TEST(test_tfrecord_cut_plain_file_is_refused_but_between_records) {
    size_t bytes, boundary = 0;
    unsigned char *data = read_whole(FOLDER "/plain.tfrecord", &bytes);
    const char *path = in_folder(folder, "cut");
    copse_data_source source = {.format = COPSE_DATA_TFRECORD,
                                .paths = &path,
                                .path_count = 1,
                                .label_name = "label"};
    for (size_t n = 0; n < bytes;) {
        size_t rows;
        write_file(path, data, n);
        copse_status status = read_source(&source, &rows, &error);
        if (n > 0 && n == boundary) {
            ck_assert_int_eq(status, COPSE_OK);
        } else {
            ck_assert_int_eq(status, COPSE_FORMAT);
            ck_assert_ptr_nonnull(strstr(error.place, path));
        }
        if (n == boundary)
            boundary += 16 + data[n] + 256u * data[n + 1];
        /* Every byte around a boundary, some between. */
        n += boundary - n < 20 || n + 950 - boundary < 30 ? 1 : 17;
        if (boundary < n)
            n = boundary;
    }
    free(data);
}
END_TEST

/* Damages record 3's data: its offset is named, or it alone is left out. */
START_TEST(test_tfrecord_wrong_checksum_names_the_offset_or_is_skipped) {
    size_t bytes, at = 0;
    unsigned char *data = read_whole(FOLDER "/plain.tfrecord", &bytes);
    for (int i = 0; i < 3; i++)
        at += 16 + data[at] + 256u * data[at + 1];
    data[at + 40] ^= 4;
    write_file(in_folder(folder, "bad"), data, bytes);
    write_gzip(in_folder(folder, "bad.gz"), data, bytes);
    free(data);
    for (int gz = 0; gz < 2; gz++) {
        const char *path = in_folder(folder, gz ? "bad.gz" : "bad");
        copse_data_source source = {.format = COPSE_DATA_TFRECORD,
                                    .paths = &path,
                                    .path_count = 1,
                                    .label_name = "label"};
        size_t rows;
        char offset[64];
        ASSERT_FAILS(COPSE_FORMAT, read_source(&source, &rows, &error));
        snprintf(offset, sizeof offset, "record at byte %zu is damaged", at);
        ck_assert_str_eq(error.place, path);
        ck_assert_ptr_nonnull(strstr(error.text, offset));
        ck_assert_uint_eq(rows, 3);
        source.skip_errors = true;
        ASSERT_OK(read_source(&source, &rows, &error));
        ck_assert_uint_eq(rows, 6);
    }
}
END_TEST

START_TEST(test_tfrecord_absurd_lengths_are_refused) {
    static const uint64_t lengths[] = {UINT64_MAX, UINT64_C(1) << 63, UINT64_MAX - 15,
                                       UINT64_C(10) << 30, 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int gz = 0; gz < 2; gz++) {
            unsigned char head[12];
            for (int b = 0; b < 8; b++)
                head[b] = (unsigned char)(lengths[i] >> 8 * b);
            uint32_t crc = copse__crc32c_mask(copse__crc32c(0, head, 8));
            for (int b = 0; b < 4; b++)
                head[8 + b] = (unsigned char)(crc >> 8 * b);
            const char *path = in_folder(folder, "absurd");
            if (gz)
                write_gzip(path, head, 12);
            else
                write_file(path, head, 12);
            copse_data_source source = {
                .format = COPSE_DATA_TFRECORD, .paths = &path, .path_count = 1};
            copse_dataset *set;
            ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
        }
}
END_TEST

START_TEST(test_tfrecord_shards_by_glob) {
    size_t bytes;
    unsigned char *data = read_whole(FOLDER "/plain.tfrecord", &bytes);
    write_file(in_folder(folder, "part-1"), data, bytes);
    write_file(in_folder(folder, "part-0"), data, bytes);
    write_file(in_folder(folder, "part-2"), data, 0);
    free(data);
    const char *pattern = "part-?";
    copse_data_source source = {.format = COPSE_DATA_TFRECORD,
                                .folder = folder,
                                .paths = &pattern,
                                .path_count = 1,
                                .label_name = "label"};
    size_t rows;
    ASSERT_OK(read_source(&source, &rows, &error));
    ck_assert_uint_eq(rows, 14);
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    unsigned char pixels[60];
    int32_t label;
    ASSERT_OK(copse_dataset_read(set, 9, pixels, &label, &error));
    ck_assert_int_eq(label, 2);
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_tfrecord");
    TCase *tests = tcase_create("tfrecord");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_tfrecord_golden_bytes);
    tcase_add_test(tests, test_tfrecord_images_and_labels_however_packed);
    tcase_add_test(tests, test_tfrecord_jpeg_is_decoded);
    tcase_add_test(tests, test_tfrecord_raw_bytes);
    tcase_add_test(tests, test_tfrecord_numbers_packed_and_unpacked);
    tcase_add_test(tests, test_tfrecord_wrong_mappings_are_named);
    tcase_add_test(tests, test_tfrecord_damage_is_refused);
    tcase_add_test(tests, test_tfrecord_cut_plain_file_is_refused_but_between_records);
    tcase_add_test(tests, test_tfrecord_wrong_checksum_names_the_offset_or_is_skipped);
    tcase_add_test(tests, test_tfrecord_absurd_lengths_are_refused);
    tcase_add_test(tests, test_tfrecord_shards_by_glob);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
