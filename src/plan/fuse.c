/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "plan/fuse_private.h"

bool copse__fuse_reads(const copse__graph *graph, const copse__node *node,
                       copse__tensor_id storage) {
    for (size_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != COPSE__NO_TENSOR &&
            graph->tensors[node->inputs[i]].storage == storage)
            return true;
    return false;
}

size_t copse__fuse_writer(const copse__graph *graph, copse__tensor_id tensor) {
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t o = 0; o < graph->nodes[n].output_count; o++)
            if (graph->nodes[n].outputs[o] == tensor)
                return n;
    return COPSE__NO_NODE;
}

size_t copse__fuse_only_reader(const copse__graph *graph, copse__tensor_id tensor) {
    size_t found = COPSE__NO_NODE;
    copse__tensor_id storage = graph->tensors[tensor].storage;
    if (storage != tensor || graph->tensors[graph->output].storage == storage)
        return COPSE__NO_NODE;
    for (size_t n = 0; n < graph->node_count; n++) {
        if (!copse__fuse_reads(graph, &graph->nodes[n], storage))
            continue;
        if (found != COPSE__NO_NODE)
            return COPSE__NO_NODE;
        found = n;
    }
    if (found == COPSE__NO_NODE)
        return found;
    for (size_t i = 0; i < graph->nodes[found].input_count; i++)
        if (graph->nodes[found].inputs[i] == tensor)
            return found; /* as itself, not as a view of another shape */
    return COPSE__NO_NODE;
}

bool copse__fuse_supported(const copse__fuser *f, const copse__node *node) {
    size_t workspace;
    return copse__backend_of(f->device)->supports(f->device, f->graph, node, &workspace,
                                                  NULL) == COPSE_OK;
}

copse_status copse__fuse_absorb(copse__fuser *f, size_t by, size_t index) {
    copse__node *taker = &f->graph->nodes[by], *taken = &f->graph->nodes[index];
    copse__text names = {0};
    copse__text_add(&names, "%s%s%s", taker->absorbed ? taker->absorbed : "",
                    taker->absorbed ? ", " : "", taken->name);
    if (taken->absorbed)
        copse__text_add(&names, ", %s", taken->absorbed);
    copse_status status = copse__text_check(&names, f->err);
    if (status != COPSE_OK) {
        copse__text_free(&names);
        return status;
    }
    free(taker->absorbed);
    taker->absorbed = names.data;
    return COPSE_OK;
}

void copse__fuse_remove(copse__fuser *f, size_t index) {
    copse__graph *graph = f->graph;
    free(graph->nodes[index].name);
    free(graph->nodes[index].absorbed);
    memmove(&graph->nodes[index], &graph->nodes[index + 1],
            (graph->node_count - index - 1) * sizeof *graph->nodes);
    graph->node_count--;
    if (index < graph->forward_count)
        graph->forward_count--;
    f->fused++;
}

static bool takes_epilogue(const copse__node *node, copse__activation act) {
    bool product = node->op == COPSE__OP_DENSE || node->op == COPSE__OP_CONV2D;
    bool norm = node->op == COPSE__OP_BN_NORMALIZE || node->op == COPSE__OP_BN_INFER;
    return (product || (norm && act == COPSE__ACT_RELU)) &&
           node->attrs.act == COPSE__ACT_NONE;
}

copse_status copse__fuse_epilogue(copse__fuser *f, size_t index, bool *changed) {
    copse__graph *graph = f->graph;
    const copse__node *node = &graph->nodes[index];
    if (node->op != COPSE__OP_ACTIVATION)
        return COPSE_OK;
    size_t writer = copse__fuse_writer(graph, node->inputs[0]);
    if (copse__fuse_only_reader(graph, node->inputs[0]) != index ||
        writer == COPSE__NO_NODE ||
        !takes_epilogue(&graph->nodes[writer], node->attrs.act))
        return COPSE_OK;
    copse_status status = copse__fuse_absorb(f, writer, index);
    if (status != COPSE_OK)
        return status;
    graph->nodes[writer].attrs.act = node->attrs.act;
    graph->nodes[writer].outputs[0] = node->outputs[0];
    copse__fuse_remove(f, index);
    *changed = true;
    return COPSE_OK;
}

/* A pattern may make room for an earlier one, so a change begins anew. */
copse_status copse__fuse(copse__graph *graph, copse__device *device, size_t *fused,
                         copse_error *err) {
    static copse_status (*const patterns[])(copse__fuser *, size_t, bool *) = {
        copse__fuse_fold,       copse__fuse_epilogue,   copse__fuse_conv_pool,
        copse__fuse_norm_grad,  copse__fuse_dense_bias, copse__fuse_dense_slope,
        copse__fuse_elementwise};
    copse__fuser f = {.graph = graph, .device = device, .err = err};
    copse_status status = COPSE_OK;
    for (size_t p = 0; p < sizeof patterns / sizeof patterns[0]; p++)
        for (size_t n = 0; n < graph->node_count && status == COPSE_OK;) {
            bool changed = false;
            status = patterns[p](&f, n, &changed);
            n = changed ? 0 : n + 1;
        }
    if (fused)
        *fused = f.fused;
    return status;
}
