/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "graph/layer.h"

static copse_error error;

/* A dense layer 400 -> 200, whose kernel is initialised as asked. */
static copse__graph *dense_graph(copse__layer_arg initializer) {
    copse__layer_spec layer = {
        .kind = "dense",
        .arg_count = 2,
        .args = (copse__layer_arg[]){NUMBER("units", 200), initializer}};
    copse__model_options options = float_options(1, (size_t[]){400});
    copse__graph *graph;
    ASSERT_OK(copse__model_build(&graph, &layer, 1, &options, &error));
    return graph;
}

static float *draw(const copse__graph *graph, size_t index, uint64_t seed) {
    size_t count =
        copse__tensor_elements(&graph->tensors[graph->parameters[index].tensor], NULL);
    float *values;
    ASSERT_OK(copse__calloc(&values, count, sizeof *values, &error));
    copse__parameter_initialize(graph, index, seed, values);
    return values;
}

typedef struct moments {
    double mean, deviation, least, most;
} moments;

static moments measure(const float *values, size_t count) {
    moments m = {.least = INFINITY, .most = -INFINITY};
    for (size_t i = 0; i < count; i++) {
        m.mean += values[i] / (double)count;
        m.least = fmin(m.least, values[i]);
        m.most = fmax(m.most, values[i]);
    }
    for (size_t i = 0; i < count; i++)
        m.deviation += (values[i] - m.mean) * (values[i] - m.mean) / (double)count;
    m.deviation = sqrt(m.deviation);
    return m;
}

/* 80,000 draws: the mean is within 5 standard errors, the deviation within 2 %. */
START_TEST(test_init_draws_have_keras_moments) {
    const size_t count = 400 * 200;
    double glorot = sqrt(2.0 / 600), he = sqrt(2.0 / 400), lecun = sqrt(1.0 / 400);
    /* Truncated normals are cut at two deviations of the normal before the cut. */
    double cut = 2 / 0.87962566103423978;
    const struct {
        char *name;
        double deviation, most;
    } cases[] = {
        {"glorot_uniform", glorot, glorot * sqrt(3)},
        {"glorot_normal", glorot, glorot * cut},
        {"he_uniform", he, he * sqrt(3)},
        {"he_normal", he, he * cut},
        {"lecun_uniform", lecun, lecun * sqrt(3)},
        {"lecun_normal", lecun, lecun * cut},
        {"random_uniform", 0.05 / sqrt(3), 0.05},
        {"random_normal", 0.05, 0.05 * 6},
        {"truncated_normal", 0.05 * 0.87962566103423978, 0.05 * 2},
    };
    for (size_t i = 0; i < COPSE__COUNT(cases); i++) {
        copse__layer_arg arg = TEXT("kernel_initializer", cases[i].name);
        copse__graph *graph = dense_graph(arg);
        float *values = draw(graph, 0, 1234);
        moments m = measure(values, count);
        ck_assert_msg(fabs(m.mean) < 5 * cases[i].deviation / sqrt((double)count),
                      "%s: mean %g", cases[i].name, m.mean);
        ck_assert_msg(fabs(m.deviation / cases[i].deviation - 1) < 0.02,
                      "%s: deviation %g instead of %g", cases[i].name, m.deviation,
                      cases[i].deviation);
        ck_assert_msg(m.most <= cases[i].most * (1 + 1e-6), "%s: %g", cases[i].name,
                      m.most);
        ck_assert_msg(m.least >= -cases[i].most * (1 + 1e-6), "%s: %g", cases[i].name,
                      m.least);
        /* The range is used: a normal of 80,000 passes 3.5 deviations, the others come
         * near their ends. */
        double reached = strcmp(cases[i].name, "random_normal") == 0 ? 0.55 : 0.99;
        ck_assert_msg(m.most > reached * cases[i].most, "%s: %g", cases[i].name, m.most);
        free(values);
        copse__graph_free(graph);
    }
}
END_TEST

START_TEST(test_init_constants) {
    copse__layer_arg args[] = {TEXT("kernel_initializer", "zeros"),
                               TEXT("kernel_initializer", "ones"),
                               NUMBER("kernel_initializer", -0.25)};
    static const float want[] = {0, 1, -0.25f};
    for (size_t i = 0; i < COPSE__COUNT(args); i++) {
        copse__graph *graph = dense_graph(args[i]);
        float *kernel = draw(graph, 0, 1), *bias = draw(graph, 1, 1);
        for (size_t j = 0; j < 400 * 200; j++)
            ck_assert(kernel[j] == want[i]);
        for (size_t j = 0; j < 200; j++)
            ck_assert(bias[j] == 0);
        free(kernel);
        free(bias);
        copse__graph_free(graph);
    }
}
END_TEST

START_TEST(test_init_convolution_fans_count_the_receptive_field) {
    copse__layer_spec net[] = {
        {.kind = "conv2d", ARGS(NUMBER("filters", 32), PAIR("kernel", 3, 5))}};
    copse__model_options options = float_options(3, (size_t[]){8, 8, 3});
    copse__graph *graph;
    ASSERT_OK(copse__model_build(&graph, net, 1, &options, &error));
    copse__init init = graph->parameters[0].init;
    double limit = sqrt(6.0 / (3 * 5 * 3 + 3 * 5 * 32));
    ck_assert_uint_eq(init.kind, COPSE__INIT_UNIFORM);
    ck_assert(init.a == (float)-limit && init.b == (float)limit);
    copse__graph_free(graph);
}
END_TEST

START_TEST(test_init_depends_on_seed_and_parameter_alone) {
    copse__layer_spec net[] = {{.kind = "dense", ARGS(NUMBER("units", 64))},
                               {.kind = "dense", ARGS(NUMBER("units", 64))}};
    copse__model_options options = float_options(1, (size_t[]){64});
    copse__graph *graph, *again;
    ASSERT_OK(copse__model_build(&graph, net, 2, &options, &error));
    options.max_batch = 99;
    ASSERT_OK(copse__model_build(&again, net, 2, &options, &error));
    const size_t bytes = 64 * 64 * sizeof(float);
    float *a = draw(graph, 0, 7), *same = draw(again, 0, 7), *other = draw(graph, 0, 8);
    float *high = draw(graph, 0, 7 + (1ull << 32)), *second = draw(graph, 2, 7);
    ck_assert(memcmp(a, same, bytes) == 0);
    const float *different[] = {other, high, second};
    for (size_t i = 0; i < COPSE__COUNT(different); i++) {
        size_t equal = 0;
        for (size_t j = 0; j < 64 * 64; j++)
            equal += a[j] == different[i][j];
        ck_assert_uint_lt(equal, 8);
    }
    free(a), free(same), free(other), free(high), free(second);
    copse__graph_free(graph);
    copse__graph_free(again);
}
END_TEST

/* The numbers themselves, made by a second implementation in another language (seed 42,
 * parameter 0). A last bit may differ where a C library rounds log or cos otherwise. */
START_TEST(test_init_draws_stay_what_they_are) {
    static const float uniform[] = {-0.0144928396f, 0.0372117572f,  -0.0168981906f,
                                    -0.0198471434f, -0.0460353494f, 0.00507749943f,
                                    0.0281305611f,  -0.0279363692f};
    /* The fifth lies beyond two deviations, and is redrawn alone. */
    static const float normal[] = {0.0499484651f,  -0.0517912172f, -0.0236534532f,
                                   0.0704870522f,  -0.120628111f,  -0.0398449264f,
                                   0.00644423766f, 0.0345313773f};
    static const float cut[] = {0.0499484651f,  -0.0517912172f, -0.0236534532f,
                                0.0704870522f,  -0.0167358294f, -0.0398449264f,
                                0.00644423766f, 0.0345313773f};
    const struct {
        char *name;
        const float *want;
    } cases[] = {{"random_uniform", uniform},
                 {"random_normal", normal},
                 {"truncated_normal", cut}};
    for (size_t i = 0; i < COPSE__COUNT(cases); i++) {
        copse__layer_arg arg = TEXT("kernel_initializer", cases[i].name);
        copse__graph *graph = dense_graph(arg);
        float *values = draw(graph, 0, 42);
        for (size_t j = 0; j < 8; j++)
            ck_assert_msg(fabsf(values[j] - cases[i].want[j]) <= 1e-8f,
                          "%s[%zu]: %.9g instead of %.9g", cases[i].name, j, values[j],
                          cases[i].want[j]);
        free(values);
        copse__graph_free(graph);
    }
}
END_TEST

START_TEST(test_init_moving_statistics_are_zero_and_one) {
    copse__layer_spec net[] = {{.kind = "batch_norm"}};
    copse__model_options options = float_options(1, (size_t[]){5});
    copse__graph *graph;
    float mean[6], variance[6];
    ASSERT_OK(copse__model_build(&graph, net, 1, &options, &error));
    mean[5] = variance[5] = 77;
    copse__state_initialize(graph, 0, mean, variance);
    for (size_t i = 0; i < 5; i++)
        ck_assert(mean[i] == 0 && variance[i] == 1);
    ck_assert(mean[5] == 77 && variance[5] == 77);
    copse__graph_free(graph);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph init");
    ADD_TEST(suite, test_init_draws_have_keras_moments);
    ADD_TEST(suite, test_init_constants);
    ADD_TEST(suite, test_init_convolution_fans_count_the_receptive_field);
    ADD_TEST(suite, test_init_depends_on_seed_and_parameter_alone);
    ADD_TEST(suite, test_init_draws_stay_what_they_are);
    ADD_TEST(suite, test_init_moving_statistics_are_zero_and_one);
    return run_suite(suite);
}
