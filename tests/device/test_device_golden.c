/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/golden.h"
#include "support/op_case.h"
#include "support/op_run.h"

/* Single operations against what Keras computes: conventions (padding, epsilons, factors
 * of gradients, order of an update) that a reference of our own could have wrong too. */

static const double tolerance = 1e-5;

enum { MOST = 4096 };

/* Operands of one test; large enough for every tensor in operations.golden. */
static float x[MOST], w[MOST], b[MOST], dy[MOST], y[MOST], dx[MOST], dw[MOST], db[MOST];

static golden *file;

static void check(const char *group, const char *part, const float *got, size_t count) {
    char name[64];
    snprintf(name, sizeof name, "%s/%s", group, part);
    golden_check(file, name, got, count, tolerance);
}

/* Runs one node on the fixture's device; operands that it lacks are not looked at. */
static void run(const copse__node_spec *spec, size_t batch, const copse_scalars *scalars,
                const void *const in[], void *const out[]) {
    copse_error error = {0};
    ASSERT_OK(run_op(test_device, spec, batch, scalars, in, out, &error));
}

static size_t elements_of(copse__node_operand operand) {
    return copse__node_operand_elements(&operand, NULL);
}

static void check_convolution(const char *name, copse__node_operand image,
                              copse__node_operand filter, copse__node_operand map,
                              copse__window win) {
    size_t images = image.dim[0].size, filters = map.dim[3].size;
    copse__node_operand bias = FIXED(COPSE_F32, filters);
    fill_uniform(x, elements_of(image), 1, -1, 1);
    fill_uniform(w, elements_of(filter), 2, -1, 1);
    fill_uniform(b, filters, 3, -1, 1);
    fill_uniform(dy, elements_of(map), 4, -1, 1);
    copse__node_spec spec = {.op = COPSE__OP_CONV2D,
                             .attrs.window = win,
                             .in = {image, filter, bias},
                             .out = {map}};
    run(&spec, images, NULL, (const void *[8]){x, w, b}, (void *[4]){y});
    check(name, "y", y, elements_of(map));
    spec = (copse__node_spec){.op = COPSE__OP_CONV2D_GRAD_INPUT,
                              .attrs.window = win,
                              .in = {map, filter},
                              .out = {image}};
    run(&spec, images, NULL, (const void *[8]){dy, w}, (void *[4]){dx});
    check(name, "dx", dx, elements_of(image));
    spec = (copse__node_spec){.op = COPSE__OP_CONV2D_GRAD_FILTER,
                              .attrs.window = win,
                              .in = {image, map},
                              .out = {filter}};
    run(&spec, images, NULL, (const void *[8]){x, dy}, (void *[4]){dw});
    check(name, "dw", dw, elements_of(filter));
    spec = (copse__node_spec){
        .op = COPSE__OP_BIAS_GRAD, .in = {map}, .out = {FIXED(COPSE_F32, filters)}};
    run(&spec, images, NULL, (const void *[8]){dy}, (void *[4]){db});
    check(name, "db", db, filters);
}

START_TEST(test_convolutions_as_in_keras) {
    file = golden_open("operations");
    check_convolution("conv_strided", BATCHED(COPSE_F32, 2, 8, 7, 3),
                      FIXED(COPSE_F32, 3, 3, 3, 4), BATCHED(COPSE_F32, 2, 4, 4, 4),
                      (copse__window){3, 3, 2, 2, 1, 1, 0, 1});
    check_convolution("conv_dilated", BATCHED(COPSE_F32, 2, 9, 10, 2),
                      FIXED(COPSE_F32, 3, 2, 2, 3), BATCHED(COPSE_F32, 2, 9, 10, 3),
                      (copse__window){3, 2, 1, 1, 2, 2, 2, 1});
    check_convolution("conv_valid", BATCHED(COPSE_F32, 2, 6, 7, 3),
                      FIXED(COPSE_F32, 3, 3, 3, 5), BATCHED(COPSE_F32, 2, 4, 5, 5),
                      (copse__window){3, 3, 1, 1, 1, 1, 0, 0});
    golden_free(file);
}
END_TEST

static void check_pooling(const char *name, bool average, copse__node_operand image,
                          copse__node_operand map, copse__window win) {
    size_t images = image.dim[0].size;
    copse__node_operand index = map;
    uint8_t places[MOST];
    index.dtype = COPSE_U8;
    fill_uniform(x, elements_of(image), 1, -1, 1);
    fill_uniform(dy, elements_of(map), 4, -1, 1);
    copse__node_spec spec = {.op = average ? COPSE__OP_AVG_POOL2D : COPSE__OP_MAX_POOL2D,
                             .attrs.window = win,
                             .in = {image},
                             .out = {map}};
    if (!average)
        spec.out[1] = index;
    run(&spec, images, NULL, (const void *[8]){x}, (void *[4]){y, places});
    check(name, "y", y, elements_of(map));
    spec = (copse__node_spec){.op = average ? COPSE__OP_AVG_POOL2D_GRAD
                                            : COPSE__OP_MAX_POOL2D_GRAD,
                              .attrs.window = win,
                              .in = {map},
                              .out = {image}};
    if (!average)
        spec.in[1] = index;
    run(&spec, images, NULL, (const void *[8]){dy, places}, (void *[4]){dx});
    check(name, "dx", dx, elements_of(image));
}

START_TEST(test_poolings_as_in_keras) {
    file = golden_open("operations");
    check_pooling("max_pool_same", false, BATCHED(COPSE_F32, 2, 7, 5, 3),
                  BATCHED(COPSE_F32, 2, 4, 3, 3),
                  (copse__window){3, 3, 2, 2, 1, 1, 1, 1});
    check_pooling("avg_pool_same", true, BATCHED(COPSE_F32, 2, 7, 5, 3),
                  BATCHED(COPSE_F32, 2, 4, 3, 3),
                  (copse__window){3, 3, 2, 2, 1, 1, 1, 1});
    check_pooling("avg_pool_valid", true, BATCHED(COPSE_F32, 2, 7, 6, 2),
                  BATCHED(COPSE_F32, 2, 3, 3, 2),
                  (copse__window){2, 2, 2, 2, 1, 1, 0, 0});
    golden_free(file);
}
END_TEST

START_TEST(test_activations_as_in_keras) {
    enum { ROWS = 5, COLUMNS = 37, COUNT = ROWS * COLUMNS };
    copse__node_operand plane = BATCHED(COPSE_F32, ROWS, COLUMNS);
    file = golden_open("operations");
    fill_uniform(x, COUNT, 1, -4, 4);
    fill_uniform(dy, COUNT, 4, -1, 1);
    for (int act = COPSE__ACT_RELU; act < COPSE__ACT_COUNT; act++) {
        const char *name = copse__activation_name((copse__activation)act);
        copse__node_spec spec = {.op = COPSE__OP_ACTIVATION,
                                 .attrs.act = (copse__activation)act,
                                 .in = {plane},
                                 .out = {plane}};
        run(&spec, ROWS, NULL, (const void *[8]){x}, (void *[4]){y});
        check(name, "y", y, COUNT);
        spec.op = COPSE__OP_ACTIVATION_GRAD;
        spec.in[1] = plane;
        run(&spec, ROWS, NULL, (const void *[8]){act == COPSE__ACT_GELU ? x : y, dy},
            (void *[4]){dx});
        check(name, "dx", dx, COUNT);
    }
    copse__node_spec spec = {.op = COPSE__OP_SOFTMAX, .in = {plane}, .out = {plane}};
    run(&spec, ROWS, NULL, (const void *[8]){x}, (void *[4]){y});
    check("softmax", "y", y, COUNT);
    spec.op = COPSE__OP_SOFTMAX_GRAD;
    spec.in[1] = plane;
    run(&spec, ROWS, NULL, (const void *[8]){y, dy}, (void *[4]){dx});
    check("softmax", "dx", dx, COUNT);
    golden_free(file);
}
END_TEST

/* Forward in training, backward, and what the moving statistics become. */
START_TEST(test_batch_norm_as_in_keras) {
    enum { N = 4, C = 5, COUNT = N * 3 * 2 * C };
    const float epsilon = 1e-3f, momentum = 0.99f;
    copse__node_operand plane = BATCHED(COPSE_F32, N, 3, 2, C);
    copse__node_operand column = FIXED(COPSE_F32, C), pair = FIXED(COPSE_F32, 2, C);
    float stats[2 * C], sums[2 * C], moving[2 * C];
    file = golden_open("operations");
    fill_uniform(x, COUNT, 1, -1, 3);
    fill_uniform(w, C, 2, 0.5f, 2);
    fill_uniform(b, C, 3, -1, 1);
    fill_uniform(dy, COUNT, 4, -1, 1);
    copse__node_spec spec = {.op = COPSE__OP_BN_MOMENTS, .in = {plane}, .out = {pair}};
    run(&spec, N, NULL, (const void *[8]){x}, (void *[4]){stats});
    spec = (copse__node_spec){.op = COPSE__OP_BN_NORMALIZE,
                              .attrs.norm.epsilon = epsilon,
                              .in = {plane, pair, column, column},
                              .out = {plane}};
    run(&spec, N, NULL, (const void *[8]){x, stats, w, b}, (void *[4]){y});
    check("batch_norm", "y", y, COUNT);
    spec = (copse__node_spec){.op = COPSE__OP_BN_GRAD_REDUCE,
                              .attrs.norm.epsilon = epsilon,
                              .in = {plane, plane, pair},
                              .out = {pair, column, column}};
    run(&spec, N, NULL, (const void *[8]){x, dy, stats}, (void *[4]){sums, dw, db});
    check("batch_norm", "dgamma", dw, C);
    check("batch_norm", "dbeta", db, C);
    spec = (copse__node_spec){.op = COPSE__OP_BN_GRAD_INPUT,
                              .attrs.norm.epsilon = epsilon,
                              .in = {plane, plane, pair, pair, column},
                              .out = {plane}};
    run(&spec, N, NULL, (const void *[8]){x, dy, stats, sums, w}, (void *[4]){dx});
    check("batch_norm", "dx", dx, COUNT);
    for (size_t c = 0; c < C; c++) { /* from zeros and ones */
        moving[c] = (1 - momentum) * stats[c];
        moving[C + c] = momentum + (1 - momentum) * stats[C + c];
    }
    check("batch_norm", "moving_mean", moving, C);
    check("batch_norm", "moving_variance", moving + C, C);
    spec = (copse__node_spec){.op = COPSE__OP_BN_INFER,
                              .attrs.norm.epsilon = epsilon,
                              .in = {plane, column, column, column, column},
                              .out = {plane}};
    run(&spec, N, NULL, (const void *[8]){x, moving, moving + C, w, b}, (void *[4]){y});
    check("batch_norm", "infer", y, COUNT);
    golden_free(file);
}
END_TEST

/* Takes every second of [rows, 2] metrics: the losses. */
static void take_losses(float *to, const float *metrics, size_t rows) {
    for (size_t r = 0; r < rows; r++)
        to[r] = metrics[2 * r];
}

START_TEST(test_losses_as_in_keras) {
    enum { ROWS = 6, CLASSES = 11, COUNT = ROWS * CLASSES };
    const int32_t labels[ROWS] = {0, 10, 3, 3, 7, 5};
    const copse_scalars scalars = {.loss_scale = 0.125f};
    copse__node_operand plane = BATCHED(COPSE_F32, ROWS, CLASSES);
    float metrics[2 * ROWS], losses[ROWS];
    file = golden_open("operations");
    for (int logits = 0; logits < 2; logits++) {
        const char *name =
            logits ? "cross_entropy_logits" : "cross_entropy_probabilities";
        copse__node_spec spec = {.op = COPSE__OP_CROSS_ENTROPY,
                                 .attrs.loss.from_logits = logits,
                                 .in = {plane, BATCHED(COPSE_I32, ROWS)},
                                 .out = {BATCHED(COPSE_F32, ROWS, 2), plane}};
        fill_uniform(x, COUNT, 1, logits ? -3.0f : 0.01f, logits ? 3.0f : 1.0f);
        run(&spec, ROWS, &scalars, (const void *[8]){x, labels},
            (void *[4]){metrics, dx});
        take_losses(losses, metrics, ROWS);
        check(name, "y", losses, ROWS);
        check(name, "dx", dx, COUNT);
    }
    fill_uniform(x, COUNT, 1, -1, 1);
    fill_uniform(w, COUNT, 2, -1, 1);
    copse__node_spec spec = {.op = COPSE__OP_MEAN_SQUARED_ERROR,
                             .in = {plane, plane},
                             .out = {BATCHED(COPSE_F32, ROWS, 2), plane}};
    run(&spec, ROWS, &scalars, (const void *[8]){x, w}, (void *[4]){metrics, dx});
    take_losses(losses, metrics, ROWS);
    check("mean_squared_error", "y", losses, ROWS);
    check("mean_squared_error", "dx", dx, COUNT);
    golden_free(file);
}
END_TEST

static const struct {
    const char *name;
    copse__op op;
    copse__attrs attrs;
    double lr, weight_decay;
    bool slots[3];
} optimizers[] = {
    {"sgd", COPSE__OP_UPDATE_SGD, {0}, 0.01, 0, {false, false, false}},
    {"sgd_momentum",
     COPSE__OP_UPDATE_SGD,
     {.update.momentum = 0.9},
     0.01,
     0,
     {true, false, false}},
    {"sgd_nesterov",
     COPSE__OP_UPDATE_SGD,
     {.update.momentum = 0.9, .update.nesterov = true},
     0.01,
     0,
     {true, false, false}},
    {"adam",
     COPSE__OP_UPDATE_ADAM,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     0.001,
     0,
     {true, true, false}},
    {"adamw",
     COPSE__OP_UPDATE_ADAMW,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     0.001,
     0.004,
     {true, true, false}},
    {"rmsprop",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9, .update.epsilon = 1e-7},
     0.001,
     0,
     {true, false, false}},
    {"rmsprop_centered",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9,
      .update.epsilon = 1e-7,
      .update.momentum = 0.5,
      .update.centered = true},
     0.001,
     0,
     {true, true, true}},
};

static void check_optimizer(size_t o) {
    enum { COUNT = 101, STEPS = 5 };
    copse__node_operand flat = FIXED(COPSE_F32, COUNT);
    float slots[3][COUNT] = {{0}}, gradient[COUNT];
    copse__node_spec spec = {.op = optimizers[o].op,
                             .attrs = optimizers[o].attrs,
                             .in = {flat, flat},
                             .out = {flat},
                             .in_place = {1}};
    for (uint8_t s = 0; s < 3; s++) {
        if (!optimizers[o].slots[s])
            continue;
        spec.in[2 + s] = spec.out[1 + s] = flat;
        spec.in_place[1 + s] = (uint8_t)(3 + s);
    }
    fill_uniform(w, COUNT, 1, -1, 1);
    for (int step = 0; step < STEPS; step++) {
        double lr = optimizers[o].lr;
        copse_scalars scalars = {
            .gradient_scale = 1,
            .learning_rate = (float)lr,
            .step_size =
                (float)(lr * sqrt(1 - pow(0.999, step + 1)) / (1 - pow(0.9, step + 1))),
            .weight_decay = (float)(lr * optimizers[o].weight_decay)};
        fill_uniform(gradient, COUNT, (uint64_t)step + 10, -1, 1);
        run(&spec, 0, &scalars,
            (const void *[8]){w, gradient, slots[0], slots[1], slots[2]},
            (void *[4]){w, slots[0], slots[1], slots[2]});
    }
    check(optimizers[o].name, "w", w, COUNT);
}

START_TEST(test_optimizers_as_in_keras) {
    file = golden_open("operations");
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++)
        check_optimizer(o);
    golden_free(file);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device_golden");
    TCase *tests = device_case(suite, "golden");
    tcase_add_test(tests, test_convolutions_as_in_keras);
    tcase_add_test(tests, test_poolings_as_in_keras);
    tcase_add_test(tests, test_activations_as_in_keras);
    tcase_add_test(tests, test_batch_norm_as_in_keras);
    tcase_add_test(tests, test_losses_as_in_keras);
    tcase_add_test(tests, test_optimizers_as_in_keras);
    return run_device_suite(suite);
}
