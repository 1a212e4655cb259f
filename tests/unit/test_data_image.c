/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/pillow was written by Pillow, with the pixels that it decodes. */
#include "support/check.h"
#include "support/files.h"

#include "data/image.h"
#include "io/npy.h"
#include "io/zip.h"

#define FOLDER "tests/data/pillow"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

/* An array of expected.npz; free() it. */
static unsigned char *expected(const char *name, copse__npy *npy) {
    char member[128];
    copse__zip *zip;
    copse__input *input;
    unsigned char *data;
    snprintf(member, sizeof member, "%s.npy", name);
    ASSERT_OK(copse__zip_open(&zip, FOLDER "/expected.npz", &error));
    const copse__zip_entry *entry = copse__zip_find(zip, member);
    ck_assert_msg(entry != NULL, "%s is not in expected.npz", name);
    ASSERT_OK(copse__zip_read(&input, zip, entry, &error));
    ASSERT_OK(copse__npy_read_header(npy, input, &error));
    ASSERT_OK(copse__npy_read_data(&data, npy, input, &error));
    copse__input_close(input);
    copse__zip_close(zip);
    return data;
}

static int worst_difference(const unsigned char *a, const unsigned char *b, size_t n) {
    int worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = abs(a[i] - b[i]) > worst ? abs(a[i] - b[i]) : worst;
    return worst;
}

static void check_file(const char *file, size_t channels, const char *kind,
                       int tolerance) {
    char name[64];
    size_t bytes;
    copse__scratch scratch = {0};
    copse__image image;
    copse__npy npy;
    unsigned char *data = read_whole(in_folder(FOLDER, file), &bytes);
    snprintf(name, sizeof name, "%s-%s", file, kind);
    unsigned char *wanted = expected(name, &npy);
    ASSERT_OK(copse__image_decode(&image, data, bytes, channels, false, file, &scratch,
                                  &error));
    ck_assert_uint_eq(image.height, npy.shape[0]);
    ck_assert_uint_eq(image.width, npy.shape[1]);
    ck_assert_uint_eq(image.channels, channels);
    int worst = worst_difference(image.pixels, wanted, npy.bytes);
    ck_assert_msg(worst <= tolerance, "%s differs by %d", name, worst);
    copse__scratch_free(&scratch);
    free(wanted);
    free(data);
}

START_TEST(test_png_of_every_kind_equals_pillow) {
    static const char *const files[] = {
        "rgb.png",     "rgba.png",          "grey.png", "grey-alpha.png",
        "palette.png", "palette-small.png", "bits.png"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        check_file(files[i], 3, "rgb", 0);
        check_file(files[i], 1, "grey", 0);
    }
}
END_TEST

/* JPEG leaves the inverse transform's rounding open, but every libjpeg-turbo does the same. */
START_TEST(test_jpeg_baseline_and_progressive_equal_pillow) {
    static const char *const files[] = {"baseline.jpg", "subsampled.jpg",
                                        "progressive.jpg", "grey.jpg"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        check_file(files[i], 3, "rgb", 1);
        check_file(files[i], 1, "grey", 2); /* ours is the file's luma itself */
    }
}
END_TEST

START_TEST(test_jpeg_is_turned_as_exif_says) {
    for (int k = 1; k <= 8; k++) {
        char file[32];
        snprintf(file, sizeof file, "turned-%d.jpg", k);
        check_file(file, 3, "rgb", 1);
    }
}
END_TEST

START_TEST(test_png_16_bits) {
    size_t bytes;
    copse__scratch scratch = {0};
    copse__image image;
    copse__npy npy;
    unsigned char *data = read_whole(FOLDER "/grey16.png", &bytes);
    unsigned char *wanted = expected("grey16.png-wide", &npy);
    ASSERT_OK(copse__image_decode(&image, data, bytes, 1, true, "16", &scratch, &error));
    ck_assert_uint_eq(image.sample_bytes, 2);
    ck_assert_mem_eq(image.pixels, wanted, npy.bytes);
    ASSERT_OK(copse__image_decode(&image, data, bytes, 1, false, "16", &scratch, &error));
    for (size_t i = 0; i < npy.bytes / 2; i++) {
        uint16_t wide;
        memcpy(&wide, wanted + 2 * i, 2);
        ck_assert_int_le(abs((int)image.pixels[i] - (int)((wide + 128) / 257)), 1);
    }
    copse__scratch_free(&scratch);
    free(wanted);
    free(data);
}
END_TEST

START_TEST(test_png_and_jpeg_with_alpha_asked_for) {
    size_t bytes;
    copse__scratch scratch = {0};
    copse__image image;
    static const struct {
        const char *file;
        int alpha; /* of the last pixel */
    } cases[] = {{"rgba.png", (12 + 16) * 8}, {"rgb.png", 255}, {"baseline.jpg", 255}};
    for (size_t i = 0; i < 3; i++) {
        unsigned char *data = read_whole(in_folder(FOLDER, cases[i].file), &bytes);
        ASSERT_OK(copse__image_decode(&image, data, bytes, 4, false, cases[i].file,
                                      &scratch, &error));
        ck_assert_int_eq(image.pixels[13 * 17 * 4 - 1], cases[i].alpha);
        free(data);
    }
    copse__scratch_free(&scratch);
}
END_TEST

START_TEST(test_image_resize_equals_pillow) {
    static const size_t sizes[][2] = {{5, 6}, {13, 8}, {26, 34}, {1, 1}, {7, 40}};
    size_t bytes;
    copse__scratch scratch = {0};
    copse_image_options options = {0};
    unsigned char *data = read_whole(FOLDER "/rgb.png", &bytes);
    unsigned char out[26 * 40 * 3];
    for (size_t i = 0; i < 6; i++) {
        bool crop = i == 5;
        size_t height = crop ? 6 : sizes[i][0], width = crop ? 6 : sizes[i][1];
        copse_data_spec spec = {COPSE_U8, 3, {height, width, 3}};
        char name[64];
        copse__npy npy;
        snprintf(name, sizeof name, "%s-%zu-%zu", crop ? "cropped" : "scaled", height,
                 width);
        unsigned char *wanted = expected(name, &npy);
        options = (copse_image_options){
            height, width, 3, crop ? COPSE_RESIZE_CROP : COPSE_RESIZE_STRETCH, false};
        ASSERT_OK(
            copse__image_read(out, &spec, &options, data, bytes, "x", &scratch, &error));
        /* Pillow rounds once more, between the two passes. */
        ck_assert_msg(worst_difference(out, wanted, npy.bytes) <= 1, "%s", name);
        free(wanted);
    }
    copse__scratch_free(&scratch);
    free(data);
}
END_TEST

START_TEST(test_image_of_another_size_is_named) {
    size_t bytes;
    copse__scratch scratch = {0};
    copse_image_options options = {0};
    unsigned char *data = read_whole(FOLDER "/rgb.png", &bytes), out[1];
    copse_data_spec spec = {COPSE_U8, 3, {13, 16, 3}};
    ASSERT_FAILS(COPSE_FORMAT, copse__image_read(out, &spec, &options, data, bytes, "one",
                                                 &scratch, &error));
    ck_assert_str_eq(error.place, "one");
    ck_assert_ptr_nonnull(strstr(error.text, "13 x 17"));
    ck_assert_ptr_nonnull(strstr(error.text, "13 x 16"));
    copse__scratch_free(&scratch);
    free(data);
}
END_TEST

START_TEST(test_image_damage_is_refused) {
    static const struct {
        const char *file;
        size_t flips_noticed_of_100; /* a flip in a JPEG's data gives other pixels */
    } cases[] = {{"rgb.png", 95},
                 {"palette.png", 95},
                 {"grey16.png", 95},
                 {"baseline.jpg", 0},
                 {"progressive.jpg", 0}};
    copse__scratch scratch = {0};
    copse__image image;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bytes, noticed = 0;
        unsigned char *data = read_whole(in_folder(FOLDER, cases[i].file), &bytes);
        for (size_t n = 0; n < bytes; n++) {
            /* A copy of just this size, so that reading beyond it is seen. */
            unsigned char *cut = malloc(n + !n);
            memcpy(cut, data, n);
            ASSERT_FAILS(COPSE_FORMAT, copse__image_decode(&image, cut, n, 3, false, "f",
                                                           &scratch, &error));
            free(cut);
        }
        for (size_t bit = 0; bit < bytes * 8; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            copse_status status =
                copse__image_decode(&image, data, bytes, 3, false, "f", &scratch, &error);
            ck_assert(status == COPSE_OK || status == COPSE_FORMAT);
            noticed += status != COPSE_OK;
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        ck_assert_uint_ge(noticed * 100, bytes * 8 * cases[i].flips_noticed_of_100);
        free(data);
    }
    copse__scratch_free(&scratch);
}
END_TEST

START_TEST(test_image_others_are_refused) {
    size_t bytes;
    copse__scratch scratch = {0};
    copse__image image;
    unsigned char *data = read_whole(FOLDER "/cmyk.jpg", &bytes);
    ASSERT_FAILS(COPSE_FORMAT, copse__image_decode(&image, data, bytes, 3, false, "c",
                                                   &scratch, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "CMYK"));
    free(data);
    ASSERT_FAILS(COPSE_FORMAT,
                 copse__image_decode(&image, (const unsigned char *)"GIF89a", 6, 3, false,
                                     "g", &scratch, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "neither a PNG nor a JPEG"));
    ASSERT_FAILS(COPSE_FORMAT, copse__image_decode(&image, (const unsigned char *)"", 0,
                                                   3, false, "e", &scratch, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "empty"));
    copse__scratch_free(&scratch);
}
END_TEST

/* rgb.png with a header of 2^20 x 2^20 pixels (and its checksum). */
START_TEST(test_png_of_absurd_size_is_refused) {
    size_t bytes;
    copse__scratch scratch = {0};
    copse__image image;
    unsigned char *data = read_whole(FOLDER "/rgb.png", &bytes);
    static const unsigned char sizes[][4] = {{0, 0x10, 0, 0}, {0, 0, 0x80, 0}};
    for (size_t i = 0; i < 2; i++) {
        memcpy(data + 16, sizes[i], 4);
        memcpy(data + 20, sizes[i], 4);
        uLong crc = crc32(0, data + 12, 17);
        for (int b = 0; b < 4; b++)
            data[29 + b] = (unsigned char)(crc >> (24 - 8 * b));
        ASSERT_FAILS(COPSE_FORMAT, copse__image_decode(&image, data, bytes, 3, false, "b",
                                                       &scratch, &error));
        ck_assert_uint_eq(scratch.pixel_capacity, 0);
    }
    copse__scratch_free(&scratch);
    free(data);
}
END_TEST

/* baseline.jpg with a header of 60000 x 60000 pixels. */
START_TEST(test_jpeg_of_absurd_size_is_refused) {
    size_t bytes, at = 2;
    copse__scratch scratch = {0};
    copse__image image;
    unsigned char *data = read_whole(FOLDER "/baseline.jpg", &bytes);
    while (data[at + 1] != 0xc0)
        at += 2 + (size_t)data[at + 2] * 256 + data[at + 3];
    memcpy(data + at + 5, "\xEA\x60\xEA\x60", 4);
    ASSERT_FAILS(COPSE_FORMAT, copse__image_decode(&image, data, bytes, 1, false, "b",
                                                   &scratch, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "60000 x 60000"));
    ck_assert_uint_eq(scratch.pixel_capacity, 0);
    copse__scratch_free(&scratch);
    free(data);
}
END_TEST

START_TEST(test_png_save_is_read_back) {
    unsigned char pixels[5 * 7 * 4];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (unsigned char)(i * 37);
    static const size_t channels[] = {1, 3, 4};
    for (size_t i = 0; i < 3; i++) {
        size_t bytes;
        copse__scratch scratch = {0};
        copse__image image;
        const char *path = in_folder(folder, "made.png");
        ASSERT_OK(copse__png_save(path, pixels, 5, 7, channels[i], &error));
        unsigned char *data = read_whole(path, &bytes);
        ASSERT_OK(copse__image_decode(&image, data, bytes, channels[i], false, path,
                                      &scratch, &error));
        ck_assert_uint_eq(image.height * 10 + image.width, 57);
        ck_assert_mem_eq(image.pixels, pixels, 35 * channels[i]);
        copse__scratch_free(&scratch);
        free(data);
    }
    ASSERT_FAILS(COPSE_IO, copse__png_save(in_folder(folder, "no/made.png"), pixels, 5, 7,
                                           1, &error));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_image");
    TCase *tests = tcase_create("image");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_png_of_every_kind_equals_pillow);
    tcase_add_test(tests, test_jpeg_baseline_and_progressive_equal_pillow);
    tcase_add_test(tests, test_jpeg_is_turned_as_exif_says);
    tcase_add_test(tests, test_png_16_bits);
    tcase_add_test(tests, test_png_and_jpeg_with_alpha_asked_for);
    tcase_add_test(tests, test_image_resize_equals_pillow);
    tcase_add_test(tests, test_image_of_another_size_is_named);
    tcase_add_test(tests, test_image_damage_is_refused);
    tcase_add_test(tests, test_image_others_are_refused);
    tcase_add_test(tests, test_png_of_absurd_size_is_refused);
    tcase_add_test(tests, test_jpeg_of_absurd_size_is_refused);
    tcase_add_test(tests, test_png_save_is_read_back);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
