/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors: row-major arrays in a device's memory.
 */
#ifndef COPSE_TENSOR_H
#define COPSE_TENSOR_H

#include <copse/device.h>
#include <copse/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct copse_tensor copse_tensor;

/* Row-major, uninitialised. shape has rank entries, in elements, each at least 1; rank is at
 * most COPSE_MAX_RANK, 0 for a single number. The device is borrowed. COPSE_DEVICE_MEMORY
 * where the device has no room or allows no buffer of this size. */
COPSE_API COPSE_CHECKED copse_status copse_tensor_new(copse_tensor **out,
                                                      copse_device *device,
                                                      copse_dtype dtype, size_t rank,
                                                      const size_t shape[],
                                                      copse_error *err);
/* NULL is allowed. */
COPSE_API void copse_tensor_free(copse_tensor *tensor);

COPSE_API copse_device *copse_tensor_device(const copse_tensor *tensor);
COPSE_API copse_dtype copse_tensor_dtype(const copse_tensor *tensor);
COPSE_API size_t copse_tensor_rank(const copse_tensor *tensor);
/* Of one dimension, below the rank. */
COPSE_API size_t copse_tensor_dim(const copse_tensor *tensor, size_t dimension);
COPSE_API size_t copse_tensor_elements(const copse_tensor *tensor);
COPSE_API size_t copse_tensor_bytes(const copse_tensor *tensor);

/* Block until the bytes are where they belong. bytes is the tensor's size: else
 * COPSE_INVALID. */
COPSE_API COPSE_CHECKED copse_status copse_tensor_write(copse_tensor *to,
                                                        const void *from, size_t bytes,
                                                        copse_error *err);
COPSE_API COPSE_CHECKED copse_status copse_tensor_read(const copse_tensor *from, void *to,
                                                       size_t bytes, copse_error *err);

#ifdef __cplusplus
}
#endif
#endif
