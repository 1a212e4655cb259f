/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/reduce.h"

#include "backend/opencl/ops.h"
#include "backend/opencl/window.h"

#define BUSY_ITEMS_CHUNKED 16
#define BUSY_ITEMS 8192
#define LEAST_ROWS 32 /* of a part */

size_t copse__cl_row_parts(const copse__device *device, const copse__tensor *x) {
    size_t rows = copse__tensor_rows(x, NULL), columns = copse__tensor_columns(x);
    size_t lanes = device->base.caps.cpu ? copse__cl_vector(device) : 1;
    size_t busy = device->base.caps.cpu ? BUSY_ITEMS_CHUNKED : BUSY_ITEMS;
    size_t blocks = copse__max_size((columns + lanes - 1) / lanes, 1);
    size_t parts = (busy + blocks - 1) / blocks;
    parts = copse__min_size(parts, (rows + LEAST_ROWS - 1) / LEAST_ROWS);
    parts = copse__max_size(parts, (rows + COPSE__CL_MOST_PART_ROWS - 1) /
                                       COPSE__CL_MOST_PART_ROWS);
    return copse__max_size(parts, 1);
}

size_t copse__cl_row_items(const copse__device *device, const copse__tensor *x) {
    size_t lanes = device->base.caps.cpu ? copse__cl_vector(device) : 1;
    return copse__cl_row_parts(device, x) *
           ((copse__tensor_columns(x) + lanes - 1) / lanes);
}

bool copse__cl_columns_fit(const copse__device *device, const copse__graph *graph,
                           const copse__node *node, const char **reason) {
    (void)device;
    *reason = "too many columns";
    return copse__tensor_columns(copse__cl_input(graph, node, 0)) < INT32_MAX;
}

static copse_status bias_workspace(size_t *bytes, copse__device *device,
                                   const copse__graph *graph, const copse__node *node,
                                   copse_error *err) {
    (void)err;
    const copse__tensor *x = copse__cl_input(graph, node, 0);
    *bytes = copse__cl_row_parts(device, x) * copse__tensor_columns(x) * sizeof(float);
    return COPSE_OK;
}

static copse_status bias_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    const copse__tensor *x = copse__cl_input(launch->graph, launch->node, 0);
    uint32_t columns = (uint32_t)copse__tensor_columns(x);
    uint32_t parts = (uint32_t)copse__cl_row_parts(launch->device, x);
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                               "sum_rows_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                      "sum_parts_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &o->inputs[0], &o->workspace);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 3, err, "uu", columns, parts);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 1, 0, err, "vvzu", &o->workspace, &o->outputs[0],
                                (size_t)columns, parts);
    return status;
}

static copse_status bias_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    const copse__tensor *x = copse__cl_input(launch->graph, launch->node, 0);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 2, err, "z", copse__tensor_rows(x, extents));
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 0, copse__cl_row_items(launch->device, x),
                                        COPSE__CL_MOST_PART_ROWS, err);
    if (status == COPSE_OK)
        status = copse__cl_enqueue_flat(launch, 1, copse__tensor_columns(x),
                                        copse__cl_row_parts(launch->device, x), err);
    return status;
}

const copse__cl_provider copse__cl_bias_grad = {.name = "plain",
                                                .fits = copse__cl_columns_fit,
                                                .workspace = bias_workspace,
                                                .prepare = bias_prepare,
                                                .enqueue = bias_enqueue};
