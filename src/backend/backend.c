/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include "base/error.h"
#include "base/mem.h"

static const copse__backend *backend_for(copse__api api) {
    switch (api) {
    case COPSE__API_HOST:
        return &copse__backend_host;
    case COPSE__API_OPENCL:
        return &copse__backend_opencl;
    default:
        return NULL;
    }
}

copse_status copse__device_open(copse__device **out, const copse__device_choice *choice,
                                const copse__device_options *options, copse_error *err) {
    const copse__backend *backend =
        options && options->backend ? options->backend : backend_for(choice->api);
    *out = NULL;
    if (!backend)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, choice->label,
                           "no backend drives this device");
    return backend->open(out, choice, options, err);
}

void copse__device_close(copse__device *device) {
    if (device)
        copse__backend_of(device)->close(device);
}

/* ---- Memory ---------------------------------------------------------------------------- */

static copse__device_base *base_of(copse__device *device) {
    return (copse__device_base *)(void *)device;
}

size_t copse__device_took(copse__device *device, copse__memory memory, size_t bytes) {
    copse__device_base *base = base_of(device);
    bool pinned = memory == COPSE__MEMORY_STAGING;
    atomic_size_t *now = pinned ? &base->pinned_memory.bytes : &base->device_memory.bytes;
    atomic_size_t *peak = pinned ? &base->pinned_memory.peak : &base->device_memory.peak;
    size_t others =
        atomic_load(pinned ? &base->device_memory.bytes : &base->pinned_memory.bytes);
    size_t before = atomic_fetch_add(now, bytes), most = atomic_load(peak);
    while (before + bytes > most &&
           !atomic_compare_exchange_weak(peak, &most, before + bytes)) {
    }
    return before + others;
}

void copse__device_gave(copse__device *device, copse__memory memory, size_t bytes) {
    copse__device_base *base = base_of(device);
    atomic_fetch_sub(memory == COPSE__MEMORY_STAGING ? &base->pinned_memory.bytes
                                                     : &base->device_memory.bytes,
                     bytes);
}

copse__memory_bytes copse__device_memory(const copse__device *device) {
    const copse__device_base *base = copse__device_get(device);
    return (copse__memory_bytes){atomic_load(&base->device_memory.bytes),
                                 atomic_load(&base->pinned_memory.bytes)};
}

copse__memory_bytes copse__device_memory_peak(const copse__device *device) {
    const copse__device_base *base = copse__device_get(device);
    return (copse__memory_bytes){atomic_load(&base->device_memory.peak),
                                 atomic_load(&base->pinned_memory.peak)};
}

size_t copse__memory_lines(size_t bytes) {
    return bytes > SIZE_MAX - COPSE__MEMORY_LINE
               ? bytes
               : copse__round_up(bytes, COPSE__MEMORY_LINE);
}
