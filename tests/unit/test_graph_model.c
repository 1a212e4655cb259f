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
        "dense_grad_weight: dense dense_1/grad -> dense_1/kernel/grad -\n"
        "bias_grad: dense_1/grad -> dense_1/bias/grad\n"
        "dense_grad_input: dense_1/grad dense_1/kernel - -> dense/grad\n"
        "activation_grad: dense dense/grad -> dense/linear/grad\n"
        "dense_grad_weight: flatten dense/linear/grad -> dense/kernel/grad -\n"
        "bias_grad: dense/linear/grad -> dense/bias/grad\n"
        "dense_grad_input: dense/linear/grad dense/kernel - -> flatten/grad\n"
        "max_pool2d_grad: max_pooling2d/grad max_pooling2d/index -> conv2d/grad\n"
        "activation_grad: conv2d conv2d/grad -> conv2d/linear/grad\n"
        "conv2d_grad_filter: input/cast conv2d/linear/grad -> conv2d/kernel/grad\n"
        "bias_grad: conv2d/linear/grad -> conv2d/bias/grad\n");
    copse__text_free(&text);
    copse__graph_free(graph);
}
END_TEST

/* A network with everything whose nodes differ between training and inference. */
#define MIXED_NET                                                                        \
    {                                                                                    \
        {.kind = "conv2d",                                                               \
         ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("activation", "relu"))},   \
            {.kind = "batch_norm"},                                                      \
            {.kind = "dropout", .name = "d", ARGS(NUMBER("rate", 0.5))},                 \
            {.kind = "max_pool2d"}, {.kind = "flatten"},                                 \
            {.kind = "dropout", ARGS(NUMBER("rate", 0))}, {                              \
            .kind = "dense", ARGS(NUMBER("units", 10), TEXT("activation", "softmax"))    \
        }                                                                                \
    }

START_TEST(test_model_inference_and_training_agree) {
    copse__layer_spec net[] = MIXED_NET;
    copse__model_options options = cifar_options();
    options.from_logits = false;
    copse__graph *training = build(net, COPSE__COUNT(net), &options);
    options.training = false;
    options.loss = COPSE__LOSS_NONE;
    copse__graph *inference = build(net, COPSE__COUNT(net), &options);

    ck_assert(training->training && !inference->training);
    ck_assert_uint_eq(inference->label, COPSE__NO_TENSOR);
    ck_assert_uint_eq(inference->metrics, COPSE__NO_TENSOR);
    ck_assert_uint_eq(inference->forward_count, inference->node_count);
    ck_assert_uint_eq(training->parameter_count, inference->parameter_count);
    for (size_t i = 0; i < training->parameter_count; i++) {
        const copse__parameter *a = &training->parameters[i];
        const copse__parameter *b = &inference->parameters[i];
        ck_assert_str_eq(training->tensors[a->tensor].name,
                         inference->tensors[b->tensor].name);
        ck_assert(copse__tensor_same_shape(&training->tensors[a->tensor],
                                           &inference->tensors[b->tensor]));
        ck_assert_uint_eq(a->init.kind, b->init.kind);
        ck_assert(a->init.a == b->init.a && a->init.b == b->init.b);
        ck_assert_uint_eq(b->gradient, COPSE__NO_TENSOR);
    }
    ck_assert_uint_eq(training->state_count, 1);
    ck_assert_uint_eq(inference->state_count, 1);

    /* Whatever stands in both has the same call number, by name. */
    size_t met = 0;
    for (size_t i = 0; i < inference->node_count; i++)
        for (size_t j = 0; j < training->forward_count; j++)
            if (strcmp(inference->nodes[i].name, training->nodes[j].name) == 0) {
                ck_assert_uint_eq(inference->nodes[i].call, training->nodes[j].call);
                met++;
            }
    ck_assert_uint_eq(met, inference->node_count);
    for (size_t i = 0; i < inference->node_count; i++)
        ck_assert_uint_ne(inference->nodes[i].op, COPSE__OP_DROPOUT);
    ck_assert_uint_eq(inference->layer_count, COPSE__COUNT(net));
    copse__graph_free(training);
    copse__graph_free(inference);
}
END_TEST

START_TEST(test_model_evaluation_has_a_loss_and_no_gradient) {
    copse__layer_spec net[] = MIXED_NET;
    copse__model_options options = cifar_options();
    options.from_logits = false;
    options.training = false;
    copse__graph *graph = build(net, COPSE__COUNT(net), &options);
    const copse__node *loss = &graph->nodes[graph->node_count - 1];
    const copse__tensor *label = &graph->tensors[graph->label];
    const copse__tensor *metrics = &graph->tensors[graph->metrics];
    ck_assert_uint_eq(loss->op, COPSE__OP_CROSS_ENTROPY);
    ck_assert(!loss->attrs.loss.from_logits);
    ck_assert_uint_eq(loss->inputs[0], graph->output);
    ck_assert_uint_eq(loss->outputs[0], graph->metrics);
    ck_assert_uint_eq(loss->outputs[1], COPSE__NO_TENSOR);
    ck_assert(label->role == COPSE__ROLE_LABEL && label->dtype == COPSE_I32);
    ck_assert(label->rank == 1 && label->dim[0].symbol == COPSE__BATCH);
    ck_assert_uint_eq(metrics->role, COPSE__ROLE_METRIC);
    ck_assert(metrics->rank == 2 && metrics->dim[1].size == 2);
    ck_assert_uint_eq(graph->forward_count, graph->node_count);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_model_casts_only_what_needs_it) {
    copse__layer_spec net[] = {{.kind = "relu"}};
    const struct {
        copse_dtype dtype;
        float scale, offset;
        bool cast;
    } cases[] = {{COPSE_F32, 1, 0, false},
                 {COPSE_F32, 2, 0, true},
                 {COPSE_F32, 1, -0.5f, true},
                 {COPSE_U8, 1, 0, true},
                 {COPSE_F64, 1, 0, true}};
    for (size_t i = 0; i < COPSE__COUNT(cases); i++) {
        copse__model_options options = float_options(1, (size_t[]){4});
        options.sample_dtype = cases[i].dtype;
        options.scale = cases[i].scale;
        options.offset = cases[i].offset;
        copse__graph *graph = build(net, 1, &options);
        ck_assert_uint_eq(graph->node_count, cases[i].cast ? 2 : 1);
        if (cases[i].cast) {
            ck_assert_uint_eq(graph->nodes[0].op, COPSE__OP_CAST);
            ck_assert(graph->nodes[0].attrs.cast.scale == cases[i].scale);
            ck_assert(graph->nodes[0].attrs.cast.offset == cases[i].offset);
        }
        const copse__tensor *input = &graph->tensors[graph->input];
        ck_assert_uint_eq(input->dtype, cases[i].dtype);
        ck_assert_uint_eq(input->role, COPSE__ROLE_INPUT);
        ck_assert(input->dim[0].symbol == COPSE__BATCH && input->dim[0].size == 4);
        copse__graph_free(graph);
    }
}
END_TEST

START_TEST(test_model_names_are_numbered_as_keras_does) {
    copse__layer_spec net[] = {
        {.kind = "dense", ARGS(NUMBER("units", 3))},
        {.kind = "relu"},
        {.kind = "dense", .name = "dense_1", ARGS(NUMBER("units", 3))},
        {.kind = "dense", ARGS(NUMBER("units", 3))}, /* dense_1 is taken */
        {.kind = "relu"},
        {.kind = "batch_norm"},
        {.kind = "batch_normalization"},
        {.kind = "add", .name = "sum", INPUTS("relu", "batch_normalization_1")},
    };
    static const char *const names[] = {"dense",
                                        "relu",
                                        "dense_1",
                                        "dense_2",
                                        "relu_1",
                                        "batch_normalization",
                                        "batch_normalization_1",
                                        "sum"};
    copse__model_options options = float_options(1, (size_t[]){3});
    copse__graph *graph = build(net, COPSE__COUNT(net), &options);
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        ck_assert_str_eq(graph->layers[i].name, names[i]);
    ck_assert_str_eq(graph->layers[5].kind, "BatchNormalization");
    ck_assert_uint_eq(graph->layers[5].first_parameter, 6);
    ck_assert_uint_eq(graph->layers[5].parameter_count, 2);
    ck_assert_uint_eq(graph->layers[6].first_state, 1);
    ck_assert_uint_eq(graph->layers[6].state_count, 1);
    ck_assert_uint_eq(graph->layers[7].input_count, 2);
    ck_assert_uint_eq(graph->layers[7].inputs[0], 1);
    ck_assert_uint_eq(graph->layers[7].inputs[1], 6);
    ck_assert_uint_eq(graph->layers[0].inputs[0], SIZE_MAX);
    copse__graph_free(graph);
}
END_TEST

static void check_refused(const copse__layer_spec *layers, size_t count,
                          const copse__model_options *options, copse_status status,
                          const char *place, const char *words) {
    copse__graph *graph;
    error = (copse_error){0};
    ASSERT_FAILS(status, copse__model_build(&graph, layers, count, options, &error));
    ck_assert_ptr_null(graph);
    ck_assert_str_eq(error.place, place);
    ck_assert_msg(strstr(error.text, words) != NULL, "'%s' lacks '%s'", error.text,
                  words);
}

#define DENSE(units_) .kind = "dense", ARGS(NUMBER("units", units_))
#define REFUSED(net, options, place, words)                                              \
    check_refused(net, COPSE__COUNT(net), options, COPSE_CONFIG, place, words)

START_TEST(test_model_wiring_mistakes_are_named) {
    copse__model_options options = float_options(1, (size_t[]){3});
    copse__layer_spec unused[] = {{DENSE(3), .place = "n:1"},
                                  {DENSE(3), .name = "side", .place = "n:2"},
                                  {.kind = "relu", INPUTS("dense"), .place = "n:3"}};
    REFUSED(unused, &options, "n:2", "no layer reads the output of layer 'side'");
    copse__layer_spec unknown[] = {{DENSE(3), .name = "stem"},
                                   {.kind = "relu", INPUTS("stam"), .place = "n:2"}};
    REFUSED(unknown, &options, "n:2",
            "layer 'relu' reads 'stam', but no layer is named so (did you mean 'stem'?)");
    copse__layer_spec later[] = {{.kind = "relu", INPUTS("end"), .place = "n:1"},
                                 {DENSE(3), .name = "end"}};
    REFUSED(later, &options, "n:1", "reads 'end', which does not stand before it");
    copse__layer_spec itself[] = {
        {.kind = "relu", .name = "r", INPUTS("r"), .place = "n:1"}};
    REFUSED(itself, &options, "n:1", "reads 'r', which does not stand before it");
    copse__layer_spec twice[] = {{DENSE(3), .name = "a"},
                                 {DENSE(3), .name = "a", .place = "n:2"}};
    REFUSED(twice, &options, "n:2", "two layers are named 'a'");
    copse__layer_spec reserved[] = {{DENSE(3), .name = "input", .place = "n:1"}};
    REFUSED(reserved, &options, "n:1", "the network's input");
    copse__layer_spec slash[] = {{DENSE(3), .name = "a/b", .place = "n:1"}};
    REFUSED(slash, &options, "n:1", "'a/b' is no name");
    copse__layer_spec empty[] = {{DENSE(3), .name = "", .place = "n:1"}};
    REFUSED(empty, &options, "n:1", "'' is no name");
    copse__layer_spec alone[] = {{.kind = "add", .place = "n:1"}};
    REFUSED(alone, &options, "n:1", "needs two or more inputs");
    copse__layer_spec many[] = {
        {DENSE(3)}, {.kind = "relu", INPUTS("input", "dense"), .place = "n:2"}};
    REFUSED(many, &options, "n:2", "takes one input, but 2 are named");
    copse__layer_spec shapes[] = {
        {DENSE(4)}, {.kind = "add", INPUTS("input", "dense"), .place = "n:2"}};
    REFUSED(shapes, &options, "n:2",
            "its first input has (None, 3) and its input 2 has (None, 4)");
    check_refused(NULL, 0, &options, COPSE_CONFIG, "", "a model has 1 to 10000 layers");
}
END_TEST

START_TEST(test_model_losses_must_fit_the_output) {
    copse__model_options options = cifar_options();
    copse__layer_spec flat[] = {{.kind = "flatten"}, {DENSE(9), .place = "n:2"}};
    REFUSED(flat, &options, "n:2",
            "10 classes, but the network's output has the shape (None, 9)");
    copse__layer_spec planes[] = {{DENSE(10), .place = "n:1"}};
    REFUSED(planes, &options, "n:1",
            "output of shape (None, 32, 32, 10) does not go with labels of shape "
            "(None,): it must have one more axis, the classes (is a flatten layer "
            "missing?)");
    options.target_rank = 2; /* a class for each pixel */
    options.target_shape[0] = options.target_shape[1] = 32;
    copse__graph *graph = build(planes, 1, &options);
    ck_assert_uint_eq(graph->tensors[graph->label].rank, 3);
    ck_assert_uint_eq(graph->tensors[graph->metrics].rank, 4);
    copse__graph_free(graph);

    options = cifar_options();
    options.loss = COPSE__LOSS_MEAN_SQUARED_ERROR;
    options.target_rank = 1;
    options.target_shape[0] = 8;
    REFUSED(flat, &options, "n:2",
            "output has the shape (None, 9), but the targets have (None, 8)");
    options.target_shape[0] = 9;
    graph = build(flat, 2, &options);
    ck_assert_uint_eq(graph->tensors[graph->label].dtype, COPSE_F32);
    ck_assert(copse__tensor_same_shape(&graph->tensors[graph->label],
                                       &graph->tensors[graph->output]));
    copse__graph_free(graph);
    copse__layer_spec one[] = {{.kind = "flatten"}, {DENSE(1)}};
    options.target_rank = 0; /* a number a sample; the output is (None, 1) */
    graph = build(one, 2, &options);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_model_options_are_checked) {
    copse__layer_spec net[] = {{.kind = "relu"}};
    copse__model_options options = float_options(1, (size_t[]){3}), o = options;
    o.max_batch = 0;
    check_refused(net, 1, &o, COPSE_INVALID, "", "batch");
    o = options;
    o.training = true;
    check_refused(net, 1, &o, COPSE_INVALID, "", "training needs a loss");
    o = options;
    o.sample_dtype = COPSE_I64;
    check_refused(net, 1, &o, COPSE_UNSUPPORTED, "", "type i64");
    o = options;
    o.sample_rank = COPSE_MAX_RANK;
    check_refused(net, 1, &o, COPSE_CONFIG, "", "a sample has 6 dimensions");
    o = options;
    o.sample_shape[0] = 0;
    check_refused(net, 1, &o, COPSE_CONFIG, "", "dimension 1 of a sample is 0");
    o = options;
    o.max_batch = SIZE_MAX / 2;
    check_refused(net, 1, &o, COPSE_CONFIG, "", "is larger than any memory");
}
END_TEST

/* (H, W) is (H, W, 1) to layers of images only, and at the input only. */
START_TEST(test_model_grayscale_gets_channels_where_they_are_wanted) {
    copse__model_options options = float_options(2, (size_t[]){6, 4});
    copse__layer_spec pool[] = {{.kind = "max_pool2d"}}, dense[] = {{DENSE(3)}};
    copse__layer_spec inner[] = {{.kind = "relu"},
                                 {.kind = "max_pool2d", .place = "n:2"}};
    char text[64];
    copse__graph *graph = build(pool, 1, &options);
    ck_assert_str_eq(copse__tensor_shape_text(&graph->tensors[graph->output], text, 64),
                     "(None, 3, 2, 1)");
    copse__graph_free(graph);
    graph = build(dense, 1, &options);
    ck_assert_str_eq(copse__tensor_shape_text(&graph->tensors[graph->output], text, 64),
                     "(None, 6, 3)");
    copse__graph_free(graph);
    REFUSED(inner, &options, "n:2", "has the shape (None, 6, 4)");
    /* A dropout layer is no node in inference, but a layer between all the same. */
    inner[0] = (copse__layer_spec){.kind = "dropout", ARGS(NUMBER("rate", 0.5))};
    REFUSED(inner, &options, "n:2", "has the shape (None, 6, 4)");
}
END_TEST

static void count_warnings(copse_log_level level, const char *line, void *user) {
    if (level == COPSE_LOG_WARN && strstr(line, "softmax"))
        ++*(int *)user;
}

START_TEST(test_model_warns_where_softmax_and_loss_disagree) {
    copse__layer_spec with[] = {
        {.kind = "flatten"},
        {.kind = "dense", ARGS(NUMBER("units", 10), TEXT("activation", "softmax"))}};
    copse__layer_spec without[] = {{.kind = "flatten"}, {DENSE(10)}};
    copse__model_options options = cifar_options();
    int warnings = 0;
    copse_log_set(count_warnings, COPSE_LOG_WARN, &warnings);
    copse__graph_free(build(without, 2, &options));
    ck_assert_int_eq(warnings, 0);
    copse__graph_free(build(with, 2, &options));
    ck_assert_int_eq(warnings, 1);
    options.from_logits = false;
    copse__graph_free(build(with, 2, &options));
    ck_assert_int_eq(warnings, 1);
    copse__graph_free(build(without, 2, &options));
    ck_assert_int_eq(warnings, 2);
    copse_log_set(NULL, COPSE_LOG_WARN, NULL);
}
END_TEST

START_TEST(test_model_of_many_layers) {
    enum { COUNT = 10000 };
    static copse__layer_spec net[COUNT + 1];
    for (size_t i = 0; i <= COUNT; i++)
        net[i] = (copse__layer_spec){.kind = "tanh", .place = "n:1"};
    copse__model_options options = float_options(1, (size_t[]){2});
    copse__graph *graph = build(net, COUNT, &options);
    ck_assert_str_eq(graph->layers[COUNT - 1].name, "tanh_9999");
    copse__graph_free(graph);
    check_refused(net, COUNT + 1, &options, COPSE_CONFIG, "n:1", "not 10001");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph model");
    ADD_TEST(suite, test_model_cifar_has_keras_parameters);
    ADD_TEST(suite, test_model_known_networks_have_known_counts);
    ADD_TEST(suite, test_model_cifar_makes_just_these_nodes);
    ADD_TEST(suite, test_model_inference_and_training_agree);
    ADD_TEST(suite, test_model_evaluation_has_a_loss_and_no_gradient);
    ADD_TEST(suite, test_model_casts_only_what_needs_it);
    ADD_TEST(suite, test_model_names_are_numbered_as_keras_does);
    ADD_TEST(suite, test_model_wiring_mistakes_are_named);
    ADD_TEST(suite, test_model_losses_must_fit_the_output);
    ADD_TEST(suite, test_model_options_are_checked);
    ADD_TEST(suite, test_model_grayscale_gets_channels_where_they_are_wanted);
    ADD_TEST(suite, test_model_warns_where_softmax_and_loss_disagree);
    ADD_TEST(suite, test_model_of_many_layers);
    return run_suite(suite);
}
