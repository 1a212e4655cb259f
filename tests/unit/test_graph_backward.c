/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <string.h>

#include "graph/build.h"

static copse_error error;

/* Trained with mean squared error against targets of the output's shape, so that any
 * network can be checked. */
static copse__graph *build(const copse__layer_spec *layers, size_t count,
                           size_t sample_rank, const size_t *sample, size_t target_rank,
                           const size_t *target) {
    copse__model_options options = float_options(sample_rank, sample);
    copse__graph *graph;
    options.training = true;
    options.loss = COPSE__LOSS_MEAN_SQUARED_ERROR;
    options.target_rank = target_rank;
    memcpy(options.target_shape, target, target_rank * sizeof *target);
    ASSERT_OK(copse__model_build(&graph, layers, count, &options, &error));
    return graph;
}

/* Compares the backward nodes, each line an operation, what it reads and writes. Checks on
 * the way what holds of every graph. */
static void check_backward(copse__graph *graph, const char *want) {
    copse__text text = {0};
    list_nodes(graph, graph->forward_count, &text);
    ck_assert_str_eq(text.data ? text.data : "", want);
    copse__text_free(&text);
    for (size_t i = 0; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        ck_assert_uint_eq(node->backward, i >= graph->forward_count);
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(node->call, graph->nodes[j].call);
    }
    for (size_t i = 0; i < graph->parameter_count; i++) {
        const copse__parameter *parameter = &graph->parameters[i];
        ck_assert_uint_ne(parameter->gradient, COPSE__NO_TENSOR);
        const copse__tensor *gradient = &graph->tensors[parameter->gradient];
        ck_assert_uint_eq(gradient->role, COPSE__ROLE_GRADIENT);
        ck_assert_uint_eq(gradient->index, i);
        ck_assert_uint_eq(gradient->storage, parameter->gradient);
        ck_assert(copse__tensor_same_shape(gradient, &graph->tensors[parameter->tensor]));
    }
    copse__graph_free(graph);
}

#define CHECK(net, sample, target, want)                                                 \
    check_backward(build(net, COPSE__COUNT(net), COPSE__COUNT(sample), sample,           \
                         COPSE__COUNT(target), target),                                  \
                   want)

static const size_t four[] = {4}, image[] = {8, 8, 3};

/* r is read by the second dense layer first and by the sum last: the sum's part comes
 * first. The sum hands the same gradient to both sides. */
START_TEST(test_backward_residual_parts_are_added_in_reverse_order_of_reading) {
    copse__layer_spec net[] = {
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "relu", .name = "r"},
        {.kind = "dense", .name = "b", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "add", .name = "s", INPUTS("r", "b")},
    };
    CHECK(net, four, four,
          "dense_grad_weight: r s/grad -> b/kernel/grad -\n"
          "dense_grad_input: s/grad b/kernel - -> r/grad\n"
          "add: s/grad r/grad -> r/grad_sum\n"
          "activation_grad: r r/grad_sum -> a/grad\n"
          "dense_grad_weight: input a/grad -> a/kernel/grad -\n");
}
END_TEST

START_TEST(test_backward_a_tensor_added_to_itself_gets_twice_the_gradient) {
    copse__layer_spec net[] = {
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "add", .name = "s", INPUTS("a", "a", "input")},
    };
    CHECK(net, four, four,
          "add: s/grad s/grad -> a/grad_sum\n"
          "dense_grad_weight: input a/grad_sum -> a/kernel/grad -\n");
}
END_TEST

START_TEST(test_backward_of_convolution_and_pooling) {
    copse__layer_spec net[] = {
        {.kind = "conv2d", .name = "c", ARGS(NUMBER("filters", 2), NUMBER("kernel", 3))},
        {.kind = "avg_pool2d", .name = "a"},
        {.kind = "conv2d",
         .name = "d",
         ARGS(NUMBER("filters", 2), NUMBER("kernel", 1), BOOL("use_bias", false))},
        {.kind = "max_pool2d", .name = "m", ARGS(NUMBER("strides", 1))},
        {.kind = "global_avg_pool2d", .name = "g"},
    };
    const size_t two[] = {2};
    copse__graph *graph = build(net, COPSE__COUNT(net), 3, image, COPSE__COUNT(two), two);
    for (size_t i = graph->forward_count; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        const copse__window *window = &node->attrs.window;
        if (node->op == COPSE__OP_MAX_POOL2D_GRAD)
            ck_assert(window->kernel_h == 2 && window->stride_h == 1);
        if (node->op == COPSE__OP_AVG_POOL2D_GRAD)
            ck_assert(window->kernel_h == 2 && window->stride_h == 2);
        if (node->op == COPSE__OP_CONV2D_GRAD_FILTER &&
            strcmp(node->name, "c/grad_filter") == 0)
            ck_assert(window->kernel_w == 3 && window->dilation_w == 1);
    }
    check_backward(graph, "global_avg_pool_grad: g/grad -> m/grad\n"
                          "max_pool2d_grad: m/grad m/index -> d/grad\n"
                          "conv2d_grad_filter: a d/grad -> d/kernel/grad\n"
                          "conv2d_grad_input: d/grad d/kernel -> a/grad\n"
                          "avg_pool2d_grad: a/grad -> c/grad\n"
                          "conv2d_grad_filter: input c/grad -> c/kernel/grad\n"
                          "bias_grad: c/grad -> c/bias/grad\n");
}
END_TEST

static copse_dtype index_type(size_t height, size_t width) {
    copse__layer_spec net[] = {
        {.kind = "conv2d", ARGS(NUMBER("filters", 2), NUMBER("kernel", 1))},
        {.kind = "max_pool2d",
         .name = "m",
         ARGS(PAIR("pool", (double)height, (double)width))},
        {.kind = "flatten"}};
    copse__graph *graph =
        build(net, COPSE__COUNT(net), 3, (size_t[]){height, width, 1}, 1, (size_t[]){2});
    copse_dtype dtype = COPSE_F64;
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].op == COPSE__OP_MAX_POOL2D)
            dtype = graph->tensors[graph->nodes[i].outputs[1]].dtype;
    copse__graph_free(graph);
    return dtype;
}

START_TEST(test_backward_pool_index_is_wide_only_where_it_must) {
    ck_assert_uint_eq(index_type(15, 17), COPSE_U8); /* 255 places */
    ck_assert_uint_eq(index_type(16, 16), COPSE_I32);
}
END_TEST

/* What lies before the first parameter has no gradient, and saves nothing for one. */
START_TEST(test_backward_stops_at_the_first_parameter) {
    copse__layer_spec net[] = {
        {.kind = "max_pool2d", .name = "m"},
        {.kind = "relu", .name = "r"},
        {.kind = "flatten", .name = "f"},
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4))},
    };
    copse__graph *graph = build(net, COPSE__COUNT(net), 3, image, 1, four);
    ck_assert_uint_eq(graph->nodes[0].op, COPSE__OP_MAX_POOL2D);
    ck_assert_uint_eq(graph->nodes[0].outputs[1], COPSE__NO_TENSOR);
    check_backward(graph, "dense_grad_weight: f a/grad -> a/kernel/grad -\n"
                          "bias_grad: a/grad -> a/bias/grad\n");
}
END_TEST

START_TEST(test_backward_without_parameters_makes_no_node) {
    copse__layer_spec net[] = {{.kind = "relu"}};
    copse__graph *graph = build(net, 1, 1, four, 1, four);
    ck_assert_uint_eq(graph->nodes[graph->forward_count - 1].outputs[1],
                      COPSE__NO_TENSOR);
    check_backward(graph, "");
}
END_TEST

/* Views stay views: no node, one gradient for all shapes of the same bytes. */
START_TEST(test_backward_goes_through_views) {
    copse__layer_spec net[] = {
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 6), BOOL("use_bias", false))},
        {.kind = "reshape", .name = "p", ARGS(PAIR("shape", 2, 3))},
        {.kind = "dense", .name = "b", ARGS(NUMBER("units", 3), BOOL("use_bias", false))},
        {.kind = "reshape", .name = "q", ARGS(NUMBER("shape", -1))},
        {.kind = "add", .name = "s", INPUTS("q", "a")},
    };
    copse__graph *graph = build(net, COPSE__COUNT(net), 1, four, 1, (size_t[]){6});
    copse__tensor_id part = COPSE__NO_TENSOR, sum = COPSE__NO_TENSOR;
    for (size_t i = graph->forward_count; i < graph->node_count; i++)
        if (graph->nodes[i].op == COPSE__OP_DENSE_GRAD_INPUT)
            part = graph->nodes[i].outputs[0];
        else if (graph->nodes[i].op == COPSE__OP_ADD)
            sum = graph->nodes[i].inputs[1];
    /* (None, 2, 3) as DENSE_GRAD_INPUT made it, (None, 6) as it is added. */
    ck_assert_uint_eq(graph->tensors[part].rank, 3);
    ck_assert_uint_eq(graph->tensors[sum].rank, 2);
    ck_assert_uint_eq(graph->tensors[sum].storage, part);
    check_backward(graph, "dense_grad_weight: p b/grad -> b/kernel/grad -\n"
                          "dense_grad_input: b/grad b/kernel - -> p/grad\n"
                          "add: s/grad a/grad -> a/grad_sum\n"
                          "dense_grad_weight: input a/grad_sum -> a/kernel/grad -\n");
}
END_TEST

START_TEST(test_backward_of_batch_norm) {
    copse__layer_spec net[] = {
        {.kind = "batch_norm", .name = "n", ARGS(BOOL("scale", false))},
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "batch_norm", .name = "o"},
    };
    copse__graph *graph = build(net, COPSE__COUNT(net), 1, four, 1, four);
    ck_assert_uint_eq(graph->state_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const copse__tensor *stats = &graph->tensors[graph->states[i].stats];
        ck_assert_uint_eq(stats->role, COPSE__ROLE_STATS);
        ck_assert_uint_eq(stats->index, i);
        ck_assert_uint_eq(stats->dim[0].size, 2);
        ck_assert_uint_eq(stats->dim[1].size, 4);
    }
    ck_assert_uint_eq(graph->states[0].source, graph->input);
    check_backward(
        graph,
        "bn_grad_reduce: a o/grad o/moments - - -> o/grad_sums o/gamma/grad o/beta/grad\n"
        "bn_grad_input: a o/grad o/moments o/grad_sums o/gamma - -> a/grad\n"
        "dense_grad_weight: n a/grad -> a/kernel/grad -\n"
        "dense_grad_input: a/grad a/kernel - -> n/grad\n"
        "bn_grad_reduce: input n/grad n/moments - - -> n/grad_sums - n/beta/grad\n");
}
END_TEST

START_TEST(test_backward_of_bare_batch_norm) {
    copse__layer_spec net[] = {
        {.kind = "batch_norm", ARGS(BOOL("scale", false), BOOL("center", false))},
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "batch_norm",
         .name = "o",
         ARGS(BOOL("scale", false), BOOL("center", false))},
    };
    CHECK(net, four, four,
          "bn_grad_reduce: a o/grad o/moments - - -> o/grad_sums - -\n"
          "bn_grad_input: a o/grad o/moments o/grad_sums - - -> a/grad\n"
          "dense_grad_weight: batch_normalization a/grad -> a/kernel/grad -\n");
}
END_TEST

/* GELU needs what went in, the others what came out. */
START_TEST(test_backward_of_activations) {
    copse__layer_spec net[] = {
        {.kind = "dense",
         .name = "a",
         ARGS(NUMBER("units", 4), BOOL("use_bias", false), TEXT("activation", "gelu"))},
        {.kind = "sigmoid", .name = "s"},
        {.kind = "tanh", .name = "t"},
        {.kind = "activation", .name = "r", ARGS(TEXT("kind", "relu"))},
        {.kind = "activation", .name = "n", ARGS(TEXT("kind", "linear"))},
        {.kind = "softmax", .name = "p"},
    };
    copse__graph *graph = build(net, COPSE__COUNT(net), 1, four, 1, four);
    static const copse__activation acts[] = {COPSE__ACT_NONE, COPSE__ACT_RELU,
                                             COPSE__ACT_TANH, COPSE__ACT_SIGMOID,
                                             COPSE__ACT_GELU};
    for (size_t i = 0; i < COPSE__COUNT(acts); i++)
        ck_assert_uint_eq(graph->nodes[graph->forward_count + i].attrs.act, acts[i]);
    check_backward(graph, "softmax_grad: p p/grad -> r/grad\n"
                          "activation_grad: r r/grad -> t/grad\n"
                          "activation_grad: t t/grad -> s/grad\n"
                          "activation_grad: s s/grad -> a/grad\n"
                          "activation_grad: a/linear a/grad -> a/linear/grad\n"
                          "dense_grad_weight: input a/linear/grad -> a/kernel/grad -\n");
}
END_TEST

START_TEST(test_backward_of_dropout_repeats_its_draw) {
    copse__layer_spec net[] = {
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 4), BOOL("use_bias", false))},
        {.kind = "dropout", .name = "d", ARGS(NUMBER("rate", 0.25))},
    };
    copse__graph *graph = build(net, COPSE__COUNT(net), 1, four, 1, four);
    const copse__node *forward = &graph->nodes[1];
    const copse__node *backward = &graph->nodes[graph->forward_count];
    ck_assert_uint_eq(forward->op, COPSE__OP_DROPOUT);
    ck_assert_uint_eq(forward->attrs.dropout.call, forward->call);
    ck_assert_uint_eq(backward->attrs.dropout.call, forward->call);
    ck_assert_uint_ne(backward->call, forward->call);
    ck_assert(backward->attrs.dropout.rate == 0.25f);
    check_backward(graph, "dropout: d/grad -> a/grad\n"
                          "dense_grad_weight: input a/grad -> a/kernel/grad -\n");
}
END_TEST

/* Built by hand, as no configuration can: a branch that the loss does not depend on. */
START_TEST(test_backward_leaves_dead_branches_alone) {
    copse__graph *graph;
    ASSERT_OK(copse__graph_new(&graph, &error));
    copse__builder b = {.graph = graph, .layer = "x"};
    copse__dim batch[] = {{8, COPSE__BATCH}, {4, COPSE__FIXED}};
    copse__dim square[] = {{4, COPSE__FIXED}, {4, COPSE__FIXED}};
    copse__init init = {.kind = COPSE__INIT_ONES};
    copse__tensor_id x, live, dead, y, side, target;
    ASSERT_OK(copse__build_tensor(&b, NULL, COPSE_F32, COPSE__ROLE_INPUT, 2, batch, &x,
                                  &error));
    ASSERT_OK(copse__build_tensor(&b, "target", COPSE_F32, COPSE__ROLE_LABEL, 2, batch,
                                  &target, &error));
    b.layer = "live";
    ASSERT_OK(copse__build_parameter(&b, "kernel", 2, square, init, true, &live, &error));
    ASSERT_OK(copse__build_dense(&b, x, live, COPSE__NO_TENSOR, NULL, &y, &error));
    b.layer = "dead";
    ASSERT_OK(copse__build_parameter(&b, "kernel", 2, square, init, true, &dead, &error));
    ASSERT_OK(copse__build_dense(&b, y, dead, COPSE__NO_TENSOR, NULL, &side, &error));
    b.layer = "loss";
    ASSERT_OK(copse__build_mean_squared_error(&b, y, target, &graph->metrics, &error));
    ASSERT_OK(copse__graph_backward(graph, &error));
    ck_assert_uint_ne(graph->parameters[0].gradient, COPSE__NO_TENSOR);
    ck_assert_uint_eq(graph->parameters[1].gradient, COPSE__NO_TENSOR);
    copse__text text = {0};
    list_nodes(graph, 3, &text);
    ck_assert_str_eq(text.data, "dense_grad_weight: x live/grad -> live/kernel/grad -\n");
    copse__text_free(&text);
    copse__graph_free(graph);
}
END_TEST

/* A parameter read twice: its gradient is the sum's output, in memory of its own. */
START_TEST(test_backward_of_a_shared_parameter_is_the_sum) {
    copse__graph *graph;
    ASSERT_OK(copse__graph_new(&graph, &error));
    copse__builder b = {.graph = graph, .layer = "x"};
    copse__dim batch[] = {{8, COPSE__BATCH}, {4, COPSE__FIXED}};
    copse__dim square[] = {{4, COPSE__FIXED}, {4, COPSE__FIXED}};
    copse__init init = {.kind = COPSE__INIT_ONES};
    copse__tensor_id x, w, y, z;
    ASSERT_OK(copse__build_tensor(&b, NULL, COPSE_F32, COPSE__ROLE_INPUT, 2, batch, &x,
                                  &error));
    b.layer = "a";
    ASSERT_OK(copse__build_parameter(&b, "kernel", 2, square, init, true, &w, &error));
    ASSERT_OK(copse__build_dense(&b, x, w, COPSE__NO_TENSOR, NULL, &y, &error));
    b.layer = "b";
    ASSERT_OK(copse__build_dense(&b, y, w, COPSE__NO_TENSOR, NULL, &z, &error));
    b.layer = "loss";
    ASSERT_OK(copse__build_mean_squared_error(&b, z, x, &graph->metrics, &error));
    ASSERT_OK(copse__graph_backward(graph, &error));
    check_backward(graph, "dense_grad_weight: a b/grad -> a/kernel/grad -\n"
                          "dense_grad_input: b/grad a/kernel - -> a/grad\n"
                          "dense_grad_weight: x a/grad -> a/kernel/grad -\n"
                          "add: a/kernel/grad a/kernel/grad -> a/kernel/grad_sum\n");
}
END_TEST

START_TEST(test_backward_without_a_loss_is_refused) {
    copse__graph *graph;
    ASSERT_OK(copse__graph_new(&graph, &error));
    ASSERT_FAILS(COPSE_INVALID, copse__graph_backward(graph, &error));
    copse__graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph backward");
    ADD_TEST(suite, test_backward_residual_parts_are_added_in_reverse_order_of_reading);
    ADD_TEST(suite, test_backward_a_tensor_added_to_itself_gets_twice_the_gradient);
    ADD_TEST(suite, test_backward_of_convolution_and_pooling);
    ADD_TEST(suite, test_backward_pool_index_is_wide_only_where_it_must);
    ADD_TEST(suite, test_backward_stops_at_the_first_parameter);
    ADD_TEST(suite, test_backward_without_parameters_makes_no_node);
    ADD_TEST(suite, test_backward_goes_through_views);
    ADD_TEST(suite, test_backward_of_batch_norm);
    ADD_TEST(suite, test_backward_of_bare_batch_norm);
    ADD_TEST(suite, test_backward_of_activations);
    ADD_TEST(suite, test_backward_of_dropout_repeats_its_draw);
    ADD_TEST(suite, test_backward_leaves_dead_branches_alone);
    ADD_TEST(suite, test_backward_of_a_shared_parameter_is_the_sum);
    ADD_TEST(suite, test_backward_without_a_loss_is_refused);
    return run_suite(suite);
}
