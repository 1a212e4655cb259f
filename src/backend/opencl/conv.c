/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "backend/opencl/window.h"

#define PIXELS 6   /* as in conv.cl */
#define CHANNELS 6 /* likewise */

static size_t ceil_div(size_t n, size_t by) {
    return (n + by - 1) / by;
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    (void)device;
    return copse__cl_window_fits(graph, node, reason);
}

/* Loop passes of an item that sums over `depth` channels a tap and makes some of `width`; at an edge each
 * pixel has a loop of its own. */
static size_t item_steps(const copse__launch *launch, const copse_window *g, size_t depth,
                         size_t width) {
    size_t single = width % copse__cl_vector(launch->device) * PIXELS;
    return (size_t)g->r * g->s * (depth * copse__max_size(single, PIXELS) + 2 * PIXELS);
}

static copse_status forward_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    bool has_bias = copse__cl_input(launch->graph, launch->node, 2) != NULL;
    copse__view bias = {0};
    if (has_bias)
        bias = o->inputs[2];
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_conv, "",
                                               "conv2d_direct_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvvv", &o->inputs[0], &o->inputs[1],
                                &bias, &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 0, 4, &g, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 6, err, "uu", (uint32_t)has_bias,
                                (uint32_t)launch->node->attrs.act);
    return status;
}

static copse_status forward_enqueue(copse__launch *launch, const copse__extents *extents,
                                    bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 5, err, "z", images);
    if (status != COPSE_OK)
        return status;
    size_t items = images * g.p * ceil_div(g.q, PIXELS) *
                   ceil_div(g.f, copse__cl_vector(launch->device));
    return copse__cl_enqueue_flat(launch, 0, items, item_steps(launch, &g, g.c, g.f),
                                  err);
}

/* The filter with its last two dimensions exchanged lies in the workspace. */
static copse_status input_workspace(size_t *bytes, copse__device *device,
                                    const copse__graph *graph, const copse__node *node,
                                    copse_error *err) {
    (void)device;
    (void)err;
    *bytes = copse__tensor_bytes(copse__cl_input(graph, node, 1), NULL);
    return COPSE_OK;
}

static copse_status input_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_conv, "",
                                               "conv2d_turn_filter_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_conv, "",
                                      "conv2d_grad_input_direct_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvuuu", &o->inputs[1], &o->workspace,
                                g.r * g.s, g.c, g.f);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvv", &o->inputs[0], &o->workspace,
                                &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 1, 3, &g, err);
    return status;
}

static copse_status input_enqueue(copse__launch *launch, const copse__extents *extents,
                                  bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    copse_status status = COPSE_OK;
    if (images == 0)
        return COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 1, 4, err, "z", images);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 0, (size_t)g.r * g.s * g.c * g.f, 1, err);
    if (status != COPSE_OK)
        return status;
    size_t items = images * g.h * ceil_div(g.w, PIXELS) *
                   ceil_div(g.c, copse__cl_vector(launch->device));
    return copse__cl_enqueue_flat(launch, 1, items, item_steps(launch, &g, g.f, g.c),
                                  err);
}

/* Into how many parts the map's rows are shared: enough to keep the device busy, as few as
 * the sums of the parts stay small. Depends on planned sizes only. */
#define BUSY_ITEMS_CHUNKED 64
#define BUSY_ITEMS 16384
#define MOST_PLACES 16384 /* of a part: bounds a work-item's loops */
#define MOST_PARTIAL_BYTES ((size_t)64 << 20)

static size_t filter_parts(const copse__device *device, const copse__graph *graph,
                           const copse__node *node) {
    copse_window g = copse__cl_window(graph, node);
    size_t tiles = (size_t)g.r * g.s * ceil_div(g.c, CHANNELS) *
                   ceil_div(g.f, copse__cl_vector(device));
    size_t busy = device->base.caps.cpu ? BUSY_ITEMS_CHUNKED : BUSY_ITEMS;
    size_t bytes = copse__tensor_bytes(copse__cl_output(graph, node, 0), NULL);
    size_t places = copse__cl_images(graph, node, NULL) * g.p * g.q;
    size_t parts = copse__max_size(ceil_div(busy, tiles), ceil_div(places, MOST_PLACES));
    parts = copse__min_size(parts, MOST_PARTIAL_BYTES / copse__max_size(bytes, 1));
    parts = copse__min_size(parts, copse__cl_images(graph, node, NULL) * g.p);
    return copse__max_size(parts, 1);
}

static copse_status filter_workspace(size_t *bytes, copse__device *device,
                                     const copse__graph *graph, const copse__node *node,
                                     copse_error *err) {
    size_t parts = filter_parts(device, graph, node);
    if (!copse__mul_size(
            parts, copse__tensor_bytes(copse__cl_output(graph, node, 0), NULL), bytes))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the filter is too large", node->name);
    return COPSE_OK;
}

static copse_status filter_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_window g = copse__cl_window(launch->graph, launch->node);
    uint32_t parts = (uint32_t)filter_parts(launch->device, launch->graph, launch->node);
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_conv, "",
                                               "conv2d_grad_filter_direct_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                      "sum_parts_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvv", &o->inputs[0], &o->inputs[1],
                                &o->workspace);
    if (status == COPSE_OK)
        status = copse__cl_arg_window(launch, 0, 3, &g, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 5, err, "u", parts);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvzu", &o->workspace, &o->outputs[0],
                                (size_t)g.r * g.s * g.c * g.f, parts);
    return status;
}

static copse_status filter_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    copse_window g = copse__cl_window(launch->graph, launch->node);
    size_t images = copse__cl_images(launch->graph, launch->node, extents);
    size_t parts = filter_parts(launch->device, launch->graph, launch->node);
    size_t elements = (size_t)g.r * g.s * g.c * g.f;
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 4, err, "z", images);
    if (status != COPSE_OK)
        return status;
    size_t items = parts * g.r * g.s * ceil_div(g.c, CHANNELS) *
                   ceil_div(g.f, copse__cl_vector(launch->device));
    status = copse__cl_enqueue_flat(launch, 0, items, ceil_div(images * g.p, parts) * g.q,
                                    err);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 1, elements, parts, err);
    return status;
}

const copse__cl_provider copse__cl_conv2d_direct = {.name = "direct",
                                                    .fits = fits,
                                                    .prepare = forward_prepare,
                                                    .enqueue = forward_enqueue};
const copse__cl_provider copse__cl_conv2d_grad_input_direct = {.name = "direct",
                                                               .fits = fits,
                                                               .workspace =
                                                                   input_workspace,
                                                               .prepare = input_prepare,
                                                               .enqueue = input_enqueue};
const copse__cl_provider copse__cl_conv2d_grad_filter_direct = {
    .name = "direct",
    .fits = fits,
    .workspace = filter_workspace,
    .prepare = filter_prepare,
    .enqueue = filter_enqueue};
