/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/gemm.h"
#include "backend/opencl/ops.h"
#include "backend/opencl/packed_device.h"

/* Dense operations by cl/gemm_small.cl: few enough multiply-adds that packing both operands, and
 * threads that come late, would cost more than they save. */

#define MOST_SUMS ((size_t)1 << 23)
#define MOST_DEPTH ((size_t)16384)
/* Below this a group would cost more to hand over than it computes: some 1.5 us. */
#define LEAST_SUMS ((size_t)65536)
#define GROUPS_A_UNIT 4

static const char *const names[] = {
    [COPSE__CL_NN] = "gemm_small_nn_f32",
    [COPSE__CL_NT] = "gemm_small_nt_f32",
    [COPSE__CL_TN] = "gemm_small_tn_f32",
};

typedef struct state {
    copse__packed_sizes sizes;
    size_t groups[2];
} state;

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    copse__packed_sizes sizes;
    copse__cl_product p = copse__cl_dense_product(graph, node, NULL, NULL);
    size_t sums;
    *reason = "it is not small";
    if (p.k > MOST_DEPTH || !copse__mul_size(p.m, p.n, &sums) ||
        !copse__mul_size(sums, p.k, &sums) || sums > MOST_SUMS || p.m >= INT32_MAX ||
        p.n >= INT32_MAX)
        return false;
    return copse__cl_packed_sizes(&sizes, device, graph, node, reason);
}

static double cost(const copse__device *device, const copse__graph *graph,
                   const copse__node *node) {
    (void)graph;
    (void)node;
    return 0.8 * copse__cl_packed_cost(device);
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
    status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_gemm_small, options,
                                  names[p.layout], err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 5, err, "vvvvvi", &p.a, &p.b,
                                p.layout == COPSE__CL_NT ? &p.saved : &p.bias, &p.c,
                                &p.sums, (int32_t)p.act);
    return status == COPSE_OK
               ? copse__cl_args(launch, 0, 11, err, "ii",
                                (p.layout == COPSE__CL_NT ? p.saved : p.bias).buffer !=
                                    NULL,
                                p.sums.buffer != NULL)
               : status;
}

static size_t ceil_div(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

/* Of the cuts into enough groups, the one that packs and reads least: rows of groups pack all of B each,
 * columns of them read all of A. */
static void cut(state *s, const copse__cl_product *p, size_t units, size_t *tile_m,
                size_t *tile_n) {
    size_t panel = s->sizes.vw * s->sizes.nv, panels = ceil_div(p->n, panel);
    size_t wanted = copse__min_size(GROUPS_A_UNIT * units,
                                    copse__max_size(p->m * p->n * p->k / LEAST_SUMS, 1));
    size_t best = SIZE_MAX;
    for (size_t across = 1; across <= copse__min_size(panels, wanted); across++) {
        size_t down =
            copse__min_size(ceil_div(wanted, across), copse__max_size(p->m / 6, 1));
        if (across * down < wanted && across < panels)
            continue;
        size_t moved = down * p->n + across * p->m;
        if (moved >= best)
            continue;
        best = moved;
        *tile_n = ceil_div(panels, across) * panel;
        *tile_m = ceil_div(ceil_div(p->m, down), 2) * 2;
    }
    s->groups[0] = ceil_div(p->n, *tile_n);
    s->groups[1] = ceil_div(p->m, *tile_m);
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    static const size_t one[2] = {1, 1};
    state *s = launch->state;
    if (changed) {
        copse__cl_product p =
            copse__cl_dense_product(launch->graph, launch->node, NULL, extents);
        size_t tile_m = 0, tile_n = 0;
        s->groups[0] = 0;
        if (p.m == 0 || p.n == 0)
            return COPSE_OK;
        cut(s, &p, launch->device->base.caps.compute_units, &tile_m, &tile_n);
        copse_status status =
            copse__cl_args(launch, 0, 0, err, "uuuuu", (uint32_t)p.m, (uint32_t)p.n,
                           (uint32_t)p.k, (uint32_t)tile_m, (uint32_t)tile_n);
        if (status != COPSE_OK)
            return status;
    }
    return s->groups[0] == 0 ? COPSE_OK
                             : copse__cl_enqueue(launch, 0, 2, s->groups, one, err);
}

const copse__cl_provider copse__cl_dense_small = {
    .name = "small", .fits = fits, .cost = cost, .prepare = prepare, .enqueue = enqueue};
