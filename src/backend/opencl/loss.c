/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"

/* Kernels of cl/loss.cl: a group a row. */

#define MOST_LOCAL 128
#define MOST_GROUPS 65536

/* Rows and their length: samples for the squared error, else the last dimension's. */
static void row_sizes(const copse__graph *graph, const copse__node *node,
                      const copse__extents *extents, size_t *rows, size_t *columns) {
    const copse__tensor *x = copse__cl_input(graph, node, 0);
    if (node->op != COPSE__OP_MEAN_SQUARED_ERROR) {
        *rows = copse__tensor_rows(x, extents);
        *columns = copse__tensor_columns(x);
        return;
    }
    size_t all = copse__tensor_elements(x, extents);
    *rows = x->rank > 0 ? copse__dim_at(x->dim[0], extents) : 1;
    *columns = *rows > 0 ? all / *rows : 0;
}

static bool fits(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason) {
    (void)device;
    size_t rows, columns;
    row_sizes(graph, node, NULL, &rows, &columns);
    *reason = "a row of more than 2^30 elements";
    return columns <= (size_t)1 << 30;
}

/* Items of a group: a power of two, no more than a row can use; one where chunked. */
static size_t local_items(const copse__launch *launch) {
    size_t rows, columns, local = 1;
    if (launch->device->base.caps.cpu)
        return 1;
    row_sizes(launch->graph, launch->node, NULL, &rows, &columns);
    size_t most = copse__min_size(MOST_LOCAL, launch->kernels[0].max_local);
    most = copse__min_size(most, copse__max_size(columns, 32));
    while (local * 2 <= most)
        local *= 2;
    return local;
}

static const char *cross_entropy_name(const copse__graph *graph,
                                      const copse__node *node) {
    bool soft = copse__cl_input(graph, node, 1)->dtype == COPSE_F32;
    if (node->attrs.loss.from_logits)
        return soft ? "cross_entropy_soft_logits_f32" : "cross_entropy_logits_f32";
    return soft ? "cross_entropy_soft_probabilities_f32"
                : "cross_entropy_probabilities_f32";
}

static const char *kernel_name(const copse__graph *graph, const copse__node *node) {
    switch (node->op) {
    case COPSE__OP_CROSS_ENTROPY:
        return cross_entropy_name(graph, node);
    case COPSE__OP_MEAN_SQUARED_ERROR:
        return "mean_squared_error_f32";
    case COPSE__OP_SOFTMAX:
        return "softmax_f32";
    default:
        return "softmax_grad_f32";
    }
}

/* Rows and columns are two arguments from `at` on. */
static copse_status rows_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, unsigned at, copse_error *err) {
    size_t rows, columns;
    row_sizes(launch->graph, launch->node, extents, &rows, &columns);
    if (rows == 0)
        return COPSE_OK;
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, at, err, "zu", rows, (uint32_t)columns);
    if (status != COPSE_OK)
        return status;
    size_t local = local_items(launch);
    size_t groups = rows;
    if (launch->device->base.caps.cpu) /* a group strides over rows */
        groups = copse__cl_chunks(launch->device, rows, 4 * columns);
    groups =
        copse__max_size(copse__min_size(copse__min_size(groups, rows), MOST_GROUPS), 1);
    size_t global = groups * local;
    return copse__cl_enqueue(launch, 0, 1, &global, &local, err);
}

static copse_status add_kernel(copse__launch *launch, copse_error *err) {
    return copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                kernel_name(launch->graph, launch->node), err);
}

static copse_status loss_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    bool has_dx = copse__cl_output(launch->graph, launch->node, 1) != NULL;
    copse__view dx = {0};
    if (has_dx)
        dx = o->outputs[1];
    copse_status status = add_kernel(launch, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvvvv", &o->inputs[0], &o->inputs[1],
                                &o->outputs[0], &dx, &o->scalars);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 7, err, "ul", (uint32_t)has_dx,
                                local_items(launch) * sizeof(float));
    return status;
}

static copse_status loss_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    return rows_enqueue(launch, extents, changed, 5, err);
}

static copse_status softmax_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status = add_kernel(launch, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &o->inputs[0], &o->outputs[0]);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 4, err, "l", local_items(launch) * sizeof(float));
    return status;
}

static copse_status softmax_enqueue(copse__launch *launch, const copse__extents *extents,
                                    bool changed, copse_error *err) {
    return rows_enqueue(launch, extents, changed, 2, err);
}

static copse_status softmax_grad_prepare(copse__launch *launch, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status = add_kernel(launch, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvv", &o->inputs[0], &o->inputs[1],
                                &o->outputs[0]);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 5, err, "l", local_items(launch) * sizeof(float));
    return status;
}

static copse_status softmax_grad_enqueue(copse__launch *launch,
                                         const copse__extents *extents, bool changed,
                                         copse_error *err) {
    return rows_enqueue(launch, extents, changed, 3, err);
}

const copse__cl_provider copse__cl_loss = {
    .name = "plain", .fits = fits, .prepare = loss_prepare, .enqueue = loss_enqueue};
const copse__cl_provider copse__cl_softmax = {.name = "plain",
                                              .fits = fits,
                                              .prepare = softmax_prepare,
                                              .enqueue = softmax_enqueue};
const copse__cl_provider copse__cl_softmax_grad = {.name = "plain",
                                                   .fits = fits,
                                                   .prepare = softmax_grad_prepare,
                                                   .enqueue = softmax_grad_enqueue};
