/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

copse_status copse__build_conv2d(copse__builder *b, copse__tensor_id x,
                                 copse__tensor_id w, copse__tensor_id bias,
                                 copse__window window, copse__padding padding,
                                 const char *suffix, copse__tensor_id *out,
                                 copse_error *err) {
    size_t p, q;
    copse_status status =
        copse__window_resolve(b, x, "kernel", padding, &window, &p, &q, err);
    if (status != COPSE_OK)
        return status;
    copse__dim dim[] = {b->graph->tensors[x].dim[0], copse__fixed(p), copse__fixed(q),
                        b->graph->tensors[w].dim[3]};
    status = copse__build_tensor(b, suffix, COPSE_F32, COPSE__ROLE_ACTIVATION, 4, dim,
                                 out, err);
    if (status != COPSE_OK)
        return status;
    copse__tensor_id inputs[] = {x, w, bias};
    copse__attrs attrs = {.window = window};
    return copse__build_node(b, NULL, COPSE__OP_CONV2D, inputs, out, &attrs, err);
}

copse_status copse__gradient_conv2d(copse__backward *pass, const copse__node *node,
                                    size_t index, copse__tensor_id dy, copse_error *err) {
    (void)index;
    copse__tensor_id x = node->inputs[0], w = node->inputs[1], bias = node->inputs[2];
    copse__attrs attrs = {.window = node->attrs.window};
    copse_status status = COPSE_OK;
    if (copse__wants(pass, w))
        status = copse__gradient_node(pass, "grad_filter", COPSE__OP_CONV2D_GRAD_FILTER,
                                      (const copse__tensor_id[]){x, dy}, &attrs, w, err);
    if (status == COPSE_OK && bias != COPSE__NO_TENSOR && copse__wants(pass, bias))
        status = copse__gradient_node(pass, "grad_bias", COPSE__OP_BIAS_GRAD, &dy, NULL,
                                      bias, err);
    if (status == COPSE_OK && copse__wants(pass, x))
        status = copse__gradient_node(pass, "grad_input", COPSE__OP_CONV2D_GRAD_INPUT,
                                      (const copse__tensor_id[]){dy, w}, &attrs, x, err);
    return status;
}
