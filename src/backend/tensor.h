/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_TENSOR_H
#define COPSE_BACKEND_TENSOR_H

#include <copse/tensor.h>

#include "backend/backend.h"

/* The inside of the public device and tensor. */

struct copse_device {
    copse__device *device;
};

struct copse_tensor {
    copse_device *device;
    copse__buffer *buffer;
    copse_dtype dtype;
    size_t rank, shape[COPSE_MAX_RANK];
    size_t elements, bytes;
};

static inline copse__view copse__tensor_view(const copse_tensor *tensor) {
    return (copse__view){tensor->buffer, 0, tensor->bytes};
}

#endif
