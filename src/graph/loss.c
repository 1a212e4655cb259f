/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

static copse_status add_loss(copse__builder *b, copse__op op, const copse__attrs *attrs,
                             copse__tensor_id x, copse__tensor_id label,
                             size_t metric_rank, const copse__dim *metric_dim,
                             copse__tensor_id *metrics, copse_error *err) {
    copse_status status = copse__build_tensor(b, "metrics", COPSE_F32, COPSE__ROLE_METRIC,
                                              metric_rank, metric_dim, metrics, err);
    if (status != COPSE_OK)
        return status;
    copse__tensor_id outputs[] = {*metrics, COPSE__NO_TENSOR};
    return copse__build_node(b, NULL, op, (const copse__tensor_id[]){x, label}, outputs,
                             attrs, err);
}

copse_status copse__build_cross_entropy(copse__builder *b, copse__tensor_id x,
                                        copse__tensor_id label, bool from_logits,
                                        copse__tensor_id *metrics, copse_error *err) {
    copse__tensor shape = b->graph->tensors[x];
    shape.dim[shape.rank - 1] = copse__fixed(2);
    copse__attrs attrs = {.loss = {.from_logits = from_logits}};
    return add_loss(b, COPSE__OP_CROSS_ENTROPY, &attrs, x, label, shape.rank, shape.dim,
                    metrics, err);
}

copse_status copse__build_mean_squared_error(copse__builder *b, copse__tensor_id x,
                                             copse__tensor_id target,
                                             copse__tensor_id *metrics,
                                             copse_error *err) {
    copse__dim dim[] = {b->graph->tensors[x].dim[0], copse__fixed(2)};
    return add_loss(b, COPSE__OP_MEAN_SQUARED_ERROR, NULL, x, target, 2, dim, metrics,
                    err);
}
