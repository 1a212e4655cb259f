/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/fuse_private.h"

/* Behind a BN_NORMALIZE that took a relu, the backward chain
 *
 *     dy -> ACTIVATION_GRAD, with y -> BN_GRAD_REDUCE, BN_GRAD_INPUT
 *
 * becomes dy -> BN_GRAD_*, which know from x where y was above 0: of four passes over the gradient in
 * memory, and one over y, two stay. */

typedef struct match {
    size_t norm, slope;
    size_t reduce, input; /* input: NO_NODE where x needs no gradient */
} match;

/* The normalisation's own gradients, which alone read the slope's result. */
static bool find_gradients(const copse__graph *graph, match *m) {
    const copse__node *norm = &graph->nodes[m->norm];
    copse__tensor_id da = graph->nodes[m->slope].outputs[0];
    if (graph->tensors[da].storage != da)
        return false;
    for (size_t n = 0; n < graph->node_count; n++) {
        const copse__node *node = &graph->nodes[n];
        if (!copse__fuse_reads(graph, node, da))
            continue;
        if (node->inputs[0] != norm->inputs[0] || node->inputs[1] != da ||
            node->inputs[2] != norm->inputs[1])
            return false;
        if (node->op == COPSE__OP_BN_GRAD_REDUCE)
            m->reduce = n;
        else if (node->op == COPSE__OP_BN_GRAD_INPUT)
            m->input = n;
        else
            return false;
    }
    return m->reduce != COPSE__NO_NODE;
}

static bool find(const copse__graph *graph, size_t slope, match *m) {
    const copse__node *node = &graph->nodes[slope];
    *m = (match){.slope = slope, .reduce = COPSE__NO_NODE, .input = COPSE__NO_NODE};
    if (node->op != COPSE__OP_ACTIVATION_GRAD || node->attrs.act != COPSE__ACT_RELU)
        return false;
    m->norm = copse__fuse_writer(graph, node->inputs[0]);
    return m->norm != COPSE__NO_NODE &&
           graph->nodes[m->norm].op == COPSE__OP_BN_NORMALIZE &&
           graph->nodes[m->norm].attrs.act == COPSE__ACT_RELU && find_gradients(graph, m);
}

/* One of the gradients as it will be; gamma's place among its inputs is `at`. */
static copse__node fused_of(const copse__graph *graph, const match *m, size_t gradient,
                            size_t at) {
    const copse__node *norm = &graph->nodes[m->norm];
    copse__node node = graph->nodes[gradient];
    node.attrs.act = COPSE__ACT_RELU;
    node.inputs[1] = graph->nodes[m->slope].inputs[1];
    node.inputs[at] = norm->inputs[2];
    node.inputs[at + 1] = norm->inputs[3];
    return node;
}

copse_status copse__fuse_norm_grad(copse__fuser *f, size_t index, bool *changed) {
    copse__graph *graph = f->graph;
    match m;
    if (!find(graph, index, &m))
        return COPSE_OK;
    copse__node reduce = fused_of(graph, &m, m.reduce, 3), input = {0};
    if (m.input != COPSE__NO_NODE)
        input = fused_of(graph, &m, m.input, 4);
    if (!copse__fuse_supported(f, &reduce) ||
        (m.input != COPSE__NO_NODE && !copse__fuse_supported(f, &input)))
        return COPSE_OK;
    copse_status status = copse__fuse_absorb(f, m.reduce, index);
    if (status != COPSE_OK)
        return status;
    /* `absorbed` has changed in place: the copies are made after it. */
    graph->nodes[m.reduce] = fused_of(graph, &m, m.reduce, 3);
    if (m.input != COPSE__NO_NODE)
        graph->nodes[m.input] = fused_of(graph, &m, m.input, 4);
    copse__fuse_remove(f, index);
    *changed = true;
    return COPSE_OK;
}
