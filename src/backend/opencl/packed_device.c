/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/packed_device.h"

size_t copse__cl_native_width(const copse__device *device) {
    cl_uint width = 1;
    if (clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof width,
                        &width, NULL) != CL_SUCCESS)
        return 1;
    return width == 2 || width == 4 || width == 8 || width == 16 ? width : 1;
}

bool copse__cl_packed_sizes(copse__packed_sizes *out, const copse__device *device,
                            const char **reason) {
    size_t width = copse__cl_native_width(device);
    *reason = "its work-items do not compute with vectors";
    if (width < 4)
        return false;
    *reason = "its local memory is too small for packed blocks";
    return copse__packed_sizes_default(out, width, device->local_bytes);
}

double copse__cl_packed_cost(const copse__device *device) {
    return device->base.caps.cpu ? 0.5 : 8;
}
