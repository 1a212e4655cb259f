/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/opencl/ops.h"

#define VECTOR 16 /* COPSE_VEC is at most this; the rest is taken element by element */

static size_t input_elements(const copse__launch *launch, const copse__extents *extents) {
    return copse__tensor_elements(copse__cl_input(launch->graph, launch->node, 0),
                                  extents);
}

/* Items that keep all work-items busy: vectors, and at least one for what they leave. */
static size_t vector_items(size_t elements) {
    return elements == 0 ? 0 : copse__max_size(elements / VECTOR, 1);
}

/* y[i] from x[i]: views x, y and then n, set when extents change. */
static copse_status unary_enqueue(copse__launch *launch, const copse__extents *extents,
                                  bool changed, copse_error *err) {
    size_t n = input_elements(launch, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 2, err, "z", n);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue_flat(launch, 0, vector_items(n), 1, err);
}

static copse_status binary_enqueue(copse__launch *launch, const copse__extents *extents,
                                   bool changed, copse_error *err) {
    size_t n = input_elements(launch, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 3, err, "z", n);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue_flat(launch, 0, vector_items(n), 1, err);
}

static const char *const act_names[COPSE__ACT_COUNT] = {
    [COPSE__ACT_NONE] = "act_none_f32",       [COPSE__ACT_RELU] = "act_relu_f32",
    [COPSE__ACT_SIGMOID] = "act_sigmoid_f32", [COPSE__ACT_TANH] = "act_tanh_f32",
    [COPSE__ACT_GELU] = "act_gelu_f32",
};

static const char *const act_grad_names[COPSE__ACT_COUNT] = {
    [COPSE__ACT_NONE] = "act_none_grad_f32",
    [COPSE__ACT_RELU] = "act_relu_grad_f32",
    [COPSE__ACT_SIGMOID] = "act_sigmoid_grad_f32",
    [COPSE__ACT_TANH] = "act_tanh_grad_f32",
    [COPSE__ACT_GELU] = "act_gelu_grad_f32",
};

static copse_status activation_prepare(copse__launch *launch, copse_error *err) {
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "",
                                               act_names[launch->node->attrs.act], err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &launch->operands.inputs[0],
                                &launch->operands.outputs[0]);
    return status;
}

static copse_status binary_prepare(copse__launch *launch, const char *name,
                                   copse_error *err) {
    copse_status status =
        copse__cl_kernel_add(launch, NULL, &copse__cl_source_basic, "", name, err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, 0, 0, err, "vvv", &launch->operands.inputs[0],
                           &launch->operands.inputs[1], &launch->operands.outputs[0]);
    return status;
}

static copse_status activation_grad_prepare(copse__launch *launch, copse_error *err) {
    return binary_prepare(launch, act_grad_names[launch->node->attrs.act], err);
}

static copse_status add_prepare(copse__launch *launch, copse_error *err) {
    return binary_prepare(launch, "add_f32", err);
}

static copse_status dropout_prepare(copse__launch *launch, copse_error *err) {
    const copse__attrs *attrs = &launch->node->attrs;
    copse_status status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_dropout,
                                               "", "dropout_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vvv", &launch->operands.inputs[0],
                                &launch->operands.outputs[0], &launch->operands.scalars);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 5, err, "fu", (double)attrs->dropout.rate,
                                attrs->dropout.call);
    return status;
}

static copse_status dropout_enqueue(copse__launch *launch, const copse__extents *extents,
                                    bool changed, copse_error *err) {
    const copse__tensor *x = copse__cl_input(launch->graph, launch->node, 0);
    size_t all = copse__tensor_elements(x, extents);
    size_t samples = x->rank > 0 ? copse__dim_at(x->dim[0], extents) : 1;
    size_t each = samples > 0 ? all / samples : 0;
    size_t block = launch->device->base.caps.cpu ? 16 : 1; /* quads an item */
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 3, err, "zz", samples, each);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue_flat(
        launch, 0, samples * ((each + 4 * block - 1) / (4 * block)), 16 * block, err);
}

/* What the kernel file calls each source type; "": the one of the basic program. NULL: no CAST from it. */
static const char *const cast_options[] = {
    [COPSE_F32] = "-DCOPSE_FROM=float",
    [COPSE_F16] = "-DCOPSE_FROM_F16=1",
    [COPSE_F64] = "-DCOPSE_FROM_F64=1",
    [COPSE_U8] = "",
    [COPSE_I8] = "-DCOPSE_FROM=char",
    [COPSE_U16] = "-DCOPSE_FROM=ushort",
    [COPSE_I16] = "-DCOPSE_FROM=short",
    [COPSE_I32] = "-DCOPSE_FROM=int",
    [COPSE_I64] = NULL,
};

static bool cast_fits(const copse__device *device, const copse__graph *graph,
                      const copse__node *node, const char **reason) {
    (void)device;
    copse_dtype from = copse__cl_input(graph, node, 0)->dtype;
    *reason = "there is no cast from this type to f32";
    return (size_t)from < COPSE__COUNT(cast_options) && cast_options[from];
}

static copse_status cast_prepare(copse__launch *launch, copse_error *err) {
    copse_dtype from = copse__cl_input(launch->graph, launch->node, 0)->dtype;
    const copse__cl_source *source =
        cast_options[from][0] ? &copse__cl_source_cast : &copse__cl_source_basic;
    copse_status status =
        copse__cl_kernel_add(launch, NULL, source, cast_options[from], "cast_f32", err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 0, err, "vv", &launch->operands.inputs[0],
                                &launch->operands.outputs[0]);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, 0, 3, err, "ff",
                                (double)launch->node->attrs.cast.scale,
                                (double)launch->node->attrs.cast.offset);
    return status;
}

static copse_status cast_enqueue(copse__launch *launch, const copse__extents *extents,
                                 bool changed, copse_error *err) {
    size_t n = input_elements(launch, extents);
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, 2, err, "z", n);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue_flat(launch, 0, n, 1, err);
}

const copse__cl_provider copse__cl_activation = {
    .name = "plain", .prepare = activation_prepare, .enqueue = unary_enqueue};
const copse__cl_provider copse__cl_activation_grad = {
    .name = "plain", .prepare = activation_grad_prepare, .enqueue = binary_enqueue};
const copse__cl_provider copse__cl_add = {
    .name = "plain", .prepare = add_prepare, .enqueue = binary_enqueue};
const copse__cl_provider copse__cl_dropout = {
    .name = "plain", .prepare = dropout_prepare, .enqueue = dropout_enqueue};
const copse__cl_provider copse__cl_cast = {
    .name = "plain", .fits = cast_fits, .prepare = cast_prepare, .enqueue = cast_enqueue};
