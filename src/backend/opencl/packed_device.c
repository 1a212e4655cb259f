/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/packed_device.h"

#include <stdio.h>
#include <string.h>

#include "backend/opencl/tuned.h"
#include "backend/opencl/window.h"

size_t copse__cl_native_width(const copse__device *device) {
    cl_uint width = 1;
    if (clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width,
                        &width, NULL) != CL_SUCCESS)
        return 1;
    return width == 2 || width == 4 || width == 8 || width == 16 ? width : 1;
}

static bool default_sizes(copse__packed_sizes *out, const copse__device *device,
                          const char **reason) {
    size_t width = copse__cl_native_width(device);
    *reason = "its work-items do not compute with vectors";
    if (width < 4)
        return false;
    *reason = "its local memory is too small for packed blocks";
    return copse__packed_sizes_default(out, width, device->local_bytes);
}

bool copse__cl_packed_sizes(copse__packed_sizes *out, const copse__device *device,
                            const copse__graph *graph, const copse__node *node,
                            const char **reason) {
    if (!default_sizes(out, device, reason))
        return false;
    const char *parameters = copse__cl_parameters(device, graph, node, "packed");
    if (parameters[0])
        copse__packed_sizes_set(out, parameters, device->local_bytes); /* or stays */
    return true;
}

bool copse__cl_packed_takes(const copse__device *device, const char *parameters) {
    copse__packed_sizes sizes;
    const char *reason;
    return default_sizes(&sizes, device, &reason) &&
           copse__packed_sizes_set(&sizes, parameters, device->local_bytes);
}

void copse__cl_packed_send(const copse__device *device, const copse__graph *graph,
                           const copse__node *node, bool gemm,
                           const copse__cl_candidate_sink *sink) {
    copse__packed_sizes now, next;
    const char *reason;
    char parameters[256];
    if (!copse__cl_packed_sizes(&now, device, graph, node, &reason))
        return;
    for (size_t i = 0; copse__packed_neighbour(&next, &now, i, gemm, device->local_bytes);
         i++)
        sink->take(copse__packed_parameters(&next, gemm, parameters, sizeof parameters),
                   true, sink->user);
}

void copse__cl_packed_candidates(const copse__device *device, const copse__graph *graph,
                                 const copse__node *node, bool thorough,
                                 const copse__cl_candidate_sink *sink) {
    if (thorough)
        copse__cl_packed_send(device, graph, node, false, sink);
}

double copse__cl_packed_cost(const copse__device *device) {
    return device->base.caps.cpu ? 0.5 : 8;
}

bool copse__cl_packed_cut(copse__conv_cut *out, const copse__device *device,
                          const copse__graph *graph, const copse__node *node,
                          const copse__extents *extents, const char **reason) {
    copse__packed_sizes sizes;
    copse__conv_size planned = copse__cl_conv_size(graph, node, NULL);
    copse__conv_size size = copse__cl_conv_size(graph, node, extents);
    size_t units = device->base.caps.compute_units;
    if (!copse__cl_packed_sizes(&sizes, device, graph, node, reason))
        return false;
    *reason = "a window with its channels is larger than its local memory";
    return copse__conv_cut_at(out, &sizes, copse__cl_conv_pass(node), &size, units,
                              copse__conv_parts(&planned, units));
}

copse_status copse__cl_conv_prepare(copse__launch *launch,
                                    const copse__packed_sizes *sizes,
                                    const copse__cl_source *source, const char *further,
                                    const char *const *names, size_t count,
                                    copse_error *err) {
    char options[384];
    copse__cl_conv_state *s;
    copse_status status = copse__calloc(&s, 1, sizeof *s, err);
    if (status != COPSE_OK)
        return status;
    launch->state = s;
    s->sizes = *sizes;
    copse__conv_size planned = copse__cl_conv_size(launch->graph, launch->node, NULL);
    s->max_parts = copse__conv_parts(&planned, launch->device->base.caps.compute_units);
    copse__packed_options(sizes, options, 256);
    size_t used = strlen(options);
    snprintf(options + used, sizeof options - used, "%s", further);
    for (size_t k = 0; k < count && status == COPSE_OK; k++)
        status = copse__cl_kernel_add(launch, NULL, source, options, names[k], err);
    return status;
}

copse_status copse__cl_conv_set(copse__launch *launch, copse_error *err) {
    const copse__cl_conv_state *s = launch->state;
    const copse__operands *o = &launch->operands;
    bool has_bias = launch->node->op == COPSE__OP_CONV2D &&
                    copse__cl_input(launch->graph, launch->node, 2) != NULL;
    copse__view bias = {0};
    if (has_bias)
        bias = o->inputs[2];
    uint32_t act = 0;
    if (launch->node->op == COPSE__OP_CONV2D)
        act = (uint32_t)launch->node->attrs.act;
    copse_status status =
        copse__cl_arg_conv_shape(launch, COPSE__CL_CONV_PACK, &s->cut.shape, err);
    if (status == COPSE_OK)
        status = copse__cl_args(launch, COPSE__CL_CONV_PACK, 1, err, "vv", &o->inputs[1],
                                &o->workspace);
    if (status == COPSE_OK)
        status =
            copse__cl_arg_conv_shape(launch, COPSE__CL_CONV_CONV, &s->cut.shape, err);
    if (status == COPSE_OK)
        status =
            copse__cl_args(launch, COPSE__CL_CONV_CONV, 1, err, "vvvvuu", &o->inputs[0],
                           &o->workspace, &bias, &o->outputs[0], act, (uint32_t)has_bias);
    return status;
}

copse_status copse__cl_conv_unfit(const copse__launch *launch, copse_error *err) {
    return copse__fail(err, COPSE_INTERNAL, 0, launch->device->place,
                       "%s: fits as planned but not at these extents",
                       launch->node->name);
}
