/* SPDX-License-Identifier: Apache-2.0 */
#define CL_TARGET_OPENCL_VERSION 200
#include "backend/opencl/internal.h"

bool copse__cl_shares(const copse__device *device) {
    cl_device_svm_capabilities svm = 0; /* drivers before 2.0 leave it so */
    (void)clGetDeviceInfo(device->id, CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL);
    return device->base.caps.unified && (svm & CL_DEVICE_SVM_FINE_GRAIN_BUFFER) != 0;
}

void *copse__cl_shared_new(const copse__device *device, size_t bytes) {
    return clSVMAlloc(device->context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER,
                      bytes, 0);
}

void copse__cl_shared_free(const copse__device *device, void *memory) {
    clSVMFree(device->context, memory);
}
