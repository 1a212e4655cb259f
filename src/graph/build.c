/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* A draw's counter holds element / 4 in 32 bits (model.h). */
#define MAX_PARAMETER_ELEMENTS ((uint64_t)1 << 34)

static copse_status full_name(const copse__builder *b, const char *suffix, char **out,
                              copse_error *err) {
    if (!suffix)
        return copse__strdup(out, b->layer, err);
    size_t bytes = strlen(b->layer) + strlen(suffix) + 2;
    copse_status status = copse__calloc(out, bytes, 1, err);
    if (status == COPSE_OK)
        snprintf(*out, bytes, "%s/%s", b->layer, suffix);
    return status;
}

/* The graph's own functions do not know the configuration; their refusals get its place. */
static copse_status placed(const copse__builder *b, copse_status status,
                           copse_error *err) {
    if (status == COPSE_CONFIG && err && b->place && err->place[0] == '\0')
        snprintf(err->place, sizeof err->place, "%s", b->place);
    return status;
}

copse_status copse__build_tensor(copse__builder *b, const char *suffix, copse_dtype dtype,
                                 copse__role role, size_t rank, const copse__dim *dim,
                                 copse__tensor_id *out, copse_error *err) {
    char *name;
    *out = COPSE__NO_TENSOR;
    copse_status status = full_name(b, suffix, &name, err);
    if (status != COPSE_OK)
        return status;
    status = copse__graph_tensor(b->graph, name, dtype, role, rank, dim, out, err);
    free(name);
    return placed(b, status, err);
}

copse_status copse__build_like(copse__builder *b, const char *suffix,
                               copse__tensor_id like, copse__tensor_id *out,
                               copse_error *err) {
    const copse__tensor of = b->graph->tensors[like];
    return copse__build_tensor(b, suffix, COPSE_F32, COPSE__ROLE_ACTIVATION, of.rank,
                               of.dim, out, err);
}

copse_status copse__build_view(copse__builder *b, const char *suffix, copse__tensor_id of,
                               size_t rank, const copse__dim *dim, copse__tensor_id *out,
                               copse_error *err) {
    char *name;
    *out = COPSE__NO_TENSOR;
    copse_status status = full_name(b, suffix, &name, err);
    if (status != COPSE_OK)
        return status;
    status = copse__graph_view(b->graph, of, name, rank, dim, out, err);
    free(name);
    return placed(b, status, err);
}

copse_status copse__build_node(copse__builder *b, const char *suffix, copse__op op,
                               const copse__tensor_id *inputs,
                               const copse__tensor_id *outputs, const copse__attrs *attrs,
                               copse_error *err) {
    const copse__op_arity *arity = copse__op_arity_of(op);
    copse__node node = {.op = op,
                        .call = b->next_call,
                        .backward = b->backward,
                        .input_count = arity->inputs,
                        .output_count = arity->outputs};
    memcpy(node.inputs, inputs, arity->inputs * sizeof *inputs);
    memcpy(node.outputs, outputs, arity->outputs * sizeof *outputs);
    if (attrs)
        node.attrs = *attrs;
    copse_status status = full_name(b, suffix, &node.name, err);
    if (status != COPSE_OK)
        return status;
    status = copse__graph_node(b->graph, &node, err);
    free(node.name);
    if (status == COPSE_OK)
        b->next_call++;
    return status;
}

const char *copse__build_shape(const copse__builder *b, copse__tensor_id id,
                               char buffer[COPSE__SHAPE_TEXT]) {
    return copse__tensor_shape_text(&b->graph->tensors[id], buffer, COPSE__SHAPE_TEXT);
}

copse_status copse__build_parameter(copse__builder *b, const char *suffix, size_t rank,
                                    const copse__dim *dim, copse__init init, bool decay,
                                    copse__tensor_id *out, copse_error *err) {
    copse__graph *graph = b->graph;
    copse_status status = copse__build_tensor(b, suffix, COPSE_F32, COPSE__ROLE_PARAMETER,
                                              rank, dim, out, err);
    if (status != COPSE_OK)
        return status;
    copse__tensor *tensor = &graph->tensors[*out];
    char shape[COPSE__SHAPE_TEXT];
    if (copse__tensor_elements(tensor, NULL) > MAX_PARAMETER_ELEMENTS)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "'%s' would have the shape %s: more elements than one "
                           "parameter may have (2^34)",
                           tensor->name,
                           copse__tensor_shape_text(tensor, shape, sizeof shape));
    tensor->index = (uint32_t)graph->parameter_count;
    status = copse__grow(&graph->parameters, &graph->parameter_capacity,
                         graph->parameter_count + 1, sizeof *graph->parameters, err);
    if (status != COPSE_OK)
        return status;
    graph->parameters[graph->parameter_count++] = (copse__parameter){
        .tensor = *out, .gradient = COPSE__NO_TENSOR, .init = init, .decay = decay};
    return COPSE_OK;
}
