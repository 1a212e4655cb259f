/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"
#include "backend/opencl/window.h"

/* Convolutions by cl/conv_packed.cl. */

enum { KERNEL_FILTER, KERNEL_SUM }; /* the filter's gradient */

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    copse__conv_cut cut;
    return copse__cl_window_fits(graph, node, reason) &&
           copse__cl_packed_cut(&cut, device, graph, node, NULL, reason);
}

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return copse__cl_packed_cost(device);
}

/* The packed filter; for the filter's gradient, its parts. */
static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse__conv_cut cut;
    const char *reason;
    size_t floats = 0;
    bool fine = copse__cl_packed_cut(&cut, device, graph, node, NULL, &reason);
    if (fine && copse__cl_conv_pass(node) == COPSE__CONV_GRAD_FILTER) {
        copse__conv_size planned = copse__cl_conv_size(graph, node, NULL);
        size_t parts = copse__conv_parts(&planned, device->base.caps.compute_units);
        if (parts > 1)
            fine = copse__mul_size(
                copse__tensor_elements(copse__cl_output(graph, node, 0), NULL), parts,
                &floats);
    } else if (fine)
        floats = cut.packed_floats;
    if (!fine || !copse__mul_size(floats, sizeof(float), bytes))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the filter is too large", node->name);
    return COPSE_OK;
}

static copse_status prepare(copse__launch *launch, copse_error *err) {
    static const char *const conv[] = {"conv_pack_f32", "conv_packed_f32"};
    static const char *const filter[] = {"conv_packed_grad_filter_f32", "packed_sum_f32"};
    copse__packed_sizes sizes;
    const char *reason;
    if (!copse__cl_packed_sizes(&sizes, launch->device, launch->graph, launch->node,
                                &reason))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, launch->device->place, "%s: %s",
                           launch->node->name, reason);
    bool is_filter = copse__cl_conv_pass(launch->node) == COPSE__CONV_GRAD_FILTER;
    return copse__cl_conv_prepare(launch, &sizes, &copse__cl_source_conv_packed, "",
                                  is_filter ? filter : conv, 2, err);
}

/* Elements that a group of the sum takes, about. */
#define SUM_GRAIN 4096

static size_t sum_rows(const copse_conv_shape *g) {
    return copse__max_size(1, SUM_GRAIN / (size_t)g->target_c);
}

static size_t filter_rows(const copse_conv_shape *g) {
    return (size_t)g->kernel_h * (size_t)g->kernel_w * (size_t)g->source_c;
}

static copse_status set_filter(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__operands *o = &launch->operands;
    const copse_conv_shape *g = &s->cut.shape;
    const copse__view none = {0};
    bool parted = s->cut.parts > 1;
    copse_status status = copse__cl_arg_conv_shape(launch, KERNEL_FILTER, g, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_FILTER, 1, err, "vvv", &o->inputs[0],
                                &o->inputs[1], parted ? &o->workspace : &o->outputs[0]);
    if (status == COPSE_OK && parted)
        status = copse__cl_args(
            launch, KERNEL_SUM, 0, err, "uuuuvvvuu", (uint32_t)filter_rows(g),
            (uint32_t)g->target_c, (uint32_t)sum_rows(g), (uint32_t)s->cut.parts,
            &o->workspace, &none, &o->outputs[0], (uint32_t)0, (uint32_t)0);
    return status;
}

static copse_status enqueue_filter(copse__launch *launch, copse_error *err) {
    static const size_t one[3] = {1, 1, 1};
    const copse__cl_conv_state *s = launch->state;
    copse_status status =
        copse__cl_enqueue(launch, KERNEL_FILTER, 3, s->cut.groups, one, err);
    if (status != COPSE_OK || s->cut.parts == 1)
        return status;
    size_t rows = sum_rows(&s->cut.shape);
    size_t groups = (filter_rows(&s->cut.shape) + rows - 1) / rows;
    return copse__cl_enqueue(launch, KERNEL_SUM, 1, &groups, one, err);
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    static const size_t one[3] = {1, 1, 1};
    bool filter = launch->node->op == COPSE__OP_CONV2D_GRAD_FILTER;
    copse__cl_conv_state *s = launch->state;
    copse_status status = COPSE_OK;
    if (changed) {
        copse__conv_size size = copse__cl_conv_size(launch->graph, launch->node, extents);
        if (!copse__conv_cut_at(&s->cut, &s->sizes, copse__cl_conv_pass(launch->node),
                                &size, launch->device->base.caps.compute_units,
                                s->max_parts))
            return copse__cl_conv_unfit(launch, err);
        status = filter ? set_filter(launch, err) : copse__cl_conv_set(launch, err);
    }
    if (status != COPSE_OK)
        return status;
    if (filter)
        return enqueue_filter(launch, err);
    if (s->cut.groups[0] == 0)
        return COPSE_OK;
    status =
        copse__cl_enqueue(launch, COPSE__CL_CONV_PACK, 2, s->cut.pack_groups, one, err);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue(launch, COPSE__CL_CONV_CONV, 3, s->cut.groups, one, err);
}

const copse__cl_provider copse__cl_conv2d_packed = {.name = "packed",
                                                    .candidates =
                                                        copse__cl_packed_candidates,
                                                    .takes = copse__cl_packed_takes,
                                                    .fits = fits,
                                                    .cost = cost,
                                                    .workspace = workspace,
                                                    .prepare = prepare,
                                                    .enqueue = enqueue};
