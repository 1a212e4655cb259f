/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <string.h>

static copse_error error;

/* Conv2D filters 3x3 relu, MaxPooling 2x2, Flatten, Dense 128 relu, Dense 10. */
#define CONV_NET(filters_)                                                               \
    {                                                                                    \
        {.kind = "conv2d",                                                               \
         ARGS(NUMBER("filters", filters_), NUMBER("kernel", 3),                          \
              TEXT("activation", "relu"))},                                              \
            {.kind = "max_pool2d", ARGS(NUMBER("pool", 2))}, {.kind = "flatten"},        \
            {.kind = "dense", ARGS(NUMBER("units", 128), TEXT("activation", "relu"))}, { \
            .kind = "dense", ARGS(NUMBER("units", 10))                                   \
        }                                                                                \
    }

static copse__graph *build(const copse__layer_spec *layers, size_t count,
                           const copse__model_options *options) {
    copse__graph *graph;
    ASSERT_OK(copse__model_build(&graph, layers, count, options, &error));
    return graph;
}

START_TEST(test_model_cifar_has_keras_parameters) {
    copse__layer_spec net[] = CONV_NET(32);
    copse__model_options options = cifar_options();
    copse__graph *graph = build(net, COPSE__COUNT(net), &options);
    static const char *const names[] = {"conv2d/kernel",  "conv2d/bias",
                                        "dense/kernel",   "dense/bias",
                                        "dense_1/kernel", "dense_1/bias"};
    static const size_t sizes[] = {864, 32, 7200 * 128, 128, 1280, 10};
    ck_assert_uint_eq(count_parameters(graph), 923914);
    ck_assert_uint_eq(graph->parameter_count, COPSE__COUNT(names));
    for (size_t i = 0; i < COPSE__COUNT(names); i++) {
        const copse__parameter *parameter = &graph->parameters[i];
        const copse__tensor *tensor = &graph->tensors[parameter->tensor];
        ck_assert_str_eq(tensor->name, names[i]);
        ck_assert_uint_eq(copse__tensor_elements(tensor, NULL), sizes[i]);
        ck_assert_uint_eq(tensor->role, COPSE__ROLE_PARAMETER);
        ck_assert_uint_eq(tensor->index, i);
        ck_assert_uint_eq(parameter->decay, i % 2 == 0);
        const copse__tensor *gradient = &graph->tensors[parameter->gradient];
        ck_assert(copse__tensor_same_shape(tensor, gradient));
        ck_assert_uint_eq(gradient->role, COPSE__ROLE_GRADIENT);
        ck_assert_uint_eq(gradient->index, i);
    }
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_model_known_networks_have_known_counts) {
    copse__layer_spec conv64[] = CONV_NET(64), conv32[] = CONV_NET(32);
    copse__layer_spec mlp[] = {
        {.kind = "flatten"},
        {.kind = "dense", ARGS(NUMBER("units", 128), TEXT("activation", "relu"))},
        {.kind = "dense", ARGS(NUMBER("units", 10))}};
    copse__model_options options = cifar_options();
    copse__graph *graph = build(conv64, COPSE__COUNT(conv64), &options);
    ck_assert_uint_eq(count_parameters(graph), 1846410);
    copse__graph_free(graph);

    options.sample_rank = 2; /* grayscale, without an axis of channels */
    options.sample_shape[0] = options.sample_shape[1] = 28;
    graph = build(conv32, COPSE__COUNT(conv32), &options);
    ck_assert_uint_eq(count_parameters(graph), 693962);
    copse__graph_free(graph);
    graph = build(mlp, COPSE__COUNT(mlp), &options);
    ck_assert_uint_eq(count_parameters(graph), 101770);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_model_cifar_makes_just_these_nodes) {
    copse__layer_spec net[] = CONV_NET(32);
    copse__model_options options = cifar_options();
    copse__graph *graph = build(net, COPSE__COUNT(net), &options);
    copse__text text = {0};
    list_nodes(graph, 0, &text);
    ck_assert_uint_eq(graph->forward_count, 8);
    for (size_t i = 0; i < graph->node_count; i++)
        ck_assert_uint_eq(graph->nodes[i].backward, i >= 8);
    ck_assert_str_eq(
        text.data,
        "cast: input -> input/cast\n"
        "conv2d: input/cast conv2d/kernel conv2d/bias -> conv2d/linear\n"
        "activation: conv2d/linear -> conv2d\n"
        "max_pool2d: conv2d -> max_pooling2d max_pooling2d/index\n"
        "dense: flatten dense/kernel dense/bias -> dense/linear\n"
        "activation: dense/linear -> dense\n"
        "dense: dense dense_1/kernel dense_1/bias -> dense_1\n"
        "cross_entropy: dense_1 loss/label -> loss/metrics dense_1/grad\n"
        "bias_grad: dense_1/grad -> dense_1/bias/grad\n"
        "dense_grad_weight: dense dense_1/grad -> dense_1/kernel/grad\n"
        "dense_grad_input: dense_1/grad dense_1/kernel -> dense/grad\n"
        "activation_grad: dense dense/grad -> dense/linear/grad\n"
        "bias_grad: dense/linear/grad -> dense/bias/grad\n"
        "dense_grad_weight: flatten dense/linear/grad -> dense/kernel/grad\n"
        "dense_grad_input: dense/linear/grad dense/kernel -> flatten/grad\n"
        "max_pool2d_grad: max_pooling2d/grad max_pooling2d/index -> conv2d/grad\n"
        "activation_grad: conv2d conv2d/grad -> conv2d/linear/grad\n"
        "bias_grad: conv2d/linear/grad -> conv2d/bias/grad\n"
        "conv2d_grad_filter: input/cast conv2d/linear/grad -> conv2d/kernel/grad\n");
    copse__text_free(&text);
    copse__graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph model");
    ADD_TEST(suite, test_model_cifar_has_keras_parameters);
    ADD_TEST(suite, test_model_known_networks_have_known_counts);
    ADD_TEST(suite, test_model_cifar_makes_just_these_nodes);
    return run_suite(suite);
}
