/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fuse_private.h"

/* Puts `made` in the place of node `at`, which has absorbed node `taken`. */
static copse_status take(copse__fuser *f, copse__node made, size_t at, size_t taken,
                         bool *changed) {
    copse_status status = copse__fuse_absorb(f, at, taken);
    if (status != COPSE_OK)
        return status;
    made.absorbed = f->graph->nodes[at].absorbed;
    f->graph->nodes[at] = made;
    copse__fuse_remove(f, taken);
    *changed = true;
    return COPSE_OK;
}

/* DENSE_GRAD_WEIGHT, BIAS_GRAD of one gradient. */
copse_status copse__fuse_dense_bias(copse__fuser *f, size_t index, bool *changed) {
    const copse__graph *graph = f->graph;
    const copse__node *bias = &graph->nodes[index];
    if (bias->op != COPSE__OP_BIAS_GRAD)
        return COPSE_OK;
    for (size_t n = 0; n < index; n++) {
        copse__node made = graph->nodes[n];
        if (made.op != COPSE__OP_DENSE_GRAD_WEIGHT || made.inputs[1] != bias->inputs[0] ||
            (made.output_count > 1 && made.outputs[1] != COPSE__NO_TENSOR))
            continue;
        made.output_count = 2;
        made.outputs[1] = bias->outputs[0];
        return copse__fuse_supported(f, &made) ? take(f, made, n, index, changed)
                                               : COPSE_OK;
    }
    return COPSE_OK;
}

/* Whether the bytes of the tensor, or view, are read in no other shape, and not by the host; by: by this node alone. */
static bool read_only_so(const copse__graph *graph, copse__tensor_id tensor, size_t by) {
    copse__tensor_id storage = graph->tensors[tensor].storage;
    if (graph->tensors[graph->output].storage == storage)
        return false;
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t i = 0; i < graph->nodes[n].input_count; i++) {
            copse__tensor_id read = graph->nodes[n].inputs[i];
            if (read == COPSE__NO_TENSOR || graph->tensors[read].storage != storage)
                continue;
            if (read != tensor || (by != COPSE__NO_NODE && n != by))
                return false;
        }
    return true;
}

static void replace_reads(copse__graph *graph, copse__tensor_id old,
                          copse__tensor_id tensor) {
    for (size_t n = 0; n < graph->node_count; n++)
        for (size_t i = 0; i < graph->nodes[n].input_count; i++)
            if (graph->nodes[n].inputs[i] == old)
                graph->nodes[n].inputs[i] = tensor;
}

/* DENSE_GRAD_INPUT -> ACTIVATION_GRAD, also where a view of another shape stands between them: who read the latter's
 * result then reads that view. */
copse_status copse__fuse_dense_slope(copse__fuser *f, size_t index, bool *changed) {
    copse__graph *graph = f->graph;
    const copse__node *slope = &graph->nodes[index];
    if (slope->op != COPSE__OP_ACTIVATION_GRAD)
        return COPSE_OK;
    copse__tensor_id dy = slope->inputs[1], result = slope->outputs[0];
    bool viewed = graph->tensors[dy].storage != dy;
    size_t writer = copse__fuse_writer(graph, graph->tensors[dy].storage);
    if (writer == COPSE__NO_NODE || !read_only_so(graph, dy, index) ||
        (viewed && !read_only_so(graph, result, COPSE__NO_NODE)))
        return COPSE_OK;
    copse__node made = graph->nodes[writer];
    size_t saver = copse__fuse_writer(graph, graph->tensors[slope->inputs[0]].storage);
    if (made.op != COPSE__OP_DENSE_GRAD_INPUT ||
        (made.input_count > 2 && made.inputs[2] != COPSE__NO_TENSOR) ||
        (saver != COPSE__NO_NODE && saver > writer))
        return COPSE_OK;
    made.input_count = 3;
    made.inputs[2] = slope->inputs[0];
    made.attrs.act = slope->attrs.act;
    if (!viewed)
        made.outputs[0] = result;
    if (!copse__fuse_supported(f, &made))
        return COPSE_OK;
    copse_status status = take(f, made, writer, index, changed);
    if (status == COPSE_OK && viewed)
        replace_reads(graph, result, dy);
    return status;
}
