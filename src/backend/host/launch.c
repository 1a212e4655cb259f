/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/conv.h"
#include "backend/host/device.h"
#include "base/clock.h"
#include "base/mem.h"

struct copse__launch {
    copse__host_device *device;
    const copse__graph *graph;
    const copse__node *node;
    copse__host_op *op;
    copse__host_call call;      /* addresses bound; extents of the run are filled in */
    uint64_t begin_ns, time_ns; /* of the last run, where profiled */
};

static copse__host_op *const loops[COPSE__OP_COUNT] = {
    [COPSE__OP_DENSE] = copse__host_dense,
    [COPSE__OP_DENSE_GRAD_INPUT] = copse__host_dense_grad_input,
    [COPSE__OP_DENSE_GRAD_WEIGHT] = copse__host_dense_grad_weight,
    [COPSE__OP_BIAS_GRAD] = copse__host_bias_grad,
    [COPSE__OP_CONV2D] = copse__host_conv2d,
    [COPSE__OP_CONV2D_GRAD_INPUT] = copse__host_conv2d_grad_input,
    [COPSE__OP_CONV2D_GRAD_FILTER] = copse__host_conv2d_grad_filter,
    [COPSE__OP_CONV2D_MAX_POOL] = copse__host_conv2d_max_pool,
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT] = copse__host_conv2d_max_pool_grad_input,
    [COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER] = copse__host_conv2d_max_pool_grad_filter,
    [COPSE__OP_MAX_POOL2D] = copse__host_max_pool2d,
    [COPSE__OP_MAX_POOL2D_GRAD] = copse__host_max_pool2d_grad,
    [COPSE__OP_AVG_POOL2D] = copse__host_avg_pool2d,
    [COPSE__OP_AVG_POOL2D_GRAD] = copse__host_avg_pool2d_grad,
    [COPSE__OP_GLOBAL_AVG_POOL] = copse__host_global_avg_pool,
    [COPSE__OP_GLOBAL_AVG_POOL_GRAD] = copse__host_global_avg_pool_grad,
    [COPSE__OP_ACTIVATION] = copse__host_activation,
    [COPSE__OP_ACTIVATION_GRAD] = copse__host_activation_grad,
    [COPSE__OP_SOFTMAX] = copse__host_softmax,
    [COPSE__OP_SOFTMAX_GRAD] = copse__host_softmax_grad,
    [COPSE__OP_DROPOUT] = copse__host_dropout,
    [COPSE__OP_ADD] = copse__host_add,
    [COPSE__OP_ELEMENTWISE] = copse__host_elementwise,
    [COPSE__OP_BN_MOMENTS] = copse__host_bn_moments,
    [COPSE__OP_BN_NORMALIZE] = copse__host_bn_normalize,
    [COPSE__OP_BN_INFER] = copse__host_bn_infer,
    [COPSE__OP_BN_FOLD] = copse__host_bn_fold,
    [COPSE__OP_BN_GRAD_REDUCE] = copse__host_bn_grad_reduce,
    [COPSE__OP_BN_GRAD_INPUT] = copse__host_bn_grad_input,
    [COPSE__OP_CROSS_ENTROPY] = copse__host_cross_entropy,
    [COPSE__OP_MEAN_SQUARED_ERROR] = copse__host_mean_squared_error,
    [COPSE__OP_CAST] = copse__host_cast,
    [COPSE__OP_UPDATE_SGD] = copse__host_update,
    [COPSE__OP_UPDATE_ADAM] = copse__host_update,
    [COPSE__OP_UPDATE_ADAMW] = copse__host_update,
    [COPSE__OP_UPDATE_RMSPROP] = copse__host_update,
    [COPSE__OP_FINITE_CHECK] = copse__host_finite_check,
    [COPSE__OP_PARAMETER_HASH] = copse__host_parameter_hash,
    [COPSE__OP_ACCUMULATE] = copse__host_add,
};

static const copse__tensor *tensor_at(const copse__graph *graph,
                                      const copse__tensor_id *ids, size_t count,
                                      size_t position) {
    if (position >= count || ids[position] == COPSE__NO_TENSOR)
        return NULL;
    return &graph->tensors[ids[position]];
}

const copse__tensor *copse__host_input(const copse__host_call *call, size_t position) {
    return tensor_at(call->graph, call->node->inputs, call->node->input_count, position);
}

const copse__tensor *copse__host_output(const copse__host_call *call, size_t position) {
    return tensor_at(call->graph, call->node->outputs, call->node->output_count,
                     position);
}

size_t copse__host_input_rows(const copse__host_call *call, size_t position) {
    return copse__tensor_rows(copse__host_input(call, position), call->extents);
}

size_t copse__host_output_rows(const copse__host_call *call, size_t position) {
    return copse__tensor_rows(copse__host_output(call, position), call->extents);
}

size_t copse__host_output_elements(const copse__host_call *call, size_t position) {
    return copse__tensor_elements(copse__host_output(call, position), call->extents);
}

/* The transposed weights of a backward product, or a map between two operations. */
size_t copse__host_workspace(const copse__graph *graph, const copse__node *node) {
    if (node->op == COPSE__OP_CONV2D_MAX_POOL ||
        node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT ||
        node->op == COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER)
        return copse__host_conv_pool_workspace(graph, node);
    if (node->op != COPSE__OP_DENSE_GRAD_INPUT && node->op != COPSE__OP_CONV2D_GRAD_INPUT)
        return 0;
    return copse__tensor_bytes(&graph->tensors[node->inputs[1]], NULL);
}

bool copse__host_reads_scalars(copse__op op) {
    return op == COPSE__OP_DROPOUT || op == COPSE__OP_ELEMENTWISE ||
           op == COPSE__OP_CROSS_ENTROPY || op == COPSE__OP_MEAN_SQUARED_ERROR ||
           op == COPSE__OP_UPDATE_SGD || op == COPSE__OP_UPDATE_ADAM ||
           op == COPSE__OP_UPDATE_ADAMW || op == COPSE__OP_UPDATE_RMSPROP;
}

copse_status copse__host_supports(copse__device *device, const copse__graph *graph,
                                  const copse__node *node, size_t *workspace_bytes,
                                  copse_error *err) {
    (void)device;
    *workspace_bytes = 0;
    copse_status status = copse__host_check(graph, node, err);
    if (status == COPSE_OK)
        *workspace_bytes = copse__host_workspace(graph, node);
    return status;
}

/* Address of a view that must hold `need` bytes. */
static copse_status bind(void **out, const copse__view *view, size_t need,
                         const copse__node *node, copse_error *err) {
    size_t end;
    *out = NULL;
    if (!view->buffer)
        return copse__fail(err, COPSE_INVALID, 0, node->name,
                           "an operand of %s has no memory", copse__op_name(node->op));
    if (view->bytes < need || !copse__add_size(view->offset, view->bytes, &end) ||
        end > view->buffer->bytes)
        return copse__fail(err, COPSE_INVALID, 0, node->name,
                           "an operand of %s needs %zu bytes, its memory has %zu",
                           copse__op_name(node->op), need, view->bytes);
    *out = view->buffer->data + view->offset;
    return COPSE_OK;
}

static copse_status bind_all(copse__host_call *call, const copse__operands *operands,
                             copse_error *err) {
    const copse__node *node = call->node;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < node->input_count && status == COPSE_OK; i++) {
        const copse__tensor *tensor = copse__host_input(call, i);
        if (tensor)
            status = bind(&call->in[i], &operands->inputs[i],
                          copse__tensor_bytes(tensor, NULL), node, err);
    }
    for (size_t i = 0; i < node->output_count && status == COPSE_OK; i++) {
        const copse__tensor *tensor = copse__host_output(call, i);
        if (tensor)
            status = bind(&call->out[i], &operands->outputs[i],
                          copse__tensor_bytes(tensor, NULL), node, err);
    }
    size_t workspace = copse__host_workspace(call->graph, node);
    if (status == COPSE_OK && workspace > 0)
        status = bind(&call->workspace, &operands->workspace, workspace, node, err);
    if (status == COPSE_OK && copse__host_reads_scalars(node->op)) {
        void *scalars;
        status = bind(&scalars, &operands->scalars, sizeof(copse_scalars), node, err);
        call->scalars = scalars;
    }
    return status;
}

copse_status copse__host_launch_new(copse__launch **out, copse__device *device,
                                    const copse__graph *graph, const copse__node *node,
                                    const copse__operands *operands, copse_error *err) {
    copse__launch *made = NULL;
    copse_status status;
    *out = NULL;
    COPSE__TRY(copse__host_check(graph, node, err), out);
    COPSE__TRY(copse__calloc(&made, 1, sizeof *made, err), out);
    made->device = copse__host_device_of(device);
    made->graph = graph;
    made->node = node;
    made->op = loops[node->op];
    made->call = (copse__host_call){
        .graph = graph, .node = node, .threads = made->device->threads};
    COPSE__TRY(bind_all(&made->call, operands, err), out);
    *out = made;
    made = NULL;
out:
    free(made);
    return status;
}

void copse__host_launch_free(copse__launch *launch) {
    free(launch);
}

const char *copse__host_provider(copse__device *device, const copse__graph *graph,
                                 const copse__node *node) {
    (void)device;
    return copse__host_check(graph, node, NULL) == COPSE_OK ? COPSE__HOST_PROVIDER : NULL;
}

const char *copse__host_launch_provider(const copse__launch *launch) {
    (void)launch;
    return COPSE__HOST_PROVIDER;
}

uint64_t copse__host_launch_time_ns(const copse__launch *launch) {
    return launch->time_ns;
}

bool copse__host_launch_span(const copse__launch *launch, uint64_t *begin_ns,
                             uint64_t *end_ns) {
    *begin_ns = launch->begin_ns;
    *end_ns = launch->begin_ns + launch->time_ns;
    return launch->begin_ns > 0;
}

/* A symbol of the moment must stay within what the operands' memory was planned for. */
static copse_status check_extents(const copse__host_call *call,
                                  const copse__extents *extents, copse_error *err) {
    for (size_t i = 0; i < COPSE__MAX_INPUTS + COPSE__MAX_OUTPUTS; i++) {
        const copse__tensor *tensor =
            i < COPSE__MAX_INPUTS ? copse__host_input(call, i)
                                  : copse__host_output(call, i - COPSE__MAX_INPUTS);
        for (size_t d = 0; tensor && d < tensor->rank; d++)
            if (copse__dim_at(tensor->dim[d], extents) > tensor->dim[d].size)
                return copse__fail(
                    err, COPSE_INVALID, 0, call->node->name,
                    "dimension %zu of %s is %zu now, but at most %zu was planned", d,
                    tensor->name, copse__dim_at(tensor->dim[d], extents),
                    tensor->dim[d].size);
    }
    return COPSE_OK;
}

copse_status copse__host_run(copse__device *device, copse__launch *const *launches,
                             size_t count, const copse__extents *extents,
                             copse_error *err) {
    bool profile = copse__host_device_of(device)->profile;
    for (size_t i = 0; i < count; i++) {
        copse__launch *launch = launches[i];
        copse_status status = check_extents(&launch->call, extents, err);
        if (status != COPSE_OK)
            return status;
        copse__host_call call = launch->call;
        call.extents = extents;
        uint64_t start = profile ? copse__now_ns() : 0;
        launch->op(&call);
        if (profile) {
            launch->begin_ns = start;
            launch->time_ns = copse__now_ns() - start;
        }
    }
    return COPSE_OK;
}
