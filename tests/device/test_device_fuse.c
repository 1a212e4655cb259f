/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/fuse.h"
#include "plan/program.h"
#include "support/layers.h"
#include "support/op_case.h"
#include "support/op_run.h"

/* A network's fused graph against the same one as it was built, on one device: outputs, losses and
 * every gradient. On the host the bits must be equal, but for activations that round. */

enum { BATCH = 5, PLANNED = 7, CLASSES = 10 };

typedef struct net {
    const char *name;
    copse__layer_spec *layers;
    size_t count;
    size_t side, channels;
    size_t
        gone; /* nodes that fusing takes out of the training graph, besides dense layers' own */
    bool
        slopes; /* also the gradient of an activation in front of a dense layer's flattened map */
    bool rounds; /* an epilogue's tanh sees the sum before it is rounded */
    size_t
        folds; /* normalisations that become part of a convolution in the inference graph */
} net;

typedef struct bound {
    copse__graph *graph;
    copse__layout *layout;
    copse__plan *plan;
    copse__store *store;
    copse__program *program;
    size_t gone;
} bound;

static const copse__extents extents = {.of = {[COPSE__BATCH] = BATCH}};

static void set_weights(bound *b) {
    copse_error error = {0};
    for (size_t p = 0; p < b->graph->parameter_count; p++) {
        const copse__tensor *tensor = &b->graph->tensors[b->graph->parameters[p].tensor];
        size_t elements = copse__tensor_elements(tensor, NULL);
        float *values = checked_malloc(elements * sizeof *values);
        fill_uniform(values, elements, 100 + p, tensor->rank == 1 ? -0.1f : -0.25f,
                     0.25f);
        ASSERT_OK(copse__store_write(b->store, COPSE__KIND_WEIGHT, 0, p, values, &error));
        free(values);
    }
}

/* Moving statistics that are not those of the beginning. */
static void set_states(bound *b) {
    const copse__backend *backend = copse__backend_of(test_device);
    copse_error error = {0};
    for (size_t s = 0; s < b->graph->state_count; s++) {
        const copse__tensor_id ids[] = {b->graph->states[s].moving_mean,
                                        b->graph->states[s].moving_variance};
        for (size_t i = 0; i < 2; i++) {
            copse__placement at = b->plan->tensors[ids[i]];
            float values[64];
            ck_assert_uint_le(at.bytes, sizeof values);
            fill_uniform(values, at.bytes / sizeof *values, 300 + 2 * s + i,
                         i ? 0.1f : -1, 1);
            copse__view to = {
                .buffer = b->store->state, .offset = at.offset, .bytes = at.bytes};
            ASSERT_OK(backend->write(test_device, COPSE__QUEUE_COMPUTE, to, values,
                                     at.bytes, NULL, NULL, &error));
            ASSERT_OK(backend->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
        }
    }
}

static void bind(bound *b, const net *n, bool training, bool fuse) {
    copse_error error = {0};
    copse__model_options options = cifar_options();
    options.sample_shape[0] = options.sample_shape[1] = n->side;
    options.sample_shape[2] = n->channels;
    options.max_batch = PLANNED;
    options.training = training;
    *b = (bound){0};
    ASSERT_OK(copse__model_build(&b->graph, n->layers, n->count, &options, &error));
    if (fuse)
        ASSERT_OK(copse__fuse(b->graph, test_device, &b->gone, &error));
    copse__layout_options small = {.first_bucket_bytes = 512, .bucket_bytes = 4096};
    ASSERT_OK(copse__layout_new(&b->layout, b->graph, &small, &error));
    ASSERT_OK(copse__plan_new(&b->plan, b->graph, b->layout, test_device, &error));
    const copse__plan *plans[] = {b->plan};
    ASSERT_OK(copse__store_new(&b->store, test_device, b->layout, 0, training, plans, 1,
                               &error));
    ASSERT_OK(copse__program_new(&b->program, b->graph, b->plan, b->store, &error));
    set_weights(b);
    if (!training)
        set_states(b);
}

static void release(bound *b) {
    copse__program_free(b->program);
    copse__store_free(b->store);
    copse__plan_free(b->plan);
    copse__layout_free(b->layout);
    copse__graph_free(b->graph);
}

static void run(bound *b, const net *n) {
    copse_error error = {0};
    size_t pixels = BATCH * n->side * n->side * n->channels;
    uint8_t *images = checked_malloc(pixels);
    int32_t labels[BATCH];
    for (size_t i = 0; i < pixels; i++)
        images[i] = (uint8_t)(i * 2654435761u >> 13);
    for (int32_t i = 0; i < BATCH; i++)
        labels[i] = i * 3 % CLASSES;
    copse_scalars scalars = {.loss_scale = 1.0f / BATCH, .gradient_scale = 1, .step = 3};
    copse__view to = {.buffer = b->store->scalars, .bytes = sizeof scalars};
    ASSERT_OK(copse__backend_of(test_device)
                  ->write(test_device, COPSE__QUEUE_COMPUTE, to, &scalars, sizeof scalars,
                          NULL, NULL, &error));
    ASSERT_OK(copse__program_upload(b->program, 0, images, labels, &extents, &error));
    ASSERT_OK(
        copse__program_run(b->program, 0, 0, b->graph->node_count, &extents, &error));
    ASSERT_OK(copse__program_collect(b->program, 0, &extents, &error));
    ASSERT_OK(copse__program_wait(b->program, 0, UINT64_MAX, &error));
    ASSERT_OK(copse__backend_of(test_device)
                  ->finish(test_device, COPSE__QUEUE_COMPUTE, &error));
    free(images);
}

static bool is_host(void) {
    return copse__device_get(test_device)->choice.api == COPSE__API_HOST;
}

static size_t count_ops(const bound *b, copse__op op) {
    size_t found = 0;
    for (size_t i = 0; i < b->graph->node_count; i++)
        found += b->graph->nodes[i].op == op;
    return found;
}

static void compare(const net *n, const char *what, bool rounds, const float *got,
                    const float *want, size_t count) {
    double largest = 0, worst = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)want[i]));
    ck_assert_msg(largest > 0, "%s: %s is all zeros", n->name, what);
    if (is_host() && !rounds) {
        ck_assert_msg(memcmp(got, want, count * sizeof *got) == 0,
                      "%s: %s has other bits", n->name, what);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - (double)want[i]);
        worst = difference <= worst ? worst : difference; /* a NaN is worst */
    }
    ck_assert_msg(worst <= 1e-5 * largest, "%s: %s differs by %g of %g", n->name, what,
                  worst, largest);
}

static void compare_gradients(const net *n, bound *fused, bound *plain) {
    copse_error error = {0};
    for (size_t p = 0; p < plain->graph->parameter_count; p++) {
        const copse__tensor *tensor =
            &plain->graph->tensors[plain->graph->parameters[p].tensor];
        size_t count = copse__tensor_elements(tensor, NULL);
        float *got = checked_malloc(count * sizeof *got);
        float *want = checked_malloc(count * sizeof *want);
        ASSERT_OK(
            copse__store_read(fused->store, COPSE__KIND_GRADIENT, 0, p, got, &error));
        ASSERT_OK(
            copse__store_read(plain->store, COPSE__KIND_GRADIENT, 0, p, want, &error));
        compare(n, tensor->name, n->rounds, got, want, count);
        free(got);
        free(want);
    }
}

/* Whatever a device fuses, all devices of a run lay their parameters out alike. */
static void compare_layouts(const bound *fused, const bound *plain) {
    ck_assert_uint_eq(fused->layout->bucket_count, plain->layout->bucket_count);
    for (size_t p = 0; p < plain->layout->parameter_count; p++) {
        const copse__parameter_place *a = &fused->layout->places[p],
                                     *b = &plain->layout->places[p];
        ck_assert(a->bucket == b->bucket && a->offset == b->offset &&
                  a->elements == b->elements);
    }
}

/* Bias gradients that become part of their weights'. */
static size_t dense_biases(const net *n) {
    size_t found = 0;
    for (size_t i = 0; i < n->count; i++)
        found += strcmp(n->layers[i].kind, "dense") == 0;
    return device_fuses_dense() ? found : 0;
}

static void check(const net *n) {
    copse_error error = {0};
    float got[BATCH * CLASSES], want[BATCH * CLASSES];
    for (int training = 0; training < 2; training++) {
        bound fused, plain;
        bind(&fused, n, training, true);
        bind(&plain, n, training, false);
        run(&fused, n);
        run(&plain, n);
        ASSERT_OK(copse__program_read_output(fused.program, &extents, got, &error));
        ASSERT_OK(copse__program_read_output(plain.program, &extents, want, &error));
        bool rounds = n->rounds || (!training && n->folds > 0);
        compare(n, "the output", rounds, got, want, BATCH * CLASSES);
        compare(n, "the loss", rounds, copse__program_metrics(fused.program, 0),
                copse__program_metrics(plain.program, 0), 2 * BATCH);
        compare_layouts(&fused, &plain);
        ck_assert_uint_eq(count_ops(&fused, COPSE__OP_BN_FOLD), training ? 0 : n->folds);
        ck_assert_uint_eq(count_ops(&fused, COPSE__OP_BN_INFER),
                          count_ops(&plain, COPSE__OP_BN_INFER) -
                              (training ? 0 : n->folds));
        if (training) {
            compare_gradients(n, &fused, &plain);
            printf("  %s: %zu of %zu nodes gone, arena %zu of %zu bytes\n", n->name,
                   fused.gone, plain.graph->node_count,
                   copse__plan_arena_bytes(fused.plan),
                   copse__plan_arena_bytes(plain.plan));
            ck_assert_uint_eq(fused.gone, n->gone + dense_biases(n) +
                                              (n->slopes && device_fuses_dense()));
        }
        release(&fused);
        release(&plain);
    }
}

#define NET(...)                                                                         \
    .layers = (copse__layer_spec[]){__VA_ARGS__},                                        \
    .count = COPSE__COUNT(((copse__layer_spec[]){__VA_ARGS__}))
#define CONV(f, ...)                                                                     \
    { .kind = "conv2d", ARGS(NUMBER("filters", f), NUMBER("kernel", 3), __VA_ARGS__) }
#define POOL                                                                             \
    { .kind = "max_pool2d", ARGS(NUMBER("pool", 2)) }
#define HEAD                                                                             \
    {.kind = "flatten"}, {                                                               \
        .kind = "dense", ARGS(NUMBER("units", CLASSES))                                  \
    }

START_TEST(test_fuse_convolution_with_pooling) {
    /* odd maps, of which pooling leaves a row and a column out; one and two of them; no activation */
    check(&(net){"one", NET(CONV(8, TEXT("activation", "relu")), POOL, HEAD), 13, 3, 4,
                 true});
    check(&(net){"two",
                 NET(CONV(5, TEXT("activation", "relu")), POOL,
                     CONV(18, TEXT("activation", "relu"), TEXT("padding", "same")), POOL,
                     HEAD),
                 14, 1, 8, true});
    check(&(net){"tanh", NET(CONV(5, TEXT("activation", "tanh")), POOL, HEAD), 8, 1, 4,
                 true, true});
    check(&(net){"plain", NET(CONV(16, TEXT("padding", "same")), POOL, HEAD), 8, 2, 3});
}
END_TEST

/* Where the map has another reader, or pooling reaches past it, both stay. */
START_TEST(test_fuse_leaves_what_it_may_not_touch) {
    check(&(net){
        "hanging over",
        NET(CONV(4, TEXT("activation", "relu")),
            {.kind = "max_pool2d", ARGS(NUMBER("pool", 2), TEXT("padding", "same"))},
            HEAD),
        9, 1, 1});
    check(&(net){"two readers",
                 NET({.kind = "conv2d",
                      .name = "c",
                      ARGS(NUMBER("filters", 4), NUMBER("kernel", 3))},
                     POOL, {.kind = "global_avg_pool2d", .name = "a", INPUTS("c")},
                     {.kind = "global_avg_pool2d", .name = "b", INPUTS("max_pooling2d")},
                     {.kind = "add", INPUTS("a", "b")},
                     {.kind = "dense", ARGS(NUMBER("units", CLASSES))}),
                 10, 1, 0});
}
END_TEST

/* A residual block, and dropout between activations: forward and backward become chains. Draws are the
 * same, as they are keyed by the forward node's call. */
START_TEST(test_fuse_elementwise_chains) {
    check(&(net){
        "residual",
        NET({.kind = "conv2d",
             .name = "a",
             ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("padding", "same"),
                  TEXT("activation", "relu"))},
            {.kind = "conv2d",
             .name = "b",
             ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("padding", "same"))},
            {.kind = "add", .name = "sum", INPUTS("a", "b")},
            {.kind = "relu", .name = "r"},
            {.kind = "dropout", .name = "d", ARGS(NUMBER("rate", 0.25))}, HEAD),
        6, 2, 5});
    check(&(net){"chain",
                 NET({.kind = "flatten"}, {.kind = "dense", ARGS(NUMBER("units", 37))},
                     {.kind = "batch_norm"}, {.kind = "relu"},
                     {.kind = "dropout", ARGS(NUMBER("rate", 0.5))},
                     {.kind = "activation", ARGS(TEXT("kind", "gelu"))},
                     {.kind = "activation", ARGS(TEXT("kind", "tanh"))},
                     {.kind = "dense", ARGS(NUMBER("units", CLASSES))}),
                 4, 3, 6});
}
END_TEST

/* Relu goes into the normalisation, forward and backward; another activation, and one whose map has another reader,
 * stay. */
START_TEST(test_fuse_normalisation_with_relu) {
    check(&(net){"norm",
                 NET(CONV(16, TEXT("padding", "same")), {.kind = "batch_norm"},
                     {.kind = "relu"}, CONV(8, TEXT("padding", "same")),
                     {.kind = "batch_norm"}, {.kind = "relu"}, POOL, HEAD),
                 9, 3, 4, .folds = 2});
    check(&(net){"norm, tanh",
                 NET(CONV(8, TEXT("padding", "same")), {.kind = "batch_norm"},
                     {.kind = "activation", ARGS(TEXT("kind", "tanh"))}, POOL, HEAD),
                 9, 3, 0, .folds = 1});
    check(&(net){"norm, residual",
                 NET(CONV(8, TEXT("padding", "same")), {.kind = "batch_norm"},
                     {.kind = "relu", .name = "a"}, CONV(8, TEXT("padding", "same")),
                     {.kind = "batch_norm", .name = "b"},
                     {.kind = "add", .name = "sum", INPUTS("a", "b")}, {.kind = "relu"},
                     POOL, HEAD),
                 8, 3, 3, .folds = 2});
}
END_TEST

/* Also without a bias, gamma and beta; not where the filter is larger than half of the map, where the normalisation is
 * of another's result, or where the map has another reader. */
START_TEST(test_fuse_normalisation_into_convolution) {
    check(&(net){
        "fold, bare",
        NET(CONV(16, BOOL("use_bias", false)),
            {.kind = "batch_norm", ARGS(BOOL("scale", false), BOOL("center", false))},
            {.kind = "relu"}, POOL, HEAD),
        13, 3, 2, .folds = 1});
    check(
        &(net){"fold, large filter",
               NET(CONV(4, TEXT("activation", "relu")), CONV(64, TEXT("padding", "same")),
                   {.kind = "batch_norm"}, {.kind = "relu"}, POOL, HEAD),
               4, 3, 3, .folds = 0});
    check(&(net){
        "fold, not behind relu",
        NET(CONV(8, TEXT("activation", "relu")), {.kind = "batch_norm"}, POOL, HEAD), 8,
        3, 1, .folds = 0});
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device_fuse");
    TCase *fuse = device_case(suite, "fuse");
    tcase_add_test(fuse, test_fuse_convolution_with_pooling);
    tcase_add_test(fuse, test_fuse_leaves_what_it_may_not_touch);
    tcase_add_test(fuse, test_fuse_elementwise_chains);
    tcase_add_test(fuse, test_fuse_normalisation_into_convolution);
    tcase_add_test(fuse, test_fuse_normalisation_with_relu);
    return run_device_suite(suite);
}
