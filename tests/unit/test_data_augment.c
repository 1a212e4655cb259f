/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <string.h>

#include "data/augment.h"

static copse_error error;

/* A 4 x 5 x 2 image of distinct values. */
static const copse_data_spec spec = {COPSE_U8, 3, {4, 5, 2}};
static unsigned char image[40];

static unsigned char at(const unsigned char *data, size_t width, size_t y, size_t x,
                        size_t c) {
    return data[(y * width + x) * 2 + c];
}

static void apply(void *out, const copse_augment *augment, uint64_t sample) {
    for (size_t i = 0; i < sizeof image; i++)
        image[i] = (unsigned char)(i * 5 + 20);
    copse__augment_key key = {7, 3, sample, 0};
    copse__augment_image(out, image, &spec, augment, &key);
}

START_TEST(test_flip_mirrors_half_of_the_samples) {
    for (int vertical = 0; vertical < 2; vertical++) {
        copse_augment flip = {.kind = vertical ? COPSE_AUGMENT_FLIP_VERTICAL
                                               : COPSE_AUGMENT_FLIP_HORIZONTAL};
        size_t flipped = 0;
        for (uint64_t s = 0; s < 1000; s++) {
            unsigned char out[40];
            apply(out, &flip, s);
            if (memcmp(out, image, 40) == 0)
                continue;
            flipped++;
            for (size_t y = 0; y < 4; y++)
                for (size_t x = 0; x < 5; x++)
                    for (size_t c = 0; c < 2; c++)
                        ck_assert_uint_eq(at(out, 5, y, x, c),
                                          vertical ? at(image, 5, 3 - y, x, c)
                                                   : at(image, 5, y, 4 - x, c));
        }
        ck_assert_uint_gt(flipped, 430);
        ck_assert_uint_lt(flipped, 570);
        flip.amount = 1;
        for (uint64_t s = 0; s < 50; s++) {
            unsigned char out[40];
            apply(out, &flip, s);
            ck_assert_mem_ne(out, image, 40);
        }
    }
}
END_TEST

/* Every result is one of the (4 + 2p - h + 1) x (5 + 2p - w + 1) parts, and all of them come. */
static void check_crop(size_t padding, size_t height, size_t width) {
    copse_augment crop = {
        .kind = COPSE_AUGMENT_CROP, .padding = padding, .height = height, .width = width};
    size_t h = height ? height : 4, w = width ? width : 5;
    size_t tops = 4 + 2 * padding - h + 1, lefts = 5 + 2 * padding - w + 1;
    char seen[400] = {0};
    for (uint64_t s = 0; s < 40 * tops * lefts; s++) {
        unsigned char out[2 * 20 * 20];
        size_t found = SIZE_MAX;
        apply(out, &crop, s);
        for (size_t top = 0; top < tops && found == SIZE_MAX; top++)
            for (size_t left = 0; left < lefts && found == SIZE_MAX; left++) {
                bool same = true;
                for (size_t k = 0; same && k < h * w * 2; k++) {
                    size_t y = top + k / 2 / w, x = left + k / 2 % w;
                    bool inside = y >= padding && y < padding + 4 && x >= padding &&
                                  x < padding + 5;
                    unsigned char wanted =
                        inside ? at(image, 5, y - padding, x - padding, k % 2) : 0;
                    same = out[k] == wanted;
                }
                if (same)
                    found = top * lefts + left;
            }
        ck_assert_uint_ne(found, SIZE_MAX);
        seen[found] = 1;
    }
    /* With much padding several parts are all zero: those look alike. */
    if (padding < 3)
        for (size_t i = 0; i < tops * lefts; i++)
            ck_assert(seen[i]);
}

START_TEST(test_crop_gives_every_part_of_the_padded_image) {
    check_crop(0, 2, 3);
    check_crop(1, 0, 0);
    check_crop(2, 3, 4);
    check_crop(6, 2, 2);
    check_crop(0, 4, 5);
}
END_TEST

START_TEST(test_rotate_by_nothing_quarter_and_half_turns) {
    /* The angle is random: a tiny largest angle must leave the image as it is. */
    copse_augment rotate = {.kind = COPSE_AUGMENT_ROTATE, .amount = 1e-7};
    unsigned char out[40];
    apply(out, &rotate, 1);
    ck_assert_mem_eq(out, image, 40);
    /* Values stay within the image's, as bilinear weights are convex. */
    rotate.amount = 0.5;
    size_t changed = 0;
    for (uint64_t s = 0; s < 200; s++) {
        apply(out, &rotate, s);
        changed += memcmp(out, image, 40) != 0;
        for (size_t i = 0; i < 40; i++) {
            ck_assert_uint_ge(out[i], 20);
            ck_assert_uint_le(out[i], 20 + 39 * 5);
        }
    }
    ck_assert_uint_gt(changed, 190);
}
END_TEST

START_TEST(test_brightness_and_contrast_stay_in_their_range) {
    copse_augment brightness = {.kind = COPSE_AUGMENT_BRIGHTNESS, .amount = 0.2};
    copse_augment contrast = {.kind = COPSE_AUGMENT_CONTRAST, .amount = 0.5};
    double sum = 0;
    for (uint64_t s = 0; s < 500; s++) {
        unsigned char out[40];
        apply(out, &brightness, s);
        int by = out[20] - image[20];
        sum += by;
        ck_assert_int_le(abs(by), 51);
        for (size_t i = 0; i < 40; i++) {
            int wanted = image[i] + by;
            wanted = wanted < 0 ? 0 : wanted > 255 ? 255 : wanted;
            ck_assert_int_le(abs(out[i] - wanted), 1);
        }
        apply(out, &contrast, s);
        double in_spread = image[38] - image[0], spread = out[38] - out[0];
        ck_assert(spread >= 0.49 * in_spread && spread <= 1.51 * in_spread);
    }
    ck_assert(fabs(sum / 500) < 5);
}
END_TEST

START_TEST(test_cutout_blackens_one_square) {
    copse_augment cutout = {.kind = COPSE_AUGMENT_CUTOUT, .size = 3};
    size_t most = 0;
    for (uint64_t s = 0; s < 300; s++) {
        unsigned char out[40];
        size_t black = 0;
        apply(out, &cutout, s);
        for (size_t i = 0; i < 40; i++) {
            ck_assert(out[i] == 0 || out[i] == image[i]);
            black += out[i] == 0;
        }
        ck_assert_uint_ge(black, 2 * 4);
        most = black > most ? black : most;
    }
    ck_assert_uint_eq(most, 2 * 9);
}
END_TEST

START_TEST(test_mixup_shares_follow_beta) {
    static const double alphas[] = {0.2, 1, 4};
    for (size_t a = 0; a < 3; a++) {
        double sum = 0, squares = 0;
        const size_t n = 20000;
        for (uint64_t s = 0; s < n; s++) {
            copse__augment_key key = {7, 3, s, 0};
            double share = copse__mixup_share(alphas[a], &key);
            ck_assert(share >= 0 && share <= 1);
            sum += share;
            squares += (share - 0.5) * (share - 0.5);
            size_t partner = copse__mixup_partner(5, &key);
            ck_assert(partner >= 1 && partner <= 4);
        }
        ck_assert(fabs(sum / (double)n - 0.5) < 0.01);
        ck_assert(fabs(squares / (double)n - 0.25 / (2 * alphas[a] + 1)) < 0.004);
    }
}
END_TEST

START_TEST(test_augment_spec_refuses_what_cannot_work) {
    static const struct {
        copse_augment augment;
        copse_data_spec in;
    } bad[] = {
        {{.kind = COPSE_AUGMENT_FLIP_HORIZONTAL}, {COPSE_U8, 1, {5}}},
        {{.kind = COPSE_AUGMENT_FLIP_HORIZONTAL}, {COPSE_I32, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_CROP, .height = 6}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_CROP, .padding = SIZE_MAX / 2}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_BRIGHTNESS, .amount = 1.5}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_BRIGHTNESS, .amount = NAN}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_ROTATE}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_CUTOUT}, {COPSE_U8, 3, {5, 5, 1}}},
        {{.kind = COPSE_AUGMENT_MIXUP, .amount = -1}, {COPSE_U8, 3, {5, 5, 1}}},
    };
    copse_data_spec out;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ASSERT_FAILS(COPSE_CONFIG,
                     copse__augment_spec(&out, &bad[i].augment, &bad[i].in, &error));
    copse_augment crop = {.kind = COPSE_AUGMENT_CROP, .padding = 2, .height = 6};
    copse_data_spec in = {COPSE_U16, 3, {5, 7, 3}};
    ASSERT_OK(copse__augment_spec(&out, &crop, &in, &error));
    ck_assert_uint_eq(out.shape[0] * 100 + out.shape[1] * 10 + out.shape[2], 673);
}
END_TEST

/* ---- In a pipeline -------------------------------------------------------------------- */

static const copse_augment all[] = {
    {.kind = COPSE_AUGMENT_FLIP_HORIZONTAL},
    {.kind = COPSE_AUGMENT_FLIP_VERTICAL},
    {.kind = COPSE_AUGMENT_CROP, .padding = 4, .height = 10, .width = 14},
    {.kind = COPSE_AUGMENT_ROTATE, .amount = 0.1},
    {.kind = COPSE_AUGMENT_BRIGHTNESS, .amount = 0.2},
    {.kind = COPSE_AUGMENT_CONTRAST, .amount = 0.3},
    {.kind = COPSE_AUGMENT_CUTOUT, .size = 5},
    {.kind = COPSE_AUGMENT_MIXUP, .amount = 0.4},
};

/* Features, then labels, of two epochs in a row. */
static unsigned char *run(copse_dataset *set, size_t augment_count, size_t threads,
                          size_t replicas, uint64_t seed, size_t *bytes) {
    copse_pipeline_options options = {.batch = 7,
                                      .epochs = 2,
                                      .seed = seed,
                                      .shuffle = COPSE_SHUFFLE_FULL,
                                      .threads = threads,
                                      .replica_count = replicas,
                                      .augment = all,
                                      .augment_count = augment_count};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    size_t feature_bytes = copse_data_spec_bytes(copse_pipeline_get_features(p));
    size_t label_bytes = copse_data_spec_bytes(copse_pipeline_get_labels(p));
    unsigned char *out = malloc(60 * (feature_bytes + label_bytes)), *to = out;
    for (size_t ends = 0; ends < 2;) {
        const copse_batch *batch;
        ASSERT_OK(copse_pipeline_next(p, &batch, &error));
        if (!batch) {
            ends++;
            continue;
        }
        for (size_t r = 0; r < replicas; r++) {
            const copse_batch_part *part = &batch->parts[r];
            for (size_t i = 0; i < part->rows; i++) {
                memcpy(to, (const char *)part->features + i * feature_bytes,
                       feature_bytes);
                memcpy(to + feature_bytes, (const char *)part->labels + i * label_bytes,
                       label_bytes);
                to += feature_bytes + label_bytes;
            }
        }
        copse_pipeline_release(p, batch);
    }
    copse_pipeline_close(p);
    *bytes = (size_t)(to - out);
    ck_assert_uint_eq(*bytes, 60 * (feature_bytes + label_bytes));
    return out;
}

static copse_dataset *make_images(copse_dtype dtype) {
    copse_data_source source = {
        .format = COPSE_DATA_SYNTHETIC,
        .feature = {.dtype = dtype, .rank = 3, .shape = {8, 9, 3}},
        .class_count = 4,
        .count = 30,
        .seed = 1};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    return set;
}

START_TEST(test_augmented_pixels_do_not_depend_on_threads_or_replicas) {
    for (int real = 0; real < 2; real++) {
        copse_dataset *set = make_images(real ? COPSE_F32 : COPSE_U8);
        for (size_t count = 7; count <= 8; count++) { /* without and with mixup */
            size_t bytes, other_bytes;
            unsigned char *first = run(set, count, 1, 1, 5, &bytes);
            for (size_t threads = 1; threads <= 4; threads++)
                for (size_t replicas = 1; replicas <= 3; replicas++) {
                    unsigned char *other =
                        run(set, count, threads, replicas, 5, &other_bytes);
                    ck_assert_uint_eq(bytes, other_bytes);
                    ck_assert_mem_eq(first, other, bytes);
                    free(other);
                }
            unsigned char *other = run(set, count, 1, 1, 6, &other_bytes);
            ck_assert_mem_ne(first, other, bytes);
            ck_assert_mem_ne(first, first + bytes / 2, bytes / 2);
            free(other);
            free(first);
        }
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_mixup_labels_are_probabilities) {
    copse_dataset *set = make_images(COPSE_U8);
    copse_pipeline_options options = {
        .batch = 10, .epochs = 1, .augment = &all[7], .augment_count = 1};
    copse_pipeline *p;
    ASSERT_OK(copse_pipeline_open(&p, set, &options, &error));
    const copse_data_spec *labels = copse_pipeline_get_labels(p);
    ck_assert_int_eq(labels->dtype, COPSE_F32);
    ck_assert_uint_eq(labels->shape[0], 4);
    const copse_batch *batch;
    ASSERT_OK(copse_pipeline_next(p, &batch, &error));
    size_t mixed = 0;
    const float *values = batch->parts[0].labels;
    for (size_t i = 0; i < 10; i++) {
        float sum = 0;
        int positive = 0;
        for (size_t c = 0; c < 4; c++) {
            ck_assert(values[4 * i + c] >= 0);
            sum += values[4 * i + c];
            positive += values[4 * i + c] > 0;
        }
        ck_assert(fabsf(sum - 1) < 1e-6f);
        ck_assert_int_le(positive, 2);
        mixed += positive == 2;
    }
    ck_assert_uint_ge(mixed, 1);
    copse_pipeline_close(p);
    copse_augment wrong[2] = {all[7], all[0]};
    options.augment = wrong;
    options.augment_count = 2;
    ASSERT_FAILS(COPSE_CONFIG, copse_pipeline_open(&p, set, &options, &error));
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_augment");
    ADD_TEST(suite, test_flip_mirrors_half_of_the_samples);
    ADD_TEST(suite, test_crop_gives_every_part_of_the_padded_image);
    ADD_TEST(suite, test_rotate_by_nothing_quarter_and_half_turns);
    ADD_TEST(suite, test_brightness_and_contrast_stay_in_their_range);
    ADD_TEST(suite, test_cutout_blackens_one_square);
    ADD_TEST(suite, test_mixup_shares_follow_beta);
    ADD_TEST(suite, test_augment_spec_refuses_what_cannot_work);
    ADD_TEST(suite, test_augmented_pixels_do_not_depend_on_threads_or_replicas);
    ADD_TEST(suite, test_mixup_labels_are_probabilities);
    return run_suite(suite);
}
