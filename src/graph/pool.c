/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/build.h"

/* The first place that no longer fits into a byte. */
#define BYTE_PLACES 255

copse_status copse__build_pool2d(copse__builder *b, copse__op op, copse__tensor_id x,
                                 copse__window window, copse__padding padding,
                                 copse__tensor_id *out, copse_error *err) {
    size_t p, q;
    copse_status status =
        copse__window_resolve(b, x, "pool", padding, &window, &p, &q, err);
    if (status != COPSE_OK)
        return status;
    const copse__dim *of = b->graph->tensors[x].dim;
    copse__dim dim[] = {of[0], copse__fixed(p), copse__fixed(q), of[3]};
    status =
        copse__build_tensor(b, NULL, COPSE_F32, COPSE__ROLE_ACTIVATION, 4, dim, out, err);
    if (status != COPSE_OK)
        return status;
    /* Where the maxima stood is asked for by the backward pass only. */
    copse__tensor_id outputs[] = {*out, COPSE__NO_TENSOR};
    copse__attrs attrs = {.window = window};
    return copse__build_node(b, NULL, op, &x, outputs, &attrs, err);
}

copse_status copse__build_global_avg_pool(copse__builder *b, copse__tensor_id x,
                                          copse__tensor_id *out, copse_error *err) {
    const copse__tensor *image = &b->graph->tensors[x];
    char shape[COPSE__SHAPE_TEXT];
    if (image->rank != 4)
        return copse__fail(err, COPSE_CONFIG, 0, b->place,
                           "layer '%s' works on images (None, height, width, channels), "
                           "but its input has the shape %s",
                           b->layer, copse__build_shape(b, x, shape));
    copse__dim dim[] = {image->dim[0], image->dim[3]};
    copse_status status =
        copse__build_tensor(b, NULL, COPSE_F32, COPSE__ROLE_ACTIVATION, 2, dim, out, err);
    if (status != COPSE_OK)
        return status;
    return copse__build_node(b, NULL, COPSE__OP_GLOBAL_AVG_POOL, &x, out, NULL, err);
}

copse_status copse__gradient_max_pool2d(copse__backward *pass, const copse__node *node,
                                        size_t index, copse__tensor_id dy,
                                        copse_error *err) {
    copse__builder *b = &pass->builder;
    copse__attrs attrs = {.window = node->attrs.window};
    const copse__tensor y = b->graph->tensors[node->outputs[0]];
    copse__tensor_id places;
    size_t count; /* an overflow is far more than a byte can hold */
    bool wide =
        __builtin_mul_overflow(attrs.window.kernel_h, attrs.window.kernel_w, &count) ||
        count > BYTE_PLACES;
    copse_status status =
        copse__build_tensor(b, "index", wide ? COPSE_I32 : COPSE_U8,
                            COPSE__ROLE_ACTIVATION, 4, y.dim, &places, err);
    if (status != COPSE_OK)
        return status;
    b->graph->nodes[index].outputs[1] = places;
    return copse__gradient_node(pass, "grad_input", COPSE__OP_MAX_POOL2D_GRAD,
                                (const copse__tensor_id[]){dy, places}, &attrs,
                                node->inputs[0], err);
}

copse_status copse__gradient_avg_pool2d(copse__backward *pass, const copse__node *node,
                                        size_t index, copse__tensor_id dy,
                                        copse_error *err) {
    (void)index;
    copse__attrs attrs = {.window = node->attrs.window};
    return copse__gradient_node(pass, "grad_input", COPSE__OP_AVG_POOL2D_GRAD, &dy,
                                &attrs, node->inputs[0], err);
}

copse_status copse__gradient_global_avg_pool(copse__backward *pass,
                                             const copse__node *node, size_t index,
                                             copse__tensor_id dy, copse_error *err) {
    (void)index;
    return copse__gradient_node(pass, "grad_input", COPSE__OP_GLOBAL_AVG_POOL_GRAD, &dy,
                                NULL, node->inputs[0], err);
}
