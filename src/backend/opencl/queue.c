/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/opencl/internal.h"

/* A command that is to be enqueued: what it waits for, and where its event goes. */
typedef struct command {
    cl_uint wait_count;
    cl_event wait[1];
    cl_event event;
    cl_event *event_out; /* NULL where nobody asks */
} command;

static copse_status begin(command *made, copse__device *device, copse__queue queue,
                          copse__fence *wait, copse__fence **done, copse_error *err) {
    memset(made, 0, sizeof *made);
    if (done) {
        *done = NULL;
        made->event_out = &made->event;
    }
    if (!wait || (wait->device == device && wait->queue == queue))
        return COPSE_OK;
    if (wait->device != device)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "a fence of another device");
    made->wait[0] = wait->event;
    made->wait_count = 1;
    return copse__cl_fence_flush(wait, err);
}

static const cl_event *wait_list(const command *made) {
    return made->wait_count ? made->wait : NULL;
}

static copse_status finish(command *made, copse__device *device, copse__queue queue,
                           cl_int code, const char *what, copse__fence **done,
                           copse_error *err) {
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, what);
    if (!done)
        return COPSE_OK;
    return copse__cl_fence_new(done, device, queue, made->event, err);
}

/* Nothing to move: only the order is kept. */
static copse_status nothing(command *made, copse__device *device, copse__queue queue,
                            copse__fence **done, copse_error *err) {
    cl_int code = clEnqueueMarkerWithWaitList(device->queues[queue], made->wait_count,
                                              wait_list(made), made->event_out);
    return finish(made, device, queue, code, "clEnqueueMarkerWithWaitList", done, err);
}

/* Staging memory stays mapped, so a command must not touch its memory object. */
static copse_status host_side(const copse__device *device, copse_error *err) {
    return copse__fail(err, COPSE_INVALID, 0, device->place,
                       "staging memory is read and written by its address");
}

copse_status copse__cl_write(copse__device *device, copse__queue queue, copse__view to,
                             const void *host, size_t bytes, copse__fence *wait,
                             copse__fence **done, copse_error *err) {
    command made;
    copse_status status = begin(&made, device, queue, wait, done, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, to, bytes, err);
    if (status == COPSE_OK && to.buffer->host)
        status = host_side(device, err);
    if (status != COPSE_OK)
        return status;
    if (bytes == 0)
        return nothing(&made, device, queue, done, err);
    cl_int code = clEnqueueWriteBuffer(device->queues[queue], to.buffer->memory, CL_FALSE,
                                       to.offset, bytes, host, made.wait_count,
                                       wait_list(&made), made.event_out);
    return finish(&made, device, queue, code, "clEnqueueWriteBuffer", done, err);
}

copse_status copse__cl_read(copse__device *device, copse__queue queue, void *host,
                            copse__view from, size_t bytes, copse__fence *wait,
                            copse__fence **done, copse_error *err) {
    command made;
    copse_status status = begin(&made, device, queue, wait, done, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, from, bytes, err);
    if (status == COPSE_OK && from.buffer->host)
        status = host_side(device, err);
    if (status != COPSE_OK)
        return status;
    if (bytes == 0)
        return nothing(&made, device, queue, done, err);
    cl_int code = clEnqueueReadBuffer(device->queues[queue], from.buffer->memory,
                                      CL_FALSE, from.offset, bytes, host, made.wait_count,
                                      wait_list(&made), made.event_out);
    return finish(&made, device, queue, code, "clEnqueueReadBuffer", done, err);
}

/* Staging memory is mapped all its life, so it takes part in a copy by its address. */
copse_status copse__cl_copy(copse__device *device, copse__queue queue, copse__view to,
                            copse__view from, size_t bytes, copse__fence *wait,
                            copse__fence **done, copse_error *err) {
    command made;
    if (done)
        *done = NULL;
    copse_status status = copse__cl_view_check(device, to, bytes, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, from, bytes, err);
    if (status != COPSE_OK)
        return status;
    if (from.buffer->host)
        return copse__cl_write(device, queue, to,
                               (const char *)from.buffer->host + from.offset, bytes, wait,
                               done, err);
    if (to.buffer->host)
        return copse__cl_read(device, queue, (char *)to.buffer->host + to.offset, from,
                              bytes, wait, done, err);
    status = begin(&made, device, queue, wait, done, err);
    if (status != COPSE_OK)
        return status;
    if (bytes == 0)
        return nothing(&made, device, queue, done, err);
    cl_int code = clEnqueueCopyBuffer(device->queues[queue], from.buffer->memory,
                                      to.buffer->memory, from.offset, to.offset, bytes,
                                      made.wait_count, wait_list(&made), made.event_out);
    return finish(&made, device, queue, code, "clEnqueueCopyBuffer", done, err);
}

copse_status copse__cl_fill(copse__device *device, copse__queue queue, copse__view to,
                            uint32_t pattern, copse__fence *wait, copse__fence **done,
                            copse_error *err) {
    command made;
    copse_status status = begin(&made, device, queue, wait, done, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, to, to.bytes, err);
    if (status != COPSE_OK)
        return status;
    if (to.buffer->host || to.bytes % sizeof pattern != 0)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           to.buffer->host ? "staging memory is filled by the host"
                                           : "a fill of no multiple of 4 bytes");
    if (to.bytes == 0)
        return nothing(&made, device, queue, done, err);
    cl_int code = clEnqueueFillBuffer(device->queues[queue], to.buffer->memory, &pattern,
                                      sizeof pattern, to.offset, to.bytes,
                                      made.wait_count, wait_list(&made), made.event_out);
    return finish(&made, device, queue, code, "clEnqueueFillBuffer", done, err);
}

copse_status copse__cl_map(void **out, copse__device *device, copse__queue queue,
                           copse__view view, bool for_writing, copse__fence *wait,
                           copse_error *err) {
    *out = NULL;
    command made;
    copse_status status = begin(&made, device, queue, wait, NULL, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, view, view.bytes, err);
    if (status != COPSE_OK)
        return status;
    if (view.buffer->host) {
        if (wait)
            status = copse__cl_fence_wait(wait, UINT64_MAX, err);
        if (status == COPSE_OK)
            *out = (char *)view.buffer->host + view.offset;
        return status;
    }
    cl_map_flags flags = CL_MAP_READ;
    if (for_writing) /* where mapping moves nothing, the old bytes may as well be kept */
        flags = device->base.caps.unified ? CL_MAP_READ | CL_MAP_WRITE
                                          : CL_MAP_WRITE_INVALIDATE_REGION;
    cl_int code;
    void *mapped = clEnqueueMapBuffer(device->queues[queue], view.buffer->memory, CL_TRUE,
                                      flags, view.offset, copse__max_size(view.bytes, 1),
                                      made.wait_count, wait_list(&made), NULL, &code);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clEnqueueMapBuffer");
    *out = mapped;
    return COPSE_OK;
}

copse_status copse__cl_unmap(copse__device *device, copse__queue queue, copse__view view,
                             void *mapped, copse__fence **done, copse_error *err) {
    command made;
    copse_status status = begin(&made, device, queue, NULL, done, err);
    if (status == COPSE_OK)
        status = copse__cl_view_check(device, view, 0, err);
    if (status != COPSE_OK)
        return status;
    if (view.buffer->host)
        return nothing(&made, device, queue, done, err);
    cl_int code = clEnqueueUnmapMemObject(device->queues[queue], view.buffer->memory,
                                          mapped, 0, NULL, made.event_out);
    return finish(&made, device, queue, code, "clEnqueueUnmapMemObject", done, err);
}

copse_status copse__cl_queue_flush(copse__device *device, copse__queue queue,
                                   copse_error *err) {
    cl_int code = clFlush(device->queues[queue]);
    return code == CL_SUCCESS ? COPSE_OK : copse__cl_fail(err, device, code, "clFlush");
}

copse_status copse__cl_queue_finish(copse__device *device, copse__queue queue,
                                    copse_error *err) {
    /* rusticl's clFinish returns early where the queue was flushed before; its events do not lie. */
    cl_event last = NULL;
    cl_int code = clEnqueueMarkerWithWaitList(device->queues[queue], 0, NULL, &last);
    if (code == CL_SUCCESS)
        code = clFinish(device->queues[queue]);
    if (code == CL_SUCCESS)
        code = clWaitForEvents(1, &last);
    if (last)
        clReleaseEvent(last);
    return code == CL_SUCCESS ? COPSE_OK : copse__cl_fail(err, device, code, "clFinish");
}

copse_status copse__cl_queue_hold(copse__device *device, copse__queue queue,
                                  copse_error *err) {
    if (!device->base.caps.cpu || device->gates[queue])
        return COPSE_OK;
    cl_int code;
    cl_event gate = clCreateUserEvent(device->context, &code);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clCreateUserEvent");
    code = clEnqueueBarrierWithWaitList(device->queues[queue], 1, &gate, NULL);
    if (code != CL_SUCCESS) {
        clSetUserEventStatus(gate, CL_COMPLETE);
        clReleaseEvent(gate);
        return copse__cl_fail(err, device, code, "clEnqueueBarrierWithWaitList");
    }
    device->gates[queue] = gate;
    return COPSE_OK;
}

copse_status copse__cl_queue_release(copse__device *device, copse__queue queue,
                                     copse_error *err) {
    cl_event gate = device->gates[queue];
    if (!gate)
        return COPSE_OK;
    device->gates[queue] = NULL;
    cl_int code = clSetUserEventStatus(gate, CL_COMPLETE);
    clReleaseEvent(gate);
    return code == CL_SUCCESS ? COPSE_OK
                              : copse__cl_fail(err, device, code, "clSetUserEventStatus");
}
