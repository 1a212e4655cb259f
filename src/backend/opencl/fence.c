/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>
#include <time.h>

#include "backend/opencl/internal.h"
#include "base/clock.h"

copse_status copse__cl_fence_new(copse__fence **out, copse__device *device,
                                 copse__queue queue, cl_event event, copse_error *err) {
    *out = NULL;
    copse__fence *fence;
    copse_status status = copse__calloc(&fence, 1, sizeof *fence, err);
    if (status != COPSE_OK) {
        clReleaseEvent(event);
        return status;
    }
    fence->device = device;
    fence->queue = queue;
    fence->event = event;
    atomic_init(&fence->flushed, false);
    *out = fence;
    return COPSE_OK;
}

void copse__cl_fence_free(copse__fence *fence) {
    if (!fence)
        return;
    clReleaseEvent(fence->event);
    free(fence);
}

copse_status copse__cl_mark(copse__fence **out, copse__device *device, copse__queue queue,
                            copse_error *err) {
    *out = NULL;
    cl_event event;
    cl_int code = clEnqueueMarkerWithWaitList(device->queues[queue], 0, NULL, &event);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clEnqueueMarkerWithWaitList");
    return copse__cl_fence_new(out, device, queue, event, err);
}

copse_status copse__cl_fence_flush(copse__fence *fence, copse_error *err) {
    if (atomic_load_explicit(&fence->flushed, memory_order_acquire))
        return COPSE_OK;
    cl_int code = clFlush(fence->device->queues[fence->queue]);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, fence->device, code, "clFlush");
    atomic_store_explicit(&fence->flushed, true, memory_order_release);
    return COPSE_OK;
}

copse_status copse__cl_queue_wait(copse__device *device, copse__queue queue,
                                  copse__fence *fence, copse_error *err) {
    if (fence->device != device)
        return copse__fail(err, COPSE_INVALID, 0, device->place,
                           "a fence of another device");
    if (fence->queue == queue)
        return COPSE_OK; /* in order anyway */
    copse_status status = copse__cl_fence_flush(fence, err);
    if (status != COPSE_OK)
        return status;
    cl_int code =
        clEnqueueBarrierWithWaitList(device->queues[queue], 1, &fence->event, NULL);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, device, code, "clEnqueueBarrierWithWaitList");
    return COPSE_OK;
}

copse_status copse__cl_fence_poll(bool *done, copse__fence *fence, copse_error *err) {
    *done = false;
    copse_status status = copse__cl_fence_flush(fence, err);
    if (status != COPSE_OK)
        return status;
    cl_int state = CL_QUEUED;
    cl_int code = clGetEventInfo(fence->event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                 sizeof state, &state, NULL);
    if (code != CL_SUCCESS)
        return copse__cl_fail(err, fence->device, code, "clGetEventInfo");
    if (state < 0)
        return copse__fail(err, COPSE_DEVICE, state, fence->device->place,
                           "a command failed on the device: %s (%d)",
                           copse__cl_code_name(state), state);
    *done = state == CL_COMPLETE;
    return COPSE_OK;
}

/* Asked again and again, first without a pause, then with longer ones: a call that blocks
 * could not be left at the deadline when the driver hangs. */
copse_status copse__cl_fence_wait(copse__fence *fence, uint64_t timeout_ns,
                                  copse_error *err) {
    uint64_t start = copse__now_ns();
    long pause_ns = 2000;
    for (unsigned round = 0;; round++) {
        bool done;
        copse_status status = copse__cl_fence_poll(&done, fence, err);
        if (status != COPSE_OK || done)
            return status;
        uint64_t waited = copse__now_ns() - start;
        if (waited >= timeout_ns)
            return copse__fail(err, COPSE_TIMEOUT, 0, fence->device->place,
                               "the device did not finish within %.3f s",
                               (double)timeout_ns * 1e-9);
        if (timeout_ns == UINT64_MAX && waited > 50000)
            break;
        if (round < 16) {
            sched_yield();
            continue;
        }
        nanosleep(&(struct timespec){0, pause_ns}, NULL);
        if (pause_ns < 200000)
            pause_ns *= 2;
    }
    /* No deadline: sleep in the driver; an error shows in the state afterwards. */
    clWaitForEvents(1, &fence->event);
    bool done;
    copse_status status = copse__cl_fence_poll(&done, fence, err);
    if (status == COPSE_OK && !done)
        status = copse__fail(err, COPSE_DEVICE, 0, fence->device->place,
                             "the driver ended a wait before the command was done");
    return status;
}
