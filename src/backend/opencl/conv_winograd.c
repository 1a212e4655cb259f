/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"
#include "backend/opencl/window.h"

/* Convolutions of 3 x 3 by cl/conv_winograd.cl, with tiles of 2 x 2 outputs or, less exact, 4 x 4. */

enum { KERNEL_FILTER, KERNEL_UNPOINT }; /* the filter's gradient */

/* A block of transformed tiles takes most of what a core has as its second-level cache. */
static bool sizes_of(copse__packed_sizes *out, const copse__device *device,
                     const copse__graph *graph, const copse__node *node,
                     const char **reason) {
    if (!copse__cl_packed_sizes(out, device, graph, node, reason))
        return false;
    size_t floats = device->local_bytes / sizeof(float) / 16 * 15;
    out->panels = copse__min_size(16384, floats / 4);
    out->slab = copse__min_size(102400, floats - out->panels);
    return true;
}

/* As planned. */
static bool cut_of(copse__conv_cut *out, size_t outputs, const copse__device *device,
                   const copse__graph *graph, const copse__node *node,
                   const char **reason) {
    copse__packed_sizes sizes;
    copse__conv_size z = copse__cl_conv_size(graph, node, NULL);
    size_t units = device->base.caps.compute_units;
    if (!sizes_of(&sizes, device, graph, node, reason))
        return false;
    /* A sum of cancelling terms is off by more than its own rounding; where the activation makes large sums small,
     * that shows beside them. */
    *reason = "its activation would magnify the rounding of sums";
    if (outputs > 2 && node->op == COPSE__OP_CONV2D && node->attrs.act > COPSE__ACT_RELU)
        return false;
    *reason = "it is not 3 x 3 with stride 1 over whole vectors of channels";
    return copse__winograd_cut_at(out, &sizes, copse__cl_conv_pass(node), &z, outputs,
                                  units, copse__conv_parts(&z, units));
}

/* Estimated cycles, by measuring on one kind of core: products at some 0.6 of the peak, transforms by the vector. */
static double product_cycles(const copse__packed_sizes *s, size_t rows, size_t c,
                             size_t f) {
    size_t nr = s->vw * s->nv, panels = (f + nr - 1) / nr;
    return (double)rows * (double)(panels * nr) * ((double)c + 12) / 16 * 1.5;
}

static double cost(size_t outputs, const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    copse__packed_sizes sizes;
    const char *reason;
    copse__conv_size z = copse__cl_conv_size(graph, node, NULL);
    double packed = copse__cl_packed_cost(device);
    if (!copse__cl_packed_sizes(&sizes, device, graph, node, &reason))
        return packed * 2;
    bool backward = node->op == COPSE__OP_CONV2D_GRAD_INPUT;
    size_t h = backward ? z.h : z.p, w = backward ? z.w : z.q;
    size_t tiles =
        z.images * ((h + outputs - 1) / outputs) * ((w + outputs - 1) / outputs);
    size_t points = (outputs + 2) * (outputs + 2);
    double direct = product_cycles(&sizes, z.images * h * w, 9 * z.c, z.f);
    double vectors = (double)((z.c + z.f) / sizes.vw);
    double transforms = (double)tiles * vectors * (double)points * 10;
    double filters = (double)points * (double)(z.c * z.f) * 0.75;
    /* Each block reads all of the filter, mostly from the third-level cache. */
    double blocks = (double)(tiles * points * z.c) / COPSE__WINOGRAD_SLAB;
    double reads = blocks * (double)points * (double)(z.c * z.f) * 0.1;
    double own = product_cycles(&sizes, tiles * points, z.c, z.f) + transforms + filters;
    return packed * (own + reads) / direct;
}

/* The transformed filter; for the filter's gradient, its parts. */
static copse_status workspace(size_t *bytes, size_t outputs, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse__conv_cut cut;
    const char *reason;
    size_t floats = 0, points = (outputs + 2) * (outputs + 2);
    bool fine = cut_of(&cut, outputs, device, graph, node, &reason);
    if (fine && copse__cl_conv_pass(node) == COPSE__CONV_GRAD_FILTER) {
        copse__conv_size z = copse__cl_conv_size(graph, node, NULL);
        size_t parts = copse__conv_parts(&z, device->base.caps.compute_units);
        fine = copse__mul_size(z.c * z.f, points * parts, &floats);
    } else if (fine) {
        floats = cut.packed_floats;
    }
    if (!fine || !copse__mul_size(floats, sizeof(float), bytes))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the filter is too large", node->name);
    return COPSE_OK;
}

static copse_status prepare(copse__launch *launch, size_t outputs, copse_error *err) {
    static const char *const conv[] = {"conv_winograd_pack_f32", "conv_winograd_f32"};
    static const char *const filter[] = {"conv_winograd_grad_filter_f32",
                                         "conv_winograd_filter_f32"};
    copse__packed_sizes sizes;
    const char *reason;
    if (!sizes_of(&sizes, launch->device, launch->graph, launch->node, &reason))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, launch->device->place, "%s: %s",
                           launch->node->name, reason);
    bool is_filter = copse__cl_conv_pass(launch->node) == COPSE__CONV_GRAD_FILTER;
    return copse__cl_conv_prepare(launch, &sizes, &copse__cl_source_conv_winograd,
                                  outputs == 2 ? " -DCOPSE_OUTPUTS=2"
                                               : " -DCOPSE_OUTPUTS=4",
                                  is_filter ? filter : conv, 2, err);
}

/* Sums of the parts' elements that a group makes, about. */
#define SUM_GRAIN 2048

static size_t sum_channels(const copse_conv_shape *g) {
    return copse__max_size(1, SUM_GRAIN / (size_t)g->target_c);
}

static copse_status set_filter(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__operands *o = &launch->operands;
    copse_status status =
        copse__cl_arg_conv_shape(launch, KERNEL_FILTER, &s->cut.shape, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_FILTER, 1, err, "vvv", &o->inputs[0],
                                &o->inputs[1], &o->workspace);
    if (status == COPSE_OK)
        status = copse__cl_arg_conv_shape(launch, KERNEL_UNPOINT, &s->cut.shape, err);
    if (status == COPSE_OK)
        status = copse__cl_args(
            launch, KERNEL_UNPOINT, 1, err, "uuvv", (uint32_t)s->cut.parts,
            (uint32_t)sum_channels(&s->cut.shape), &o->workspace, &o->outputs[0]);
    return status;
}

static copse_status enqueue(copse__launch *launch, size_t outputs,
                            const copse__extents *extents, bool changed,
                            copse_error *err) {
    static const size_t one[3] = {1, 1, 1};
    copse__conv_pass pass = copse__cl_conv_pass(launch->node);
    copse__cl_conv_state *s = launch->state;
    copse_status status = COPSE_OK;
    if (changed) {
        copse__conv_size size = copse__cl_conv_size(launch->graph, launch->node, extents);
        if (!copse__winograd_cut_at(&s->cut, &s->sizes, pass, &size, outputs,
                                    launch->device->base.caps.compute_units,
                                    s->max_parts))
            return copse__cl_conv_unfit(launch, err);
        status = pass == COPSE__CONV_GRAD_FILTER ? set_filter(launch, err)
                                                 : copse__cl_conv_set(launch, err);
    }
    if (status != COPSE_OK || s->cut.groups[0] == 0)
        return status;
    if (pass != COPSE__CONV_GRAD_FILTER) {
        status = copse__cl_enqueue(launch, COPSE__CL_CONV_PACK, 2, s->cut.pack_groups,
                                   one, err);
        return status == COPSE_OK ? copse__cl_enqueue(launch, COPSE__CL_CONV_CONV, 3,
                                                      s->cut.groups, one, err)
                                  : status;
    }
    size_t channels = sum_channels(&s->cut.shape);
    size_t groups = ((size_t)s->cut.shape.source_c + channels - 1) / channels;
    status = copse__cl_enqueue(launch, KERNEL_FILTER, 3, s->cut.groups, one, err);
    return status == COPSE_OK
               ? copse__cl_enqueue(launch, KERNEL_UNPOINT, 1, &groups, one, err)
               : status;
}

#define PROVIDER(m, label)                                                               \
    static bool fits_##m(const copse__device *device, const copse__graph *graph,         \
                         const copse__node *node, const char **reason) {                 \
        copse__conv_cut cut;                                                             \
        return copse__cl_window_fits(graph, node, reason) &&                             \
               cut_of(&cut, m, device, graph, node, reason);                             \
    }                                                                                    \
    static double cost_##m(const copse__device *device, const copse__graph *graph,       \
                           const copse__node *node) {                                    \
        return cost(m, device, graph, node);                                             \
    }                                                                                    \
    static copse_status workspace_##m(size_t *bytes, copse__device *device,              \
                                      const copse__graph *graph,                         \
                                      const copse__node *node, copse_error *err) {       \
        return workspace(bytes, m, device, graph, node, err);                            \
    }                                                                                    \
    static copse_status prepare_##m(copse__launch *launch, copse_error *err) {           \
        return prepare(launch, m, err);                                                  \
    }                                                                                    \
    static copse_status enqueue_##m(copse__launch *launch,                               \
                                    const copse__extents *extents, bool changed,         \
                                    copse_error *err) {                                  \
        return enqueue(launch, m, extents, changed, err);                                \
    }                                                                                    \
    const copse__cl_provider copse__cl_conv2d_##label = {.name = #label,                 \
                                                         .fits = fits_##m,               \
                                                         .cost = cost_##m,               \
                                                         .workspace = workspace_##m,     \
                                                         .prepare = prepare_##m,         \
                                                         .enqueue = enqueue_##m};
PROVIDER(2, winograd)
PROVIDER(4, winograd4)
