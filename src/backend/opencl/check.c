/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"

/* FINITE_CHECK counts in this many parts, whose counts rest in the workspace. */
#define FINITE_PARTS 256u
#define HASH_PARTS 256u
#define VECTOR 16 /* COPSE_VEC where chunked */

static size_t flat_elements(const copse__launch *launch) {
    return copse__tensor_elements(copse__cl_input(launch->graph, launch->node, 0), NULL);
}

/* Whether the count is added to where it lies: one kernel then does all. */
static bool counts_in_place(const copse__graph *graph, const copse__node *node) {
    return node->inputs[1] != COPSE__NO_TENSOR &&
           graph->tensors[node->inputs[1]].storage ==
               graph->tensors[node->outputs[0]].storage;
}

static copse_status finite_workspace(size_t *bytes, copse__device *device,
                                     const copse__graph *graph, const copse__node *node,
                                     copse_error *err) {
    (void)device;
    (void)err;
    *bytes = counts_in_place(graph, node) ? 0 : FINITE_PARTS * sizeof(uint32_t);
    return COPSE_OK;
}

static copse_status finite_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status;
    if (counts_in_place(launch->graph, launch->node)) {
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                      "add_not_finite_f32", err);
        return status == COPSE_OK
                   ? copse__cl_args(launch, 0, 0, err, "vvz", &o->inputs[0],
                                    &o->outputs[0], flat_elements(launch))
                   : status;
    }
    status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                  "count_not_finite_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                      "sum_counts_u32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvz", &o->inputs[0], &o->workspace,
                                flat_elements(launch));
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvvu", &o->workspace, &o->inputs[1],
                                &o->outputs[0], FINITE_PARTS);
    return status;
}

/* A local size that divides `global`. */
static size_t local_size(const copse__launch *launch, size_t kernel, size_t global) {
    if (launch->device->base.caps.cpu)
        return 1;
    size_t local = 1;
    while (local * 2 <= copse__min_size(64, launch->kernels[kernel].max_local) &&
           global % (local * 2) == 0)
        local *= 2;
    return local;
}

static copse_status finite_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    (void)extents;
    (void)changed;
    if (counts_in_place(launch->graph, launch->node))
        return copse__cl_enqueue_flat(launch, 0, flat_elements(launch) / VECTOR + 1, 1,
                                      err);
    const size_t global = FINITE_PARTS, one = 1;
    const size_t local = local_size(launch, 0, global);
    copse_status status = copse__cl_enqueue(launch, 0, 1, &global, &local, err);
    if (status == COPSE_OK)
        status = copse__cl_enqueue(launch, 1, 1, &one, &one, err);
    return status;
}

static copse_status hash_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status =
        copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "", "hash_u64", err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 0, err, "vvzz", &o->inputs[0], &o->outputs[0],
                           flat_elements(launch), (size_t)launch->node->attrs.hash.base);
    return status;
}

static copse_status hash_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    (void)extents;
    (void)changed;
    const size_t global = HASH_PARTS;
    const size_t local = local_size(launch, 0, global);
    return copse__cl_enqueue(launch, 0, 1, &global, &local, err);
}

const copse__cl_provider copse__cl_finite_check = {.name = "plain",
                                                   .workspace = finite_workspace,
                                                   .prepare = finite_prepare,
                                                   .enqueue = finite_enqueue};
const copse__cl_provider copse__cl_parameter_hash = {
    .name = "plain", .prepare = hash_prepare, .enqueue = hash_enqueue};
