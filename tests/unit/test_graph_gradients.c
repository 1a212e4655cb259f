/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "support/layers.h"
#include "support/op_run.h"

/* Whole networks on the host backend, each tensor in a buffer of its own: does what the
 * backward nodes compute agree with the loss's differences? */

#define BATCH 6 /* of 8 planned: the gradients must be those of the shard at hand */
#define PLANNED 8

static copse_error error;

typedef struct engine {
    copse__device *device;
    const copse__backend *host;
    copse__graph *graph;
    copse__buffer **buffers; /* one a tensor; views share their storage's */
    copse__buffer *scalars;
    copse__launch **launches; /* one a node, as are the workspaces */
    copse__buffer **workspaces;
} engine;

static copse__view view_of(const engine *e, copse__tensor_id id) {
    if (id == COPSE__NO_TENSOR)
        return (copse__view){0};
    return (copse__view){e->buffers[e->graph->tensors[id].storage], 0,
                         copse__tensor_bytes(&e->graph->tensors[id], NULL)};
}

static void put(engine *e, copse__tensor_id id, const void *data, size_t bytes) {
    ASSERT_OK(e->host->write(e->device, COPSE__QUEUE_COMPUTE, view_of(e, id), data, bytes,
                             NULL, NULL, &error));
}

static void get(engine *e, copse__tensor_id id, void *data, size_t bytes) {
    ASSERT_OK(e->host->read(e->device, COPSE__QUEUE_COMPUTE, data, view_of(e, id), bytes,
                            NULL, NULL, &error));
}

/* Buffers hold NaN until something is written: nothing may be read before it is made. */
static void allocate(engine *e) {
    const copse__graph *graph = e->graph;
    copse_scalars scalars = {.seed0 = 5, .step = 3, .loss_scale = 1.0f / BATCH};
    copse__view view = {.bytes = sizeof scalars};
    ASSERT_OK(
        copse__calloc(&e->buffers, graph->tensor_count, sizeof *e->buffers, &error));
    for (size_t i = 0; i < graph->tensor_count; i++) {
        if (graph->tensors[i].storage != i)
            continue;
        size_t bytes = copse__round_up(copse__tensor_bytes(&graph->tensors[i], NULL), 4);
        ASSERT_OK(e->host->buffer_new(&e->buffers[i], e->device, bytes,
                                      COPSE__MEMORY_DEVICE, &error));
        ASSERT_OK(e->host->fill(e->device, COPSE__QUEUE_COMPUTE,
                                (copse__view){e->buffers[i], 0, bytes}, UINT32_MAX, NULL,
                                NULL, &error));
    }
    ASSERT_OK(e->host->buffer_new(&e->scalars, e->device, sizeof scalars,
                                  COPSE__MEMORY_DEVICE, &error));
    view.buffer = e->scalars;
    ASSERT_OK(e->host->write(e->device, COPSE__QUEUE_COMPUTE, view, &scalars,
                             sizeof scalars, NULL, NULL, &error));
}

static void prepare(engine *e) {
    const copse__graph *graph = e->graph;
    ASSERT_OK(
        copse__calloc(&e->launches, graph->node_count, sizeof *e->launches, &error));
    ASSERT_OK(
        copse__calloc(&e->workspaces, graph->node_count, sizeof *e->workspaces, &error));
    for (size_t i = 0; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        copse__operands operands = {.scalars = {e->scalars, 0, sizeof(copse_scalars)}};
        for (size_t j = 0; j < node->input_count; j++)
            operands.inputs[j] = view_of(e, node->inputs[j]);
        for (size_t j = 0; j < node->output_count; j++)
            operands.outputs[j] = view_of(e, node->outputs[j]);
        size_t bytes;
        ASSERT_OK(e->host->supports(e->device, graph, node, &bytes, &error));
        if (bytes > 0)
            ASSERT_OK(e->host->buffer_new(&e->workspaces[i], e->device, bytes,
                                          COPSE__MEMORY_DEVICE, &error));
        operands.workspace = (copse__view){e->workspaces[i], 0, bytes};
        ASSERT_OK(e->host->launch_new(&e->launches[i], e->device, graph, node, &operands,
                                      &error));
    }
}

static void start(engine *e, const copse__layer_spec *layers, size_t count,
                  const copse__model_options *options) {
    *e = (engine){.device = open_host(1)};
    e->host = copse__backend_of(e->device);
    ASSERT_OK(copse__model_build(&e->graph, layers, count, options, &error));
    allocate(e);
    prepare(e);
    for (size_t i = 0; i < e->graph->parameter_count; i++) {
        copse__tensor_id id = e->graph->parameters[i].tensor;
        size_t elements = copse__tensor_elements(&e->graph->tensors[id], NULL);
        float *values = checked_malloc(elements * sizeof(float));
        copse__parameter_initialize(e->graph, i, 9, values);
        put(e, id, values, elements * sizeof(float));
        free(values);
    }
}

static void stop(engine *e) {
    for (size_t i = 0; i < e->graph->node_count; i++) {
        e->host->launch_free(e->launches[i]);
        e->host->buffer_free(e->workspaces[i]);
    }
    for (size_t i = 0; i < e->graph->tensor_count; i++)
        e->host->buffer_free(e->buffers[i]);
    e->host->buffer_free(e->scalars);
    free(e->launches);
    free(e->workspaces);
    free(e->buffers);
    copse__graph_free(e->graph);
    copse__device_close(e->device);
}

/* The mean loss, after a run of all nodes. */
static double loss_of(engine *e) {
    copse__extents extents = {.of = {[COPSE__BATCH] = BATCH}};
    float metrics[2 * PLANNED];
    double loss = 0;
    ASSERT_OK(
        e->host->run(e->device, e->launches, e->graph->node_count, &extents, &error));
    get(e, e->graph->metrics, metrics, 2 * BATCH * sizeof(float));
    for (size_t i = 0; i < BATCH; i++)
        loss += metrics[2 * i] / BATCH;
    return loss;
}

/* Along a random direction of one parameter the loss rises as its gradient says. */
static void check_parameter(engine *e, size_t index) {
    const copse__parameter *parameter = &e->graph->parameters[index];
    const copse__tensor *tensor = &e->graph->tensors[parameter->tensor];
    size_t elements = copse__tensor_elements(tensor, NULL);
    size_t bytes = elements * sizeof(float);
    float *values = checked_malloc(bytes), *gradient = checked_malloc(bytes);
    float *direction = checked_malloc(bytes), *moved = checked_malloc(bytes);
    /* Of the direction, which has length 1: float32 losses blur differences by about 2e-5
     * then, and with 4e-3 some kinks of relu and maxima would be stepped over. */
    const double reach = 1e-3;
    double loss[2], length = 0, rise = 0, size = 0;
    loss_of(e);
    get(e, parameter->tensor, values, bytes);
    get(e, parameter->gradient, gradient, bytes);
    fill_uniform(direction, elements, 100 + index, -1, 1);
    for (size_t i = 0; i < elements; i++)
        length += (double)direction[i] * direction[i];
    for (size_t i = 0; i < elements; i++) {
        direction[i] = (float)(direction[i] / sqrt(length));
        rise += (double)direction[i] * gradient[i];
        size += (double)gradient[i] * gradient[i];
    }
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < elements; i++)
            moved[i] = (float)(values[i] + (side ? -reach : reach) * direction[i]);
        put(e, parameter->tensor, moved, bytes);
        loss[side] = loss_of(e);
    }
    put(e, parameter->tensor, values, bytes);
    double measured = (loss[0] - loss[1]) / (2 * reach);
    ck_assert_msg(size > 0, "%s: the gradient is zero", tensor->name);
    ck_assert_msg(fabs(measured - rise) < 5e-5 + 2e-3 * fabs(rise),
                  "%s: the loss rises by %g, the gradient says %g", tensor->name,
                  measured, rise);
    free(values), free(gradient), free(direction), free(moved);
}

static void check_network(const copse__layer_spec *layers, size_t count,
                          copse__model_options options) {
    engine e;
    options.training = true;
    options.max_batch = PLANNED;
    start(&e, layers, count, &options);
    const copse__tensor *input = &e.graph->tensors[e.graph->input];
    copse__extents extents = {.of = {[COPSE__BATCH] = BATCH}};
    size_t elements = copse__tensor_elements(input, &extents);
    float *x = checked_malloc(elements * sizeof(float));
    fill_uniform(x, elements, 1, -1, 1);
    put(&e, e.graph->input, x, elements * sizeof(float));
    if (options.loss == COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY) {
        const int32_t labels[BATCH] = {2, 0, 1, 1, 2, 0};
        put(&e, e.graph->label, labels, sizeof labels);
    } else {
        elements = copse__tensor_elements(&e.graph->tensors[e.graph->label], &extents);
        float *targets = checked_malloc(elements * sizeof(float));
        fill_uniform(targets, elements, 2, -1, 1);
        put(&e, e.graph->label, targets, elements * sizeof(float));
        free(targets);
    }
    for (size_t i = 0; i < e.graph->parameter_count; i++)
        check_parameter(&e, i);
    free(x);
    stop(&e);
}

static copse__model_options classes(size_t rank, const size_t *sample, bool logits) {
    copse__model_options options = float_options(rank, sample);
    options.loss = COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY;
    options.from_logits = logits;
    options.class_count = 3;
    return options;
}

static const size_t image[] = {7, 6, 2}, vector[] = {5};

START_TEST(test_gradients_of_the_cifar_network) {
    copse__layer_spec net[] = {
        {.kind = "conv2d",
         ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("activation", "relu"),
              TEXT("bias_initializer", "random_normal"))},
        {.kind = "max_pool2d"},
        {.kind = "flatten"},
        {.kind = "dense", ARGS(NUMBER("units", 6), TEXT("activation", "relu"))},
        {.kind = "dense", ARGS(NUMBER("units", 3))},
    };
    check_network(net, COPSE__COUNT(net), classes(3, image, true));
}
END_TEST

/* Overlapping windows, padding, strides, dilation, averages. */
START_TEST(test_gradients_of_windows) {
    copse__layer_spec net[] = {
        {.kind = "conv2d",
         ARGS(NUMBER("filters", 3), NUMBER("kernel", 3), NUMBER("dilation", 2),
              TEXT("padding", "same"), TEXT("activation", "tanh"))},
        {.kind = "conv2d",
         ARGS(NUMBER("filters", 4), PAIR("kernel", 3, 2), PAIR("strides", 2, 1),
              TEXT("padding", "same"), TEXT("activation", "gelu"))},
        {.kind = "avg_pool2d",
         ARGS(NUMBER("pool", 3), NUMBER("strides", 2), TEXT("padding", "same"))},
        {.kind = "max_pool2d",
         ARGS(NUMBER("pool", 2), NUMBER("strides", 1), TEXT("padding", "same"))},
        {.kind = "conv2d", ARGS(NUMBER("filters", 3), NUMBER("kernel", 1))},
        {.kind = "global_avg_pool2d"},
    };
    check_network(net, COPSE__COUNT(net), classes(3, image, true));
}
END_TEST

/* Branches, sums of one tensor with itself, normalisation inside and at the input. */
START_TEST(test_gradients_of_a_residual_network) {
    copse__layer_spec net[] = {
        {.kind = "batch_norm"},
        {.kind = "conv2d",
         .name = "stem",
         ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("padding", "same"))},
        {.kind = "batch_norm"},
        {.kind = "tanh", .name = "in"},
        {.kind = "conv2d",
         ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("padding", "same"),
              BOOL("use_bias", false))},
        {.kind = "batch_norm", ARGS(BOOL("scale", false))},
        {.kind = "sigmoid", .name = "out"},
        {.kind = "add", INPUTS("in", "out", "in", "stem")},
        {.kind = "global_avg_pool2d"},
        {.kind = "dense", ARGS(NUMBER("units", 3))},
    };
    copse__model_options options = classes(3, image, true);
    check_network(net, COPSE__COUNT(net), options);
}
END_TEST

START_TEST(test_gradients_of_probabilities) {
    copse__layer_spec net[] = {
        {.kind = "dense", ARGS(NUMBER("units", 8), TEXT("activation", "sigmoid"))},
        {.kind = "dropout", ARGS(NUMBER("rate", 0.3))},
        {.kind = "dense", ARGS(NUMBER("units", 3), TEXT("activation", "softmax"))},
    };
    check_network(net, COPSE__COUNT(net), classes(1, vector, false));
}
END_TEST

/* Several shapes of the same bytes, read on both sides of a view. */
START_TEST(test_gradients_through_views) {
    copse__layer_spec net[] = {
        {.kind = "dense", .name = "a", ARGS(NUMBER("units", 6))},
        {.kind = "reshape", ARGS(PAIR("shape", 2, 3))},
        {.kind = "dense",
         .name = "b",
         ARGS(NUMBER("units", 3), TEXT("activation", "tanh"))},
        {.kind = "reshape", .name = "q", ARGS(NUMBER("shape", -1))},
        {.kind = "add", INPUTS("q", "a")},
        {.kind = "dense", ARGS(NUMBER("units", 4), TEXT("activation", "softmax"))},
        {.kind = "reshape", ARGS(PAIR("shape", 2, 2))},
    };
    copse__model_options options = float_options(1, vector);
    options.loss = COPSE__LOSS_MEAN_SQUARED_ERROR;
    options.target_rank = 2;
    options.target_shape[0] = options.target_shape[1] = 2;
    check_network(net, COPSE__COUNT(net), options);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph gradients");
    ADD_TEST(suite, test_gradients_of_the_cifar_network);
    ADD_TEST(suite, test_gradients_of_windows);
    ADD_TEST(suite, test_gradients_of_a_residual_network);
    ADD_TEST(suite, test_gradients_of_probabilities);
    ADD_TEST(suite, test_gradients_through_views);
    return run_suite(suite);
}
