/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <string.h>

static copse_error error;

static void check_summary(const copse__layer_spec *layers, size_t count,
                          const copse__model_options *options, const char *want) {
    copse__graph *graph;
    copse__text text = {0};
    ASSERT_OK(copse__model_build(&graph, layers, count, options, &error));
    ASSERT_OK(copse__model_summary(graph, &text, &error));
    ck_assert_str_eq(text.data, want);
    copse__text_free(&text);
    copse__graph_free(graph);
}

START_TEST(test_summary_of_a_chain) {
    copse__layer_spec net[] = {
        {.kind = "conv2d",
         ARGS(NUMBER("filters", 32), NUMBER("kernel", 3), TEXT("activation", "relu"))},
        {.kind = "batch_norm"},
        {.kind = "max_pool2d"},
        {.kind = "flatten"},
        {.kind = "dropout", ARGS(NUMBER("rate", 0.5))},
        {.kind = "dense", .name = "größe", ARGS(NUMBER("units", 10))}};
    copse__model_options options = cifar_options();
    check_summary(
        net, COPSE__COUNT(net), &options,
        "_____________________________________________________________________\n"
        "Layer (type)                              Output Shape        Param #\n"
        "=====================================================================\n"
        "conv2d (Conv2D)                           (None, 30, 30, 32)      896\n"
        "batch_normalization (BatchNormalization)  (None, 30, 30, 32)      128\n"
        "max_pooling2d (MaxPooling2D)              (None, 15, 15, 32)        0\n"
        "flatten (Flatten)                         (None, 7200)              0\n"
        "dropout (Dropout)                         (None, 7200)              0\n"
        "größe (Dense)                             (None, 10)           72,010\n"
        "=====================================================================\n"
        "Total params: 73,034 (285 KiB)\n"
        "Trainable params: 72,970 (285 KiB)\n"
        "Non-trainable params: 64 (256 B)\n"
        "Forward FLOPs per sample: 1,824,672\n");
}
END_TEST

START_TEST(test_summary_of_a_network_that_branches) {
    copse__layer_spec net[] = {{.kind = "dense", .name = "a", ARGS(NUMBER("units", 8))},
                               {.kind = "relu"},
                               {.kind = "dense", .name = "b", ARGS(NUMBER("units", 8))},
                               {.kind = "add", INPUTS("a", "b")}};
    copse__model_options options = float_options(1, (size_t[]){8});
    check_summary(net, COPSE__COUNT(net), &options,
                  "_______________________________________________________\n"
                  "Layer (type)        Output Shape  Param #  Connected to\n"
                  "=======================================================\n"
                  "input (InputLayer)  (None, 8)           0  -\n"
                  "a (Dense)           (None, 8)          72  input\n"
                  "relu (ReLU)         (None, 8)           0  a\n"
                  "b (Dense)           (None, 8)          72  relu\n"
                  "add (Add)           (None, 8)           0  a, b\n"
                  "=======================================================\n"
                  "Total params: 144 (576 B)\n"
                  "Trainable params: 144 (576 B)\n"
                  "Non-trainable params: 0 (0 B)\n"
                  "Forward FLOPs per sample: 272\n");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph summary");
    ADD_TEST(suite, test_summary_of_a_chain);
    ADD_TEST(suite, test_summary_of_a_network_that_branches);
    return run_suite(suite);
}
