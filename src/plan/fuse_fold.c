/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "plan/fuse_private.h"

/* In an inference graph CONV2D and the BN_INFER that alone reads it become BN_FOLD, which scales the filter and
 * moves the bias, and CONV2D with those: a pass over the filter instead of one over the map. */

/* Whether the filter is so much smaller. A dense layer's weights hardly ever are, so it is not looked at. */
static bool is_worth_it(const copse__graph *graph, const copse__node *conv) {
    return copse__tensor_elements(&graph->tensors[conv->inputs[1]], NULL) <=
           copse__tensor_elements(&graph->tensors[conv->outputs[0]], NULL) / 2;
}

static size_t find_convolution(const copse__graph *graph, size_t index) {
    const copse__node *norm = &graph->nodes[index];
    if (norm->op != COPSE__OP_BN_INFER)
        return COPSE__NO_NODE;
    size_t at = copse__fuse_writer(graph, norm->inputs[0]);
    if (at == COPSE__NO_NODE || graph->nodes[at].op != COPSE__OP_CONV2D ||
        graph->nodes[at].attrs.act != COPSE__ACT_NONE ||
        copse__fuse_only_reader(graph, norm->inputs[0]) != index ||
        !is_worth_it(graph, &graph->nodes[at]))
        return COPSE__NO_NODE;
    return at;
}

/* A tensor on its way through one run, with the name and shape of another. */
static copse_status tensor_like(copse__fuser *f, copse__tensor_id of, size_t first_dim,
                                copse__tensor_id *out) {
    const copse__tensor like = f->graph->tensors[of];
    return copse__graph_tensor(f->graph, like.name, COPSE_F32, COPSE__ROLE_ACTIVATION,
                               like.rank - first_dim, like.dim + first_dim, out, f->err);
}

/* The nodes as they will be; their names are those of `norm` and `conv`. */
static copse__node fold_of(const copse__node *norm, const copse__node *conv,
                           const copse__tensor_id made[2]) {
    copse__node node = *norm;
    node.op = COPSE__OP_BN_FOLD;
    node.absorbed = NULL;
    node.attrs.act = COPSE__ACT_NONE;
    node.input_count = 6;
    node.inputs[0] = conv->inputs[1];
    node.inputs[1] = conv->inputs[2];
    for (size_t i = 1; i < 5; i++)
        node.inputs[1 + i] = norm->inputs[i];
    node.output_count = 2;
    node.outputs[0] = made[0];
    node.outputs[1] = made[1];
    return node;
}

static copse__node convolution_of(const copse__node *norm, const copse__node *conv,
                                  const copse__tensor_id made[2]) {
    copse__node node = *conv;
    node.attrs.act = norm->attrs.act;
    node.inputs[1] = made[0];
    node.inputs[2] = made[1];
    node.outputs[0] = norm->outputs[0];
    return node;
}

copse_status copse__fuse_fold(copse__fuser *f, size_t index, bool *changed) {
    copse__graph *graph = f->graph;
    size_t at = find_convolution(graph, index);
    if (at == COPSE__NO_NODE)
        return COPSE_OK;
    copse__tensor_id made[2], filter = graph->nodes[at].inputs[1];
    copse_status status = tensor_like(f, filter, 0, &made[0]);
    if (status == COPSE_OK)
        status = tensor_like(f, filter, graph->tensors[filter].rank - 1, &made[1]);
    if (status != COPSE_OK)
        return status;
    copse__node fold = fold_of(&graph->nodes[index], &graph->nodes[at], made);
    copse__node conv = convolution_of(&graph->nodes[index], &graph->nodes[at], made);
    if (!copse__fuse_supported(f, &fold) || !copse__fuse_supported(f, &conv))
        return COPSE_OK;
    status = copse__fuse_absorb(f, at, index);
    if (status != COPSE_OK)
        return status;
    conv.absorbed = graph->nodes[at].absorbed;
    free(graph->nodes[index].absorbed);
    graph->nodes[at] = fold;
    graph->nodes[index] = conv;
    *changed = true;
    return COPSE_OK;
}
