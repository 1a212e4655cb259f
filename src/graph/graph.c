/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

copse_status copse__graph_new(copse__graph **out, copse_error *err) {
    *out = NULL;
    copse__graph *graph;
    copse_status status = copse__calloc(&graph, 1, sizeof *graph, err);
    if (status != COPSE_OK)
        return status;
    graph->input = graph->label = graph->output = graph->metrics = COPSE__NO_TENSOR;
    *out = graph;
    return COPSE_OK;
}

void copse__graph_free(copse__graph *graph) {
    if (!graph)
        return;
    for (size_t i = 0; i < graph->tensor_count; i++)
        free(graph->tensors[i].name);
    for (size_t i = 0; i < graph->node_count; i++) {
        free(graph->nodes[i].name);
        free(graph->nodes[i].absorbed);
    }
    for (size_t i = 0; i < graph->layer_count; i++) {
        free(graph->layers[i].name);
        free(graph->layers[i].kind);
        free(graph->layers[i].inputs);
    }
    free(graph->tensors);
    free(graph->nodes);
    free(graph->parameters);
    free(graph->states);
    free(graph->layers);
    free(graph);
}

/* Bytes at the planned maximum; pointers and differences of them must be able to count
 * them. */
static bool planned_bytes(copse_dtype dtype, size_t rank, const copse__dim *dim,
                          size_t *bytes) {
    size_t total = copse_dtype_bytes(dtype);
    for (size_t i = 0; i < rank; i++)
        if (!copse__mul_size(total, dim[i].size, &total))
            return false;
    *bytes = total;
    return total <= PTRDIFF_MAX;
}

copse_status copse__graph_tensor(copse__graph *graph, const char *name, copse_dtype dtype,
                                 copse__role role, size_t rank, const copse__dim *dim,
                                 copse__tensor_id *out, copse_error *err) {
    *out = COPSE__NO_TENSOR;
    if (rank > COPSE_MAX_RANK)
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "'%s' would have %zu dimensions, but %d is the most", name,
                           rank, COPSE_MAX_RANK);
    if (copse_dtype_bytes(dtype) == 0 || graph->tensor_count >= COPSE__NO_TENSOR)
        return copse__fail(err, COPSE_INTERNAL, 0, NULL, "no tensor '%s' can be made",
                           name);
    copse__tensor tensor = {.dtype = dtype, .role = role, .rank = rank};
    if (rank > 0)
        memcpy(tensor.dim, dim, rank * sizeof *dim);
    size_t bytes;
    if (!planned_bytes(dtype, rank, dim, &bytes)) {
        char shape[192];
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "'%s' of shape %s is larger than any memory", name,
                           copse__tensor_shape_text(&tensor, shape, sizeof shape));
    }
    copse_status status =
        copse__grow(&graph->tensors, &graph->tensor_capacity, graph->tensor_count + 1,
                    sizeof *graph->tensors, err);
    if (status != COPSE_OK)
        return status;
    status = copse__strdup(&tensor.name, name, err);
    if (status != COPSE_OK)
        return status;
    tensor.storage = (copse__tensor_id)graph->tensor_count;
    graph->tensors[graph->tensor_count++] = tensor;
    *out = tensor.storage;
    return COPSE_OK;
}

/* Equal at all extents: the fixed dimensions have one product and each symbol stands as
 * often on both sides. */
static bool same_elements(size_t a_rank, const copse__dim *a, size_t b_rank,
                          const copse__dim *b) {
    size_t a_symbols[COPSE__SYMBOL_COUNT] = {0}, b_symbols[COPSE__SYMBOL_COUNT] = {0};
    size_t a_fixed = 1, b_fixed = 1;
    for (size_t i = 0; i < a_rank; i++)
        if (a[i].symbol != COPSE__FIXED)
            a_symbols[a[i].symbol]++;
        else if (!copse__mul_size(a_fixed, a[i].size, &a_fixed))
            return false;
    for (size_t i = 0; i < b_rank; i++)
        if (b[i].symbol != COPSE__FIXED)
            b_symbols[b[i].symbol]++;
        else if (!copse__mul_size(b_fixed, b[i].size, &b_fixed))
            return false;
    return a_fixed == b_fixed && memcmp(a_symbols, b_symbols, sizeof a_symbols) == 0;
}

copse_status copse__graph_view(copse__graph *graph, copse__tensor_id of, const char *name,
                               size_t rank, const copse__dim *dim, copse__tensor_id *out,
                               copse_error *err) {
    *out = COPSE__NO_TENSOR;
    const copse__tensor from = graph->tensors[of]; /* a copy: the array may move */
    if (rank <= COPSE_MAX_RANK && !same_elements(from.rank, from.dim, rank, dim)) {
        copse__tensor to = {.rank = rank};
        if (rank > 0)
            memcpy(to.dim, dim, rank * sizeof *dim);
        char old_shape[192], new_shape[192];
        return copse__fail(err, COPSE_CONFIG, 0, NULL,
                           "'%s': a tensor of shape %s cannot be seen as %s", name,
                           copse__tensor_shape_text(&from, old_shape, sizeof old_shape),
                           copse__tensor_shape_text(&to, new_shape, sizeof new_shape));
    }
    copse_status status =
        copse__graph_tensor(graph, name, from.dtype, from.role, rank, dim, out, err);
    if (status != COPSE_OK)
        return status;
    graph->tensors[*out].storage = from.storage;
    graph->tensors[*out].index = from.index;
    return COPSE_OK;
}

/* Our own builders' mistakes, caught where they are made. */
static bool node_is_whole(const copse__graph *graph, const copse__node *node) {
    if ((unsigned)node->op >= COPSE__OP_COUNT)
        return false;
    const copse__op_arity *arity = copse__op_arity_of(node->op);
    if (node->input_count > arity->inputs || node->output_count > arity->outputs)
        return false;
    for (size_t i = 0; i < arity->inputs; i++) {
        copse__tensor_id id = i < node->input_count ? node->inputs[i] : COPSE__NO_TENSOR;
        bool optional = arity->optional_inputs >> i & 1;
        if (id == COPSE__NO_TENSOR ? !optional : id >= graph->tensor_count)
            return false;
    }
    for (size_t i = 0; i < arity->outputs; i++) {
        copse__tensor_id id =
            i < node->output_count ? node->outputs[i] : COPSE__NO_TENSOR;
        bool optional = arity->optional_outputs >> i & 1;
        if (id == COPSE__NO_TENSOR ? !optional : id >= graph->tensor_count)
            return false;
    }
    return true;
}

copse_status copse__graph_node(copse__graph *graph, const copse__node *node,
                               copse_error *err) {
    if (!node_is_whole(graph, node))
        return copse__fail(err, COPSE_INTERNAL, 0, NULL,
                           "node '%s' (%s) lacks an operand or has one too many",
                           node->name, copse__op_name(node->op));
    copse_status status = copse__grow(&graph->nodes, &graph->node_capacity,
                                      graph->node_count + 1, sizeof *graph->nodes, err);
    if (status != COPSE_OK)
        return status;
    copse__node copy = *node;
    copy.absorbed = NULL;
    for (size_t i = node->input_count; i < COPSE__MAX_INPUTS; i++)
        copy.inputs[i] = COPSE__NO_TENSOR;
    for (size_t i = node->output_count; i < COPSE__MAX_OUTPUTS; i++)
        copy.outputs[i] = COPSE__NO_TENSOR;
    status = copse__strdup(&copy.name, node->name, err);
    if (status != COPSE_OK)
        return status;
    graph->nodes[graph->node_count++] = copy;
    return COPSE_OK;
}

size_t copse__tensor_elements(const copse__tensor *tensor,
                              const copse__extents *extents) {
    size_t elements = 1;
    for (size_t i = 0; i < tensor->rank; i++)
        elements *= copse__dim_at(tensor->dim[i], extents);
    return elements;
}

size_t copse__tensor_bytes(const copse__tensor *tensor, const copse__extents *extents) {
    return copse__tensor_elements(tensor, extents) * copse_dtype_bytes(tensor->dtype);
}

size_t copse__tensor_rows(const copse__tensor *tensor, const copse__extents *extents) {
    size_t rows = 1;
    for (size_t i = 0; i + 1 < tensor->rank; i++)
        rows *= copse__dim_at(tensor->dim[i], extents);
    return rows;
}

size_t copse__tensor_columns(const copse__tensor *tensor) {
    return tensor->rank == 0 ? 1 : tensor->dim[tensor->rank - 1].size;
}

bool copse__tensor_same_shape(const copse__tensor *a, const copse__tensor *b) {
    if (a->rank != b->rank)
        return false;
    for (size_t i = 0; i < a->rank; i++)
        if (a->dim[i].symbol != b->dim[i].symbol || a->dim[i].size != b->dim[i].size)
            return false;
    return true;
}

const char *copse__tensor_shape_text(const copse__tensor *tensor, char *buffer,
                                     size_t capacity) {
    size_t used = 0;
    if (capacity == 0)
        return buffer;
    buffer[0] = '\0';
    for (size_t i = 0; i < tensor->rank && used < capacity; i++) {
        const char *before = i == 0 ? "(" : ", ";
        int length = tensor->dim[i].symbol != COPSE__FIXED
                         ? snprintf(buffer + used, capacity - used, "%sNone", before)
                         : snprintf(buffer + used, capacity - used, "%s%zu", before,
                                    tensor->dim[i].size);
        used += (size_t)length;
    }
    if (used < capacity)
        snprintf(buffer + used, capacity - used, "%s",
                 tensor->rank == 0   ? "()"
                 : tensor->rank == 1 ? ",)"
                                     : ")");
    return buffer;
}
