/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/tensor.h"

#include <string.h>

#include "base/mem.h"

struct copse_device_set {
    copse__topo *topo;
    copse_device *devices;
    size_t count;
};

copse_status copse_device_set_open(copse_device_set **out, const char *selector,
                                   copse_error *err) {
    *out = NULL;
    copse_device_set *set = NULL;
    copse__device_choice *choices = NULL;
    copse_status status = copse__calloc(&set, 1, sizeof *set, err);
    if (status != COPSE_OK)
        return status;
    const copse__topo_options options = {.isolate = COPSE__ISOLATE_ICD};
    const copse__device_options opening = {0};
    COPSE__TRY(copse__topo_open(&set->topo, &options, err), out);
    COPSE__TRY(copse__select_devices(set->topo, selector, &choices, &set->count, err),
               out);
    COPSE__TRY(copse__calloc(&set->devices, set->count, sizeof *set->devices, err), out);
    for (size_t i = 0; i < set->count; i++)
        COPSE__TRY(
            copse__device_open(&set->devices[i].device, &choices[i], &opening, err), out);
    *out = set;
    set = NULL;
out:
    free(choices);
    copse_device_set_close(set);
    return status;
}

void copse_device_set_close(copse_device_set *set) {
    if (set == NULL)
        return;
    for (size_t i = 0; set->devices != NULL && i < set->count; i++)
        copse__device_close(set->devices[i].device);
    free(set->devices);
    copse__topo_close(set->topo);
    free(set);
}

size_t copse_device_set_count(const copse_device_set *set) {
    return set->count;
}

copse_device *copse_device_set_get(const copse_device_set *set, size_t index) {
    return &set->devices[index];
}

const char *copse_device_label(const copse_device *device) {
    return copse__device_get(device->device)->choice.label;
}

const char *copse_device_name(const copse_device *device) {
    return copse__device_get(device->device)->choice.name;
}

copse_status copse_tensor_new(copse_tensor **out, copse_device *device, copse_dtype dtype,
                              size_t rank, const size_t shape[], copse_error *err) {
    *out = NULL;
    const char *place = copse_device_label(device);
    if (copse_dtype_bytes(dtype) == 0 || rank > COPSE_MAX_RANK)
        return copse__fail(err, COPSE_INVALID, 0, place,
                           "a tensor has a known dtype and at most %d dimensions",
                           COPSE_MAX_RANK);
    copse_tensor *tensor = NULL;
    copse_status status = copse__calloc(&tensor, 1, sizeof *tensor, err);
    if (status != COPSE_OK)
        return status;
    *tensor =
        (copse_tensor){.device = device, .dtype = dtype, .rank = rank, .elements = 1};
    bool fits = true;
    for (size_t i = 0; i < rank; i++) {
        tensor->shape[i] = shape[i];
        fits = fits && shape[i] > 0 &&
               copse__mul_size(tensor->elements, shape[i], &tensor->elements);
    }
    fits = fits &&
           copse__mul_size(tensor->elements, copse_dtype_bytes(dtype), &tensor->bytes);
    if (fits)
        status = copse__backend_of(device->device)
                     ->buffer_new(&tensor->buffer, device->device, tensor->bytes,
                                  COPSE__MEMORY_SHARED, err);
    else
        status = copse__fail(err, COPSE_INVALID, 0, place,
                             "a tensor's dimensions are at least 1, and its bytes can "
                             "be counted");
    if (status != COPSE_OK) {
        free(tensor);
        return status;
    }
    *out = tensor;
    return COPSE_OK;
}

void copse_tensor_free(copse_tensor *tensor) {
    if (tensor == NULL)
        return;
    copse__backend_of(tensor->device->device)->buffer_free(tensor->buffer);
    free(tensor);
}

copse_device *copse_tensor_device(const copse_tensor *tensor) {
    return tensor->device;
}

copse_dtype copse_tensor_dtype(const copse_tensor *tensor) {
    return tensor->dtype;
}

size_t copse_tensor_rank(const copse_tensor *tensor) {
    return tensor->rank;
}

size_t copse_tensor_dim(const copse_tensor *tensor, size_t dimension) {
    return tensor->shape[dimension];
}

size_t copse_tensor_elements(const copse_tensor *tensor) {
    return tensor->elements;
}

size_t copse_tensor_bytes(const copse_tensor *tensor) {
    return tensor->bytes;
}

static copse_status check_bytes(const copse_tensor *tensor, size_t bytes,
                                copse_error *err) {
    if (bytes == tensor->bytes)
        return COPSE_OK;
    return copse__fail(err, COPSE_INVALID, 0, copse_device_label(tensor->device),
                       "%zu bytes are given for a tensor of %zu", bytes, tensor->bytes);
}

copse_status copse_tensor_write(copse_tensor *to, const void *from, size_t bytes,
                                copse_error *err) {
    copse__device *device = to->device->device;
    const copse__backend *backend = copse__backend_of(device);
    copse_status status = check_bytes(to, bytes, err);
    if (status == COPSE_OK)
        status = backend->write(device, COPSE__QUEUE_COMPUTE, copse__tensor_view(to),
                                from, bytes, NULL, NULL, err);
    return status == COPSE_OK ? backend->finish(device, COPSE__QUEUE_COMPUTE, err)
                              : status;
}

copse_status copse_tensor_read(const copse_tensor *from, void *to, size_t bytes,
                               copse_error *err) {
    copse__device *device = from->device->device;
    const copse__backend *backend = copse__backend_of(device);
    copse_status status = check_bytes(from, bytes, err);
    if (status == COPSE_OK)
        status = backend->read(device, COPSE__QUEUE_COMPUTE, to, copse__tensor_view(from),
                               bytes, NULL, NULL, err);
    return status == COPSE_OK ? backend->finish(device, COPSE__QUEUE_COMPUTE, err)
                              : status;
}
