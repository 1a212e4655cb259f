/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/opencl/internal.h"

/* Memory is handed out in whole lines, so that a vector read at the end of the last tensor stays
 * inside. */
#define LINE_BYTES COPSE__MEMORY_LINE

static copse_status allocate(copse__buffer *buffer, copse__memory memory,
                             copse_error *err) {
    copse__device *device = buffer->device;
    const copse__caps *caps = &device->base.caps;
    char asked[32], there[32];
    size_t bytes = buffer->bytes;
    if (bytes > caps->max_alloc_bytes || bytes > SIZE_MAX - LINE_BYTES)
        return copse__fail(
            err, COPSE_DEVICE_MEMORY, 0, device->place,
            "a buffer of %s is asked for, and the device allows at most %s "
            "in one; use a smaller batch",
            copse__format_bytes(asked, sizeof asked, bytes),
            copse__format_bytes(there, sizeof there, caps->max_alloc_bytes));
    size_t allocated = copse__round_up(copse__max_size(bytes, 1), LINE_BYTES);
    if (allocated > caps->max_alloc_bytes)
        allocated = copse__max_size(bytes, 1);
    size_t before = copse__device_took(device, memory, allocated);
    buffer->kind = memory;
    buffer->allocated = allocated; /* from here on copse__cl_buffer_free gives it back */
    if (before + allocated > caps->total_bytes)
        return copse__fail(err, COPSE_DEVICE_MEMORY, 0, device->place,
                           "%s more than the device's memory of %s are asked for; use a "
                           "smaller batch or more devices",
                           copse__format_bytes(asked, sizeof asked,
                                               before + allocated - caps->total_bytes),
                           copse__format_bytes(there, sizeof there, caps->total_bytes));
    cl_mem_flags flags = CL_MEM_READ_WRITE;
    if (memory == COPSE__MEMORY_STAGING)
        flags |= CL_MEM_ALLOC_HOST_PTR;
    if (memory == COPSE__MEMORY_SHARED && device->shares)
        buffer->shared = copse__cl_shared_new(device, allocated);
    if (buffer->shared) /* else it is memory as any other */
        flags |= CL_MEM_USE_HOST_PTR;
    cl_int code;
    buffer->memory =
        clCreateBuffer(device->context, flags, allocated, buffer->shared, &code);
    if (code != CL_SUCCESS)
        return copse__fail(err, COPSE_DEVICE_MEMORY, code, device->place,
                           "the device has no %s left (%s); use a smaller batch",
                           copse__format_bytes(asked, sizeof asked, allocated),
                           copse__cl_code_name(code));
    return COPSE_OK;
}

copse_status copse__cl_buffer_new(copse__buffer **out, copse__device *device,
                                  size_t bytes, copse__memory memory, copse_error *err) {
    *out = NULL;
    copse__buffer *buffer;
    copse_status status = copse__calloc(&buffer, 1, sizeof *buffer, err);
    if (status != COPSE_OK)
        return status;
    pthread_mutex_init(&buffer->lock, NULL);
    buffer->device = device;
    buffer->bytes = bytes;
    COPSE__TRY(allocate(buffer, memory, err), out);
    if (memory == COPSE__MEMORY_STAGING) {
        /* Mapped for as long as it lives. Reads and writes take its address, which the
         * driver knows to be pinned. */
        cl_int code;
        buffer->host = clEnqueueMapBuffer(
            device->queues[COPSE__QUEUE_UPLOAD], buffer->memory, CL_TRUE,
            CL_MAP_READ | CL_MAP_WRITE, 0, buffer->allocated, 0, NULL, NULL, &code);
        COPSE__CL_TRY(device, code, "clEnqueueMapBuffer", out);
    }
    *out = buffer;
    buffer = NULL;
out:
    copse__cl_buffer_free(buffer);
    return status;
}

void copse__cl_buffer_free(copse__buffer *buffer) {
    if (!buffer)
        return;
    copse__device *device = buffer->device;
    if (buffer->host) {
        cl_command_queue queue = device->queues[COPSE__QUEUE_UPLOAD];
        cl_event done = NULL;
        if (clEnqueueUnmapMemObject(queue, buffer->memory, buffer->host, 0, NULL,
                                    &done) == CL_SUCCESS) {
            clWaitForEvents(1, &done);
            clReleaseEvent(done);
        }
    }
    /* A released memory object lives until its commands are done; memory that is shared does not. */
    for (int q = 0; buffer->shared && q < COPSE__QUEUE_COUNT; q++)
        if (device->queues[q])
            (void)copse__cl_queue_finish(device, (copse__queue)q, NULL);
    for (size_t i = 0; i < buffer->view_count; i++)
        clReleaseMemObject(buffer->views[i].memory);
    free(buffer->views);
    if (buffer->memory)
        clReleaseMemObject(buffer->memory);
    if (buffer->shared)
        copse__cl_shared_free(device, buffer->shared);
    copse__device_gave(device, buffer->kind, buffer->allocated);
    pthread_mutex_destroy(&buffer->lock);
    free(buffer);
}

void *copse__cl_buffer_host(copse__buffer *buffer) {
    return buffer->host ? buffer->host : buffer->shared;
}

copse_status copse__cl_view_check(const copse__device *device, copse__view view,
                                  size_t bytes, copse_error *err) {
    if (!view.buffer || view.buffer->device != device)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "a view of no buffer of this device");
    if (view.offset > view.buffer->bytes ||
        view.bytes > view.buffer->bytes - view.offset || bytes > view.bytes)
        return copse__fail(
            err, COPSE_INVALID, 0, device->place,
            "%zu bytes of a view of %zu at %zu do not fit into a buffer of "
            "%zu",
            bytes, view.bytes, view.offset, view.buffer->bytes);
    return COPSE_OK;
}

static copse_status make_view(cl_mem *out, copse__view view, copse_error *err) {
    copse__buffer *buffer = view.buffer;
    copse__device *device = buffer->device;
    copse_status status = copse__grow(&buffer->views, &buffer->view_capacity,
                                      buffer->view_count + 1, sizeof *buffer->views, err);
    if (status != COPSE_OK)
        return status;
    cl_buffer_region region = {view.offset, copse__max_size(view.bytes, 1)};
    cl_int code;
    cl_mem memory = clCreateSubBuffer(buffer->memory, CL_MEM_READ_WRITE,
                                      CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clCreateSubBuffer");
    buffer->views[buffer->view_count++] =
        (copse__cl_view){view.offset, view.bytes, memory};
    *out = memory;
    return COPSE_OK;
}

copse_status copse__cl_view_memory(cl_mem *out, copse__view view, copse_error *err) {
    *out = NULL;
    copse__buffer *buffer = view.buffer;
    copse__device *device = buffer->device;
    copse_status status = copse__cl_view_check(device, view, view.bytes, err);
    if (status != COPSE_OK)
        return status;
    if (view.offset == 0 && view.bytes == buffer->bytes) {
        *out = buffer->memory;
        return COPSE_OK;
    }
    if (view.offset % device->base.caps.view_alignment != 0)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "a view at %zu, which is no multiple of %zu", view.offset,
                           device->base.caps.view_alignment);
    pthread_mutex_lock(&buffer->lock);
    for (size_t i = 0; i < buffer->view_count && !*out; i++)
        if (buffer->views[i].offset == view.offset &&
            buffer->views[i].bytes == view.bytes)
            *out = buffer->views[i].memory;
    if (!*out)
        status = make_view(out, view, err);
    pthread_mutex_unlock(&buffer->lock);
    return status;
}
