/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_PACKED_DEVICE_H
#define COPSE_BACKEND_OPENCL_PACKED_DEVICE_H

#include "backend/opencl/packed.h"
#include "backend/opencl/provider.h"

/* Floats that one item computes at once: 1, 2, 4, 8 or 16; 1 where the device does not say. */
size_t copse__cl_native_width(const copse__device *device);

/* The sizes that the packed kernels are built with on this device, for a node: what was tuned for the
 * provider "packed", else defaults. false, with a static reason: its local memory is too small. */
bool copse__cl_packed_sizes(copse__packed_sizes *out, const copse__device *device,
                            const copse__graph *graph, const copse__node *node,
                            const char **reason);

/* `takes` of the packed providers. */
bool copse__cl_packed_takes(const copse__device *device, const char *parameters);

/* Sends all neighbours of the current sizes that must be compiled. */
void copse__cl_packed_send(const copse__device *device, const copse__graph *graph,
                           const copse__node *node, bool gemm,
                           const copse__cl_candidate_sink *sink);
/* `candidates` of the packed convolutions. */
void copse__cl_packed_candidates(const copse__device *device, const copse__graph *graph,
                                 const copse__node *node, bool thorough,
                                 const copse__cl_candidate_sink *sink);
/* How a convolution, pooled or not, is cut at these extents (NULL: as planned). false, with a static reason: the
 * kernels cannot compute it here. */
bool copse__cl_packed_cut(copse__conv_cut *out, const copse__device *device,
                          const copse__graph *graph, const copse__node *node,
                          const copse__extents *extents, const char **reason);

/* The state of a convolution's launch, and what all of its prepare functions begin with: makes it, and the
 * kernels of these names. options: further ones, "" for none. */
typedef struct copse__cl_conv_state {
    copse__packed_sizes sizes;
    size_t max_parts;    /* at the planned sizes: the workspace has room for them */
    copse__conv_cut cut; /* of the moment; the provider's to set */
} copse__cl_conv_state;

copse_status copse__cl_conv_prepare(copse__launch *launch,
                                    const copse__packed_sizes *sizes,
                                    const copse__cl_source *source, const char *options,
                                    const char *const *names, size_t count,
                                    copse_error *err);

/* The two kernels of a pass forward or of the input's gradient, and their arguments: weights are packed into the
 * workspace, then multiplied. */
enum { COPSE__CL_CONV_PACK, COPSE__CL_CONV_CONV };
copse_status copse__cl_conv_set(copse__launch *launch, copse_error *err);

/* The failure of an enqueue whose sizes do not fit as the planned ones did. */
copse_status copse__cl_conv_unfit(const copse__launch *launch, copse_error *err);

/* What the packed providers answer as their cost: little where an item is a core. */
double copse__cl_packed_cost(const copse__device *device);

#endif
