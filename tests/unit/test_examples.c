/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <string.h>

#include "graph/model.h"
#include "train/config.h"

/* The networks of examples/, with the parameters that Keras counts for them. */

static copse_error error;

static copse__graph *build(const char *path, size_t rank, const size_t *shape) {
    copse__config *config;
    copse__graph *graph;
    ASSERT_OK(copse__config_load(&config, path, NULL, 0, &error));
    copse__model_options options = {.sample_rank = rank,
                                    .sample_dtype = COPSE_U8,
                                    .scale = (float)config->data.scale,
                                    .max_batch = (size_t)config->train.batch,
                                    .loss = config->train.loss,
                                    .from_logits = config->train.from_logits,
                                    .class_count = 10,
                                    .training = true};
    memcpy(options.sample_shape, shape, rank * sizeof *shape);
    ASSERT_OK(copse__model_build(&graph, config->layers, config->layer_count, &options,
                                 &error));
    copse__config_free(config);
    return graph;
}

static void assert_parameters(const char *path, size_t rank, const size_t *shape,
                              size_t wanted) {
    copse__graph *graph = build(path, rank, shape);
    size_t count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        count +=
            copse__tensor_elements(&graph->tensors[graph->parameters[i].tensor], NULL);
    ck_assert_msg(count == wanted, "%s: %zu parameters instead of %zu", path, count,
                  wanted);
    ck_assert_uint_eq(graph->tensors[graph->output].dim[1].size, 10);
    copse__graph_free(graph);
}

START_TEST(test_examples_have_the_parameters_of_their_comments) {
    static const size_t fashion[] = {28, 28}, cifar[] = {32, 32, 3}, digits[] = {8, 8};
    assert_parameters("examples/fashion-mnist.yaml", 2, fashion, 693962);
    assert_parameters("examples/fashion-mlp.yaml", 2, fashion, 101770);
    assert_parameters("examples/cifar10.yaml", 3, cifar, 923914);
    assert_parameters("examples/digits.yaml", 2, digits, 64 * 64 + 64 + 64 * 10 + 10);
    /* 3x3 convolutions 1-16, 16-16 twice, 16-32, 32-32; 1x1 16-32; norms 2 x 16, 2 x 32. */
    assert_parameters("examples/fashion-residual.yaml", 2, fashion,
                      160 + 2 * 2320 + 4640 + 9248 + 544 + 2 * 32 + 2 * 64 + 330);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("examples");
    ADD_TEST(suite, test_examples_have_the_parameters_of_their_comments);
    return run_suite(suite);
}
