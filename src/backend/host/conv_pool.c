/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/conv.h"
#include "base/mem.h"

/* CONV2D_MAX_POOL and its gradients: the loops of the two operations one behind the other, with the
 * map between them in the workspace. So their bits are those of the operations by themselves. */

/* Pixels of the map that `count` windows see, along one side. */
static size_t seen(size_t count, size_t stride, size_t kernel, size_t dilation) {
    return count == 0 ? 0 : (count - 1) * stride + (kernel - 1) * dilation + 1;
}

typedef struct shape {
    const copse__tensor *image, *pooled;
} shape;

static const copse__tensor *tensor_of(const copse__graph *graph, copse__tensor_id id) {
    return &graph->tensors[id];
}

static shape shape_of(const copse__graph *graph, const copse__node *node) {
    switch (node->op) {
    case COPSE__OP_CONV2D_MAX_POOL:
        return (shape){tensor_of(graph, node->inputs[0]),
                       tensor_of(graph, node->outputs[0])};
    case COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT:
        return (shape){tensor_of(graph, node->outputs[0]),
                       tensor_of(graph, node->inputs[0])};
    default:
        return (shape){tensor_of(graph, node->inputs[0]),
                       tensor_of(graph, node->inputs[1])};
    }
}

/* Of the convolution, whose map has just the pixels that pooling sees. */
static copse__host_geometry convolution_of(const copse__node *node, shape s,
                                           const copse__extents *extents) {
    const copse__window *pool = &node->attrs.pool;
    const copse__dim *from = s.image->dim, *to = s.pooled->dim;
    return (copse__host_geometry){
        .n = copse__dim_at(from[0], extents),
        .h = from[1].size,
        .w = from[2].size,
        .c = from[3].size,
        .p = seen(to[1].size, pool->stride_h, pool->kernel_h, pool->dilation_h),
        .q = seen(to[2].size, pool->stride_w, pool->kernel_w, pool->dilation_w),
        .f = to[3].size,
        .window = node->attrs.window};
}

/* Of the pooling of that map. */
static copse__host_geometry pooling_of(const copse__node *node, shape s,
                                       const copse__host_geometry *convolution) {
    return (copse__host_geometry){.n = convolution->n,
                                  .h = convolution->p,
                                  .w = convolution->q,
                                  .c = convolution->f,
                                  .p = s.pooled->dim[1].size,
                                  .q = s.pooled->dim[2].size,
                                  .f = convolution->f,
                                  .window = node->attrs.pool};
}

static size_t filter_bytes(const copse__graph *graph, const copse__node *node) {
    return node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT
               ? copse__tensor_bytes(tensor_of(graph, node->inputs[2]), NULL)
               : 0;
}

size_t copse__host_conv_pool_workspace(const copse__graph *graph,
                                       const copse__node *node) {
    copse__host_geometry g = convolution_of(node, shape_of(graph, node), NULL);
    size_t floats, bytes;
    if (!copse__mul_size(g.n, g.p, &floats) || !copse__mul_size(floats, g.q, &floats) ||
        !copse__mul_size(floats, g.f, &floats) ||
        !copse__mul_size(floats, sizeof(float), &bytes) ||
        !copse__add_size(bytes, filter_bytes(graph, node), &bytes))
        return SIZE_MAX;
    return bytes;
}

void copse__host_conv2d_max_pool(const copse__host_call *call) {
    shape s = shape_of(call->graph, call->node);
    copse__host_geometry convolution = convolution_of(call->node, s, call->extents);
    copse__host_geometry pooling = pooling_of(call->node, s, &convolution);
    const copse__tensor *index = copse__host_output(call, 1);
    copse__host_convolve(call, &convolution, call->in[0], call->in[1], call->in[2],
                         call->workspace);
    copse__host_pool(call, &pooling, call->workspace, call->out[0], call->out[1],
                     index ? index->dtype : COPSE_U8);
}

void copse__host_conv2d_max_pool_grad_input(const copse__host_call *call) {
    shape s = shape_of(call->graph, call->node);
    copse__host_geometry convolution = convolution_of(call->node, s, call->extents);
    copse__host_geometry pooling = pooling_of(call->node, s, &convolution);
    float *turned = call->workspace;
    float *map = turned + filter_bytes(call->graph, call->node) / sizeof(float);
    copse__host_unpool(call, &pooling, call->in[0], call->in[1],
                       copse__host_input(call, 1)->dtype, map);
    copse__host_convolve_back(call, &convolution, map, call->in[2], turned, call->out[0]);
}

void copse__host_conv2d_max_pool_grad_filter(const copse__host_call *call) {
    shape s = shape_of(call->graph, call->node);
    copse__host_geometry convolution = convolution_of(call->node, s, call->extents);
    copse__host_geometry pooling = pooling_of(call->node, s, &convolution);
    copse__host_unpool(call, &pooling, call->in[1], call->in[2],
                       copse__host_input(call, 2)->dtype, call->workspace);
    copse__host_correlate(call, &convolution, call->in[0], call->workspace, call->out[0]);
    if (call->out[1])
        copse__host_sum_rows(call, call->in[1], copse__host_input_rows(call, 1),
                             pooling.c, call->out[1]);
}
