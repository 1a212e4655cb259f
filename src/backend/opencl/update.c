/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"

/* All work on flat buffers of the planned size: the same at every extents. inputs: w, g,
 * slot0?, slot1?, slot2?, held?; the outputs are the same memory. */

#define VECTOR 16

static copse_status add_kernel(copse__launch *launch, const char *name,
                               copse_error *err) {
    return copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "", name, err);
}

static size_t flat_elements(const copse__launch *launch) {
    return copse__tensor_elements(copse__cl_input(launch->graph, launch->node, 0), NULL);
}

/* Loop passes for VECTOR elements: a vector at a time only where the device divides exactly,
 * and RMSprop never. */
static size_t update_steps(const copse__launch *launch) {
    bool vectors = launch->device->base.caps.exact_divide_sqrt &&
                   launch->node->op != COPSE__OP_UPDATE_RMSPROP;
    return vectors ? 1 : 4 * VECTOR;
}

static copse_status update_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    (void)extents;
    (void)changed;
    size_t n = flat_elements(launch);
    size_t items = n == 0 ? 0 : copse__max_size(n / VECTOR, 1);
    return copse__cl_enqueue_flat(launch, 0, items, update_steps(launch), err);
}

static copse_status sgd_prepare(copse__launch *launch, copse_error *err) {
    const copse__attrs *attrs = &launch->node->attrs;
    const copse__view *in = launch->operands.inputs;
    bool momentum = attrs->update.momentum > 0;
    copse_status status =
        add_kernel(launch, momentum ? "update_momentum_f32" : "update_sgd_f32", err);
    if (status != COPSE_OK)
        return status;
    size_t n = flat_elements(launch);
    if (!momentum)
        return copse__cl_args(launch, 0, 0, err, "vvvvz", &in[0], &in[1],
                              &launch->operands.scalars, &in[5], n);
    return copse__cl_args(launch, 0, 0, err, "vvvvvzfu", &in[0], &in[1], &in[2],
                          &launch->operands.scalars, &in[5], n, attrs->update.momentum,
                          (uint32_t)attrs->update.nesterov);
}

static copse_status adam_prepare(copse__launch *launch, copse_error *err) {
    const copse__attrs *attrs = &launch->node->attrs;
    const copse__view *in = launch->operands.inputs;
    copse_status status = add_kernel(launch, "update_adam_f32", err);
    if (status != COPSE_OK)
        return status;
    return copse__cl_args(launch, 0, 0, err, "vvvvvvzfffu", &in[0], &in[1], &in[2],
                          &in[3], &launch->operands.scalars, &in[5],
                          flat_elements(launch), 1 - attrs->update.beta1,
                          1 - attrs->update.beta2, attrs->update.epsilon,
                          (uint32_t)(launch->node->op == COPSE__OP_UPDATE_ADAMW));
}

/* slot0: v; slot1: the average where centered; slot2: the momentum where there is one. */
static copse_status rmsprop_prepare(copse__launch *launch, copse_error *err) {
    const copse__attrs *attrs = &launch->node->attrs;
    const copse__view *in = launch->operands.inputs;
    copse_status status = add_kernel(launch, "update_rmsprop_f32", err);
    if (status != COPSE_OK)
        return status;
    return copse__cl_args(launch, 0, 0, err, "vvvvvvvzffffu", &in[0], &in[1], &in[2],
                          &in[3], &in[4], &launch->operands.scalars, &in[5],
                          flat_elements(launch), attrs->update.rho, 1 - attrs->update.rho,
                          attrs->update.momentum, attrs->update.epsilon,
                          (uint32_t)attrs->update.centered);
}

const copse__cl_provider copse__cl_update_sgd = {
    .name = "plain", .prepare = sgd_prepare, .enqueue = update_enqueue};
const copse__cl_provider copse__cl_update_adam = {
    .name = "plain", .prepare = adam_prepare, .enqueue = update_enqueue};
const copse__cl_provider copse__cl_update_rmsprop = {
    .name = "plain", .prepare = rmsprop_prepare, .enqueue = update_enqueue};
