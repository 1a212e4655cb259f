/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include "base/error.h"

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
