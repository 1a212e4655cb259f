/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "graph/build.h"

copse_status copse__build_activation(copse__builder *b, copse__activation act,
                                     copse__tensor_id x, const char *suffix,
                                     copse__tensor_id *out, copse_error *err) {
    *out = x;
    if (act == COPSE__ACT_NONE)
        return COPSE_OK;
    copse_status status = copse__build_like(b, NULL, x, out, err);
    if (status != COPSE_OK)
        return status;
    copse__attrs attrs = {.act = act};
    return copse__build_node(b, suffix, COPSE__OP_ACTIVATION, &x, out, &attrs, err);
}

copse_status copse__gradient_activation(copse__backward *pass, const copse__node *node,
                                        size_t index, copse__tensor_id dy,
                                        copse_error *err) {
    (void)index;
    copse__attrs attrs = {.act = node->attrs.act};
    bool of_input = attrs.act == COPSE__ACT_GELU; /* its inverse is not a function */
    copse__tensor_id saved = of_input ? node->inputs[0] : node->outputs[0];
    return copse__gradient_node(pass, "grad_input", COPSE__OP_ACTIVATION_GRAD,
                                (const copse__tensor_id[]){saved, dy}, &attrs,
                                node->inputs[0], err);
}

copse_status copse__build_softmax(copse__builder *b, copse__tensor_id x,
                                  const char *suffix, copse__tensor_id *out,
                                  copse_error *err) {
    char shape[COPSE__SHAPE_TEXT];
    if (b->graph->tensors[x].rank < 2)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "layer '%s': softmax goes over the last axis, but the input's "
                           "shape %s has none besides the batch",
                           b->layer, copse__build_shape(b, x, shape));
    copse_status status = copse__build_like(b, NULL, x, out, err);
    if (status != COPSE_OK)
        return status;
    return copse__build_node(b, suffix, COPSE__OP_SOFTMAX, &x, out, NULL, err);
}

copse_status copse__gradient_softmax(copse__backward *pass, const copse__node *node,
                                     size_t index, copse__tensor_id dy,
                                     copse_error *err) {
    (void)index;
    return copse__gradient_node(pass, "grad_input", COPSE__OP_SOFTMAX_GRAD,
                                (const copse__tensor_id[]){node->outputs[0], dy}, NULL,
                                node->inputs[0], err);
}

copse_status copse__build_dropout(copse__builder *b, float rate, bool training,
                                  copse__tensor_id x, copse__tensor_id *out,
                                  copse_error *err) {
    *out = x;
    if (!training || rate == 0) {
        b->next_call++;
        return COPSE_OK;
    }
    copse_status status = copse__build_like(b, NULL, x, out, err);
    if (status != COPSE_OK)
        return status;
    copse__attrs attrs = {.dropout = {.rate = rate, .call = b->next_call}};
    return copse__build_node(b, NULL, COPSE__OP_DROPOUT, &x, out, &attrs, err);
}

/* The same draw again: what was dropped passes nothing back. */
copse_status copse__gradient_dropout(copse__backward *pass, const copse__node *node,
                                     size_t index, copse__tensor_id dy,
                                     copse_error *err) {
    (void)index;
    copse__attrs attrs = {.dropout = node->attrs.dropout};
    return copse__gradient_node(pass, "grad_input", COPSE__OP_DROPOUT, &dy, &attrs,
                                node->inputs[0], err);
}

copse_status copse__build_add(copse__builder *b, const copse__tensor_id *inputs,
                              size_t count, copse__tensor_id *out, copse_error *err) {
    const copse__graph *graph = b->graph;
    char first[COPSE__SHAPE_TEXT], other[COPSE__SHAPE_TEXT];
    for (size_t i = 1; i < count; i++)
        if (!copse__tensor_same_shape(&graph->tensors[inputs[0]],
                                      &graph->tensors[inputs[i]]))
            return copse__fail(err, COPSE_CONFIG, 0, b->place,
                               "layer '%s' adds tensors of equal shapes, but its first "
                               "input has %s and its input %zu has %s",
                               b->layer, copse__build_shape(b, inputs[0], first), i + 1,
                               copse__build_shape(b, inputs[i], other));
    copse__tensor_id sum = inputs[0];
    for (size_t i = 1; i < count; i++) {
        char partial[32];
        snprintf(partial, sizeof partial, "partial_%zu", i);
        bool last = i + 1 == count;
        copse_status status =
            copse__build_like(b, last ? NULL : partial, inputs[0], out, err);
        if (status != COPSE_OK)
            return status;
        status =
            copse__build_node(b, NULL, COPSE__OP_ADD,
                              (const copse__tensor_id[]){sum, inputs[i]}, out, NULL, err);
        if (status != COPSE_OK)
            return status;
        sum = *out;
    }
    return COPSE_OK;
}

/* Both summands get dy itself: no node. */
copse_status copse__gradient_add(copse__backward *pass, const copse__node *node,
                                 size_t index, copse__tensor_id dy, copse_error *err) {
    (void)index;
    for (size_t i = 2; i-- > 0;) {
        if (!copse__wants(pass, node->inputs[i]))
            continue;
        copse_status status = copse__gradient_give(pass, node->inputs[i], dy, err);
        if (status != COPSE_OK)
            return status;
    }
    return COPSE_OK;
}

copse_status copse__build_cast(copse__builder *b, float scale, float offset,
                               copse__tensor_id x, copse__tensor_id *out,
                               copse_error *err) {
    copse_status status = copse__build_like(b, "cast", x, out, err);
    if (status != COPSE_OK)
        return status;
    copse__attrs attrs = {.cast = {.scale = scale, .offset = offset}};
    return copse__build_node(b, "cast", COPSE__OP_CAST, &x, out, &attrs, err);
}
