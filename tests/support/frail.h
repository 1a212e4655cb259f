/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_FRAIL_H
#define TESTS_SUPPORT_FRAIL_H

#include "backend/backend.h"

/* The host backend behind a wrapper in which a chosen call of a chosen device fails, comes late or does
 * not come back, and in which devices can be made slow. Devices are told apart by choice->order, below
 * FRAIL_DEVICES. One test at a time. */

#define FRAIL_DEVICES 8

extern const copse__backend frail_backend;

typedef enum frail_call {
    FRAIL_ALLOC,
    FRAIL_WRITE,
    FRAIL_READ,
    FRAIL_COPY,
    FRAIL_MAP,
    FRAIL_UNMAP,
    FRAIL_MARK,
    FRAIL_FLUSH,
    FRAIL_FINISH,
    FRAIL_WAIT,
    FRAIL_RUN,
    FRAIL_CALL_COUNT
} frail_call;

typedef enum frail_action {
    FRAIL_FAIL,
    FRAIL_HANG, /* until frail_release; then it fails */
    FRAIL_LATE  /* by 20 ms */
} frail_action;

/* The nth call (from 1) of this kind from now on. One fault a device. */
void frail_fault(size_t device, frail_call call, size_t nth, frail_action action);
/* Whether it has struck. */
bool frail_struck(size_t device);
/* Calls of this kind so far. */
size_t frail_calls(size_t device, frail_call call);
/* Lets hung calls go on. */
void frail_release(void);

/* From now on calls are wrong: the device is lost. Those that are hanging do not count. */
void frail_forbid(size_t device);
size_t frail_forbidden_calls(size_t device);

/* Each launch takes so much longer, by run and by row. */
void frail_slow_down(size_t device, uint64_t launch_ns, uint64_t row_ns);
/* Each pass over samples (its loss) takes so much longer. */
void frail_slow_passes(size_t device, uint64_t pass_ns);

/* Of the runs that were made to take longer, the most rows that one had. */
size_t frail_most_rows(size_t device);

/* Buffers, fences and launches that were made and not freed. */
size_t frail_live_objects(size_t device);

/* All as new. */
void frail_reset(void);

#endif
