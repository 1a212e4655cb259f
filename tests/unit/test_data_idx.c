/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <copse/data.h>

#include "data/dataset.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

/* Opens "images" and "labels" (NULL: none) in the temporary folder. */
static copse_status open_idx(copse_dataset **out, const char *images,
                             const char *labels) {
    copse_data_source source = {.format = COPSE_DATA_IDX,
                                .folder = folder,
                                .paths = &images,
                                .path_count = 1,
                                .label_paths = &labels,
                                .label_path_count = labels != NULL};
    return copse_dataset_open(out, &source, &error);
}

/* 3 images of 2 x 2, and their labels. */
static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
                                       0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 255};

static void check_small(const char *image_name, const char *label_name) {
    copse_dataset *set;
    ASSERT_OK(open_idx(&set, image_name, label_name));
    ck_assert_uint_eq(copse_dataset_count(set), 3);
    const copse_data_spec *spec = copse_dataset_get_features(set);
    ck_assert_int_eq(spec->dtype, COPSE_U8);
    ck_assert_uint_eq(spec->rank, 3);
    ck_assert_uint_eq(spec->shape[0] * 100 + spec->shape[1] * 10 + spec->shape[2], 221);
    ck_assert_int_eq(copse_dataset_get_labels(set)->dtype, COPSE_I32);
    ck_assert_uint_eq(copse_dataset_get_labels(set)->rank, 0);
    unsigned char pixels[4];
    int32_t label;
    ASSERT_OK(copse_dataset_read(set, 2, pixels, &label, &error));
    ck_assert_mem_eq(pixels, ((unsigned char[]){9, 10, 11, 255}), 4);
    ck_assert_int_eq(label, 255);
    ASSERT_FAILS(COPSE_INVALID, copse_dataset_read(set, 3, pixels, &label, &error));
    copse_dataset_close(set);
}

START_TEST(test_idx_plain_and_gzip_read_the_same) {
    write_file(in_folder(folder, "i"), images, sizeof images);
    write_file(in_folder(folder, "l"), labels, sizeof labels);
    write_gzip(in_folder(folder, "i.gz"), images, sizeof images);
    write_gzip(in_folder(folder, "l.gz"), labels, sizeof labels);
    check_small("i", "l");
    check_small("i.gz", "l.gz");
}
END_TEST

/* 4000 images of 16 x 16 whose pixels cannot be compressed much; cut: so many bytes of the file are missing. */
static void write_many(const char *name, size_t cut) {
    static unsigned char many[16 + 4000 * 256] = {0, 0, 8, 3,  0, 0, 15, 160,
                                                  0, 0, 0, 16, 0, 0, 0,  16};
    uint32_t state = 1;
    for (size_t i = 16; i < sizeof many; i++) {
        state = state * 1664525u + 1013904223u;
        many[i] = (unsigned char)(state >> 24);
    }
    write_gzip(in_folder(folder, name), many, sizeof many - cut);
}

START_TEST(test_idx_that_arrives_later_is_the_same) {
    const char *name = "i.gz";
    unsigned char here[256], there[256];
    copse_dataset *whole, *ahead;
    const copse_data_source source = {
        .format = COPSE_DATA_IDX, .folder = folder, .paths = &name, .path_count = 1};
    write_many(name, 0);
    ASSERT_OK(copse_dataset_open(&whole, &source, &error));
    ASSERT_OK(copse__dataset_open_ahead(&ahead, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(ahead), 4000);
    for (size_t i = 4000; i-- > 0;) { /* the last one first: it is waited for */
        ASSERT_OK(copse_dataset_read(whole, i, here, NULL, &error));
        ASSERT_OK(copse_dataset_read(ahead, i, there, NULL, &error));
        ck_assert_mem_eq(here, there, sizeof here);
    }
    ASSERT_OK(copse__dataset_arrive(ahead, &error));
    copse_dataset_close(ahead);
    for (int i = 0; i < 20; i++) { /* nobody waits for it */
        ASSERT_OK(copse__dataset_open_ahead(&ahead, &source, &error));
        copse_dataset_close(ahead);
    }
    copse_dataset_close(whole);
    ASSERT_OK(copse__dataset_arrive(NULL, &error));
}
END_TEST

START_TEST(test_idx_damage_that_arrives_later_is_told_to_all) {
    const char *name = "i.gz";
    unsigned char pixels[256];
    copse_dataset *set, *part;
    copse_pipeline *pipeline;
    const copse_pipeline_options options = {.batch = 8, .epochs = 1};
    const copse_data_source source = {.format = COPSE_DATA_IDX,
                                      .folder = folder,
                                      .paths = &name,
                                      .path_count = 1,
                                      .skip_errors = true};
    write_many(name, 1);
    ASSERT_OK(copse__dataset_open_ahead(&set, &source, &error));
    ASSERT_OK(copse_dataset_slice(&part, set, 10, 20, &error));
    /* In the order in which they could come too early. */
    ASSERT_FAILS(COPSE_FORMAT, copse_pipeline_open(&pipeline, part, &options, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_read(part, 0, pixels, NULL, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse__dataset_arrive(part, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse__dataset_arrive(set, &error));
    ck_assert(strstr(error.text, "ends within the IDX data"));
    copse_dataset_close(set);
    copse_dataset_close(part);
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_null(set);
}
END_TEST

START_TEST(test_idx_every_type_is_read) {
    static const struct {
        unsigned char code, bytes[8];
        size_t size;
        copse_dtype dtype;
        double value;
    } cases[] = {
        {0x08, {200}, 1, COPSE_U8, 200},
        {0x09, {0xfe}, 1, COPSE_I8, -2},
        {0x0b, {0xff, 0x38}, 2, COPSE_I16, -200},
        {0x0c, {0x00, 0x01, 0x00, 0x02}, 4, COPSE_I32, 65538},
        {0x0d, {0x3f, 0xc0, 0, 0}, 4, COPSE_F32, 1.5},
        {0x0e, {0xbf, 0xf8, 0, 0, 0, 0, 0, 0}, 8, COPSE_F64, -1.5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char file[16] = {0, 0, cases[i].code, 1, 0, 0, 0, 1}, out[8];
        memcpy(file + 8, cases[i].bytes, cases[i].size);
        write_file(in_folder(folder, "t"), file, 8 + cases[i].size);
        copse_dataset *set;
        ASSERT_OK(open_idx(&set, "t", NULL));
        ck_assert_ptr_null(copse_dataset_get_labels(set));
        ck_assert_int_eq(copse_dataset_get_features(set)->dtype, cases[i].dtype);
        ASSERT_OK(copse_dataset_read(set, 0, out, NULL, &error));
        double got = 0;
        switch (cases[i].dtype) {
        case COPSE_U8:
            got = *(uint8_t *)out;
            break;
        case COPSE_I8:
            got = *(int8_t *)out;
            break;
        case COPSE_I16: {
            int16_t v;
            memcpy(&v, out, 2);
            got = v;
            break;
        }
        case COPSE_I32: {
            int32_t v;
            memcpy(&v, out, 4);
            got = v;
            break;
        }
        case COPSE_F32: {
            float v;
            memcpy(&v, out, 4);
            got = (double)v;
            break;
        }
        default:
            memcpy(&got, out, 8);
        }
        ck_assert(got == cases[i].value);
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_idx_floating_labels_are_targets) {
    const unsigned char targets[] = {0,    0,    0x0e, 2, 0,    0,    0, 3, 0, 0, 0, 1,
                                     0x3f, 0xf8, 0,    0, 0,    0,    0, 0, 0, 0, 0, 0,
                                     0,    0,    0,    0, 0xbf, 0xf0, 0, 0, 0, 0, 0, 0};
    write_file(in_folder(folder, "i"), images, sizeof images);
    write_file(in_folder(folder, "t"), targets, sizeof targets);
    copse_dataset *set;
    ASSERT_OK(open_idx(&set, "i", "t"));
    ck_assert_int_eq(copse_dataset_get_labels(set)->dtype, COPSE_F32);
    ck_assert_uint_eq(copse_dataset_get_labels(set)->rank, 1);
    unsigned char pixels[4];
    float target;
    ASSERT_OK(copse_dataset_read(set, 2, pixels, &target, &error));
    ck_assert(target == -1.0f);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_idx_glob_joins_sorted_files) {
    write_file(in_folder(folder, "i-b"), images, sizeof images);
    unsigned char first[sizeof images];
    memcpy(first, images, sizeof images);
    first[16] = 77;
    write_file(in_folder(folder, "i-a"), first, sizeof first);
    copse_dataset *set;
    ASSERT_OK(open_idx(&set, "i-*", NULL));
    ck_assert_uint_eq(copse_dataset_count(set), 6);
    unsigned char pixels[4];
    ASSERT_OK(copse_dataset_read(set, 0, pixels, NULL, &error));
    ck_assert_int_eq(pixels[0], 77);
    ASSERT_OK(copse_dataset_read(set, 3, pixels, NULL, &error));
    ck_assert_int_eq(pixels[0], 1);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_idx_truncated_at_every_byte_is_refused) {
    copse_dataset *set;
    write_gzip(in_folder(folder, "whole.gz"), images, sizeof images);
    size_t packed_bytes;
    unsigned char *packed = read_whole(in_folder(folder, "whole.gz"), &packed_bytes);
    for (size_t n = 0; n < sizeof images; n++) {
        write_file(in_folder(folder, "cut"), images, n);
        ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "cut", NULL));
        ck_assert_ptr_nonnull(strstr(error.place, "cut"));
        ck_assert_ptr_null(set);
    }
    for (size_t n = 0; n < packed_bytes; n++) {
        write_file(in_folder(folder, "cut"), packed, n);
        ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "cut", NULL));
    }
    free(packed);
}
END_TEST

/* Deflate leaves a few bits of its last byte unused: flipping those changes nothing. */
START_TEST(test_idx_flipped_bits_in_gzip_are_refused_or_harmless) {
    write_gzip(in_folder(folder, "whole.gz"), images, sizeof images);
    size_t bytes, harmless = 0;
    unsigned char *packed = read_whole(in_folder(folder, "whole.gz"), &bytes);
    /* From byte 10 on: before it, gzip's header holds a time stamp and the like. */
    for (size_t bit = 80; bit < bytes * 8; bit++) {
        copse_dataset *set;
        packed[bit / 8] ^= (unsigned char)(1u << bit % 8);
        write_file(in_folder(folder, "flip"), packed, bytes);
        packed[bit / 8] ^= (unsigned char)(1u << bit % 8);
        copse_status status = open_idx(&set, "flip", NULL);
        if (status != COPSE_OK) {
            ck_assert_int_eq(status, COPSE_FORMAT);
            continue;
        }
        harmless++;
        for (size_t i = 0; i < 3; i++) {
            unsigned char pixels[4];
            ASSERT_OK(copse_dataset_read(set, i, pixels, NULL, &error));
            ck_assert_mem_eq(pixels, images + 16 + 4 * i, 4);
        }
        copse_dataset_close(set);
    }
    ck_assert_uint_lt(harmless, 8);
    free(packed);
}
END_TEST

START_TEST(test_idx_absurd_sizes_are_refused) {
    copse_dataset *set;
    const unsigned char absurd[] = {0,   0,   8,   3,   255, 255, 255, 255, 255,
                                    255, 255, 255, 255, 255, 255, 255, 1};
    write_file(in_folder(folder, "a"), absurd, sizeof absurd);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "a", NULL));
    write_gzip(in_folder(folder, "a.gz"), absurd, sizeof absurd);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "a.gz", NULL));
    const unsigned char dims[] = {0, 0, 8, 200, 0, 0, 0, 1};
    write_file(in_folder(folder, "d"), dims, sizeof dims);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "d", NULL));
    const unsigned char empty[] = {0, 0, 8, 2, 0, 0, 0, 0, 255, 255, 255, 255};
    write_file(in_folder(folder, "e"), empty, sizeof empty);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "e", NULL));
    const unsigned char zero[] = {0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0};
    write_file(in_folder(folder, "z"), zero, sizeof zero);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "z", NULL));
}
END_TEST

/* 64 MiB of zeros in 64 KiB: allowed by the ratio, refused by the limit before it is
 * made. */
START_TEST(test_idx_bomb_is_refused_by_the_memory_limit) {
    size_t bytes = 8 + ((size_t)64 << 20);
    unsigned char *bomb = calloc(bytes, 1);
    memcpy(bomb, (unsigned char[]){0, 0, 8, 1, 4, 0, 0, 0}, 8);
    write_gzip(in_folder(folder, "bomb"), bomb, bytes);
    free(bomb);
    const char *path = "bomb";
    copse_data_source source = {.format = COPSE_DATA_IDX,
                                .folder = folder,
                                .paths = &path,
                                .path_count = 1,
                                .memory_limit_bytes = 1 << 20};
    copse_dataset *set;
    ASSERT_FAILS(COPSE_NOMEM, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "64.0 MiB"));
}
END_TEST

START_TEST(test_idx_wrong_files_are_refused) {
    copse_dataset *set;
    ASSERT_FAILS(COPSE_IO, open_idx(&set, "missing", NULL));
    ck_assert_ptr_nonnull(strstr(error.place, "missing"));
    ASSERT_FAILS(COPSE_IO, open_idx(&set, "missing-*", NULL));
    ASSERT_FAILS(COPSE_IO, open_idx(&set, ".", NULL));
    write_file(in_folder(folder, "png"), "\x89PNG\r\n\x1a\n", 8);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "png", NULL));
    write_file(in_folder(folder, "i"), images, sizeof images);
    const unsigned char two[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 0};
    write_file(in_folder(folder, "two"), two, sizeof two);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "i", "two"));
    ck_assert_ptr_nonnull(strstr(error.text, "2 labels"));
    unsigned char longer[sizeof images + 1] = {0};
    memcpy(longer, images, sizeof images);
    write_file(in_folder(folder, "long"), longer, sizeof longer);
    ASSERT_FAILS(COPSE_FORMAT, open_idx(&set, "long", NULL));
    copse_data_source none = {.format = COPSE_DATA_IDX};
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &none, &error));
}
END_TEST

START_TEST(test_idx_digits_example_is_whole) {
    const char *images_path = "examples/digits/train-images-idx3-ubyte.gz";
    const char *labels_path = "examples/digits/train-labels-idx1-ubyte.gz";
    copse_data_source source = {.format = COPSE_DATA_IDX,
                                .paths = &images_path,
                                .path_count = 1,
                                .label_paths = &labels_path,
                                .label_path_count = 1};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(set), 1437);
    unsigned char pixels[64];
    int32_t label;
    unsigned seen = 0;
    for (size_t i = 0; i < 1437; i++) {
        ASSERT_OK(copse_dataset_read(set, i, pixels, &label, &error));
        ck_assert(label >= 0 && label < 10);
        seen |= 1u << label;
        for (size_t k = 0; k < 64; k++)
            ck_assert_uint_le(pixels[k], 16);
    }
    ck_assert_uint_eq(seen, 1023);
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_idx");
    TCase *tests = tcase_create("idx");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_idx_plain_and_gzip_read_the_same);
    tcase_add_test(tests, test_idx_that_arrives_later_is_the_same);
    tcase_add_test(tests, test_idx_damage_that_arrives_later_is_told_to_all);
    tcase_add_test(tests, test_idx_every_type_is_read);
    tcase_add_test(tests, test_idx_floating_labels_are_targets);
    tcase_add_test(tests, test_idx_glob_joins_sorted_files);
    tcase_add_test(tests, test_idx_truncated_at_every_byte_is_refused);
    tcase_add_test(tests, test_idx_flipped_bits_in_gzip_are_refused_or_harmless);
    tcase_add_test(tests, test_idx_absurd_sizes_are_refused);
    tcase_add_test(tests, test_idx_bomb_is_refused_by_the_memory_limit);
    tcase_add_test(tests, test_idx_wrong_files_are_refused);
    tcase_add_test(tests, test_idx_digits_example_is_whole);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
