/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "train/config.h"

static copse_error error;

#define HEAD "data: {format: idx, train: {images: a.gz, labels: b.gz}}\n"
#define MODEL "model: [flatten, dense: {units: 10}]\n"
#define TRAIN "train: {loss: sparse_categorical_crossentropy}\n"
#define SMALL HEAD MODEL TRAIN

static copse__config *parse(const char *text, const char *const *overrides,
                            size_t count) {
    copse__config *config;
    ASSERT_OK(copse__config_parse(&config, text, strlen(text), "/tmp/small.yaml",
                                  overrides, count, &error));
    return config;
}

static copse__config *parse_with(const char *text, const char *override) {
    return parse(text, &override, 1);
}

static void assert_rewrites(copse__config *c) {
    copse__text first = {0}, second = {0};
    copse__config *again;
    ASSERT_OK(copse__config_write(c, &first, &error));
    ASSERT_OK(copse__config_parse(&again, first.data, first.length, "/other.yaml", NULL,
                                  0, &error));
    ASSERT_OK(copse__config_write(again, &second, &error));
    ck_assert_str_eq(first.data, second.data);
    copse__config_free(again);
    copse__text_free(&first);
    copse__text_free(&second);
}

START_TEST(test_defaults_are_those_of_keras) {
    copse__config *c = parse(SMALL, NULL, 0);
    ck_assert_int_eq(c->data.format, COPSE_DATA_IDX);
    ck_assert_uint_eq(c->data.train.path_count, 1);
    ck_assert_str_eq(c->data.train.paths[0], "/tmp/a.gz");
    ck_assert_str_eq(c->data.train.label_paths[0], "/tmp/b.gz");
    ck_assert_uint_eq(c->data.test.path_count, 0);
    ck_assert_double_eq(c->data.scale, 1);
    ck_assert_int_eq(c->data.shuffle, COPSE_SHUFFLE_FULL);
    ck_assert_str_eq(c->data.cache, "none");
    ck_assert_uint_eq(c->data.prefetch, 2);
    ck_assert(!c->data.drop_remainder);
    ck_assert_int_eq(c->train.loss, COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY);
    ck_assert(c->train.from_logits);
    ck_assert_int_eq(c->train.optimizer.kind, COPSE__OPTIMIZER_RMSPROP);
    ck_assert_double_eq(c->train.optimizer.rho, 0.9);
    ck_assert_double_eq(c->train.optimizer.learning_rate.initial, 0.001);
    ck_assert_uint_eq(c->train.batch, 32);
    ck_assert_uint_eq(c->train.epochs, 1);
    ck_assert_uint_eq(c->train.steps, 0);
    ck_assert(c->train.validate);
    ck_assert_uint_eq(c->train.validate_batch, 32);
    ck_assert_str_eq(c->devices.select, "");
    ck_assert_int_eq(c->devices.shards, COPSE__SHARDS_MEASURED);
    ck_assert_double_eq(c->devices.stall_seconds, 60);
    ck_assert_uint_eq(c->train.micro_shard, 32);
    ck_assert_uint_eq(c->train.accumulate, 1);
    ck_assert(c->checkpoint.enabled);
    ck_assert_uint_eq(c->checkpoint.every_epochs, 1);
    ck_assert_uint_eq(c->checkpoint.keep, 3);
    ck_assert_ptr_null(c->checkpoint.best);
    ck_assert(c->log.jsonl && !c->log.tensorboard);
    ck_assert_ptr_null(c->init.file);
    copse__config_free(c);
}
END_TEST

START_TEST(test_optimizers_have_defaults_of_their_own) {
    copse__config *c = parse_with(SMALL, "train.optimizer=adam");
    ck_assert_int_eq(c->train.optimizer.kind, COPSE__OPTIMIZER_ADAM);
    ck_assert_double_eq(c->train.optimizer.beta_1, 0.9);
    ck_assert_double_eq(c->train.optimizer.beta_2, 0.999);
    ck_assert_double_eq(c->train.optimizer.epsilon, 1e-7);
    ck_assert_double_eq(c->train.optimizer.learning_rate.initial, 0.001);
    copse__config_free(c);
    c = parse_with(SMALL, "train.optimizer={sgd: {momentum: 0.9, nesterov: true}}");
    ck_assert_int_eq(c->train.optimizer.kind, COPSE__OPTIMIZER_SGD);
    ck_assert_double_eq(c->train.optimizer.learning_rate.initial, 0.01);
    ck_assert_double_eq(c->train.optimizer.momentum, 0.9);
    ck_assert(c->train.optimizer.nesterov);
    copse__config_free(c);
    c = parse_with(SMALL, "train.optimizer={adamw: }");
    ck_assert_int_eq(c->train.optimizer.kind, COPSE__OPTIMIZER_ADAMW);
    ck_assert_double_eq(c->train.optimizer.weight_decay, 0.004);
    copse__config_free(c);
}
END_TEST

START_TEST(test_layers_mixed_list_keeps_kinds_names_inputs_and_places) {
    copse__config *c = parse(
        HEAD "model:\n"
             "  - conv2d: {filters: 8, kernel: [3, 5], padding: same, name: a}\n"
             "  - flatten\n"
             "  - add: {inputs: [a, b_1]}\n"
             "  - dense: {units: 10, use_bias: false, inputs: a, note: '3', x: }\n" TRAIN,
        NULL, 0);
    ck_assert_uint_eq(c->layer_count, 4);
    const copse__layer_spec *conv = &c->layers[0];
    ck_assert_str_eq(conv->kind, "conv2d");
    ck_assert_str_eq(conv->name, "a");
    ck_assert_str_eq(conv->place, "/tmp/small.yaml:3:5");
    ck_assert_uint_eq(conv->arg_count, 3);
    ck_assert_int_eq(conv->args[0].value.kind, COPSE__VALUE_NUMBER);
    ck_assert_double_eq(conv->args[0].value.number, 8);
    ck_assert_int_eq(conv->args[1].value.kind, COPSE__VALUE_NUMBERS);
    ck_assert_uint_eq(conv->args[1].value.count, 2);
    ck_assert_double_eq(conv->args[1].value.numbers[1], 5);
    ck_assert_str_eq(conv->args[1].place, "/tmp/small.yaml:3:26");
    ck_assert_str_eq(conv->args[2].value.text, "same");
    ck_assert_str_eq(c->layers[1].kind, "flatten");
    ck_assert_uint_eq(c->layers[1].arg_count, 0);
    ck_assert_uint_eq(c->layers[2].input_count, 2);
    ck_assert_str_eq(c->layers[2].inputs[1], "b_1");
    const copse__layer_spec *dense = &c->layers[3];
    ck_assert_uint_eq(dense->input_count, 1);
    ck_assert_int_eq(dense->args[1].value.kind, COPSE__VALUE_BOOL);
    ck_assert_int_eq(dense->args[2].value.kind, COPSE__VALUE_TEXT);
    ck_assert_int_eq(dense->args[3].value.kind, COPSE__VALUE_NULL);
    copse__config_free(c);
}
END_TEST

START_TEST(test_overrides_reach_keys_items_and_missing_sections) {
    const char *const overrides[] = {
        "train.epochs=3",
        "model.0.flatten.name=flat",
        "model.1.dense.units=7",
        "log.tensorboard=true",
        "devices.select=[gpu, '0:1*2']",
        "train.loss.sparse_categorical_crossentropy.from_logits=false",
        "train.epochs=4",
        "data.augment=[random_flip: horizontal, random_crop: {padding: 4}]",
        "checkpoint={every: {minutes: 2.5}, best: val_loss}"};
    copse__config *c = parse(SMALL, overrides, COPSE__COUNT(overrides));
    ck_assert_uint_eq(c->train.epochs, 4);
    ck_assert_str_eq(c->layers[0].kind, "flatten");
    ck_assert_str_eq(c->layers[0].name, "flat");
    ck_assert_double_eq(c->layers[1].args[0].value.number, 7);
    ck_assert_str_eq(c->layers[1].args[0].place, "--set model.1.dense.units=7");
    ck_assert(c->log.tensorboard);
    ck_assert_str_eq(c->devices.select, "gpu,0:1*2");
    ck_assert(!c->train.from_logits);
    ck_assert_uint_eq(c->data.augment_count, 2);
    ck_assert_str_eq(c->data.augment[0].args[0].key, "");
    ck_assert_str_eq(c->data.augment[0].args[0].value.text, "horizontal");
    ck_assert_str_eq(c->data.augment[1].args[0].key, "padding");
    ck_assert_uint_eq(c->checkpoint.every_epochs, 0);
    ck_assert_double_eq(c->checkpoint.every_minutes, 2.5);
    ck_assert_str_eq(c->checkpoint.best, "val_loss");
    copse__config_free(c);
}
END_TEST

START_TEST(test_paths_start_at_the_file_or_for_an_override_at_the_working_folder) {
    const char *const overrides[] = {"data.test={images: t.gz, labels: /x/u.gz}",
                                     "data.cache=c.bin", "init=w.safetensors"};
    char here[4096], wanted[5000];
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    copse__config *c = parse(SMALL, overrides, COPSE__COUNT(overrides));
    snprintf(wanted, sizeof wanted, "%s/t.gz", here);
    ck_assert_str_eq(c->data.test.paths[0], wanted);
    ck_assert_str_eq(c->data.test.label_paths[0], "/x/u.gz");
    snprintf(wanted, sizeof wanted, "%s/c.bin", here);
    ck_assert_str_eq(c->data.cache, wanted);
    snprintf(wanted, sizeof wanted, "%s/w.safetensors", here);
    ck_assert_str_eq(c->init.file, wanted);
    copse__config_free(c);
}
END_TEST

START_TEST(test_data_source_is_what_the_reader_takes) {
    copse__config *c = parse(
        "data: {format: npy, train: {features: [a.npz, b.npz], label_name: y}}\n" MODEL
            TRAIN,
        NULL, 0);
    copse_data_source source = copse__config_data_source(c, &c->data.train);
    ck_assert_int_eq(source.format, COPSE_DATA_NPY);
    ck_assert_uint_eq(source.path_count, 2);
    ck_assert_str_eq(source.paths[1], "/tmp/b.npz");
    ck_assert_str_eq(source.label_name, "y");
    ck_assert_ptr_null(source.feature_name);
    ck_assert_uint_eq(source.label_path_count, 0);
    copse__config_free(c);
}
END_TEST

START_TEST(test_data_source_of_each_format) {
    copse__config *c =
        parse("data: {format: csv, train: t.csv, csv: {label: y, columns: [a, b], "
              "header: false, delimiter: ';', shape: [1, 2]}}\n" MODEL TRAIN,
              NULL, 0);
    copse_data_source source = copse__config_data_source(c, &c->data.train);
    ck_assert_str_eq(source.label_name, "y");
    ck_assert_uint_eq(source.column_count, 2);
    ck_assert_str_eq(source.columns[1], "b");
    ck_assert(source.without_header);
    ck_assert_int_eq(source.delimiter, ';');
    ck_assert_uint_eq(source.feature.rank, 2);
    ck_assert_uint_eq(source.feature.shape[1], 2);
    assert_rewrites(c);
    copse__config_free(c);
    c = parse("data: {format: text, train: a.txt, text: {sequence_length: 8, tokens: "
              "bytes}}\n" MODEL TRAIN,
              NULL, 0);
    source = copse__config_data_source(c, &c->data.train);
    ck_assert_uint_eq(source.sequence_length, 8);
    ck_assert(source.by_bytes);
    assert_rewrites(c);
    copse__config_free(c);
    c = parse(
        "data: {format: folder, train: {folder: pets}, class_names: [cat, dog], image: "
        "{height: 32, width: 48, resize: crop}, on_error: skip}\n" MODEL TRAIN,
        NULL, 0);
    source = copse__config_data_source(c, &c->data.train);
    ck_assert_str_eq(source.paths[0], "/tmp/pets");
    ck_assert_uint_eq(source.image.width, 48);
    ck_assert_uint_eq(source.image.channels, 3);
    ck_assert_int_eq(source.image.resize, COPSE_RESIZE_CROP);
    ck_assert_uint_eq(source.class_count, 2);
    ck_assert(source.skip_errors);
    assert_rewrites(c);
    copse__config_free(c);
    c = parse("data: {format: tfrecord, train: 'x-*', tfrecord: {feature: f, label: l, "
              "encoding: "
              "raw, dtype: u8, shape: [4, 4, 1], label_dtype: i64}}\n" MODEL TRAIN,
              NULL, 0);
    source = copse__config_data_source(c, &c->data.train);
    ck_assert_int_eq(source.feature.encoding, COPSE_ENCODING_RAW);
    ck_assert_int_eq(source.feature.dtype, COPSE_U8);
    ck_assert_uint_eq(source.feature.rank, 3);
    ck_assert_int_eq(source.label.dtype, COPSE_I64);
    assert_rewrites(c);
    copse__config_free(c);
}
END_TEST

START_TEST(test_synthetic_samples_open) {
    copse__config *c = parse("data: {format: synthetic, train: {count: 50, seed: 3}, "
                             "synthetic: {shape: [2, 3], "
                             "dtype: u8, classes: 4}}\n" MODEL TRAIN,
                             NULL, 0);
    ck_assert(c->data.train.given && !c->data.test.given);
    copse_data_source source = copse__config_data_source(c, &c->data.train);
    copse_dataset *dataset;
    ASSERT_OK(copse_dataset_open(&dataset, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(dataset), 50);
    ck_assert_uint_eq(copse_dataset_classes(dataset), 4);
    ck_assert_uint_eq(copse_dataset_get_features(dataset)->shape[1], 3);
    copse_dataset_close(dataset);
    assert_rewrites(c);
    copse__config_free(c);
}
END_TEST

START_TEST(test_shuffle_seed_is_the_run_s_unless_given) {
    copse__config *c = parse_with(SMALL, "train.seed=18446744073709551615");
    ck_assert_uint_eq(c->data.shuffle_seed, UINT64_MAX);
    copse__config_free(c);
    c = parse_with(SMALL, "data.shuffle={seed: 5, buffer: 100}");
    ck_assert_int_eq(c->data.shuffle, COPSE_SHUFFLE_BUFFER);
    ck_assert_uint_eq(c->data.shuffle_buffer, 100);
    ck_assert_uint_eq(c->data.shuffle_seed, 5);
    copse__config_free(c);
    c = parse_with(SMALL, "data.shuffle=false");
    ck_assert_int_eq(c->data.shuffle, COPSE_SHUFFLE_NONE);
    copse__config_free(c);
}
END_TEST

START_TEST(test_digits_example_opens_its_data) {
    copse__config *c;
    copse_dataset *dataset;
    ASSERT_OK(copse__config_load(&c, "examples/digits.yaml", NULL, 0, &error));
    copse_data_source source = copse__config_data_source(c, &c->data.train);
    ASSERT_OK(copse_dataset_open(&dataset, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(dataset), 1437);
    copse_dataset_close(dataset);
    copse__config_free(c);
}
END_TEST

START_TEST(test_write_examples_load_back_to_the_same) {
    glob_t found;
    ck_assert_int_eq(glob("examples/*.yaml", 0, NULL, &found), 0);
    ck_assert_uint_ge(found.gl_pathc, 5);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        copse__config *c;
        ASSERT_OK(copse__config_load(&c, found.gl_pathv[i], NULL, 0, &error));
        assert_rewrites(c);
        copse__config_free(c);
    }
    globfree(&found);
}
END_TEST

START_TEST(test_write_every_kind_of_value_loads_back_to_the_same) {
    static const char *const overrides[] = {
        "data.train={images: ['a: \"b\\n', \"tab\\there\\b\\e\\x7f\", '#x'], labels: "
        "[1x, '2', "
        "'null']}",
        "data.validation_split=0.1",
        "data.shuffle={buffer: 7}",
        "data.augment=[random_flip: horizontal, noise, crop: {size: [2, 2.5]}]",
        "model.0={conv2d: {a: null, b: true, c: 'true', d: [], e: 1e-3, f: 'x: y', "
        "inputs: q}}",
        "train.loss=mean_squared_error",
        "train.optimizer={rmsprop: {momentum: 0.5, centered: true, learning_rate: "
        "{piecewise_constant: {boundaries: [10, 20], values: [0.1, 0.01, 0.001]}}}}",
        "train.validation=false",
        "train.steps=12",
        "checkpoint=false",
        "log.tensorboard={update_freq: 10, histogram_freq: 1}",
        "devices={select: 'name~=\"é\"', shards: equal}",
        "init={file: /w.npz, partial: true}"};
    copse__config *c = parse(SMALL, overrides, COPSE__COUNT(overrides));
    ck_assert_str_eq(c->data.train.paths[0], c->data.train.paths[0]);
    ck_assert_uint_eq(c->data.train.path_count, 3);
    ck_assert(!c->train.validate && !c->checkpoint.enabled);
    assert_rewrites(c);
    copse__config_free(c);
}
END_TEST

static void hash_with(char out[33], const char *override) {
    copse__config *c = parse_with(SMALL, override);
    ASSERT_OK(copse__config_hash(c, out, &error));
    copse__config_free(c);
}

START_TEST(test_hash_is_of_what_fixes_the_numbers) {
    static const char *const same[] = {
        "train.epochs=9",         "train.steps=3",
        "train.validation=false", "log=",
        "checkpoint=false",       "devices.select=cpu",
        "train.batch=32",         "data.train={images: x, labels: y}",
        "data.cache=memory",      "train.hash_every=0"};
    static const char *const other[] = {"train.batch=33",
                                        "train.seed=1",
                                        "train.optimizer=adam",
                                        "data.scale=2",
                                        "data.shuffle=false",
                                        "model.1.dense.units=11",
                                        "data.augment=[noise]",
                                        "train.loss=mean_squared_error",
                                        "train.optimizer.rmsprop.learning_rate=0.1",
                                        "train.precision=mixed_float16"};
    char plain[33], hash[33];
    hash_with(plain, "train.epochs=1");
    ck_assert_uint_eq(strlen(plain), 32);
    for (size_t i = 0; i < COPSE__COUNT(same); i++) {
        hash_with(hash, same[i]);
        ck_assert_msg(strcmp(hash, plain) == 0, "%s changes it", same[i]);
    }
    for (size_t i = 0; i < COPSE__COUNT(other); i++) {
        hash_with(hash, other[i]);
        ck_assert_msg(strcmp(hash, plain) != 0, "%s does not change it", other[i]);
    }
}
END_TEST

static double rate(const char *schedule, uint64_t step) {
    char override[256];
    snprintf(override, sizeof override, "train.optimizer={adam: {learning_rate: %s}}",
             schedule);
    copse__config *c = parse_with(SMALL, override);
    double value = copse__config_learning_rate(&c->train.optimizer.learning_rate, step);
    copse__config_free(c);
    return value;
}

START_TEST(test_schedules_follow_keras) {
    ck_assert_double_eq(rate("0.5", 1000000), 0.5);
    const char *cosine =
        "{cosine_decay: {initial_learning_rate: 0.1, decay_steps: 100, alpha: 0.1, "
        "warmup_steps: 10}}";
    ck_assert_double_eq(rate(cosine, 0), 0);
    ck_assert_double_eq_tol(rate(cosine, 5), 0.05, 1e-15);
    ck_assert_double_eq_tol(rate(cosine, 10), 0.1, 1e-15);
    ck_assert_double_eq_tol(rate(cosine, 60), 0.1 * (0.9 * 0.5 + 0.1), 1e-15);
    ck_assert_double_eq_tol(rate(cosine, 35), 0.1 * (0.9 * 0.8535533905932737 + 0.1),
                            1e-15);
    ck_assert_double_eq_tol(rate(cosine, 110), 0.01, 1e-15);
    ck_assert_double_eq_tol(rate(cosine, 5000), 0.01, 1e-15);
    const char *stairs = "{exponential_decay: {initial_learning_rate: 1, decay_steps: "
                         "10, decay_rate: 0.5, "
                         "staircase: true}}";
    ck_assert_double_eq(rate(stairs, 9), 1);
    ck_assert_double_eq(rate(stairs, 10), 0.5);
    ck_assert_double_eq(rate(stairs, 25), 0.25);
    const char *smooth = "{exponential_decay: {initial_learning_rate: 1, decay_steps: "
                         "10, decay_rate: 0.25}}";
    ck_assert_double_eq_tol(rate(smooth, 5), 0.5, 1e-15);
    const char *pieces =
        "{piecewise_constant: {boundaries: [10, 20], values: [3, 2, 1]}}";
    ck_assert_double_eq(rate(pieces, 10), 3);
    ck_assert_double_eq(rate(pieces, 11), 2);
    ck_assert_double_eq(rate(pieces, 20), 2);
    ck_assert_double_eq(rate(pieces, 21), 1);
    ck_assert_double_eq(rate("{constant: {learning_rate: 2, warmup_steps: 4}}", 1), 0.5);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config");
    ADD_TEST(suite, test_defaults_are_those_of_keras);
    ADD_TEST(suite, test_optimizers_have_defaults_of_their_own);
    ADD_TEST(suite, test_layers_mixed_list_keeps_kinds_names_inputs_and_places);
    ADD_TEST(suite, test_overrides_reach_keys_items_and_missing_sections);
    ADD_TEST(suite,
             test_paths_start_at_the_file_or_for_an_override_at_the_working_folder);
    ADD_TEST(suite, test_data_source_is_what_the_reader_takes);
    ADD_TEST(suite, test_data_source_of_each_format);
    ADD_TEST(suite, test_synthetic_samples_open);
    ADD_TEST(suite, test_shuffle_seed_is_the_run_s_unless_given);
    ADD_TEST(suite, test_digits_example_opens_its_data);
    ADD_TEST(suite, test_write_examples_load_back_to_the_same);
    ADD_TEST(suite, test_write_every_kind_of_value_loads_back_to_the_same);
    ADD_TEST(suite, test_hash_is_of_what_fixes_the_numbers);
    ADD_TEST(suite, test_schedules_follow_keras);
    return run_suite(suite);
}
