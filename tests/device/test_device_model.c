/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "plan/fuse.h"
#include "plan/program.h"
#include "support/golden.h"
#include "support/layers.h"
#include "support/op_case.h"
#include "support/op_run.h"
#include "train/optimizer.h"

/* Whole networks against Keras: the CIFAR-10 network's output, losses, every gradient and
 * every weight after ten steps of Adam, through plan, program and updater. */

enum { BATCH = 8, PLANNED = 9, CLASSES = 10, STEPS = 10 };

typedef struct network {
    const char *golden;
    size_t side, filters, units;
    float limits[3]; /* of initial biases, kernels of rank 2 and of rank 4 */
} network;

typedef struct model {
    const network *net;
    copse__graph *train, *eval;
    copse__layout *layout;
    copse__plan *train_plan, *eval_plan;
    copse__store *store;
    copse__program *trainer, *evaluator;
    copse__updater *updater;
    copse__optimizer optimizer;
    golden *file;
    float *images;
    int32_t labels[BATCH];
} model;

static const copse__extents extents = {{0, BATCH, 0}};

static void build(copse__graph **out, const network *net, bool training) {
    copse_error error = {0};
    copse__layer_spec layers[] = {
        {.kind = "conv2d",
         ARGS(NUMBER("filters", (double)net->filters), NUMBER("kernel", 3),
              TEXT("activation", "relu"))},
        {.kind = "max_pool2d", ARGS(NUMBER("pool", 2))},
        {.kind = "flatten"},
        {.kind = "dense",
         ARGS(NUMBER("units", (double)net->units), TEXT("activation", "relu"))},
        {.kind = "dense", ARGS(NUMBER("units", CLASSES))},
    };
    copse__model_options options = cifar_options();
    options.sample_shape[0] = options.sample_shape[1] = net->side;
    options.sample_dtype = COPSE_F32;
    options.scale = 1;
    options.max_batch = PLANNED;
    options.training = training;
    ASSERT_OK(copse__model_build(out, layers, COPSE__COUNT(layers), &options, &error));
    ASSERT_OK(copse__fuse(*out, test_device, NULL, &error));
}

static size_t parameter_elements(const model *m, size_t p) {
    return copse__tensor_elements(&m->train->tensors[m->train->parameters[p].tensor],
                                  NULL);
}

/* As make_golden.py draws them. */
static void set_weights(model *m) {
    copse_error error = {0};
    for (size_t p = 0; p < m->train->parameter_count; p++) {
        size_t elements = parameter_elements(m, p);
        size_t rank = m->train->tensors[m->train->parameters[p].tensor].rank;
        float *values = checked_malloc(elements * sizeof *values);
        float limit = m->net->limits[rank / 2];
        fill_uniform(values, elements, 100 + p, -limit, limit);
        ASSERT_OK(copse__store_write(m->store, COPSE__KIND_WEIGHT, 0, p, values, &error));
        free(values);
    }
}

static void open_model(model *m, const network *net) {
    copse_error error = {0};
    *m = (model){.net = net, .file = golden_open(net->golden)};
    build(&m->train, net, true);
    build(&m->eval, net, false);
    copse__layout_options layout = {.first_bucket_bytes = 1024};
    ASSERT_OK(copse__layout_new(&m->layout, m->train, &layout, &error));
    ASSERT_OK(copse__plan_new(&m->train_plan, m->train, m->layout, test_device, &error));
    ASSERT_OK(copse__plan_new(&m->eval_plan, m->eval, m->layout, test_device, &error));
    m->optimizer = (copse__optimizer){
        .op = COPSE__OP_UPDATE_ADAM,
        .attrs = {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7}};
    const copse__plan *plans[] = {m->train_plan, m->eval_plan};
    ASSERT_OK(copse__store_new(&m->store, test_device, m->layout,
                               copse__optimizer_slots(&m->optimizer), true, plans, 2,
                               &error));
    ASSERT_OK(copse__program_new(&m->trainer, m->train, m->train_plan, m->store, &error));
    ASSERT_OK(copse__program_new(&m->evaluator, m->eval, m->eval_plan, m->store, &error));
    ASSERT_OK(copse__updater_new(&m->updater, m->store, &m->optimizer, &error));
    size_t pixels = BATCH * net->side * net->side * 3;
    m->images = checked_malloc(pixels * sizeof *m->images);
    fill_uniform(m->images, pixels, 1, 0, 1);
    for (int32_t i = 0; i < BATCH; i++)
        m->labels[i] = i * 3 % CLASSES;
    set_weights(m);
}

static void close_model(model *m) {
    copse__updater_free(m->updater);
    copse__program_free(m->trainer);
    copse__program_free(m->evaluator);
    copse__store_free(m->store);
    copse__plan_free(m->train_plan);
    copse__plan_free(m->eval_plan);
    copse__layout_free(m->layout);
    copse__graph_free(m->train);
    copse__graph_free(m->eval);
    golden_free(m->file);
    free(m->images);
}

static void run_all(model *m, copse__program *program, const copse__graph *graph) {
    copse_error error = {0};
    ASSERT_OK(copse__program_upload(program, 0, m->images, m->labels, &extents, &error));
    ASSERT_OK(copse__program_run(program, 0, 0, graph->node_count, &extents, &error));
    ASSERT_OK(copse__program_collect(program, 0, &extents, &error));
    ASSERT_OK(copse__program_wait(program, 0, UINT64_MAX, &error));
}

static void check_losses(const model *m, const copse__program *program, const char *name,
                         double tolerance) {
    float losses[BATCH];
    for (size_t i = 0; i < BATCH; i++)
        losses[i] = copse__program_metrics(program, 0)[2 * i];
    golden_check(m->file, name, losses, BATCH, tolerance);
}

static void check_parameters(model *m, copse__kind kind, const char *what,
                             double tolerance) {
    copse_error error = {0};
    for (size_t p = 0; p < m->train->parameter_count; p++) {
        char name[32];
        size_t elements = parameter_elements(m, p);
        float *values = checked_malloc(elements * sizeof *values);
        snprintf(name, sizeof name, "%s/%zu", what, p);
        ASSERT_OK(copse__store_read(m->store, kind, 0, p, values, &error));
        golden_check(m->file, name, values, elements, tolerance);
        free(values);
    }
}

static void step(model *m, uint64_t number) {
    copse_error error = {0};
    copse_scalars scalars = {.loss_scale = 1.0f / BATCH, .gradient_scale = 1};
    copse__view to = {.buffer = m->store->scalars, .bytes = sizeof scalars};
    copse__optimizer_scalars(&m->optimizer, number, 0.001, &scalars);
    ASSERT_OK(copse__backend_of(test_device)
                  ->write(test_device, COPSE__QUEUE_COMPUTE, to, &scalars, sizeof scalars,
                          NULL, NULL, &error));
    run_all(m, m->trainer, m->train);
    if (number == 0) {
        check_losses(m, m->trainer, "loss", 1e-5);
        check_parameters(m, COPSE__KIND_GRADIENT, "gradient", 1e-5);
    }
    ASSERT_OK(copse__updater_apply(m->updater, &error));
    ASSERT_OK(copse__backend_of(test_device)
                  ->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
}

/* Slow devices are spared the ten steps of the large network. */
static bool is_slow(void) {
    const char *level = getenv("COPSE_TEST_LEVEL");
    return level && strcmp(level, "full") != 0;
}

static void check_network(const network *net, bool first_step_only) {
    copse_error error = {0};
    float logits[BATCH * CLASSES];
    model m;
    open_model(&m, net);
    run_all(&m, m.evaluator, m.eval);
    ASSERT_OK(copse__program_read_output(m.evaluator, &extents, logits, &error));
    golden_check(m.file, "logits", logits, BATCH * CLASSES, 1e-5);
    for (uint64_t i = 0; i < (first_step_only ? 1 : STEPS); i++)
        step(&m, i);
    if (!first_step_only) {
        check_parameters(&m, COPSE__KIND_WEIGHT, "adam10", 1e-4);
        run_all(&m, m.evaluator, m.eval);
        check_losses(&m, m.evaluator, "loss10", 1e-4);
    }
    close_model(&m);
}

START_TEST(test_narrow_network_as_in_keras) {
    check_network(&(network){"narrow", 12, 4, 8, {0.125f, 0.25f, 0.5f}}, false);
}
END_TEST

START_TEST(test_cifar_network_as_in_keras) {
    check_network(&(network){"cifar", 32, 32, 128, {0.125f, 0.0625f, 0.2f}}, is_slow());
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device_model");
    TCase *tests = device_case(suite, "model");
    tcase_add_test(tests, test_narrow_network_as_in_keras);
    tcase_add_test(tests, test_cifar_network_as_in_keras);
    return run_device_suite(suite);
}
