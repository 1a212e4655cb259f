/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <math.h>

#include "base/mem.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "train/datasets.h"
#include "train/import.h"
#include "train/import_trainer.h"

static copse_error error;
static char path[600];
static char folder[600];

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", make_folder());
    snprintf(path, sizeof path, "%s", in_folder(folder, "w.safetensors"));
}
static void teardown(void) {
    remove_folder(folder);
}

/* A convolution of 2 to 3 channels, a batch normalisation of 3, a matrix of 4 to 5. */
static const copse__import_target targets[] = {
    {"conv/kernel", 4, {1, 2, 2, 3}, {0}}, {"conv/bias", 1, {3}, {0}},
    {"norm/gamma", 1, {3}, {0}},           {"norm/beta", 1, {3}, {0}},
    {"out/kernel", 2, {4, 5}, {0}},        {"norm/moving_mean", 1, {3}, {0}},
    {"norm/moving_variance", 1, {3}, {0}}};
enum { TARGETS = COPSE__COUNT(targets) };

static float ramp[64];

/* Arrays by name and shape, filled with 0, 1, 2 … */
static void write_arrays(const copse__safetensor *tensors, size_t count) {
    copse__safetensor filled[16];
    for (size_t i = 0; i < COPSE__COUNT(ramp); i++)
        ramp[i] = (float)i;
    for (size_t i = 0; i < count; i++) {
        filled[i] = tensors[i];
        filled[i].data = ramp;
    }
    ASSERT_OK(copse__safetensors_write(path, filled, count, NULL, 0, &error));
}

static copse_status match(copse__config_layout layout, bool partial,
                          copse__import_match matches[TARGETS],
                          copse__weights_file **file) {
    ASSERT_OK(copse__weights_open(file, path, &error));
    return copse__import_match_all(*file, path, targets, TARGETS, layout, partial,
                                   matches, &error);
}

static void assert_names(const copse__safetensor *tensors, size_t count,
                         const char *const names[TARGETS]) {
    copse__import_match matches[TARGETS];
    copse__weights_file *file;
    write_arrays(tensors, count);
    ASSERT_OK(match(COPSE__LAYOUT_AUTO, false, matches, &file));
    for (size_t t = 0; t < TARGETS; t++)
        ck_assert_str_eq(copse__weights_get(file, matches[t].item).name, names[t]);
    copse__weights_close(file);
}

static void assert_fails(const copse__safetensor *tensors, size_t count, bool partial,
                         const char *says) {
    copse__import_match matches[TARGETS];
    copse__weights_file *file;
    write_arrays(tensors, count);
    ASSERT_FAILS(COPSE_CONFIG, match(COPSE__LAYOUT_AUTO, partial, matches, &file));
    ck_assert_str_eq(error.place, path);
    ck_assert_msg(strstr(error.text, says) != NULL, "%s", error.text);
    copse__weights_close(file);
}

START_TEST(test_keras_names_with_and_without_a_model) {
    static const copse__safetensor tensors[] = {
        {"m/conv/kernel:0", COPSE_F32, 4, {1, 2, 2, 3}, NULL},
        {"m/conv/bias:0", COPSE_F32, 1, {3}, NULL},
        {"norm/gamma", COPSE_F32, 1, {3}, NULL},
        {"norm/beta", COPSE_F32, 1, {3}, NULL},
        {"norm/moving_mean", COPSE_F32, 1, {3}, NULL},
        {"norm/moving_variance", COPSE_F32, 1, {3}, NULL},
        {"out/kernel", COPSE_F32, 2, {4, 5}, NULL},
        {"m/out/kernel", COPSE_F32, 2, {4, 5}, NULL}};
    static const char *const names[] = {
        "m/conv/kernel:0", "m/conv/bias:0",    "norm/gamma",          "norm/beta",
        "out/kernel",      "norm/moving_mean", "norm/moving_variance"};
    assert_names(tensors, COPSE__COUNT(tensors), names);
    assert_fails(tensors, 6, false, "nothing for 'out/kernel' (4, 5)");
    static const copse__safetensor twice[] = {
        {"a/conv/kernel", COPSE_F32, 4, {1, 2, 2, 3}, NULL},
        {"b/conv/kernel", COPSE_F32, 4, {1, 2, 2, 3}, NULL}};
    assert_fails(twice, 2, true, "both 'a/conv/kernel' and 'b/conv/kernel'");
    static const copse__safetensor shape[] = {
        {"conv/kernel", COPSE_F32, 4, {3, 2, 1, 2}, NULL}};
    assert_fails(shape, 1, true,
                 "of shape (3, 2, 1, 2) there, but the model wants (1, 2, 2, 3)");
}
END_TEST

#define TORCH(conv, norm, out)                                                           \
    {conv ".weight", COPSE_F32, 4, {3, 2, 1, 2}, NULL},                                  \
        {conv ".bias", COPSE_F32, 1, {3}, NULL},                                         \
        {norm ".weight", COPSE_F32, 1, {3}, NULL},                                       \
        {norm ".bias", COPSE_F32, 1, {3}, NULL},                                         \
        {norm ".running_mean", COPSE_F32, 1, {3}, NULL},                                 \
        {norm ".running_var", COPSE_F32, 1, {3}, NULL},                                  \
        {norm ".num_batches_tracked", COPSE_I64, 0, {0}, NULL}, {                        \
        out ".weight", COPSE_F32, 2, {5, 4}, NULL                                        \
    }

START_TEST(test_pytorch_modules_by_order_name_or_shape) {
    static const copse__safetensor order[] = {TORCH("net.2", "net.3", "net.10")};
    static const char *const order_names[] = {
        "net.2.weight",  "net.2.bias",         "net.3.weight",     "net.3.bias",
        "net.10.weight", "net.3.running_mean", "net.3.running_var"};
    assert_names(order, COPSE__COUNT(order), order_names);
    static const copse__safetensor named[] = {TORCH("z.conv", "norm", "a.out")};
    static const char *const named_names[] = {
        "z.conv.weight", "z.conv.bias",       "norm.weight",     "norm.bias",
        "a.out.weight",  "norm.running_mean", "norm.running_var"};
    assert_names(named, COPSE__COUNT(named), named_names);
    static const copse__safetensor shaped[] = {TORCH("c", "b", "a")};
    static const char *const shaped_names[] = {
        "c.weight", "c.bias",         "b.weight",     "b.bias",
        "a.weight", "b.running_mean", "b.running_var"};
    assert_names(shaped, COPSE__COUNT(shaped), shaped_names);
}
END_TEST

START_TEST(test_pytorch_ambiguous_missing_and_partial) {
    static const copse__safetensor both[] = {TORCH("c", "b", "a"),
                                             {"x.weight", COPSE_F32, 2, {5, 4}, NULL}};
    assert_fails(both, COPSE__COUNT(both), false, "'a' and 'x' both fit the layer 'out'");
    static const copse__safetensor some[] = {
        {"c.weight", COPSE_F32, 4, {3, 2, 1, 2}, NULL},
        {"c.bias", COPSE_F32, 1, {3}, NULL}};
    assert_fails(some, 2, false, "nothing for 'norm/gamma'");
    static const copse__safetensor none[] = {{"c.weight", COPSE_F32, 2, {7, 9}, NULL}};
    assert_fails(none, 1, true, "none of its 1 arrays fits");
    copse__import_match matches[TARGETS];
    copse__weights_file *file;
    write_arrays(some, 2);
    ASSERT_OK(match(COPSE__LAYOUT_AUTO, true, matches, &file));
    ck_assert_uint_ne(matches[0].item, COPSE__NOT_IMPORTED);
    ck_assert_uint_eq(matches[4].item, COPSE__NOT_IMPORTED);
    copse__weights_close(file);
}
END_TEST

START_TEST(test_read_moves_the_elements) {
    static const copse__safetensor tensors[] = {TORCH("2", "3", "10")};
    copse__import_match matches[TARGETS];
    copse__weights_file *file;
    float out[20];
    write_arrays(tensors, COPSE__COUNT(tensors));
    ASSERT_OK(match(COPSE__LAYOUT_AUTO, false, matches, &file));
    ASSERT_OK(copse__import_read(file, &targets[0], &matches[0], out, &error));
    for (size_t w = 0; w < 2; w++)
        for (size_t i = 0; i < 2; i++)
            for (size_t o = 0; o < 3; o++)
                ck_assert_float_eq(out[(w * 2 + i) * 3 + o],
                                   (float)((o * 2 + i) * 2 + w));
    ASSERT_OK(copse__import_read(file, &targets[4], &matches[4], out, &error));
    for (size_t i = 0; i < 4; i++)
        for (size_t o = 0; o < 5; o++)
            ck_assert_float_eq(out[i * 5 + o], (float)(o * 4 + i));
    copse__import_target flattened =
        targets[4]; /* an image of 1 x 2 pixels, 2 channels */
    flattened.image[0] = 1;
    flattened.image[1] = flattened.image[2] = 2;
    ASSERT_OK(copse__import_read(file, &flattened, &matches[4], out, &error));
    for (size_t x = 0; x < 2; x++)
        for (size_t c = 0; c < 2; c++)
            for (size_t o = 0; o < 5; o++)
                ck_assert_float_eq(out[(x * 2 + c) * 5 + o], (float)(o * 4 + c * 2 + x));
    copse__weights_close(file);
}
END_TEST

START_TEST(test_open_damaged_or_missing_is_an_error) {
    copse__weights_file *file;
    ASSERT_FAILS(COPSE_IO, copse__weights_open(&file, in_folder(folder, "no"), &error));
    write_file(path, "PK\3\4 not an archive", 19);
    ASSERT_FAILS(COPSE_FORMAT, copse__weights_open(&file, path, &error));
    write_file(path, "abc", 3);
    ASSERT_FAILS(COPSE_FORMAT, copse__weights_open(&file, path, &error));
    ck_assert_ptr_null(file);
}
END_TEST

/* ---- A whole network, with numbers that tests/data/make_import.py computed ---- */

static const char network[] =
    "data: {format: npy, train: {features: tests/data/import-x.npy, labels: "
    "tests/data/import-y.npy}, test: {features: tests/data/import-x.npy, labels: "
    "tests/data/import-y.npy}}\n"
    "model:\n"
    "  - conv2d: {filters: 3, kernel: 3, activation: relu}\n"
    "  - max_pool2d: {pool: 2}\n"
    "  - flatten\n"
    "  - dropout: {rate: 0.5}\n"
    "  - dense: {units: 5, activation: relu}\n"
    "  - dense: {units: 4}\n"
    "train: {loss: sparse_categorical_crossentropy, batch: 4}\n";

typedef struct rows {
    float values[24];
    size_t count;
} rows;

static copse_status take_rows(void *user, const float *values, size_t row_count,
                              size_t columns, copse_error *err) {
    rows *all = user;
    (void)err;
    ck_assert_uint_le(all->count + row_count * columns, 24);
    memcpy(all->values + all->count, values, row_count * columns * sizeof *values);
    all->count += row_count * columns;
    return COPSE_OK;
}

static void predict_with(const char *file, rows *out) {
    copse__config *config;
    copse__datasets sets;
    copse__trainer *trainer;
    copse__device_choice choice = {.api = COPSE__API_HOST, .part_count = 1, .weight = 1};
    snprintf(choice.label, sizeof choice.label, "host");
    copse__trainer_options options = {.choices = &choice, .choice_count = 1};
    ASSERT_OK(copse__config_parse(&config, network, strlen(network), "import.yaml", NULL,
                                  0, &error));
    ASSERT_OK(copse__datasets_open(&sets, config, false, &error));
    ASSERT_OK(copse__trainer_open(&trainer, config, &sets, &options, &error));
    const copse__config_init init = {.file = (char *)(size_t)file};
    ASSERT_OK(copse__import_into(trainer, &init, &error));
    *out = (rows){.count = 0};
    ASSERT_OK(copse__trainer_predict(trainer, sets.test, take_rows, out, &error));
    ck_assert_uint_eq(out->count, 24);
    copse__trainer_close(trainer);
    copse__datasets_close(&sets);
    copse__config_free(config);
}

static void read_logits(float out[24]) {
    copse__input *input;
    copse__npy header;
    unsigned char *data;
    ASSERT_OK(copse__input_open(&input, "tests/data/import-logits.npy",
                                COPSE__PACKING_PLAIN, &error));
    ASSERT_OK(copse__npy_read_header(&header, input, &error));
    ASSERT_OK(copse__npy_read_data(&data, &header, input, &error));
    ck_assert_uint_eq(header.bytes, 24 * sizeof(float));
    memcpy(out, data, 24 * sizeof(float));
    free(data);
    copse__input_close(input);
}

START_TEST(test_networks_of_pytorch_and_keras_predict_the_same) {
    float wanted[24];
    rows pytorch, keras;
    read_logits(wanted);
    predict_with("tests/data/import-pytorch.safetensors", &pytorch);
    predict_with("tests/data/import-keras.npz", &keras);
    for (size_t i = 0; i < 24; i++) {
        ck_assert_float_eq_tol(pytorch.values[i], wanted[i], 1e-5f);
        ck_assert_float_eq(keras.values[i], pytorch.values[i]);
    }
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("import");
    ADD(test_keras_names_with_and_without_a_model);
    ADD(test_pytorch_modules_by_order_name_or_shape);
    ADD(test_pytorch_ambiguous_missing_and_partial);
    ADD(test_read_moves_the_elements);
    ADD(test_open_damaged_or_missing_is_an_error);
    ADD(test_networks_of_pytorch_and_keras_predict_the_same);
    return run_suite(suite);
}
