/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/config.h"

static copse_error error;

#define DATA "data: {format: idx, train: {images: a, labels: b}}\n"
#define MODEL "model: [flatten]\n"
#define TRAIN "train: {loss: mean_squared_error}\n"
#define SMALL DATA MODEL TRAIN /* three lines */

typedef struct wrong {
    const char *text;
    const char *place; /* where the message must point */
    const char *says;  /* what it must contain */
} wrong;

static void assert_fails(const char *text, size_t bytes, const char *const *overrides,
                         size_t count, const char *place, const char *says) {
    copse__config *config = (copse__config *)&error;
    memset(&error, 0, sizeof error);
    copse_status status = copse__config_parse(&config, text, bytes, "/tmp/c.yaml",
                                              overrides, count, &error);
    ck_assert_msg(status == COPSE_CONFIG, "'%.200s' gives %s", text,
                  copse_status_name(status));
    ck_assert_ptr_null(config);
    ck_assert_msg(strcmp(error.place, place) == 0, "'%.200s': place '%s', not '%s' (%s)",
                  text, error.place, place, error.text);
    ck_assert_msg(strstr(error.text, says) != NULL, "'%.200s': '%s' lacks '%s'", text,
                  error.text, says);
    ck_assert_ptr_null(strchr(error.text, '\n'));
}

static const wrong files[] = {
    {"", "/tmp/c.yaml:1:1", "the configuration has no 'data'"},
    {"# only a comment\n", "/tmp/c.yaml:1:1", "the configuration has no 'data'"},
    {"- a\n", "/tmp/c.yaml:1:1", "must be a mapping of keys and values, not a list"},
    {SMALL "lgo: 1\n", "/tmp/c.yaml:4:1",
     "unknown key 'lgo' in the configuration; did you mean 'log'?"},
    {SMALL "zebra: 1\n", "/tmp/c.yaml:4:1",
     "it knows data, model, train, devices, checkpoint, log or init"},
    {MODEL TRAIN, "/tmp/c.yaml:1:1", "has no 'data'"},
    {DATA MODEL "train:\n", "/tmp/c.yaml:3:1",
     "train must be a mapping of keys and values, not nothing"},
    {DATA MODEL "train: {batch: 3}\n", "/tmp/c.yaml:3:8",
     "train has no 'loss', which it needs"},
    {DATA MODEL "train: {loss: mean_squared_eror}\n", "/tmp/c.yaml:3:15",
     "did you mean 'mean_squared_error'?"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  bacth: 3\n", "/tmp/c.yaml:5:3",
     "unknown key 'bacth' in train; did you mean 'batch'?"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n"
                "  early_stopping: {monitor: val_los}\n",
     "/tmp/c.yaml:5:29", "did you mean 'val_loss'?"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  validation: false\n"
                "  early_stopping: {patience: 2}\n",
     "/tmp/c.yaml:6:3",
     "train.early_stopping monitors val_loss, but train.validation is false"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n"
                "  reduce_lr_on_plateau: {factor: 1}\n",
     "/tmp/c.yaml:5:34", "a number from 0 to below 1"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  optimizer: {sgd: {learning_rate: "
                "{cosine_decay: {initial_learning_rate: 1, decay_steps: 3}}}}\n"
                "  reduce_lr_on_plateau: true\n",
     "/tmp/c.yaml:6:3", "not a schedule"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n"
                "  early_stopping: {restore_best_weights: true}\ncheckpoint: false\n",
     "/tmp/c.yaml:5:3", "but checkpoint is false"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n"
                "  early_stopping: {restore_best_weights: true}\n"
                "checkpoint: {best: loss}\n",
     "/tmp/c.yaml:5:3", "but checkpoint.best is loss"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  batch: many\n", "/tmp/c.yaml:5:10",
     "train.batch must be a whole number from 1 to 4294967295, not the text 'many'"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  batch: '3'\n", "/tmp/c.yaml:5:10",
     "not the text '3'"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  batch: 2.5\n", "/tmp/c.yaml:5:10",
     "not the number 2.5"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  batch: -1\n", "/tmp/c.yaml:5:10",
     "not the number -1"},
    {DATA MODEL "train:\n  loss: mean_squared_error\n  batch: [3]\n", "/tmp/c.yaml:5:10",
     "not a list"},
    {DATA MODEL "train: {loss: mean_squared_error, batch: 0}\n", "/tmp/c.yaml:3:42",
     "not the number 0"},
    {DATA MODEL "train: {loss: {}}\n", "/tmp/c.yaml:3:15",
     "alone or as the one key of a mapping"},
    {DATA MODEL "train: {loss: mean_squared_error, optimizer: {adam: {lr: 1}}}\n",
     "/tmp/c.yaml:3:54", "unknown key 'lr' in train.optimizer.adam"},
    {DATA MODEL "train: {loss: mean_squared_error, optimizer: {adma: {}}}\n",
     "/tmp/c.yaml:3:47", "did you mean 'adam'?"},
    {DATA MODEL "train: {loss: mean_squared_error, optimizer: {adam: {beta_1: 1}}}\n",
     "/tmp/c.yaml:3:62", "from 0 to below 1"},
    {DATA MODEL
     "train: {loss: mean_squared_error, optimizer: {adam: {learning_rate: .nan}}}\n",
     "/tmp/c.yaml:3:69", "a number, 0 or more, or a schedule"},
    {DATA MODEL
     "train: {loss: mean_squared_error, optimizer: {adam: {learning_rate: 1e999}}}\n",
     "/tmp/c.yaml:3:69", "a number, 0 or more, or a schedule"},
    {DATA MODEL "train: {loss: mean_squared_error, optimizer: {adam: {learning_rate: "
                "{cosine_decay: }}}}\n",
     "/tmp/c.yaml:3:70", "learning_rate.cosine_decay must be a mapping"},
    {DATA MODEL "train: {loss: mean_squared_error, precision: float16}\n",
     "/tmp/c.yaml:3:46", "train.precision"},
    {DATA MODEL "train: {loss: mean_squared_error, metrics: [accuracy, auc]}\n",
     "/tmp/c.yaml:3:55", "unknown value 'auc' in train.metrics; it knows accuracy"},
    {DATA MODEL "train: {loss: mean_squared_error, accumulate: 33}\n", "/tmp/c.yaml:3:47",
     "a batch has only 32 samples"},
    {DATA MODEL "train: {loss: mean_squared_error, validation: 3}\n", "/tmp/c.yaml:3:47",
     "true, false or a mapping"},
    {DATA "model:\n" TRAIN, "/tmp/c.yaml:2:1",
     "model must be a list with at least one item, not nothing"},
    {DATA "model: []\n" TRAIN, "/tmp/c.yaml:2:8", "not an empty one"},
    {DATA "model:\n  - dense: 10\n" TRAIN, "/tmp/c.yaml:3:12", "dense: {key: value}"},
    {DATA "model:\n  - dense:\n    units: 10\n" TRAIN, "/tmp/c.yaml:3:5",
     "of several keys (indent"},
    {DATA "model:\n  - 3\n" TRAIN, "/tmp/c.yaml:3:5", "this is the number 3"},
    {DATA "model:\n  - dense: {name: 3}\n" TRAIN, "/tmp/c.yaml:3:19",
     "name must be text, not the number 3"},
    {DATA "model:\n  - add: {inputs: {}}\n" TRAIN, "/tmp/c.yaml:3:19", "inputs must be"},
    {DATA "model:\n  - add: {inputs: [a, []]}\n" TRAIN, "/tmp/c.yaml:3:23",
     "inputs must be"},
    {DATA "model:\n  - dense: {units: {a: 1}}\n" TRAIN, "/tmp/c.yaml:3:20",
     "units must be true, false, a number"},
    {DATA "model:\n  - dense: {units: [1, 2, 3, 4, 5, 6, 7]}\n" TRAIN, "/tmp/c.yaml:3:20",
     "up to 6 numbers"},
    {"data: {format: png, train: a}\n" MODEL TRAIN, "/tmp/c.yaml:1:16",
     "unknown value 'png' in data.format; it knows"},
    {"data: {train: {images: a}}\n" MODEL TRAIN, "/tmp/c.yaml:1:7",
     "data has no 'format'"},
    {"data: {format: idx, train: {image: a}}\n" MODEL TRAIN, "/tmp/c.yaml:1:29",
     "unknown key 'image' in data.train; did you mean 'images'?"},
    {"data: {format: idx, train: {labels: a}}\n" MODEL TRAIN, "/tmp/c.yaml:1:28",
     "data.train has no 'images'"},
    {"data: {format: idx, train: {images: []}}\n" MODEL TRAIN, "/tmp/c.yaml:1:37",
     "{images: FILE, labels: FILE}"},
    {"data: {format: cifar10, train: {files: a, labels: b}}\n" MODEL TRAIN,
     "/tmp/c.yaml:1:43", "unknown key 'labels' in data.train"},
    {"data: {format: cifar10, train: a, shuffle: {buffer: 0}}\n" MODEL TRAIN,
     "/tmp/c.yaml:1:53", "data.shuffle.buffer must be at least 1"},
    {"data: {format: cifar10, train: a, shuffle: yes}\n" MODEL TRAIN, "/tmp/c.yaml:1:44",
     "{seed: N}, {buffer: N}, true or false"},
    {"data: {format: cifar10, train: a, cache: 3}\n" MODEL TRAIN, "/tmp/c.yaml:1:42",
     "memory, none or a file"},
    {"data: {format: cifar10, train: a, validation: b, validation_split: 0.1}\n" MODEL
         TRAIN,
     "/tmp/c.yaml:1:50", "remove one of the two"},
    {"data: {format: cifar10, train: a, scale: x}\n" MODEL TRAIN, "/tmp/c.yaml:1:42",
     "data.scale must be a number"},
    {"data: {format: cifar10, train: a, csv: {label: y}}\n" MODEL TRAIN,
     "/tmp/c.yaml:1:35", "data.csv has no meaning with format: cifar10"},
    {"data: {format: csv, train: a, csv: {delimiter: ab}}\n" MODEL TRAIN,
     "/tmp/c.yaml:1:48", "data.csv.delimiter must be one character"},
    {"data: {format: csv, train: a, csv: {shape: [2.5]}}\n" MODEL TRAIN,
     "/tmp/c.yaml:1:36", "whole numbers"},
    {"data: {format: synthetic, train: {count: 5}}\n" MODEL TRAIN, "/tmp/c.yaml",
     "data.synthetic has no 'shape'"},
    {"data: {format: synthetic, train: a}\n" MODEL TRAIN, "/tmp/c.yaml:1:34",
     "{count: N, seed: N}"},
    {SMALL "checkpoint: {best: val_los}\n", "/tmp/c.yaml:4:20",
     "did you mean 'val_loss'?"},
    {SMALL "checkpoint: {every: {steps: 1, epochs: 1}}\n", "/tmp/c.yaml:4:21",
     "exactly one of steps, epochs and minutes"},
    {SMALL "checkpoint: {every: 5}\n", "/tmp/c.yaml:4:21", "{steps: N}"},
    {SMALL "checkpoint: 5\n", "/tmp/c.yaml:4:13",
     "checkpoint must be true, false or a mapping"},
    {SMALL "log: {jsonl: 1}\n", "/tmp/c.yaml:4:14",
     "log.jsonl must be true or false, not the number 1"},
    {SMALL "devices: {select: 0.5}\n", "/tmp/c.yaml:4:19", "devices.select"},
    {SMALL "init: 5\n", "/tmp/c.yaml:4:7", "init must be a file of weights"},
    {SMALL "init: {partial: true}\n", "/tmp/c.yaml:4:7", "init has no 'file'"},
    {"a: 1\nb: 2\na: 3\n", "/tmp/c.yaml:3:1", "the key 'a' is here a second time"},
    {"a: {b: 1, b: 2}\n", "/tmp/c.yaml:1:11", "the key 'b' is here a second time"},
    {"a: [1, 2\n", "/tmp/c.yaml:2:1", "this is not YAML"},
    {"a: &x b\n", "/tmp/c.yaml:1:7", "anchors and aliases"},
    {"a: *x\n", "/tmp/c.yaml:1:5", "anchors and aliases"},
    {"a: !!int 3\n", "/tmp/c.yaml:1:10", "tags (!…)"},
    {"--- {a: 1}\n--- {b: 2}\n", "/tmp/c.yaml:2:1", "a second document"},
    {"? [a]\n: 3\n", "/tmp/c.yaml:1:3", "a key must be a word"},
    {"a: b\x01\n", "/tmp/c.yaml:1:5", "not UTF-8"},
    {"\x7f"
     "ELF\x02\x01\x01",
     "/tmp/c.yaml:1:5", "not UTF-8"},
    {"a: \xC3\n", "/tmp/c.yaml:1:4", "not UTF-8"},
    {"a: \xED\xA0\x80\n", "/tmp/c.yaml:1:4", "not UTF-8"},
    {"\xFF\xFE"
     "a",
     "/tmp/c.yaml:1:1", "not UTF-8"},
    {"[[[[[[[[[[[[[[[[[[[[", "/tmp/c.yaml:1:17", "nested more than 16 deep"},
};

START_TEST(test_parse_wrong_file_names_line_and_column) {
    for (size_t i = 0; i < COPSE__COUNT(files); i++)
        assert_fails(files[i].text, strlen(files[i].text), NULL, 0, files[i].place,
                     files[i].says);
}
END_TEST

static const wrong overrides[] = {
    {"train.epochs=x", NULL, "train.epochs must be a whole number"},
    {"train.epochs=", NULL, "not nothing"},
    {"train.epocs=3", NULL, "did you mean 'epochs'?"},
    {"train.batch=[1", NULL, "this is not YAML"},
    {"train", NULL, "an override is written key=value"},
    {"=3", NULL, "an override is written key=value"},
    {"train..batch=3", NULL, "is not a path of keys"},
    {"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a=1", NULL, "is not a path of keys"},
    {"model.1=flatten", NULL, "model is a list of 1"},
    {"model.-1=flatten", NULL, "model is a list of 1"},
    {"model.x.y=flatten", NULL, "model is a list of 1"},
    {"train.loss.from_logits=true", NULL,
     "train.loss is the single value 'mean_squared_error'"},
    {"data=3", NULL, "data must be a mapping"},
    {"train.batch=*x", NULL, "anchors and aliases"},
    {"train.batch=\xED\xA0\x80", NULL, "not UTF-8"},
    {"model.1.dense.\xB6=3", NULL, "not UTF-8"},
    {"data.train.images=3", NULL, "{images: FILE"},
};

START_TEST(test_override_wrong_names_the_override) {
    for (size_t i = 0; i < COPSE__COUNT(overrides); i++) {
        char place[128];
        snprintf(place, sizeof place, "--set %s", overrides[i].text);
        assert_fails(SMALL, strlen(SMALL), &overrides[i].text, 1, place,
                     overrides[i].says);
    }
}
END_TEST

/* Hostile files: bounded in time and memory (tests run under the sanitizers too). */
START_TEST(test_parse_hostile_size_and_shape_is_refused) {
    size_t bytes = (size_t)1 << 20;
    char *text = malloc(bytes + 1);
    ck_assert_ptr_nonnull(text);
    memset(text, '[', bytes);
    assert_fails(text, bytes, NULL, 0, "/tmp/c.yaml:1:17", "nested");
    for (size_t i = 0; i < bytes; i++)
        text[i] = "- "[i % 2];
    assert_fails(text, bytes, NULL, 0, "/tmp/c.yaml:1:33", "nested");
    memset(text, 'x', bytes);
    memcpy(text, "a: ", 3);
    assert_fails(text, bytes, NULL, 0, "/tmp/c.yaml:1:4", "longer than 4096");
    for (size_t i = 0; i < bytes; i++)
        text[i] = "-\n"[i % 2];
    assert_fails(text, bytes, NULL, 0, "/tmp/c.yaml", "more than 10000 values");
    assert_fails(text, bytes + 1, NULL, 0, "/tmp/c.yaml", "larger than 1 MiB");
    assert_fails("a\0b", 3, NULL, 0, "/tmp/c.yaml:1:2", "not UTF-8");
    free(text);
}
END_TEST

START_TEST(test_load_file_that_cannot_be_read_is_an_error_of_use) {
    copse__config *config;
    ASSERT_FAILS(COPSE_CONFIG,
                 copse__config_load(&config, "/nonexistent/x.yaml", NULL, 0, &error));
    ck_assert_str_eq(error.place, "/nonexistent/x.yaml");
    ASSERT_FAILS(COPSE_CONFIG, copse__config_load(&config, "/tmp", NULL, 0, &error));
    ASSERT_FAILS(COPSE_CONFIG, copse__config_load(&config, "/dev/zero", NULL, 0, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "larger than"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("config_errors");
    ADD_TEST(suite, test_parse_wrong_file_names_line_and_column);
    ADD_TEST(suite, test_override_wrong_names_the_override);
    ADD_TEST(suite, test_parse_hostile_size_and_shape_is_refused);
    ADD_TEST(suite, test_load_file_that_cannot_be_read_is_an_error_of_use);
    return run_suite(suite);
}
