/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

copse_status copse__build_dense(copse__builder *b, copse__tensor_id x, copse__tensor_id w,
                                copse__tensor_id bias, const char *suffix,
                                copse__tensor_id *out, copse_error *err) {
    copse__tensor shape = b->graph->tensors[x];
    shape.dim[shape.rank - 1] = b->graph->tensors[w].dim[1];
    copse_status status = copse__build_tensor(
        b, suffix, COPSE_F32, COPSE__ROLE_ACTIVATION, shape.rank, shape.dim, out, err);
    if (status != COPSE_OK)
        return status;
    copse__tensor_id inputs[] = {x, w, bias};
    return copse__build_node(b, NULL, COPSE__OP_DENSE, inputs, out, NULL, err);
}

/* Parameters first: their gradients can leave for the other replicas while the rest of the
 * pass runs, and x may be forgotten before dx is made. */
copse_status copse__gradient_dense(copse__backward *pass, const copse__node *node,
                                   size_t index, copse__tensor_id dy, copse_error *err) {
    (void)index;
    copse__tensor_id x = node->inputs[0], w = node->inputs[1], bias = node->inputs[2];
    copse_status status = COPSE_OK;
    if (copse__wants(pass, w))
        status = copse__gradient_node(pass, "grad_weight", COPSE__OP_DENSE_GRAD_WEIGHT,
                                      (const copse__tensor_id[]){x, dy}, NULL, w, err);
    if (status == COPSE_OK && bias != COPSE__NO_TENSOR && copse__wants(pass, bias))
        status = copse__gradient_node(pass, "grad_bias", COPSE__OP_BIAS_GRAD, &dy, NULL,
                                      bias, err);
    if (status == COPSE_OK && copse__wants(pass, x))
        status = copse__gradient_node(pass, "grad_input", COPSE__OP_DENSE_GRAD_INPUT,
                                      (const copse__tensor_id[]){dy, w, COPSE__NO_TENSOR},
                                      NULL, x, err);
    return status;
}
