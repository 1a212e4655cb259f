/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_PACKED_DEVICE_H
#define COPSE_BACKEND_OPENCL_PACKED_DEVICE_H

#include "backend/opencl/internal.h"
#include "backend/opencl/packed.h"

/* Floats that one item computes at once: 1, 2, 4, 8 or 16; 1 where the device does not say. */
size_t copse__cl_native_width(const copse__device *device);

/* The sizes that the packed kernels are built with on this device. false, with a static
 * reason: its local memory is too small for them. */
bool copse__cl_packed_sizes(copse__packed_sizes *out, const copse__device *device,
                            const char **reason);

/* What the packed providers answer as their cost: little where an item is a core. */
double copse__cl_packed_cost(const copse__device *device);

#endif
