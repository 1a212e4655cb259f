/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/graph.h"

static double elements(const copse__graph *graph, copse__tensor_id id,
                       const copse__extents *extents) {
    return id == COPSE__NO_TENSOR
               ? 0
               : (double)copse__tensor_elements(&graph->tensors[id], extents);
}

/* A multiply-add for every pixel of the output and every weight of the filter: 2 N P Q F
 * R S C. */
static double convolution(const copse__graph *graph, copse__tensor_id pixels,
                          copse__tensor_id filter, const copse__extents *extents) {
    return 2 * (double)copse__tensor_rows(&graph->tensors[pixels], extents) *
           elements(graph, filter, extents);
}

static double places(const copse__window *window) {
    return (double)window->kernel_h * (double)window->kernel_w;
}

double copse__node_flops(const copse__graph *graph, const copse__node *node,
                         const copse__extents *extents) {
    const copse__tensor_id *in = node->inputs, *out = node->outputs;
    switch (node->op) {
    case COPSE__OP_DENSE: /* 2 rows K U; the same product as a convolution of 1 by 1 */
        return convolution(graph, out[0], in[1], extents);
    case COPSE__OP_DENSE_GRAD_INPUT:
        return convolution(graph, in[0], in[1], extents);
    case COPSE__OP_DENSE_GRAD_WEIGHT:
        return convolution(graph, in[1], out[0], extents);
    case COPSE__OP_CONV2D:
        return convolution(graph, out[0], in[1], extents);
    case COPSE__OP_CONV2D_GRAD_INPUT:
        return convolution(graph, in[0], in[1], extents);
    case COPSE__OP_CONV2D_GRAD_FILTER:
        return convolution(graph, in[1], out[0], extents);
    /* As if every window's pixels were computed, and none twice. */
    case COPSE__OP_CONV2D_MAX_POOL:
        return convolution(graph, out[0], in[1], extents) * places(&node->attrs.pool);
    case COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT:
        return convolution(graph, in[0], in[2], extents) * places(&node->attrs.pool);
    case COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER:
        return convolution(graph, in[1], out[0], extents) * places(&node->attrs.pool);
    case COPSE__OP_MAX_POOL2D:
    case COPSE__OP_AVG_POOL2D:
        return elements(graph, out[0], extents) * places(&node->attrs.window);
    case COPSE__OP_AVG_POOL2D_GRAD:
        return elements(graph, in[0], extents) * places(&node->attrs.window);
    case COPSE__OP_ELEMENTWISE:
        return elements(graph, out[0], extents) * node->attrs.expression.term_count;
    default: {
        /* Elementwise, or a reduction that reads each element once. */
        double read = elements(graph, in[0], extents);
        double written = elements(graph, out[0], extents);
        return read > written ? read : written;
    }
    }
}
