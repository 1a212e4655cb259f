/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_FAKE_DEVICE_H
#define TESTS_SUPPORT_FAKE_DEVICE_H

#include "backend/backend.h"

/* A device of plain memory for tests of what sits above the seam: each queue is a thread
 * that copies in order, and a chosen call can be made to fail, to come late or to hang. It
 * runs no nodes. */

typedef enum fake_call {
    FAKE_ALLOC,
    FAKE_READ,
    FAKE_WRITE,
    FAKE_MAP,
    FAKE_UNMAP,
    FAKE_FLUSH,
    FAKE_WAIT,
    FAKE_CALL_COUNT
} fake_call;

typedef enum fake_action {
    FAKE_FAIL,
    FAKE_DELAY, /* by delay_ns, in the calling thread */
    FAKE_HANG   /* until fake_release */
} fake_action;

/* label "fake:INDEX". unified: caps.unified, so that AUTO maps. */
copse__device *fake_device_new(size_t index, bool unified);
/* Releases hung calls, runs the queues empty and frees everything, also what was not given back. */
void fake_device_free(copse__device *device);

/* The nth call (from 1) of this kind from now on; writes and flushes of the compute queue, the
 * replica's own, do not count. One fault a device. */
void fake_fault(copse__device *device, fake_call call, size_t nth, fake_action action,
                uint64_t delay_ns);
/* Whether the fault has struck. */
bool fake_struck(copse__device *device);
/* Lets hung calls go on (they fail). */
void fake_release(copse__device *device);

/* From now on calls are counted as wrong: the device is quarantined. */
void fake_forbid(copse__device *device);
size_t fake_forbidden_calls(copse__device *device);

/* Buffers and fences that were made and not freed. */
size_t fake_live_objects(copse__device *device);

/* Of all staging buffers that live. */
size_t fake_staging_bytes(copse__device *device);
/* The largest buffer from now on. */
/* From now on it has shared memory with an address. */
void fake_share(copse__device *device);
void fake_limit_allocation(copse__device *device, size_t bytes);

/* The bytes of a buffer. */
void *fake_bytes(copse__buffer *buffer);

#endif
