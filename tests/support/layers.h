/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_LAYERS_H
#define TESTS_SUPPORT_LAYERS_H

#include "base/mem.h"
#include "graph/model.h"

/* Networks written down in C:
 *
 *     copse__layer_spec net[] = {
 *         {.kind = "conv2d", ARGS(NUMBER("filters", 32), PAIR("kernel", 3, 3))},
 *         {.kind = "flatten"},
 *         {.kind = "dense", .name = "out", ARGS(NUMBER("units", 10))},
 *     };
 *
 * A key's place is its own name, so that a test sees which one was refused. */
#define ARGS(...)                                                                        \
    .args = (copse__layer_arg[]){__VA_ARGS__},                                           \
    .arg_count = COPSE__COUNT(((copse__layer_arg[]){__VA_ARGS__}))

#define INPUTS(...)                                                                      \
    .inputs = (char *[]){__VA_ARGS__},                                                   \
    .input_count = COPSE__COUNT(((char *[]){__VA_ARGS__}))

#define NUMBER(name, x)                                                                  \
    { .key = name, .value = {.kind = COPSE__VALUE_NUMBER, .number = (x)}, .place = name }
#define PAIR(name, x, y)                                                                 \
    {                                                                                    \
        .key = name,                                                                     \
        .value = {.kind = COPSE__VALUE_NUMBERS, .numbers = {(x), (y)}, .count = 2},      \
        .place = name                                                                    \
    }
#define TEXT(name, x)                                                                    \
    { .key = name, .value = {.kind = COPSE__VALUE_TEXT, .text = (x)}, .place = name }
#define BOOL(name, x)                                                                    \
    { .key = name, .value = {.kind = COPSE__VALUE_BOOL, .boolean = (x)}, .place = name }

/* 32x32x3 bytes, ten classes, to be trained. */
static inline copse__model_options cifar_options(void) {
    return (copse__model_options){.sample_rank = 3,
                                  .sample_shape = {32, 32, 3},
                                  .sample_dtype = COPSE_U8,
                                  .scale = 1.0f / 255,
                                  .max_batch = 256,
                                  .loss = COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
                                  .from_logits = true,
                                  .class_count = 10,
                                  .training = true};
}

/* Floats of a given shape, forward only. */
static inline copse__model_options float_options(size_t rank, const size_t *shape) {
    copse__model_options options = {
        .sample_rank = rank, .sample_dtype = COPSE_F32, .scale = 1, .max_batch = 4};
    for (size_t i = 0; i < rank; i++)
        options.sample_shape[i] = shape[i];
    return options;
}

/* What a node reads or writes, by name: "-" where an operand is left out. */
static inline void list_operands(const copse__graph *graph, const copse__tensor_id *ids,
                                 size_t count, copse__text *text) {
    for (size_t i = 0; i < count; i++)
        copse__text_add(text, " %s",
                        ids[i] == COPSE__NO_TENSOR ? "-" : graph->tensors[ids[i]].name);
}

/* The nodes from `first` on, one a line: "dense: flatten dense/kernel - -> dense". */
static inline void list_nodes(const copse__graph *graph, size_t first,
                              copse__text *text) {
    for (size_t i = first; i < graph->node_count; i++) {
        const copse__node *node = &graph->nodes[i];
        copse__text_add(text, "%s:", copse__op_name(node->op));
        list_operands(graph, node->inputs, node->input_count, text);
        copse__text_add(text, " ->");
        list_operands(graph, node->outputs, node->output_count, text);
        copse__text_add(text, "\n");
    }
}

/* The sum of all parameters' elements. */
static inline size_t count_parameters(const copse__graph *graph) {
    size_t count = 0;
    for (size_t i = 0; i < graph->parameter_count; i++)
        count +=
            copse__tensor_elements(&graph->tensors[graph->parameters[i].tensor], NULL);
    return count;
}

#endif
