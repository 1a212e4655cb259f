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

/* DENSE_GRAD_INPUT -> ACTIVATION_GRAD */
copse_status copse__fuse_dense_slope(copse__fuser *f, size_t index, bool *changed) {
    const copse__graph *graph = f->graph;
    const copse__node *slope = &graph->nodes[index];
    if (slope->op != COPSE__OP_ACTIVATION_GRAD)
        return COPSE_OK;
    copse__tensor_id dy = slope->inputs[1];
    size_t writer = copse__fuse_writer(graph, dy);
    if (writer == COPSE__NO_NODE || copse__fuse_only_reader(graph, dy) != index)
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
    made.outputs[0] = slope->outputs[0];
    return copse__fuse_supported(f, &made) ? take(f, made, writer, index, changed)
                                           : COPSE_OK;
}
