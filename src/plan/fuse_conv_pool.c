/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "plan/fuse_private.h"

/* CONV2D and MAX_POOL2D become CONV2D_MAX_POOL. In a training graph the backward chain
 *
 *     dy -> MAX_POOL2D_GRAD -> [ACTIVATION_GRAD, with the map ->] BIAS_GRAD, CONV2D_GRAD_*
 *
 * becomes
 *
 *     dy -> [ACTIVATION_GRAD, with the pooled map ->] CONV2D_MAX_POOL_GRAD_*
 *
 * which is the same, as the gradient is not zero only where a maximum stood, and there the map has the
 * value that pooling passed on. */

typedef struct match {
    size_t conv, pool;                         /* forward */
    size_t unpool, slope, bias, filter, input; /* backward; NO_NODE where there is none */
} match;

static const copse__tensor *tensor_of(const copse__graph *graph, copse__tensor_id id) {
    return &graph->tensors[id];
}

/* Whether all windows lie in a map of `size`, along one side. */
static bool axis_inside(size_t outputs, size_t size, size_t kernel, size_t stride,
                        size_t dilation) {
    return (outputs - 1) * stride + (kernel - 1) * dilation < size;
}

static bool windows_inside(const copse__graph *graph, const copse__node *pool) {
    const copse__window *w = &pool->attrs.window;
    const copse__dim *map = tensor_of(graph, pool->inputs[0])->dim;
    const copse__dim *pooled = tensor_of(graph, pool->outputs[0])->dim;
    return w->pad_top == 0 && w->pad_left == 0 &&
           axis_inside(pooled[1].size, map[1].size, w->kernel_h, w->stride_h,
                       w->dilation_h) &&
           axis_inside(pooled[2].size, map[2].size, w->kernel_w, w->stride_w,
                       w->dilation_w);
}

static bool is_act_grad(const copse__node *node, copse__activation act,
                        copse__tensor_id map) {
    return node->op == COPSE__OP_ACTIVATION_GRAD && node->attrs.act == act &&
           node->inputs[0] == map;
}

/* The convolution's own gradients, which alone read `da`. */
static bool find_gradients(const copse__graph *graph, match *m, copse__tensor_id da) {
    const copse__node *conv = &graph->nodes[m->conv];
    for (size_t n = 0; n < graph->node_count; n++) {
        const copse__node *node = &graph->nodes[n];
        if (!copse__fuse_reads(graph, node, graph->tensors[da].storage))
            continue;
        if (node->op == COPSE__OP_BIAS_GRAD && node->inputs[0] == da)
            m->bias = n;
        else if (node->op == COPSE__OP_CONV2D_GRAD_FILTER && node->inputs[1] == da &&
                 node->inputs[0] == conv->inputs[0])
            m->filter = n;
        else if (node->op == COPSE__OP_CONV2D_GRAD_INPUT && node->inputs[0] == da &&
                 node->inputs[1] == conv->inputs[1])
            m->input = n;
        else
            return false;
    }
    /* A bias's gradient is computed beside the filter's. */
    return m->filter != COPSE__NO_NODE ||
           (m->bias == COPSE__NO_NODE && m->input != COPSE__NO_NODE);
}

static bool find_backward(const copse__graph *graph, match *m) {
    const copse__node *conv = &graph->nodes[m->conv], *pool = &graph->nodes[m->pool];
    copse__tensor_id map = conv->outputs[0];
    if (pool->outputs[1] == COPSE__NO_TENSOR)
        return true; /* nothing flows back */
    m->unpool = copse__fuse_only_reader(graph, pool->outputs[1]);
    if (m->unpool == COPSE__NO_NODE ||
        graph->nodes[m->unpool].op != COPSE__OP_MAX_POOL2D_GRAD)
        return false;
    copse__tensor_id da = graph->nodes[m->unpool].outputs[0];
    if (graph->tensors[da].storage != da)
        return false;
    if (conv->attrs.act != COPSE__ACT_NONE) {
        m->slope = copse__fuse_only_reader(graph, da);
        if (m->slope == COPSE__NO_NODE ||
            !is_act_grad(&graph->nodes[m->slope], conv->attrs.act, map))
            return false;
        da = graph->nodes[m->slope].outputs[0];
    }
    return find_gradients(graph, m, da);
}

/* The map may be read by pooling, and by the slope that reads the pooled one from then on. */
static bool map_is_free(const copse__graph *graph, const match *m) {
    copse__tensor_id map = graph->nodes[m->conv].outputs[0];
    if (graph->tensors[map].storage != map ||
        graph->tensors[graph->output].storage == map)
        return false;
    for (size_t n = 0; n < graph->node_count; n++)
        if (n != m->pool && n != m->slope &&
            copse__fuse_reads(graph, &graph->nodes[n], map))
            return false;
    return true;
}

static bool find(const copse__graph *graph, size_t pool, match *m) {
    const copse__node *node = &graph->nodes[pool];
    *m = (match){.pool = pool,
                 .unpool = COPSE__NO_NODE,
                 .slope = COPSE__NO_NODE,
                 .bias = COPSE__NO_NODE,
                 .filter = COPSE__NO_NODE,
                 .input = COPSE__NO_NODE};
    if (node->op != COPSE__OP_MAX_POOL2D || !windows_inside(graph, node))
        return false;
    m->conv = copse__fuse_writer(graph, node->inputs[0]);
    return m->conv != COPSE__NO_NODE && graph->nodes[m->conv].op == COPSE__OP_CONV2D &&
           find_backward(graph, m) && map_is_free(graph, m);
}

/* The nodes as they will be; of the gradients, those whose place in the match is taken. dy: the
 * gradient that they read. */
static copse__node forward_of(const copse__graph *graph, const match *m) {
    copse__node node = graph->nodes[m->conv];
    node.op = COPSE__OP_CONV2D_MAX_POOL;
    node.attrs.pool = graph->nodes[m->pool].attrs.window;
    node.output_count = 2;
    node.outputs[0] = graph->nodes[m->pool].outputs[0];
    node.outputs[1] = graph->nodes[m->pool].outputs[1];
    return node;
}

static copse__node filter_of(const copse__graph *graph, const match *m,
                             copse__tensor_id dy) {
    copse__node node = graph->nodes[m->filter];
    node.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER;
    node.attrs.pool = graph->nodes[m->pool].attrs.window;
    node.input_count = 3;
    node.inputs[1] = dy;
    node.inputs[2] = graph->nodes[m->pool].outputs[1];
    node.output_count = 2;
    node.outputs[1] =
        m->bias == COPSE__NO_NODE ? COPSE__NO_TENSOR : graph->nodes[m->bias].outputs[0];
    return node;
}

static copse__node input_of(const copse__graph *graph, const match *m,
                            copse__tensor_id dy) {
    copse__node node = graph->nodes[m->input];
    node.op = COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT;
    node.attrs.pool = graph->nodes[m->pool].attrs.window;
    node.input_count = 3;
    node.inputs[2] = node.inputs[1];
    node.inputs[0] = dy;
    node.inputs[1] = graph->nodes[m->pool].outputs[1];
    return node;
}

/* Without gradients the map is all that fusing saves: less than the multiplications that Winograd's algorithm does,
 * which pools nothing. */
static bool multiplies_less_alone(const copse__fuser *f, const match *m) {
    const copse__backend *backend = copse__backend_of(f->device);
    const char *provider =
        m->unpool == COPSE__NO_NODE
            ? backend->provider(f->device, f->graph, &f->graph->nodes[m->conv])
            : NULL;
    return provider && strncmp(provider, "winograd", strlen("winograd")) == 0;
}

static bool supported(const copse__fuser *f, const match *m) {
    const copse__graph *graph = f->graph;
    copse__node node = forward_of(graph, m);
    if (multiplies_less_alone(f, m))
        return false;
    if (!copse__fuse_supported(f, &node))
        return false;
    if (m->unpool == COPSE__NO_NODE)
        return true;
    copse__tensor_id dy = graph->nodes[m->unpool].inputs[0]; /* of the slope's shape */
    if (m->filter != COPSE__NO_NODE) {
        node = filter_of(graph, m, dy);
        if (!copse__fuse_supported(f, &node))
            return false;
    }
    if (m->input == COPSE__NO_NODE)
        return true;
    node = input_of(graph, m, dy);
    return copse__fuse_supported(f, &node);
}

/* The activation's gradient of the pooled map; *dy becomes its result. */
static copse_status move_slope(copse__fuser *f, const match *m, copse__tensor_id *dy) {
    copse__graph *graph = f->graph;
    copse__node *slope = &graph->nodes[m->slope];
    const copse__tensor pooled = graph->tensors[graph->nodes[m->pool].outputs[0]];
    copse__tensor_id made;
    copse_status status = copse__graph_tensor(
        graph, graph->tensors[slope->outputs[0]].name, COPSE_F32, COPSE__ROLE_ACTIVATION,
        pooled.rank, pooled.dim, &made, f->err);
    if (status != COPSE_OK)
        return status;
    slope->inputs[0] = graph->nodes[m->pool].outputs[0];
    slope->inputs[1] = *dy;
    slope->outputs[0] = *dy = made;
    return COPSE_OK;
}

static copse_status rewrite(copse__fuser *f, const match *m) {
    copse__graph *graph = f->graph;
    copse_status status = copse__fuse_absorb(f, m->conv, m->pool);
    copse__tensor_id dy = COPSE__NO_TENSOR;
    size_t unpool_by = m->filter != COPSE__NO_NODE ? m->filter : m->input;
    if (status == COPSE_OK && m->unpool != COPSE__NO_NODE) {
        dy = graph->nodes[m->unpool].inputs[0];
        status = copse__fuse_absorb(f, unpool_by, m->unpool);
    }
    if (status == COPSE_OK && m->bias != COPSE__NO_NODE)
        status = copse__fuse_absorb(f, m->filter, m->bias);
    if (status == COPSE_OK && m->slope != COPSE__NO_NODE)
        status = move_slope(f, m, &dy);
    if (status != COPSE_OK)
        return status;
    /* `absorbed` has changed in place: the copies are made after it. */
    if (m->filter != COPSE__NO_NODE)
        graph->nodes[m->filter] = filter_of(graph, m, dy);
    if (m->input != COPSE__NO_NODE)
        graph->nodes[m->input] = input_of(graph, m, dy);
    graph->nodes[m->conv] = forward_of(graph, m);
    /* From behind, so that the other places stay. */
    size_t gone[] = {m->pool, m->unpool, m->bias};
    for (size_t removed = 0; removed < 3; removed++) {
        size_t last = 0;
        for (size_t i = 1; i < 3; i++)
            if (gone[last] == COPSE__NO_NODE ||
                (gone[i] != COPSE__NO_NODE && gone[i] > gone[last]))
                last = i;
        if (gone[last] != COPSE__NO_NODE)
            copse__fuse_remove(f, gone[last]);
        gone[last] = COPSE__NO_NODE;
    }
    return COPSE_OK;
}

copse_status copse__fuse_conv_pool(copse__fuser *f, size_t index, bool *changed) {
    match m;
    if (!find(f->graph, index, &m) || !supported(f, &m))
        return COPSE_OK;
    *changed = true;
    return rewrite(f, &m);
}
