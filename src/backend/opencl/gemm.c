/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/gemm.h"

#include "backend/opencl/ops.h"
#include "backend/opencl/window.h"

copse__cl_product copse__cl_dense_product(const copse__graph *graph,
                                          const copse__node *node,
                                          const copse__operands *operands,
                                          const copse__extents *extents) {
    const copse__tensor *first = copse__cl_input(graph, node, 0);
    const copse__tensor *second = copse__cl_input(graph, node, 1);
    const copse__tensor *out = copse__cl_output(graph, node, 0);
    copse__cl_product made = {.layout = COPSE__CL_NN, .act = COPSE__ACT_NONE};
    if (operands) {
        made.a = operands->inputs[0];
        made.b = operands->inputs[1];
        made.c = operands->outputs[0];
    }
    made.m = copse__tensor_rows(first, extents);
    made.n = copse__tensor_columns(out);
    made.k = copse__tensor_columns(first);
    if (node->op == COPSE__OP_DENSE) {
        made.act = node->attrs.act;
        if (operands && copse__cl_input(graph, node, 2))
            made.bias = operands->inputs[2];
    } else if (node->op == COPSE__OP_DENSE_GRAD_INPUT) {
        made.layout = COPSE__CL_NT;
        made.act = node->attrs.act;
        if (operands && copse__cl_input(graph, node, 2))
            made.saved = operands->inputs[2];
    } else {
        made.layout = COPSE__CL_TN;
        if (operands && copse__cl_output(graph, node, 1))
            made.sums = operands->outputs[1];
        made.k = made.m;
        made.m = copse__tensor_columns(first);
        made.n = copse__tensor_columns(second);
    }
    return made;
}

/* Two kernels for two kinds of device: "rows" for work-items that are whole cores, "tiled"
 * for groups that share local memory. */
static const char *const rows_names[] = {
    [COPSE__CL_NN] = "gemm_rows_nn_f32",
    [COPSE__CL_NT] = "gemm_rows_nt_f32",
    [COPSE__CL_TN] = "gemm_rows_tn_f32",
};
static const char *const tiled_names[] = {
    [COPSE__CL_NN] = "gemm_tiled_nn_f32",
    [COPSE__CL_NT] = "gemm_tiled_nt_f32",
    [COPSE__CL_TN] = "gemm_tiled_tn_f32",
};

#define ROWS 6 /* as in gemm.cl */

bool copse__cl_dense_fused(const copse__graph *graph, const copse__node *node) {
    return (node->op == COPSE__OP_DENSE_GRAD_INPUT && copse__cl_input(graph, node, 2)) ||
           (node->op == COPSE__OP_DENSE_GRAD_WEIGHT && copse__cl_output(graph, node, 1));
}

bool copse__cl_dense_fits(const copse__device *device, const copse__graph *graph,
                          const copse__node *node, const char **reason) {
    (void)device;
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    *reason = "it does nothing but the product";
    if (copse__cl_dense_fused(graph, node))
        return false;
    *reason = "the matrices have too many rows or columns";
    return p.m < INT32_MAX && p.n < INT32_MAX && p.k < INT32_MAX;
}

size_t copse__cl_tile(const copse__device *device) {
    size_t tile = device->max_local >= 256 ? 16 : 8;
    return device->max_local >= 64 ? tile : 0;
}

static bool tiled_fits(const copse__device *device, const copse__graph *graph,
                       const copse__node *node, const char **reason) {
    size_t tile = copse__cl_tile(device);
    *reason = "its work-groups are too small";
    if (tile == 0 || device->local_bytes < 2 * tile * (4 * tile + 1) * sizeof(float))
        return false;
    return copse__cl_dense_fits(device, graph, node, reason);
}

static double rows_cost(const copse__device *device, const copse__graph *graph,
                        const copse__node *node) {
    (void)graph;
    (void)node;
    return device->base.caps.cpu ? 1 : 3;
}

static double tiled_cost(const copse__device *device, const copse__graph *graph,
                         const copse__node *node) {
    (void)graph;
    (void)node;
    return device->base.caps.cpu ? 3 : 1;
}

/* As in gemm.cl. */
#define WITH_BIAS 1u
#define ONTO_C 2u
/* A longer k is cut into several launches, so that a work-item's loop stays bounded. */
#define MOST_DEPTH 32768

static copse_status prepare(copse__launch *launch, const char *options,
                            const char *const *names, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, &launch->operands, NULL);
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_gemm,
                                               options, names[p.layout], err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvvv", &p.a, &p.b, &p.c, &p.bias);
    return status;
}

/* global, local: of one launch. All arguments but the views are set each time where k is
 * cut, else only when sizes change. */
static copse_status enqueue(copse__launch *launch, const copse__cl_product *p,
                            bool changed, const size_t *global, const size_t *local,
                            copse_error *err) {
    bool has_bias = copse__cl_input(launch->graph, launch->node, 2) != NULL;
    bool cut = p->k > MOST_DEPTH;
    size_t from = 0;
    copse_status status = COPSE_OK;
    do {
        size_t to = copse__min_size(p->k, from + MOST_DEPTH);
        bool is_last = to == p->k;
        uint32_t flags = (is_last && has_bias ? WITH_BIAS : 0) | (from > 0 ? ONTO_C : 0);
        if (changed || cut)
            status = copse__cl_args(launch, 0, 4, err, "uuuuuuu", (uint32_t)p->m,
                                    (uint32_t)p->n, (uint32_t)p->k, (uint32_t)from,
                                    (uint32_t)to, flags,
                                    (uint32_t)(is_last ? p->act : COPSE__ACT_NONE));
        if (status == COPSE_OK)
            status = copse__cl_enqueue(launch, 0, 2, global, local, err);
        from = to;
    } while (from < p->k && status == COPSE_OK);
    return status;
}

static copse_status rows_prepare(copse__launch *launch, copse_error *err) {
    return prepare(launch, "", rows_names, err);
}

static copse_status rows_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, NULL, extents);
    if (p.m == 0 || p.n == 0)
        return COPSE_OK;
    bool square = p.layout == COPSE__CL_NT; /* that kernel makes 4 x 4 */
    size_t wide = square ? 4 : copse__cl_vector(launch->device), high = square ? 4 : ROWS;
    const size_t global[2] = {(p.n + wide - 1) / wide, (p.m + high - 1) / high};
    const size_t local[2] = {1, 1};
    return enqueue(launch, &p, changed, global, local, err);
}

static copse_status tiled_prepare(copse__launch *launch, copse_error *err) {
    return prepare(launch,
                   copse__cl_tile(launch->device) == 16 ? "-DTILE=16" : "-DTILE=8",
                   tiled_names, err);
}

static copse_status tiled_enqueue(copse__launch *launch, const copse__extents *extents,
                                  bool changed, copse_error *err) {
    copse__cl_product p =
        copse__cl_dense_product(launch->graph, launch->node, NULL, extents);
    if (p.m == 0 || p.n == 0)
        return COPSE_OK;
    size_t tile = copse__cl_tile(launch->device);
    const size_t global[2] = {copse__round_up(p.n, 4 * tile) / 4,
                              copse__round_up(p.m, 4 * tile) / 4};
    const size_t local[2] = {tile, tile};
    return enqueue(launch, &p, changed, global, local, err);
}

const copse__cl_provider copse__cl_dense_rows = {.name = "rows",
                                                 .fits = copse__cl_dense_fits,
                                                 .cost = rows_cost,
                                                 .prepare = rows_prepare,
                                                 .enqueue = rows_enqueue};
const copse__cl_provider copse__cl_dense_tiled = {.name = "tiled",
                                                  .fits = tiled_fits,
                                                  .cost = tiled_cost,
                                                  .prepare = tiled_prepare,
                                                  .enqueue = tiled_enqueue};
