/* SPDX-License-Identifier: Apache-2.0 */
/* Training on what augmentations make of samples: other sizes, probabilities instead of classes. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/run.h"

static copse_error error;

/* The samples are 8 x 8 x 1 in 4 classes. */
#define CLASSES 4
#define MIXUP "  augment: [random_flip: vertical, {mixup: 0.4}]\n"
#define CNN                                                                              \
    "model:\n"                                                                           \
    "  - conv2d: {filters: 4, kernel: 3, activation: relu}\n"                            \
    "  - flatten\n"                                                                      \
    "  - dense: {units: 4}\n"
#define TRAIN                                                                            \
    "train: {loss: sparse_categorical_crossentropy,\n"                                   \
    "  optimizer: {sgd: {learning_rate: 0.1, momentum: 0.9}},\n"                         \
    "  batch: 24, epochs: 3, hash_every: 1}\n"

static void fit(test_run *run, const char *yaml, size_t samples, size_t replicas,
                const double *weights) {
    test_run_open(run, yaml, samples, replicas, weights);
    test_run_start(run);
    ASSERT_OK(copse__trainer_fit(run->trainer, &error));
}

static uint64_t hash_of(test_run *run) {
    uint64_t hash;
    ASSERT_OK(copse__trainer_hash(run->trainer, &hash, &error));
    return hash;
}

/* 100 samples in batches of 24 leave a tail of 4, of which three replicas get 3, 1 and none. */
static void compare_with_one(const char *yaml) {
    static const double weights[] = {3, 1, 1};
    test_run one, many;
    fit(&one, yaml, 100, 1, NULL);
    fit(&many, yaml, 100, 3, weights);
    ck_assert_uint_eq(many.loss_count, one.loss_count);
    for (size_t i = 0; i < one.loss_count; i++)
        ck_assert_msg(fabs(one.losses[i] - many.losses[i]) <= 1e-4 * fabs(one.losses[i]),
                      "step %zu: loss %.9g and %.9g", i + 1, one.losses[i],
                      many.losses[i]);
    double first = 0, last = 0; /* epochs */
    for (size_t i = 0; i < 5; i++) {
        first += one.losses[i];
        last += one.losses[10 + i];
    }
    ck_assert_msg(last < first, "it does not learn: %g, then %g", first, last);
    hash_of(&many); /* fails where the replicas' parameters differ */
    copse__score score;
    ASSERT_OK(
        copse__trainer_evaluate(many.trainer, many.sets.test, "test", &score, &error));
    ck_assert_uint_eq(score.samples, 51);
    test_run_close(&one);
    test_run_close(&many);
}

START_TEST(test_mixup_uneven_replicas_learn_as_one) {
    compare_with_one(MIXUP CNN TRAIN);
}
END_TEST

/* All logits are 0, so that any mixture of classes has the loss log(4). */
START_TEST(test_mixup_probabilities_sum_to_one) {
    test_run run;
    fit(&run,
        MIXUP "model: [flatten, {dense: {units: 4, kernel_initializer: zeros}}]\n"
              "train: {loss: sparse_categorical_crossentropy, batch: 24, epochs: 1,\n"
              "  optimizer: {sgd: {learning_rate: 1.0e-30}}}\n",
        100, 2, NULL);
    ck_assert_uint_eq(run.loss_count, 5);
    for (size_t i = 0; i < run.loss_count; i++)
        ck_assert_double_eq_tol(run.losses[i], log(CLASSES), 1e-6);
    test_run_close(&run);
}
END_TEST

/* A network with more outputs than there are classes: the others have probability 0. */
START_TEST(test_mixup_more_outputs_than_classes) {
    test_run run;
    fit(&run, "  classes: 4\n" MIXUP "model: [flatten, {dense: {units: 7}}]\n" TRAIN, 100,
        2, NULL);
    ck_assert(run.losses[run.loss_count - 1] < run.losses[0]);
    test_run_close(&run);
}
END_TEST

START_TEST(test_mixup_probabilities_after_a_softmax) {
    compare_with_one(
        MIXUP "model: [flatten, {dense: {units: 4, activation: softmax}}]\n"
              "train: {loss: {sparse_categorical_crossentropy: {from_logits: false}},\n"
              "  optimizer: {sgd: {learning_rate: 0.05}}, batch: 24, epochs: 3}\n");
}
END_TEST

START_TEST(test_mixup_any_devices_give_the_same_bits) {
    uint64_t hashes[4];
    for (size_t replicas = 1; replicas <= 4; replicas++) {
        test_run run;
        fit(&run,
            MIXUP CNN
            "train: {loss: sparse_categorical_crossentropy, optimizer: adam, batch: 24,\n"
            "  epochs: 2, reproducible: devices, micro_shard: 5}\n",
            67, replicas, NULL);
        hashes[replicas - 1] = hash_of(&run);
        ck_assert_uint_eq(hashes[replicas - 1], hashes[0]);
        test_run_close(&run);
    }
}
END_TEST

START_TEST(test_mixup_interrupted_and_continued_gives_the_same_bits) {
    test_run a, b;
    fit(&a, MIXUP CNN TRAIN, 70, 2, NULL);
    test_run_open(&b, MIXUP CNN TRAIN, 70, 2, NULL);
    b.stop_after_steps = 4;
    test_run_start(&b);
    ASSERT_FAILS(COPSE_INTERRUPTED, copse__trainer_fit(b.trainer, &error));
    b.stop_after_steps = 0;
    ASSERT_OK(copse__trainer_fit(b.trainer, &error));
    ck_assert_uint_eq(hash_of(&a), hash_of(&b));
    test_run_close(&a);
    test_run_close(&b);
}
END_TEST

START_TEST(test_crop_uneven_replicas_learn_as_one) {
    compare_with_one("  augment: [random_crop: {height: 6, width: 7}]\n" CNN TRAIN);
}
END_TEST

static copse_status keep_rows(void *user, const float *values, size_t rows,
                              size_t columns, copse_error *err) {
    (void)err;
    float **at = user;
    memcpy(*at, values, rows * columns * sizeof *values);
    *at += rows * columns;
    return COPSE_OK;
}

/* The middle of another set's samples: rows 1 to 6 and columns 0 to 6 of 8 x 8. */
static copse_status read_middle(void *user, size_t index, void *features, void *labels,
                                copse_error *err) {
    unsigned char whole[8][8], *out = features;
    copse_status status = copse_dataset_read(user, index, whole, labels, err);
    for (size_t y = 0; y < 6; y++)
        memcpy(out + y * 7, &whole[y + 1][0], 7);
    return status;
}

static void copy_weights(copse__trainer *to, copse__trainer *from) {
    float values[1024];
    for (size_t i = 0; i < copse__trainer_state_count(from); i++) {
        copse__state_item item = copse__trainer_state_item(from, i);
        ck_assert_uint_le(item.elements, 1024);
        ASSERT_OK(copse__trainer_state_read(from, i, values, &error));
        ASSERT_OK(copse__trainer_state_write(to, i, values, &error));
    }
}

/* A network that was trained on crops sees the middle of what it is asked about. */
START_TEST(test_crop_is_of_the_middle_in_evaluation) {
    test_run run, other;
    fit(&run, "  augment: [random_crop: {height: 6, width: 7}]\n" CNN TRAIN, 100, 2,
        NULL);
    test_run_open(&other, CNN TRAIN, 100, 1, NULL);
    copse_data_callbacks middle = {.read = read_middle,
                                   .user = run.sets.test,
                                   .count = 51,
                                   .features = {COPSE_U8, 3, {6, 7, 1}},
                                   .labels = {.dtype = COPSE_I32},
                                   .has_labels = true,
                                   .classes = CLASSES};
    copse__datasets_close(&other.sets);
    ASSERT_OK(copse_dataset_from_callbacks(&other.sets.train, &middle, &error));
    ASSERT_OK(copse_dataset_from_callbacks(&other.sets.test, &middle, &error));
    test_run_start(&other);
    copy_weights(other.trainer, run.trainer);
    float a[51 * CLASSES], b[51 * CLASSES], *end_a = a, *end_b = b;
    ASSERT_OK(
        copse__trainer_predict(run.trainer, run.sets.test, keep_rows, &end_a, &error));
    ASSERT_OK(copse__trainer_predict(other.trainer, other.sets.test, keep_rows, &end_b,
                                     &error));
    ck_assert_int_eq(end_a - a, 51 * CLASSES);
    ck_assert_int_eq(end_b - b, 51 * CLASSES);
    for (size_t i = 0; i < 51 * CLASSES; i++)
        ck_assert_float_eq_tol(a[i], b[i], 1e-5f);
    test_run_close(&other);
    test_run_close(&run);
}
END_TEST

START_TEST(test_crop_that_does_not_fit_names_its_place) {
    test_run run;
    copse__graph *graph;
    test_run_open(&run, "  augment: [random_crop: {height: 9}]\n" CNN TRAIN, 24, 1, NULL);
    ASSERT_FAILS(COPSE_CONFIG, copse__trainer_build_graph(&graph, run.config, &run.sets,
                                                          24, true, &error));
    ck_assert_msg(strstr(error.place, "test.yaml:6:") != NULL, "%s", error.place);
    ck_assert_msg(strstr(error.text, "random_crop") != NULL, "%s", error.text);
    test_run_close(&run);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trainer_augment");
    ADD_TEST(suite, test_mixup_uneven_replicas_learn_as_one);
    ADD_TEST(suite, test_mixup_probabilities_sum_to_one);
    ADD_TEST(suite, test_mixup_more_outputs_than_classes);
    ADD_TEST(suite, test_mixup_probabilities_after_a_softmax);
    ADD_TEST(suite, test_mixup_any_devices_give_the_same_bits);
    ADD_TEST(suite, test_mixup_interrupted_and_continued_gives_the_same_bits);
    ADD_TEST(suite, test_crop_uneven_replicas_learn_as_one);
    ADD_TEST(suite, test_crop_is_of_the_middle_in_evaluation);
    ADD_TEST(suite, test_crop_that_does_not_fit_names_its_place);
    return run_suite(suite);
}
