/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_HOST_DEVICE_H
#define COPSE_BACKEND_HOST_DEVICE_H

#include "backend/host/host.h"

#define COPSE__HOST_PROVIDER "loops"

typedef struct copse__host_device {
    copse__device_base base;
    bool profile;
    size_t threads;
} copse__host_device;

struct copse__buffer {
    unsigned char *data;
    size_t bytes;
    copse__memory memory;
    copse__device *device;
};

static inline copse__host_device *copse__host_device_of(copse__device *device) {
    return (copse__host_device *)(void *)device;
}

/* The part of the backend's table that lives in launch.c; contracts in backend.h. */
copse_status copse__host_supports(copse__device *device, const copse__graph *graph,
                                  const copse__node *node, size_t *workspace_bytes,
                                  copse_error *err);
copse_status copse__host_launch_new(copse__launch **out, copse__device *device,
                                    const copse__graph *graph, const copse__node *node,
                                    const copse__operands *operands, copse_error *err);
void copse__host_launch_free(copse__launch *launch);
const char *copse__host_provider(copse__device *device, const copse__graph *graph,
                                 const copse__node *node);
const char *copse__host_launch_provider(const copse__launch *launch);
copse_status copse__host_run(copse__device *device, copse__launch *const *launches,
                             size_t count, const copse__extents *extents,
                             copse_error *err);
uint64_t copse__host_launch_time_ns(const copse__launch *launch);
bool copse__host_launch_span(const copse__launch *launch, uint64_t *begin_ns,
                             uint64_t *end_ns);

#endif
