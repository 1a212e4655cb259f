/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <string.h>

#include "graph/model.h"
#include "plan/fuse.h"
#include "plan/plan.h"
#include "plan/program.h"
#include "support/layers.h"

static copse_error error;

/* A layer with a number, an activation, and kernel: 3 where it is a convolution. */
typedef struct simple_layer {
    const char *kind, *key;
    double number;
    const char *activation;
} simple_layer;

static copse__graph *build(const simple_layer *layers, size_t count, size_t batch,
                           bool training) {
    copse__layer_spec specs[16] = {0};
    copse__layer_arg args[16][3] = {0};
    for (size_t i = 0; i < count; i++) {
        specs[i] = (copse__layer_spec){.kind = (char *)(size_t)layers[i].kind,
                                       .args = args[i],
                                       .place = (char *)(size_t) "test"};
        if (layers[i].key)
            args[i][specs[i].arg_count++] = (copse__layer_arg){
                .key = (char *)(size_t)layers[i].key,
                .value = {.kind = COPSE__VALUE_NUMBER, .number = layers[i].number},
                .place = (char *)(size_t) "test"};
        if (strcmp(layers[i].kind, "conv2d") == 0)
            args[i][specs[i].arg_count++] =
                (copse__layer_arg){.key = (char *)(size_t) "kernel",
                                   .value = {.kind = COPSE__VALUE_NUMBER, .number = 3},
                                   .place = (char *)(size_t) "test"};
        if (layers[i].activation)
            args[i][specs[i].arg_count++] = (copse__layer_arg){
                .key = (char *)(size_t) "activation",
                .value = {.kind = COPSE__VALUE_TEXT,
                          .text = (char *)(size_t)layers[i].activation},
                .place = (char *)(size_t) "test"};
    }
    copse__model_options options = {.sample_rank = 3,
                                    .sample_shape = {12, 12, 1},
                                    .sample_dtype = COPSE_U8,
                                    .scale = 1,
                                    .max_batch = batch,
                                    .loss = COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
                                    .from_logits = true,
                                    .training = training};
    copse__graph *graph;
    ASSERT_OK(copse__model_build(&graph, specs, count, &options, &error));
    return graph;
}

static const simple_layer cnn[] = {
    {"conv2d", "filters", 8, "relu"}, {"max_pool2d", NULL, 0, NULL},
    {"dropout", "rate", 0.5, NULL},   {"flatten", NULL, 0, NULL},
    {"dense", "units", 16, "tanh"},   {"dense", "units", 10, NULL},
};

static size_t count_op(const copse__graph *graph, copse__op op) {
    size_t found = 0;
    for (size_t n = 0; n < graph->node_count; n++)
        found += graph->nodes[n].op == op;
    return found;
}

static copse__device *open_host(void) {
    copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host"};
    copse__device *device;
    ASSERT_OK(copse__device_open(&device, &choice, &(copse__device_options){0}, &error));
    return device;
}

static size_t fuse(copse__graph *graph) {
    copse__device *device = open_host();
    size_t fused;
    ASSERT_OK(copse__fuse(graph, device, &fused, &error));
    copse__device_close(device);
    return fused;
}

/* The pooled map alone is written; the gradients read it and the pooled gradient. */
START_TEST(test_fuse_convolution_takes_activation_and_pooling) {
    copse__graph *graph = build(cnn, 6, 4, true);
    copse__text text = {0};
    size_t forward = graph->forward_count;
    ck_assert_uint_eq(fuse(graph), 9);
    ck_assert_uint_eq(graph->forward_count, forward - 3);
    list_nodes(graph, 0, &text);
    ck_assert_str_eq(
        text.data,
        "cast: input -> input/cast\n"
        "conv2d_max_pool: input/cast conv2d/kernel conv2d/bias -> max_pooling2d "
        "max_pooling2d/index\n"
        "dropout: max_pooling2d -> dropout\n"
        "dense: flatten dense/kernel dense/bias -> dense\n"
        "dense: dense dense_1/kernel dense_1/bias -> dense_1\n"
        "cross_entropy: dense_1 loss/label -> loss/metrics dense_1/grad\n"
        "dense_grad_weight: dense dense_1/grad -> dense_1/kernel/grad dense_1/bias/grad\n"
        "dense_grad_input: dense_1/grad dense_1/kernel dense -> dense/linear/grad\n"
        "dense_grad_weight: flatten dense/linear/grad -> dense/kernel/grad "
        "dense/bias/grad\n"
        "dense_grad_input: dense/linear/grad dense/kernel - -> flatten/grad\n"
        "elementwise: dropout/grad max_pooling2d - - - - - - -> conv2d/linear/grad - - "
        "-\n"
        "conv2d_max_pool_grad_filter: input/cast conv2d/linear/grad max_pooling2d/index "
        "-> conv2d/kernel/grad conv2d/bias/grad\n");
    const copse__node *conv = &graph->nodes[1], *filter = &graph->nodes[11];
    ck_assert_int_eq(conv->attrs.act, COPSE__ACT_RELU);
    ck_assert_uint_eq(conv->attrs.pool.kernel_h, 2);
    ck_assert_uint_eq(conv->attrs.window.kernel_h, 3);
    ck_assert_str_eq(conv->absorbed, "conv2d/relu, max_pooling2d");
    const copse__node *slope = &graph->nodes[10];
    ck_assert_str_eq(graph->nodes[7].absorbed, "dense/tanh/grad_input");
    ck_assert_int_eq(graph->nodes[7].attrs.act, COPSE__ACT_TANH);
    ck_assert_str_eq(graph->nodes[8].absorbed, "dense/grad_bias");
    ck_assert_str_eq(slope->absorbed, "dropout/grad_input");
    ck_assert_uint_eq(slope->attrs.expression.term_count, 2);
    ck_assert_int_eq(slope->attrs.expression.terms[0].op, COPSE__OP_DROPOUT);
    ck_assert_int_eq(slope->attrs.expression.terms[1].op, COPSE__OP_ACTIVATION_GRAD);
    ck_assert_str_eq(filter->absorbed, "max_pooling2d/grad_input, conv2d/grad_bias");
    copse__text_free(&text);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_fuse_inference_keeps_no_places) {
    copse__graph *graph = build(cnn, 6, 4, false);
    ck_assert_uint_eq(fuse(graph), 3);
    ck_assert_uint_eq(count_op(graph, COPSE__OP_CONV2D_MAX_POOL), 1);
    for (size_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op == COPSE__OP_CONV2D_MAX_POOL)
            ck_assert_uint_eq(graph->nodes[n].outputs[1], COPSE__NO_TENSOR);
    copse__graph_free(graph);
}
END_TEST

/* gelu's gradient needs its input, so training keeps the node; inference fuses it. */
START_TEST(test_fuse_keeps_what_the_gradient_reads) {
    static const simple_layer gelu[] = {{"flatten", NULL, 0, NULL},
                                        {"dense", "units", 16, "gelu"},
                                        {"dense", "units", 10, NULL}};
    copse__graph *graph = build(gelu, 3, 4, true);
    ck_assert_uint_eq(fuse(graph), 3); /* both bias gradients, and gelu's own */
    ck_assert_uint_eq(count_op(graph, COPSE__OP_ACTIVATION), 1);
    ck_assert_uint_eq(count_op(graph, COPSE__OP_ACTIVATION_GRAD), 0);
    copse__graph_free(graph);
    graph = build(gelu, 3, 4, false);
    ck_assert_uint_eq(fuse(graph), 1);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_layout_follows_the_backward_pass) {
    copse__graph *graph = build(cnn, 6, 4, true);
    copse__layout_options options = {.first_bucket_bytes = 1, .bucket_bytes = 1};
    copse__layout *layout;
    ASSERT_OK(copse__layout_new(&layout, graph, &options, &error));
    ck_assert_uint_eq(layout->parameter_count, 6);
    ck_assert_uint_eq(layout->bucket_count,
                      6); /* one a parameter, as they are full at once */
    size_t base = 0;
    for (size_t b = 0; b < layout->bucket_count; b++) {
        ck_assert_uint_eq(layout->buckets[b].base, base);
        ck_assert_uint_eq(layout->buckets[b].elements * 4 % COPSE__LAYOUT_ALIGNMENT, 0);
        base += layout->buckets[b].elements;
    }
    /* conv2d's kernel and bias come first in the model and last in the backward pass. */
    ck_assert_uint_ge(layout->places[0].bucket, 4);
    ck_assert_uint_le(layout->places[5].bucket, 1);
    copse__layout_free(layout);
    ASSERT_OK(copse__layout_new(&layout, graph, &(copse__layout_options){0}, &error));
    ck_assert_uint_eq(layout->bucket_count, 1);
    copse__layout_free(layout);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_layout_too_large_parameter_is_named) {
    copse__graph *graph = build(cnn, 6, 4, true);
    copse__layout_options options = {.max_bucket_bytes = 4096};
    copse__layout *layout;
    ASSERT_FAILS(COPSE_DEVICE_MEMORY,
                 copse__layout_new(&layout, graph, &options, &error));
    ck_assert_ptr_null(layout);
    ck_assert_str_eq(error.place, "dense/kernel");
    copse__graph_free(graph);
}
END_TEST

/* First and last node that touches a storage. */
static void life_of(const copse__graph *graph, copse__tensor_id storage, size_t *first,
                    size_t *last) {
    *first = SIZE_MAX;
    *last = 0;
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t i = 0; i < COPSE__MAX_INPUTS + COPSE__MAX_OUTPUTS; i++) {
            const copse__node *node = &graph->nodes[n];
            bool is_input = i < COPSE__MAX_INPUTS;
            if (i >=
                (is_input ? node->input_count : COPSE__MAX_INPUTS + node->output_count))
                continue;
            copse__tensor_id id =
                is_input ? node->inputs[i] : node->outputs[i - COPSE__MAX_INPUTS];
            if (id == COPSE__NO_TENSOR || graph->tensors[id].storage != storage)
                continue;
            *first = n < *first ? n : *first;
            *last = n;
        }
    if (graph->tensors[graph->output].storage == storage)
        *last = SIZE_MAX;
}

/* No two tensors that live at the same time share a byte; the one exception is a node's output that takes
 * over its input (the input ends where the output begins). */
static void check_arena(const copse__graph *graph, const copse__plan *plan) {
    for (copse__tensor_id a = 0; a < graph->tensor_count; a++)
        for (copse__tensor_id b = a + 1; b < graph->tensor_count; b++) {
            const copse__placement *x = &plan->tensors[a], *y = &plan->tensors[b];
            if (graph->tensors[a].storage != a || graph->tensors[b].storage != b ||
                x->home != COPSE__HOME_ARENA || y->home != COPSE__HOME_ARENA ||
                x->block != y->block || x->offset >= y->offset + y->bytes ||
                y->offset >= x->offset + x->bytes)
                continue;
            size_t first_a, last_a, first_b, last_b;
            life_of(graph, a, &first_a, &last_a);
            life_of(graph, b, &first_b, &last_b);
            bool takes_over = x->offset == y->offset && x->bytes == y->bytes &&
                              (last_a == first_b || last_b == first_a);
            ck_assert_msg(takes_over || last_a < first_b || last_b < first_a,
                          "%s and %s share memory", graph->tensors[a].name,
                          graph->tensors[b].name);
        }
}

START_TEST(test_plan_tensors_alive_together_lie_apart) {
    copse__device *device = open_host();
    for (int training = 0; training < 2; training++) {
        copse__graph *train = build(cnn, 6, 32, true);
        copse__graph *graph = build(cnn, 6, 32, training != 0);
        ASSERT_OK(copse__fuse(graph, device, NULL, &error));
        ASSERT_OK(copse__fuse(train, device, NULL, &error));
        copse__layout *layout;
        copse__plan *plan;
        ASSERT_OK(copse__layout_new(&layout, train, &(copse__layout_options){0}, &error));
        ASSERT_OK(copse__plan_new(&plan, graph, layout, device, &error));
        check_arena(graph, plan);
        for (size_t b = 1; training && b < layout->bucket_count; b++)
            ck_assert_uint_ge(plan->bucket_ready[b], plan->bucket_ready[b - 1]);
        ck_assert_uint_eq(plan->input_bytes >= 32 * 144, 1);
        ck_assert_msg(copse__plan_arena_bytes(plan) < plan->unshared_bytes,
                      "nothing is shared");
        copse__plan_free(plan);
        copse__layout_free(layout);
        copse__graph_free(graph);
        copse__graph_free(train);
    }
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan");
    ADD_TEST(suite, test_fuse_convolution_takes_activation_and_pooling);
    ADD_TEST(suite, test_fuse_inference_keeps_no_places);
    ADD_TEST(suite, test_fuse_keeps_what_the_gradient_reads);
    ADD_TEST(suite, test_layout_follows_the_backward_pass);
    ADD_TEST(suite, test_layout_too_large_parameter_is_named);
    ADD_TEST(suite, test_plan_tensors_alive_together_lie_apart);
    return run_suite(suite);
}
