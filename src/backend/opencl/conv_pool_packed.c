/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"
#include "backend/opencl/window.h"

/* CONV2D_MAX_POOL and its gradients by cl/conv_pool_packed.cl: pooling by 2 x 2, on CPU devices. */

enum { KERNEL_PACK, KERNEL_CONV }; /* forward and the input's gradient */
enum { KERNEL_FILTER, KERNEL_SUM, KERNEL_SUM_BIAS }; /* the filter's gradient */

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    copse__conv_cut cut;
    *reason = "its work-items are not whole cores";
    if (!device->base.caps.cpu || !copse__cl_pools_by_2(graph, node, reason))
        return false;
    return copse__cl_window_fits(graph, node, reason) &&
           copse__cl_packed_cut(&cut, device, graph, node, NULL, reason);
}

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return copse__cl_packed_cost(device);
}

static size_t filter_elements(const copse__launch *launch) {
    return copse__tensor_elements(copse__cl_output(launch->graph, launch->node, 0), NULL);
}

/* Where the bias's parts lie, behind the filter's. */
static size_t bias_offset(const copse__device *device, size_t elements, size_t parts) {
    return copse__round_up(elements * parts * sizeof(float),
                           device->base.caps.view_alignment);
}

/* The packed filter; for the filter's gradient, its parts and the bias's. */
static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse__conv_cut cut;
    const char *reason;
    bool fine = copse__cl_packed_cut(&cut, device, graph, node, NULL, &reason);
    *bytes = 0;
    if (fine && copse__cl_conv_pass(node) != COPSE__CONV_GRAD_FILTER) {
        fine = copse__mul_size(cut.packed_floats, sizeof(float), bytes);
    } else if (fine) {
        copse__conv_size planned = copse__cl_conv_size(graph, node, NULL);
        size_t parts = copse__conv_parts(&planned, device->base.caps.compute_units);
        size_t elements = copse__tensor_elements(copse__cl_output(graph, node, 0), NULL);
        size_t all;
        fine = copse__mul_size(elements + planned.f, parts, &all) &&
               all < SIZE_MAX / (2 * sizeof(float));
        if (fine && parts > 1)
            *bytes =
                bias_offset(device, elements, parts) + planned.f * parts * sizeof(float);
    }
    return fine ? COPSE_OK
                : copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                              "%s: the filter is too large", node->name);
}

/* Whether the kernel that leaves the zeros out can compute the filter's gradient. */
static bool is_sparse(const copse__packed_sizes *sizes, const copse__conv_size *z) {
    return sizes->vw == 8 && z->kernel_h == 3 && z->kernel_w == 3 && z->stride_h == 1 &&
           z->stride_w == 1 && z->dilation_h == 1 && z->dilation_w == 1 &&
           z->f % sizes->vw == 0;
}

/* Multiply-adds of one output up to which the kernel is chosen that has the filter's size compiled in. */
#define SHORT_SUM 64

/* Whether the forward pass can be computed window by window, in registers. */
static bool is_short(const copse__packed_sizes *sizes, const copse__conv_size *z,
                     copse__activation act) {
    return z->kernel_h * z->kernel_w * z->c <= SHORT_SUM && z->stride_h == 1 &&
           z->stride_w == 1 && z->dilation_h == 1 && z->dilation_w == 1 &&
           z->f % (sizes->vw * sizes->nv) == 0 &&
           (act == COPSE__ACT_NONE || act == COPSE__ACT_RELU);
}

static copse_status prepare(copse__launch *launch, copse_error *err) {
    static const char *const names[][3] = {
        [COPSE__CONV_FORWARD] = {"conv_pack_f32", "conv_pool_packed_f32"},
        [COPSE__CONV_GRAD_INPUT] = {"conv_pack_f32", "conv_pool_packed_grad_input_f32"},
        [COPSE__CONV_GRAD_FILTER] = {"conv_pool_packed_grad_filter_f32", "packed_sum_f32",
                                     "packed_sum_f32"},
    };
    static const char *const sparse[] = {"conv_pool_sparse_grad_filter_f32",
                                         "packed_sum_f32", "packed_sum_f32"};
    static const char *const window[] = {"conv_pack_f32", "conv_pool_window_f32"};
    copse__conv_pass pass = copse__cl_conv_pass(launch->node);
    copse__conv_size planned = copse__cl_conv_size(launch->graph, launch->node, NULL);
    copse__packed_sizes sizes;
    const char *reason;
    if (!copse__cl_packed_sizes(&sizes, launch->device, launch->graph, launch->node,
                                &reason))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, launch->device->place, "%s: %s",
                           launch->node->name, reason);
    bool is_filter = pass == COPSE__CONV_GRAD_FILTER;
    const char *const *chosen = names[pass];
    char further[96] = "";
    if (is_filter && is_sparse(&sizes, &planned)) {
        chosen = sparse;
    } else if (pass == COPSE__CONV_FORWARD &&
               is_short(&sizes, &planned, launch->node->attrs.act)) {
        chosen = window;
        snprintf(further, sizeof further,
                 " -DCOPSE_TAP_ROWS=%zu -DCOPSE_TAP_COLUMNS=%zu -DCOPSE_TAP_CHANNELS=%zu",
                 planned.kernel_h, planned.kernel_w, planned.c);
    }
    return copse__cl_conv_prepare(launch, &sizes, &copse__cl_source_conv_pool_packed,
                                  further, chosen, is_filter ? 3 : 2, err);
}

static copse_status set_conv(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__operands *o = &launch->operands;
    bool forward = copse__cl_conv_pass(launch->node) == COPSE__CONV_FORWARD;
    bool has_bias = forward && copse__cl_input(launch->graph, launch->node, 2) != NULL;
    bool has_index = copse__cl_output(launch->graph, launch->node, 1) != NULL;
    const copse__view none = {0};
    copse_status status =
        copse__cl_arg_conv_shape(launch, KERNEL_PACK, &s->cut.shape, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_PACK, 1, err, "vv",
                                forward ? &o->inputs[1] : &o->inputs[2], &o->workspace);
    if (status == COPSE_OK)
        status = copse__cl_arg_conv_shape(launch, KERNEL_CONV, &s->cut.shape, err);
    if (status != COPSE_OK)
        return status;
    if (!forward)
        return copse__cl_args(launch, KERNEL_CONV, 1, err, "vvvv", &o->inputs[0],
                              &o->inputs[1], &o->workspace, &o->outputs[0]);
    return copse__cl_args(launch, KERNEL_CONV, 1, err, "vvvvvuuu", &o->inputs[0],
                          &o->workspace, has_bias ? &o->inputs[2] : &none, &o->outputs[0],
                          has_index ? &o->outputs[1] : &none,
                          (uint32_t)launch->node->attrs.act, (uint32_t)has_bias,
                          (uint32_t)has_index);
}

/* Elements that a group of the sum takes, about. */
#define SUM_GRAIN 4096

static size_t sum_rows(const copse_conv_shape *g) {
    return copse__max_size(1, SUM_GRAIN / (size_t)g->target_c);
}

static size_t filter_rows(const copse_conv_shape *g) {
    return (size_t)g->kernel_h * (size_t)g->kernel_w * (size_t)g->source_c;
}

static bool has_sums(const copse__launch *launch) {
    return copse__cl_output(launch->graph, launch->node, 1) != NULL;
}

static copse_status set_sum(copse__launch *launch, size_t kernel, size_t rows,
                            const copse__view *parts, const copse__view *out,
                            copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__view none = {0};
    return copse__cl_args(launch, kernel, 0, err, "uuuuvvvuu", (uint32_t)rows,
                          (uint32_t)s->cut.shape.target_c,
                          (uint32_t)sum_rows(&s->cut.shape), (uint32_t)s->cut.parts,
                          parts, &none, out, (uint32_t)0, (uint32_t)0);
}

static copse_status set_filter(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__operands *o = &launch->operands;
    bool parted = s->cut.parts > 1, sums = has_sums(launch);
    const copse__view none = {0};
    copse__view parts = o->outputs[0], bias = sums ? o->outputs[1] : none;
    if (parted) {
        size_t begin = bias_offset(launch->device, filter_elements(launch), s->max_parts);
        parts = bias = o->workspace;
        parts.bytes = begin;
        bias.offset += begin;
        bias.bytes -= begin;
    }
    copse_status status =
        copse__cl_arg_conv_shape(launch, KERNEL_FILTER, &s->cut.shape, err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, KERNEL_FILTER, 1, err, "vvvvvu", &o->inputs[0],
                           &o->inputs[1], &o->inputs[2], &parts, &bias, (uint32_t)sums);
    if (status == COPSE_OK && parted)
        status = set_sum(launch, KERNEL_SUM, filter_rows(&s->cut.shape), &parts,
                         &o->outputs[0], err);
    if (status == COPSE_OK && parted && sums)
        status = set_sum(launch, KERNEL_SUM_BIAS, 1, &bias, &o->outputs[1], err);
    return status;
}

static const size_t one[3] = {1, 1, 1};

static copse_status enqueue_filter(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    copse_status status =
        copse__cl_enqueue(launch, KERNEL_FILTER, 3, s->cut.groups, one, err);
    if (status != COPSE_OK || s->cut.parts == 1)
        return status;
    size_t rows = sum_rows(&s->cut.shape);
    size_t groups = (filter_rows(&s->cut.shape) + rows - 1) / rows;
    status = copse__cl_enqueue(launch, KERNEL_SUM, 1, &groups, one, err);
    if (status == COPSE_OK && has_sums(launch))
        status = copse__cl_enqueue(launch, KERNEL_SUM_BIAS, 1, one, one, err);
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    bool filter = copse__cl_conv_pass(launch->node) == COPSE__CONV_GRAD_FILTER;
    copse__cl_conv_state *s = launch->state;
    copse_status status = COPSE_OK;
    if (changed) {
        copse__conv_size size = copse__cl_conv_size(launch->graph, launch->node, extents);
        if (!copse__conv_cut_at(&s->cut, &s->sizes, copse__cl_conv_pass(launch->node),
                                &size, launch->device->base.caps.compute_units,
                                s->max_parts))
            return copse__cl_conv_unfit(launch, err);
        status = filter ? set_filter(launch, err) : set_conv(launch, err);
    }
    if (status != COPSE_OK)
        return status;
    if (filter)
        return enqueue_filter(launch, err);
    if (s->cut.groups[0] == 0)
        return COPSE_OK;
    status = copse__cl_enqueue(launch, KERNEL_PACK, 2, s->cut.pack_groups, one, err);
    return status == COPSE_OK
               ? copse__cl_enqueue(launch, KERNEL_CONV, 3, s->cut.groups, one, err)
               : status;
}

const copse__cl_provider copse__cl_conv2d_max_pool_packed = {
    .name = "packed",
    .takes = copse__cl_packed_takes,
    .candidates = copse__cl_packed_candidates,
    .fits = fits,
    .cost = cost,
    .workspace = workspace,
    .prepare = prepare,
    .enqueue = enqueue};
