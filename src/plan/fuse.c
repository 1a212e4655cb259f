/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fuse.h"

#include <stdlib.h>
#include <string.h>

static bool reads(const copse__graph *graph, const copse__node *node,
                  copse__tensor_id storage) {
    for (size_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != COPSE__NO_TENSOR &&
            graph->tensors[node->inputs[i]].storage == storage)
            return true;
    return false;
}

static bool only_reader(const copse__graph *graph, size_t reader,
                        copse__tensor_id storage) {
    if (graph->tensors[graph->output].storage == storage)
        return false;
    for (size_t n = 0; n < graph->node_count; n++)
        if (n != reader && reads(graph, &graph->nodes[n], storage))
            return false;
    return true;
}

static bool takes_epilogue(const copse__node *node) {
    return (node->op == COPSE__OP_DENSE || node->op == COPSE__OP_CONV2D) &&
           node->attrs.act == COPSE__ACT_NONE;
}

/* The node that may take `activation` as its epilogue, or NULL. */
static copse__node *find_producer(copse__graph *graph, size_t activation) {
    const copse__node *node = &graph->nodes[activation];
    /* A view between the two would give the fused output another shape. */
    copse__tensor_id input = node->inputs[0];
    if (graph->tensors[input].storage != input || !only_reader(graph, activation, input))
        return NULL;
    for (size_t n = 0; n < activation; n++)
        if (graph->nodes[n].outputs[0] == input && takes_epilogue(&graph->nodes[n]))
            return &graph->nodes[n];
    return NULL;
}

static void remove_node(copse__graph *graph, size_t index) {
    free(graph->nodes[index].name);
    memmove(&graph->nodes[index], &graph->nodes[index + 1],
            (graph->node_count - index - 1) * sizeof *graph->nodes);
    graph->node_count--;
    if (index < graph->forward_count)
        graph->forward_count--;
}

size_t copse__fuse(copse__graph *graph) {
    size_t fused = 0;
    for (size_t n = 0; n < graph->node_count;) {
        const copse__node *node = &graph->nodes[n];
        copse__node *producer =
            node->op == COPSE__OP_ACTIVATION ? find_producer(graph, n) : NULL;
        if (!producer) {
            n++;
            continue;
        }
        producer->attrs.act = node->attrs.act;
        producer->outputs[0] = node->outputs[0];
        remove_node(graph, n);
        fused++;
    }
    return fused;
}
