/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <math.h>
#include <string.h>

static copse_error error;

static const size_t image[] = {8, 8, 3}, vector[] = {12};

/* Refused with this status, at this place, in a sentence that holds these words. */
static void check_refused(copse__layer_spec layer, size_t rank, const size_t *sample,
                          copse_status status, const char *place, const char *words) {
    copse__model_options options = float_options(rank, sample);
    copse__graph *graph = (copse__graph *)&options;
    error = (copse_error){0};
    layer.place = "net.yaml:2:5";
    ASSERT_FAILS(status, copse__model_build(&graph, &layer, 1, &options, &error));
    ck_assert_ptr_null(graph);
    ck_assert_uint_eq(error.status, status);
    ck_assert_msg(strcmp(error.place, place) == 0, "%s: at '%s' instead of '%s'",
                  error.text, error.place, place);
    ck_assert_msg(strstr(error.text, words) != NULL, "'%s' lacks '%s'", error.text,
                  words);
}

#define LAYER "net.yaml:2:5"
#define REFUSED(sample, status, place, words, ...)                                       \
    check_refused((copse__layer_spec){__VA_ARGS__}, COPSE__COUNT(sample), sample,        \
                  status, place, words)

START_TEST(test_layers_unknown_kinds_get_the_nearest) {
    REFUSED(image, COPSE_CONFIG, LAYER,
            "there is no layer 'dens' (did you mean 'dense'?); there are: dense, conv2d",
            .kind = "dens");
    REFUSED(image, COPSE_CONFIG, LAYER, "(did you mean 'max_pool2d'?)",
            .kind = "MaxPool2D");
    REFUSED(image, COPSE_CONFIG, LAYER, "(did you mean 'batch_normalization'?)",
            .kind = "batch_normalisation");
    REFUSED(image, COPSE_CONFIG, LAYER,
            "there is no layer 'transformer'; there are:", .kind = "transformer");
}
END_TEST

START_TEST(test_layers_unknown_keys_get_the_nearest) {
    REFUSED(vector, COPSE_CONFIG, "unit",
            "layer 'dense' (dense) has no key 'unit' (did you mean 'units'?); it has: "
            "units, activation",
            .kind = "dense", ARGS(NUMBER("unit", 3)));
    REFUSED(image, COPSE_CONFIG, "groups",
            "has no key 'groups'; it has:", .kind = "conv2d", ARGS(NUMBER("groups", 3)));
    REFUSED(image, COPSE_CONFIG, "kernelsize", "(did you mean 'kernel_size'?)",
            .kind = "conv2d", ARGS(NUMBER("filters", 3), NUMBER("kernelsize", 3)));
    REFUSED(image, COPSE_CONFIG, "units", "it has: no keys", .kind = "flatten",
            ARGS(NUMBER("units", 3)));
}
END_TEST

START_TEST(test_layers_missing_and_repeated_keys) {
    REFUSED(vector, COPSE_CONFIG, LAYER, "layer 'dense' (dense) needs the key 'units'",
            .kind = "dense");
    REFUSED(image, COPSE_CONFIG, LAYER, "needs the key 'kernel'", .kind = "conv2d",
            ARGS(NUMBER("filters", 3)));
    REFUSED(vector, COPSE_CONFIG, "units", "'units' is given twice", .kind = "dense",
            ARGS(NUMBER("units", 3), NUMBER("units", 4)));
    REFUSED(image, COPSE_CONFIG, "kernel_size", "'kernel' is given twice",
            .kind = "conv2d",
            ARGS(NUMBER("filters", 3), NUMBER("kernel", 3), NUMBER("kernel_size", 3)));
}
END_TEST

START_TEST(test_layers_hostile_numbers) {
    static const double bad[] = {0, -1, 2.5, 1099511627776.0, 1e300, NAN, INFINITY};
    for (size_t i = 0; i < COPSE__COUNT(bad); i++) {
        REFUSED(vector, COPSE_CONFIG, "units",
                "'units' must be a whole number from 1 to 2147483647, not ",
                .kind = "dense", ARGS(NUMBER("units", bad[i])));
        REFUSED(image, COPSE_CONFIG, "filters", "'filters' must be a whole number",
                .kind = "conv2d", ARGS(NUMBER("filters", bad[i]), NUMBER("kernel", 3)));
        REFUSED(image, COPSE_CONFIG, "kernel", "'kernel' must be whole numbers",
                .kind = "conv2d", ARGS(NUMBER("filters", 3), NUMBER("kernel", bad[i])));
        REFUSED(image, COPSE_CONFIG, "strides", "'strides' must be whole numbers",
                .kind = "max_pool2d", ARGS(PAIR("strides", 2, bad[i])));
    }
    REFUSED(vector, COPSE_CONFIG, "units", "not 2.5", .kind = "dense",
            ARGS(NUMBER("units", 2.5)));
}
END_TEST

START_TEST(test_layers_huge_parameters_are_refused_with_their_shape) {
    static const size_t wide[] = {(size_t)1 << 20};
    REFUSED(wide, COPSE_CONFIG, LAYER,
            "'dense/kernel' would have the shape (1048576, 1048576): more elements",
            .kind = "dense", ARGS(NUMBER("units", 1048576)));
    REFUSED(image, COPSE_CONFIG, LAYER, "is larger than any memory", .kind = "conv2d",
            ARGS(NUMBER("filters", 2147483647), NUMBER("kernel", 2147483647),
                 TEXT("padding", "same")));
    REFUSED(image, COPSE_CONFIG, LAYER, "a pool of (2147483647, 2147483647) does not fit",
            .kind = "max_pool2d", ARGS(NUMBER("pool", 2147483647)));
}
END_TEST

START_TEST(test_layers_wrong_types) {
    REFUSED(vector, COPSE_CONFIG, "units", "whole number from 1 to 2147483647, not 'ten'",
            .kind = "dense", ARGS(TEXT("units", "ten")));
    REFUSED(vector, COPSE_CONFIG, "use_bias", "must be true or false, not 1",
            .kind = "dense", ARGS(NUMBER("units", 3), NUMBER("use_bias", 1)));
    REFUSED(image, COPSE_CONFIG, "padding",
            "'padding' must be one of valid, same, not 'sam' (did you mean 'same'?)",
            .kind = "max_pool2d", ARGS(TEXT("padding", "sam")));
    REFUSED(image, COPSE_CONFIG, "padding", "not true", .kind = "max_pool2d",
            ARGS(BOOL("padding", true)));
    REFUSED(vector, COPSE_CONFIG, "activation",
            "one of linear, relu, sigmoid, tanh, gelu, softmax, none, not 'rellu' (did "
            "you mean 'relu'?)",
            .kind = "dense", ARGS(NUMBER("units", 3), TEXT("activation", "rellu")));
    REFUSED(vector, COPSE_CONFIG, "kernel_initializer",
            "(a constant), not 'he_norml' (did you mean 'he_normal'?)", .kind = "dense",
            ARGS(NUMBER("units", 3), TEXT("kernel_initializer", "he_norml")));
    REFUSED(vector, COPSE_CONFIG, "bias_initializer", "finite", .kind = "dense",
            ARGS(NUMBER("units", 3), NUMBER("bias_initializer", NAN)));
    REFUSED(image, COPSE_CONFIG, "pool", "two of them, [height, width], not [2, 2, 2]",
            .kind = "max_pool2d",
            ARGS({.key = "pool",
                  .place = "pool",
                  .value = {
                      .kind = COPSE__VALUE_NUMBERS, .numbers = {2, 2, 2}, .count = 3}}));
    REFUSED(vector, COPSE_CONFIG, "units", "not null", .kind = "dense",
            ARGS({.key = "units", .place = "units"}));
}
END_TEST

START_TEST(test_layers_ranges) {
    static const double rates[] = {-0.1, 1, 1.5, NAN, 0.99999999999};
    for (size_t i = 0; i < COPSE__COUNT(rates); i++)
        REFUSED(vector, COPSE_CONFIG, "rate", "at least 0 and less than 1",
                .kind = "dropout", ARGS(NUMBER("rate", rates[i])));
    REFUSED(vector, COPSE_CONFIG, "momentum", "a number from 0 to 1",
            .kind = "batch_norm", ARGS(NUMBER("momentum", 1.1)));
    REFUSED(vector, COPSE_CONFIG, "epsilon", "a positive number", .kind = "batch_norm",
            ARGS(NUMBER("epsilon", 1e-60)));
    REFUSED(vector, COPSE_CONFIG, "axis", "an axis", .kind = "batch_norm",
            ARGS(NUMBER("axis", 0.5)));
}
END_TEST

START_TEST(test_layers_what_is_not_supported_says_so) {
    REFUSED(image, COPSE_UNSUPPORTED, LAYER, "only the last axis (-1)",
            .kind = "batch_norm", ARGS(NUMBER("axis", 1)));
    REFUSED(image, COPSE_UNSUPPORTED, LAYER, "sync: true", .kind = "batch_norm",
            ARGS(BOOL("sync", true)));
    REFUSED(image, COPSE_UNSUPPORTED, LAYER, "sync: true", .kind = "batch_norm",
            ARGS(BOOL("synchronized", true)));
}
END_TEST

START_TEST(test_layers_impossible_shapes_name_them) {
    static const size_t scalar[1] = {0}; /* rank 0 below */
    REFUSED(vector, COPSE_CONFIG, LAYER,
            "layer 'conv2d' works on images (None, height, width, channels), but its "
            "input has the shape (None, 12)",
            .kind = "conv2d", ARGS(NUMBER("filters", 3), NUMBER("kernel", 3)));
    REFUSED(vector, COPSE_CONFIG, LAYER, "has the shape (None, 12)",
            .kind = "global_avg_pool2d");
    check_refused((copse__layer_spec){.kind = "dense", ARGS(NUMBER("units", 3))}, 0,
                  scalar, COPSE_CONFIG, LAYER, "input's shape (None,) has none");
    check_refused((copse__layer_spec){.kind = "softmax"}, 0, scalar, COPSE_CONFIG, LAYER,
                  "(None,)");
    check_refused((copse__layer_spec){.kind = "batch_norm"}, 0, scalar, COPSE_CONFIG,
                  LAYER, "(None,)");
    REFUSED(vector, COPSE_CONFIG, LAYER,
            "input (None, 12) has 12 elements, which do not go into the shape (None, 5, "
            "2)",
            .kind = "reshape", ARGS(PAIR("shape", 5, 2)));
    REFUSED(vector, COPSE_CONFIG, LAYER, "the shape (None, None, 5)", .kind = "reshape",
            ARGS(PAIR("shape", -1, 5)));
    REFUSED(vector, COPSE_CONFIG, "shape", "at most one -1", .kind = "reshape",
            ARGS(PAIR("shape", -1, -1)));
    REFUSED(vector, COPSE_CONFIG, "shape", "positive whole numbers", .kind = "reshape",
            ARGS(PAIR("shape", 0, -1)));
    REFUSED(vector, COPSE_CONFIG, LAYER, "(None, 2147483647, 2147483647)",
            .kind = "reshape", ARGS(PAIR("target_shape", 2147483647, 2147483647)));
}
END_TEST

START_TEST(test_layers_shapes_that_work) {
    const struct {
        copse__layer_spec layer;
        size_t rank;
        const size_t *sample;
        const char *shape;
    } cases[] = {
        {{.kind = "dense", ARGS(NUMBER("units", 5))}, 3, image, "(None, 8, 8, 5)"},
        {{.kind = "flatten"}, 3, image, "(None, 192)"},
        {{.kind = "flatten"}, 1, vector, "(None, 12)"},
        {{.kind = "flatten"}, 0, vector, "(None, 1)"},
        {{.kind = "reshape", ARGS(PAIR("shape", 3, 4))}, 1, vector, "(None, 3, 4)"},
        {{.kind = "reshape", ARGS(PAIR("shape", -1, 16))}, 3, image, "(None, 12, 16)"},
        {{.kind = "reshape", ARGS(NUMBER("shape", 192))}, 3, image, "(None, 192)"},
        {{.kind = "batch_norm", ARGS(NUMBER("axis", 3))}, 3, image, "(None, 8, 8, 3)"},
        {{.kind = "add", INPUTS("input", "input")}, 3, image, "(None, 8, 8, 3)"},
        {{.kind = "softmax"}, 1, vector, "(None, 12)"},
        {{.kind = "dropout", ARGS(NUMBER("rate", 0))}, 1, vector, "(None, 12)"},
        {{.kind = "activation", ARGS(TEXT("activation", "softmax"))},
         1,
         vector,
         "(None, 12)"},
        {{.kind = "activation", ARGS({.key = "kind"})}, 1, vector, "(None, 12)"},
    };
    for (size_t i = 0; i < COPSE__COUNT(cases); i++) {
        copse__model_options options = float_options(cases[i].rank, cases[i].sample);
        copse__graph *graph;
        char text[128];
        ASSERT_OK(copse__model_build(&graph, &cases[i].layer, 1, &options, &error));
        ck_assert_str_eq(
            copse__tensor_shape_text(&graph->tensors[graph->output], text, sizeof text),
            cases[i].shape);
        copse__graph_free(graph);
    }
}
END_TEST

START_TEST(test_layers_defaults_are_those_of_keras) {
    copse__layer_spec layer = {.kind = "batch_normalization"};
    copse__model_options options = float_options(1, vector);
    copse__graph *graph;
    ASSERT_OK(copse__model_build(&graph, &layer, 1, &options, &error));
    ck_assert_uint_eq(graph->parameter_count, 2);
    ck_assert_uint_eq(graph->parameters[0].init.kind, COPSE__INIT_ONES);
    ck_assert_uint_eq(graph->parameters[1].init.kind, COPSE__INIT_ZEROS);
    ck_assert_str_eq(graph->tensors[graph->parameters[0].tensor].name,
                     "batch_normalization/gamma");
    ck_assert_str_eq(graph->tensors[graph->parameters[1].tensor].name,
                     "batch_normalization/beta");
    ck_assert(!graph->parameters[0].decay && !graph->parameters[1].decay);
    ck_assert_uint_eq(graph->state_count, 1);
    ck_assert_str_eq(graph->tensors[graph->states[0].moving_mean].name,
                     "batch_normalization/moving_mean");
    ck_assert_str_eq(graph->tensors[graph->states[0].moving_variance].name,
                     "batch_normalization/moving_variance");
    ck_assert_uint_eq(graph->states[0].stats, COPSE__NO_TENSOR);
    ck_assert(graph->states[0].momentum == 0.99f);
    ck_assert_uint_eq(graph->nodes[0].op, COPSE__OP_BN_INFER);
    ck_assert(graph->nodes[0].attrs.norm.epsilon == 1e-3f);
    copse__graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph layers");
    ADD_TEST(suite, test_layers_unknown_kinds_get_the_nearest);
    ADD_TEST(suite, test_layers_unknown_keys_get_the_nearest);
    ADD_TEST(suite, test_layers_missing_and_repeated_keys);
    ADD_TEST(suite, test_layers_hostile_numbers);
    ADD_TEST(suite, test_layers_huge_parameters_are_refused_with_their_shape);
    ADD_TEST(suite, test_layers_wrong_types);
    ADD_TEST(suite, test_layers_ranges);
    ADD_TEST(suite, test_layers_what_is_not_supported_says_so);
    ADD_TEST(suite, test_layers_impossible_shapes_name_them);
    ADD_TEST(suite, test_layers_shapes_that_work);
    ADD_TEST(suite, test_layers_defaults_are_those_of_keras);
    return run_suite(suite);
}
