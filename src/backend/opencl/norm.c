/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/opencl/ops.h"
#include "backend/opencl/reduce.h"

static copse_status norm_kernel(copse__launch *launch, const char *name,
                                copse_error *err) {
    return copse__cl_kernel_add(launch, NULL, &copse__cl_source_norm, "", name, err);
}

static const copse__tensor *x_of(const copse__launch *launch) {
    return copse__cl_input(launch->graph, launch->node, 0);
}

static uint32_t columns_of(const copse__launch *launch) {
    return (uint32_t)copse__tensor_columns(x_of(launch));
}

static uint32_t parts_of(const copse__launch *launch) {
    return (uint32_t)copse__cl_row_parts(launch->device, x_of(launch));
}

/* What relu lets through is above 0; without it, all is above this. */
static double floor_of(const copse__launch *launch) {
    return launch->node->attrs.act == COPSE__ACT_RELU ? 0.0 : -INFINITY;
}

/* 1: gamma is there, 2: beta, which are inputs `at` and at + 1. */
static uint32_t flags_of(const copse__launch *launch, size_t at) {
    return (copse__cl_input(launch->graph, launch->node, at) ? 1u : 0u) |
           (copse__cl_input(launch->graph, launch->node, at + 1) ? 2u : 0u);
}

/* Two numbers a column and part. */
static copse_status parts_workspace(size_t *bytes, copse__device *device,
                                    const copse__graph *graph, const copse__node *node,
                                    copse_error *err) {
    (void)err;
    const copse__tensor *x = copse__cl_input(graph, node, 0);
    *bytes =
        copse__cl_row_parts(device, x) * 2 * copse__tensor_columns(x) * sizeof(float);
    return COPSE_OK;
}

/* A table of up to five numbers a column. */
static copse_status table_workspace(size_t *bytes, copse__device *device,
                                    const copse__graph *graph, const copse__node *node,
                                    copse_error *err) {
    (void)device;
    (void)err;
    *bytes = copse__tensor_columns(copse__cl_input(graph, node, 0)) * 5 * sizeof(float);
    return COPSE_OK;
}

static copse_status moments_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status = norm_kernel(launch, "bn_moments_f32", err);
    if (status == COPSE_OK)
        status = norm_kernel(launch, "bn_join_moments_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &o->inputs[0], &o->workspace);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vv", &o->workspace, &o->outputs[0]);
    for (size_t k = 0; k < 2 && status == COPSE_OK; k++)
        status =
            copse__cl_args(launch, k, 3, err, "uu", columns_of(launch), parts_of(launch));
    return status;
}

static copse_status moments_enqueue(copse__launch *launch, const copse__extents *extents,
                                    bool changed, copse_error *err) {
    size_t rows = copse__tensor_rows(x_of(launch), extents);
    copse_status status = COPSE_OK;
    for (size_t k = 0; k < 2 && changed && status == COPSE_OK; k++)
        status = copse__cl_args(launch, k, 2, err, "z", rows);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 0,
                                        copse__cl_row_items(launch->device, x_of(launch)),
                                        COPSE__CL_MOST_PART_ROWS, err);
    if (status == COPSE_OK)
        status =
            copse__cl_enqueue_flat(launch, 1, columns_of(launch), parts_of(launch), err);
    return status;
}

/* BN_NORMALIZE has its moments in one tensor, BN_INFER in two. */
static copse_status apply_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    bool moving = launch->node->op == COPSE__OP_BN_INFER;
    size_t at = moving ? 3 : 2;
    const copse__view *variance = &o->inputs[moving ? 2 : 1];
    uint32_t columns = columns_of(launch);
    copse_status status = norm_kernel(launch, "bn_table_f32", err);
    if (status == COPSE_OK)
        status = norm_kernel(launch, "bn_apply_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(
            launch, 0, 0, err, "vvvvvuufu", &o->inputs[1], variance, &o->inputs[at],
            &o->inputs[at + 1], &o->workspace, columns, moving ? 0 : columns,
            (double)launch->node->attrs.norm.epsilon, flags_of(launch, at));
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvv", &o->inputs[0], &o->workspace,
                                &o->outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 4, err, "uf", columns, floor_of(launch));
    return status;
}

/* A table over the columns, then all elements. */
static copse_status table_enqueue(copse__launch *launch, size_t rows, copse_error *err) {
    size_t columns = columns_of(launch);
    if (rows == 0)
        return COPSE_OK;
    copse_status status = copse__cl_enqueue_flat(launch, 0, columns, 1, err);
    if (status != COPSE_OK)
        return status;
    if (launch->device->base.caps.cpu)
        return copse__cl_enqueue_flat(launch, 1, rows, columns / 16 + 16, err);
    return copse__cl_enqueue_flat(launch, 1, rows * columns, 1, err);
}

static copse_status apply_enqueue(copse__launch *launch, const copse__extents *extents,
                                  bool changed, copse_error *err) {
    size_t rows = copse__tensor_rows(x_of(launch), extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 1, 3, err, "z", rows);
    return status == COPSE_OK ? table_enqueue(launch, rows, err) : status;
}

static copse_status fold_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    uint32_t columns = columns_of(launch);
    copse_status status = norm_kernel(launch, "bn_table_f32", err);
    if (status == COPSE_OK)
        status = norm_kernel(launch, "bn_fold_f32", err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 0, err, "vvvvvuufu", &o->inputs[2], &o->inputs[3],
                           &o->inputs[4], &o->inputs[5], &o->workspace, columns, 0u,
                           (double)launch->node->attrs.norm.epsilon, flags_of(launch, 4));
    if (status == COPSE_OK)
        status = copse__cl_args(
            launch, 1, 0, err, "vvvvvzuu", &o->inputs[0], &o->inputs[1], &o->workspace,
            &o->outputs[0], &o->outputs[1], copse__tensor_rows(x_of(launch), NULL),
            columns, copse__cl_input(launch->graph, launch->node, 1) ? 1u : 0u);
    return status;
}

/* One row more than the filter has: the bias. */
static copse_status fold_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    (void)extents;
    (void)changed;
    return table_enqueue(launch, copse__tensor_rows(x_of(launch), NULL) + 1, err);
}

static copse_status reduce_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    uint32_t flags = 0;
    if (copse__cl_output(launch->graph, launch->node, 1))
        flags |= 1;
    if (copse__cl_output(launch->graph, launch->node, 2))
        flags |= 2;
    copse_status status = norm_kernel(launch, "bn_grad_sums_f32", err);
    if (status == COPSE_OK)
        status = norm_kernel(launch, "bn_grad_join_f32", err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 0, err, "vvvvvv", &o->inputs[0], &o->inputs[1],
                           &o->inputs[2], &o->inputs[3], &o->inputs[4], &o->workspace);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 7, err, "uufuf", columns_of(launch),
                           parts_of(launch), (double)launch->node->attrs.norm.epsilon,
                           flags_of(launch, 3), floor_of(launch));
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvvvuuu", &o->workspace,
                                &o->outputs[0], &o->outputs[1], &o->outputs[2],
                                columns_of(launch), parts_of(launch), flags);
    return status;
}

static copse_status reduce_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 6, err, "z",
                                copse__tensor_rows(x_of(launch), extents));
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 0,
                                        copse__cl_row_items(launch->device, x_of(launch)),
                                        COPSE__CL_MOST_PART_ROWS, err);
    if (status == COPSE_OK)
        status =
            copse__cl_enqueue_flat(launch, 1, columns_of(launch), parts_of(launch), err);
    return status;
}

static copse_status grad_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status = norm_kernel(launch, "bn_grad_table_f32", err);
    if (status == COPSE_OK)
        status = norm_kernel(launch, "bn_grad_apply_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvvvv", &o->inputs[2], &o->inputs[3],
                                &o->inputs[4], &o->inputs[5], &o->workspace);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 6, err, "ufu", columns_of(launch),
                           (double)launch->node->attrs.norm.epsilon, flags_of(launch, 4));
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvvv", &o->inputs[0], &o->inputs[1],
                                &o->workspace, &o->outputs[0]);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 1, 5, err, "uf", columns_of(launch), floor_of(launch));
    return status;
}

static copse_status grad_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    size_t rows = copse__tensor_rows(x_of(launch), extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 5, err, "z", rows);
    if (changed && status == COPSE_OK)
        status = copse__cl_args(launch, 1, 4, err, "z", rows);
    return status == COPSE_OK ? table_enqueue(launch, rows, err) : status;
}

const copse__cl_provider copse__cl_bn_moments = {.name = "plain",
                                                 .fits = copse__cl_columns_fit,
                                                 .workspace = parts_workspace,
                                                 .prepare = moments_prepare,
                                                 .enqueue = moments_enqueue};
const copse__cl_provider copse__cl_bn_apply = {.name = "plain",
                                               .fits = copse__cl_columns_fit,
                                               .workspace = table_workspace,
                                               .prepare = apply_prepare,
                                               .enqueue = apply_enqueue};
const copse__cl_provider copse__cl_bn_fold = {.name = "plain",
                                              .fits = copse__cl_columns_fit,
                                              .workspace = table_workspace,
                                              .prepare = fold_prepare,
                                              .enqueue = fold_enqueue};
const copse__cl_provider copse__cl_bn_grad_reduce = {.name = "plain",
                                                     .fits = copse__cl_columns_fit,
                                                     .workspace = parts_workspace,
                                                     .prepare = reduce_prepare,
                                                     .enqueue = reduce_enqueue};
const copse__cl_provider copse__cl_bn_grad_input = {.name = "plain",
                                                    .fits = copse__cl_columns_fit,
                                                    .workspace = table_workspace,
                                                    .prepare = grad_prepare,
                                                    .enqueue = grad_enqueue};
