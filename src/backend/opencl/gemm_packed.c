/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/gemm.h"
#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"

/* Dense operations by cl/gemm_packed.cl. */

static const char *const names[] = {
    [COPSE__CL_NN] = "gemm_packed_nn_f32",
    [COPSE__CL_NT] = "gemm_packed_nt_f32",
    [COPSE__CL_TN] = "gemm_packed_tn_f32",
};

enum { KERNEL_GEMM, KERNEL_SUM };

typedef struct state {
    copse__packed_sizes sizes;
    size_t max_parts; /* at the planned sizes: the workspace has room for them */
    copse__gemm_cut cut;
    copse__cl_product product; /* of the moment */
} state;

static size_t units_of(const copse__device *device) {
    return device->base.caps.compute_units;
}

static size_t planned_parts(const copse__device *device, const copse__graph *graph,
                            const copse__node *node) {
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    copse__packed_sizes sizes;
    const char *reason;
    if (copse__cl_dense_fused(graph, node) ||
        !copse__cl_packed_sizes(&sizes, device, graph, node, &reason))
        return 1;
    return copse__gemm_parts(&sizes, p.m, p.n, p.k, units_of(device));
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    copse__packed_sizes sizes;
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    *reason = "it sums nothing beside the product";
    if (node->op == COPSE__OP_DENSE_GRAD_WEIGHT && copse__cl_dense_fused(graph, node))
        return false;
    *reason = "the matrices have too many rows or columns";
    if (p.m >= INT32_MAX || p.n >= INT32_MAX || p.k >= INT32_MAX)
        return false;
    if (!copse__cl_packed_sizes(&sizes, device, graph, node, reason))
        return false;
    *reason = "the sums that it would be cut into know no activation's gradient";
    sizes.parts = 0;
    return !copse__cl_dense_fused(graph, node) ||
           copse__gemm_parts(&sizes, p.m, p.n, p.k, units_of(device)) == 1;
}

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return copse__cl_packed_cost(device);
}

static copse_status workspace(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err) {
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    size_t parts = planned_parts(device, graph, node);
    *bytes = 0;
    if (parts <= 1)
        return COPSE_OK;
    if (!copse__mul_size(p.m, p.n, bytes) || !copse__mul_size(*bytes, parts, bytes) ||
        !copse__mul_size(*bytes, sizeof(float), bytes))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, device->place,
                           "%s: the product is too large", node->name);
    return COPSE_OK;
}

static copse_status prepare(copse__launch *launch, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, &launch->operands, NULL);
    const char *reason;
    char options[256];
    state *s;
    copse_status status = copse__calloc(&s, 1, sizeof *s, err);
    if (status != COPSE_OK)
        return status;
    launch->state = s;
    if (!copse__cl_packed_sizes(&s->sizes, launch->device, launch->graph, launch->node,
                                &reason))
        return copse__fail(err, COPSE_UNSUPPORTED, 0, launch->device->place, "%s: %s",
                           launch->node->name, reason);
    copse__packed_options(&s->sizes, options, sizeof options);
    s->max_parts = planned_parts(launch->device, launch->graph, launch->node);
    COPSE__TRY(copse__cl_kernel_add(launch, NULL, &copse__cl_source_gemm_packed, options,
                                    names[p.layout], err),
               out);
    COPSE__TRY(copse__cl_args(launch, KERNEL_GEMM, 6, err, "vv", &p.a, &p.b), out);
    if (s->max_parts > 1)
        COPSE__TRY(copse__cl_kernel_add(launch, NULL, &copse__cl_source_gemm_packed,
                                        options, "packed_sum_f32", err),
                   out);
out:
    return status;
}

/* A group of the sum takes about this many elements. */
#define SUM_GRAIN 4096

static size_t sum_rows(const copse__cl_product *p) {
    return copse__max_size(1, SUM_GRAIN / p->n);
}

static copse_status set_sum(copse__launch *launch, const copse__view *bias, uint32_t act,
                            uint32_t has_bias, copse_error *err) {
    const state *s = launch->state;
    const copse__cl_product *p = &s->product;
    return copse__cl_args(launch, KERNEL_SUM, 0, err, "uuuuvvvuu", (uint32_t)p->m,
                          (uint32_t)p->n, (uint32_t)sum_rows(p),
                          (uint32_t)s->cut.groups[2], &launch->operands.workspace, bias,
                          &p->c, act, has_bias);
}

static copse_status set_sizes(copse__launch *launch, const copse__extents *extents,
                              copse_error *err) {
    state *s = launch->state;
    s->product =
        copse__cl_dense_product(launch->graph, launch->node, &launch->operands, extents);
    const copse__cl_product *p = &s->product;
    if (p->m == 0 || p->n == 0)
        return COPSE_OK;
    s->cut = copse__gemm_cut_at(&s->sizes, p->m, p->n, p->k, units_of(launch->device),
                                s->max_parts);
    bool parted = s->cut.groups[2] > 1;
    const copse__view *beside = p->layout == COPSE__CL_NT ? &p->saved : &p->bias;
    uint32_t act = (uint32_t)p->act, has_bias = beside->buffer != NULL;
    copse_status status =
        copse__cl_args(launch, KERNEL_GEMM, 0, err, "uuuuuu", (uint32_t)p->m,
                       (uint32_t)p->n, (uint32_t)p->k, (uint32_t)s->cut.tile_m,
                       (uint32_t)s->cut.tile_n, (uint32_t)s->cut.tile_k);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, KERNEL_GEMM, 8, err, "vvuu", beside,
                                parted ? &launch->operands.workspace : &p->c,
                                parted ? 0 : act, parted ? 0 : has_bias);
    if (status == COPSE_OK && parted)
        status = set_sum(launch, &p->bias, act, has_bias, err);
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    static const size_t one[3] = {1, 1, 1};
    const state *s = launch->state;
    copse_status status = COPSE_OK;
    if (changed)
        status = set_sizes(launch, extents, err);
    if (status != COPSE_OK || s->product.m == 0 || s->product.n == 0)
        return status;
    status = copse__cl_enqueue(launch, KERNEL_GEMM, 3, s->cut.groups, one, err);
    if (status != COPSE_OK || s->cut.groups[2] == 1)
        return status;
    size_t rows = sum_rows(&s->product), groups = (s->product.m + rows - 1) / rows;
    return copse__cl_enqueue(launch, KERNEL_SUM, 1, &groups, one, err);
}

static void candidates(const copse__device *device, const copse__graph *graph,
                       const copse__node *node, bool thorough,
                       const copse__cl_candidate_sink *sink) {
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    copse__packed_sizes now, next;
    const char *reason;
    char parameters[256];
    if (!copse__cl_packed_sizes(&now, device, graph, node, &reason))
        return;
    for (size_t i = 0;
         copse__gemm_cut_neighbour(&next, &now, i, p.m, p.n, p.k, units_of(device)); i++)
        if (next.parts == now.parts || !copse__cl_dense_fused(graph, node))
            sink->take(
                copse__packed_parameters(&next, true, parameters, sizeof parameters),
                false, sink->user);
    if (thorough)
        copse__cl_packed_send(device, graph, node, true, sink);
}

const copse__cl_provider copse__cl_dense_packed = {.name = "packed",
                                                   .fits = fits,
                                                   .takes = copse__cl_packed_takes,
                                                   .candidates = candidates,
                                                   .cost = cost,
                                                   .workspace = workspace,
                                                   .prepare = prepare,
                                                   .enqueue = enqueue};
