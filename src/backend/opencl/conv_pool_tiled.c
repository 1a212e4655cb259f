/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/gemm.h"
#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"
#include "backend/opencl/reduce.h"
#include "backend/opencl/window.h"

/* CONV2D_MAX_POOL and its gradients by cl/conv_tiled.cl: pooling by 2 x 2, where work-items share local memory. */

enum { KERNEL_CONV, KERNEL_SUM, KERNEL_BIAS, KERNEL_SUM_BIAS };

#define MOST_DEPTH 32768 /* of a sum: bounds a work-item's loops */
#define MOST_PIXELS 16384
#define BUSY_GROUPS 256

static size_t ceil_div(size_t n, size_t by) {
    return (n + by - 1) / by;
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    copse_window g = copse__cl_window(graph, node);
    size_t tile = copse__cl_tile(device), depth = (size_t)g.r * g.s;
    depth *= copse__cl_conv_pass(node) == COPSE__CONV_FORWARD ? g.c : g.f;
    *reason = "its work-groups are too small";
    if (tile == 0 ||
        device->local_bytes < (2 * tile * (4 * tile + 1) + 20 * tile) * sizeof(float))
        return false;
    *reason = "a window has too many channels";
    if (copse__cl_conv_pass(node) != COPSE__CONV_GRAD_FILTER && depth > MOST_DEPTH)
        return false;
    if (!copse__cl_pools_by_2(graph, node, reason) ||
        !copse__cl_window_fits(graph, node, reason))
        return false;
    /* Where a core is a work-item, what the packed kernels cannot take is left to the nodes by themselves. */
    copse__packed_sizes sizes;
    copse__conv_cut cut;
    const char *why;
    *reason = "its work-items are whole cores";
    return !device->base.caps.cpu ||
           !copse__cl_packed_sizes(&sizes, device, graph, node, &why) ||
           copse__cl_packed_cut(&cut, device, graph, node, NULL, &why);
}

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return device->base.caps.cpu ? 3 : 1;
}

static size_t filter_rows(const copse_window *g) {
    return (size_t)g->r * g->s * g->c;
}

/* Parts of the filter's gradient. Depends on planned sizes only. */
static size_t parts_of(const copse__device *device, const copse__graph *graph,
                       const copse__node *node) {
    copse_window g = copse__cl_window(graph, node);
    size_t side = 4 * copse__cl_tile(device);
    size_t pixels = copse__cl_images(graph, node, NULL) * g.p * g.q * 4;
    size_t groups = ceil_div(filter_rows(&g), side) * ceil_div(g.f, side);
    size_t parts = copse__min_size(ceil_div(BUSY_GROUPS, groups), pixels / 512);
    return copse__max_size(copse__max_size(parts, ceil_div(pixels, MOST_PIXELS)), 1);
}

static bool has_bias_grad(const copse__graph *graph, const copse__node *node) {
    return copse__cl_conv_pass(node) == COPSE__CONV_GRAD_FILTER &&
           copse__cl_output(graph, node, 1) != NULL;
}

static size_t bias_parts(const copse__device *device, const copse__graph *graph,
                         const copse__node *node) {
    return copse__cl_row_parts(device, copse__cl_input(graph, node, 1));
}

/* The filter's parts, then, aligned, the bias's. */
static size_t bias_offset(const copse__device *device, const copse__graph *graph,
                          const copse__node *node) {
    copse_window g = copse__cl_window(graph, node);
    return copse__round_up(filter_rows(&g) * g.f * parts_of(device, graph, node) *
                               sizeof(float),
                           device->base.caps.view_alignment);
}

static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse_window g = copse__cl_window(graph, node);
    size_t elements;
    *bytes = 0;
    if (copse__cl_conv_pass(node) != COPSE__CONV_GRAD_FILTER)
        return COPSE_OK;
    if (!copse__mul_size(filter_rows(&g) * g.f, parts_of(device, graph, node),
                         &elements) ||
        elements > SIZE_MAX / 16)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the filter is too large", node->name);
    *bytes = bias_offset(device, graph, node);
    if (has_bias_grad(graph, node))
        *bytes += bias_parts(device, graph, node) * g.f * sizeof(float);
    return COPSE_OK;
}

static copse_status prepare_sums(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    const copse__cl_source *source = &copse__cl_source_basic;
    copse__view bias = o->workspace;
    size_t begin = bias_offset(launch->device, launch->graph, launch->node);
    uint32_t parts = (uint32_t)parts_of(launch->device, launch->graph, launch->node);
    copse_status status =
        copse__cl_kernel_add(launch, NULL, source, "", "sum_parts_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_SUM, 0, err, "vvzu", &o->workspace,
                                &o->outputs[0], filter_rows(&g) * g.f, parts);
    if (status != COPSE_OK || !has_bias_grad(launch->graph, launch->node))
        return status;
    uint32_t rows = (uint32_t)bias_parts(launch->device, launch->graph, launch->node);
    bias.offset += begin;
    bias.bytes -= begin;
    status = copse__cl_kernel_add(launch, NULL, source, "", "sum_rows_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, source, "", "sum_parts_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_BIAS, 0, err, "vv", &o->inputs[1], &bias);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_BIAS, 3, err, "uu", g.f, rows);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_SUM_BIAS, 0, err, "vvzu", &bias,
                                &o->outputs[1], (size_t)g.f, rows);
    return status;
}

static copse_status prepare(copse__launch *launch, copse_error *err) {
    static const char *const names[] = {
        [COPSE__CONV_FORWARD] = "conv_tiled_max_pool_f32",
        [COPSE__CONV_GRAD_INPUT] = "conv_tiled_max_pool_grad_input_f32",
        [COPSE__CONV_GRAD_FILTER] = "conv_tiled_max_pool_grad_filter_f32"};
    const copse__operands *o = &launch->operands;
    const copse__view none = {0};
    copse__conv_pass pass = copse__cl_conv_pass(launch->node);
    copse_window g = copse__cl_window(launch->graph, launch->node);
    copse_status status = copse__cl_kernel_add(
        launch, NULL, &copse__cl_source_conv_tiled,
        copse__cl_tile(launch->device) == 16 ? "-DTILE=16" : "-DTILE=8", names[pass],
        err);
    if (status != COPSE_OK)
        return status;
    if (pass == COPSE__CONV_FORWARD) {
        bool has_bias = copse__cl_input(launch->graph, launch->node, 2) != NULL;
        bool has_index = copse__cl_output(launch->graph, launch->node, 1) != NULL;
        status = copse__cl_args(launch, KERNEL_CONV, 0, err, "vvvvv", &o->inputs[0],
                                &o->inputs[1], has_bias ? &o->inputs[2] : &none,
                                &o->outputs[0], has_index ? &o->outputs[1] : &none);
        if (status == COPSE_OK)
            status = copse__cl_arg_window(launch, KERNEL_CONV, 5, &g, err);
        if (status == COPSE_OK)
            status =
                copse__cl_args(launch, KERNEL_CONV, 7, err, "uuu", (uint32_t)has_bias,
                               (uint32_t)has_index, (uint32_t)launch->node->attrs.act);
        return status;
    }
    bool filter = pass == COPSE__CONV_GRAD_FILTER;
    status =
        copse__cl_args(launch, KERNEL_CONV, 0, err, "vvvv", &o->inputs[0], &o->inputs[1],
                       &o->inputs[2], filter ? &o->workspace : &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, KERNEL_CONV, 4, &g, err);
    return status == COPSE_OK && filter ? prepare_sums(launch, err) : status;
}

static copse_status enqueue_sums(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    const copse__tensor *dy = copse__cl_input(launch->graph, launch->node, 1);
    copse_window g = copse__cl_window(launch->graph, launch->node);
    copse_status status = copse__cl_enqueue_flat(
        launch, KERNEL_SUM, filter_rows(&g) * g.f,
        parts_of(launch->device, launch->graph, launch->node), err);
    if (status != COPSE_OK || !has_bias_grad(launch->graph, launch->node))
        return status;
    if (changed)
        status = copse__cl_args(launch, KERNEL_BIAS, 2, err, "z",
                                copse__tensor_rows(dy, extents));
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, KERNEL_BIAS,
                                        copse__cl_row_items(launch->device, dy),
                                        COPSE__CL_MOST_PART_ROWS, err);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(
            launch, KERNEL_SUM_BIAS, g.f,
            bias_parts(launch->device, launch->graph, launch->node), err);
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    copse__conv_pass pass = copse__cl_conv_pass(launch->node);
    copse_window g = copse__cl_window(launch->graph, launch->node);
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    size_t tile = copse__cl_tile(launch->device), side = 4 * tile;
    const size_t local[] = {tile, tile, 1};
    size_t columns = pass == COPSE__CONV_GRAD_INPUT ? g.c : g.f;
    size_t global[] = {ceil_div(columns, side) * tile, 0, 1}, count;
    if (pass == COPSE__CONV_FORWARD) {
        count = images * g.p * g.q; /* windows */
        global[1] = ceil_div(count, tile) * tile;
    } else if (pass == COPSE__CONV_GRAD_INPUT) {
        count = images * g.h * g.w; /* of the image */
        global[1] = ceil_div(count, side) * tile;
    } else {
        count = images * g.p * g.q * 4; /* of the map */
        global[1] = ceil_div(filter_rows(&g), side) * tile;
        global[2] = parts_of(launch->device, launch->graph, launch->node);
    }
    if (global[1] == 0)
        return COPSE_OK;
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, KERNEL_CONV, pass == COPSE__CONV_FORWARD ? 6 : 5,
                                err, "z", count);
    if (status == COPSE_OK)
        status = copse__cl_enqueue(launch, KERNEL_CONV, 3, global, local, err);
    return status == COPSE_OK && pass == COPSE__CONV_GRAD_FILTER
               ? enqueue_sums(launch, extents, changed, err)
               : status;
}

const copse__cl_provider copse__cl_conv2d_max_pool_tiled = {.name = "tiled",
                                                            .fits = fits,
                                                            .cost = cost,
                                                            .workspace = workspace,
                                                            .prepare = prepare,
                                                            .enqueue = enqueue};
