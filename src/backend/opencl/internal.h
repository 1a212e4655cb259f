/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_INTERNAL_H
#define COPSE_BACKEND_OPENCL_INTERNAL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 120
#endif
#include <CL/cl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "backend/opencl/source.h"
#include "base/error.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

/* What the files of the OpenCL backend share. One context a device, so nothing here ever
 * passes an object from one device to another. */

/* A program of this device, built once, shared by all launches that use it. */
typedef struct copse__cl_program {
    struct copse__cl_program *next;
    const copse__cl_source *source;
    char *options; /* those of the caller, without the device's own */
    enum { COPSE__CL_BUILDING, COPSE__CL_BUILT, COPSE__CL_BROKEN } state;
    cl_program program;
    copse_error error; /* why it is broken */
} copse__cl_program;

struct copse__device {
    copse__device_base base;
    char place[256]; /* "0:0 (name)": begins every message about this device */
    cl_platform_id platform;
    cl_device_id id;
    bool is_part; /* id is a sub-device of ours */
    cl_context context;
    cl_command_queue queues[COPSE__QUEUE_COUNT];
    cl_event
        gates[COPSE__QUEUE_COUNT]; /* what is held back waits for; NULL: nothing is */
    bool shares;                   /* it has memory for COPSE__MEMORY_SHARED */
    bool profile;
    bool clock_known;         /* where profiled: its stamps are of a clock */
    uint64_t clock_offset_ns; /* they + it, modulo 2^64: the host's clock */
    size_t max_local;         /* work-items of a group */
    size_t local_bytes;       /* local memory of a group */
    char *options;            /* given to every build on this device */
    char *identity;     /* device, driver and platform: part of a cache entry's key */
    char *cache_folder; /* of program binaries; NULL: none */
    atomic_bool no_binaries; /* asking the driver for one costs more than a build */
    char **providers;        /* "op=provider", NULL-terminated; NULL: free choice */
    pthread_mutex_t lock;    /* guards programs and what else is made on demand */
    pthread_cond_t built;    /* some program left BUILDING */
    copse__cl_program *programs;
    copse__tuned *tuned; /* tuned.c: what was chosen by measuring */
    struct copse__cl_tuned_flags *tuned_flags;
    size_t tuned_count;
    pthread_mutex_t clblast_lock;
    bool clblast_ready;     /* its programs are built; guarded by clblast_lock */
    bool clblast_used;      /* it has built programs here; guarded likewise */
    copse__buffer *nothing; /* 64 zero bytes, bound where an optional operand is absent */
};

typedef struct copse__cl_view {
    size_t offset, bytes;
    cl_mem memory;
} copse__cl_view;

struct copse__buffer {
    copse__device *device;
    cl_mem memory;
    size_t bytes;     /* as asked for */
    size_t allocated; /* rounded up */
    copse__memory kind;
    void *host;           /* staging: mapped for as long as the buffer lives */
    void *shared;         /* its bytes, where it is shared memory with an address */
    pthread_mutex_t lock; /* guards views */
    copse__cl_view *views;
    size_t view_count, view_capacity;
};

struct copse__fence {
    copse__device *device;
    copse__queue queue;
    cl_event event;
    atomic_bool flushed; /* its queue has been flushed since */
};

/* "CL_OUT_OF_RESOURCES"; "unknown error" for a code that is none. Static. */
const char *copse__cl_code_name(cl_int code);
/* copse__backend.is_launch_fault */
bool copse__cl_is_launch_fault(const copse_error *err);

/* Fails with what the code means: COPSE_DEVICE_MEMORY for an allocation, else
 * COPSE_DEVICE. what: the call that failed, "clFinish". */
copse_status copse__cl_fail(copse_error *err, const copse__device *device, cl_int code,
                            const char *what);

/* Runs an OpenCL call that returns its code; on failure stores the status and jumps. */
#define COPSE__CL_TRY(device, call, what, label)                                         \
    do {                                                                                 \
        cl_int code_ = (call);                                                           \
        if (code_ != CL_SUCCESS) {                                                       \
            status = copse__cl_fail(err, device, code_, what);                           \
            goto label;                                                                  \
        }                                                                                \
    } while (0)

/* device.c */
copse_status copse__cl_open(copse__device **out, const copse__device_choice *choice,
                            const copse__device_options *options, copse_error *err);
void copse__cl_close(copse__device *device);

/* shared.c */
/* Memory that device and host may use by turns without a call: fine-grained buffers of
 * OpenCL 2.0. Which devices have them; NULL where none is left. */
bool copse__cl_shares(const copse__device *device);
void *copse__cl_shared_new(const copse__device *device, size_t bytes);
void copse__cl_shared_free(const copse__device *device, void *memory);

/* memory.c */
copse_status copse__cl_buffer_new(copse__buffer **out, copse__device *device,
                                  size_t bytes, copse__memory memory, copse_error *err);
void copse__cl_buffer_free(copse__buffer *buffer);
void *copse__cl_buffer_host(copse__buffer *buffer);
/* The memory object that shows just this view: the buffer's own where the view is all of
 * it, else a sub-buffer that the buffer keeps. Borrowed. Thread-safe. */
copse_status copse__cl_view_memory(cl_mem *out, copse__view view, copse_error *err);
/* COPSE_INVALID where the view is not inside its buffer or [0, bytes) not inside the
 * view. */
copse_status copse__cl_view_check(const copse__device *device, copse__view view,
                                  size_t bytes, copse_error *err);

/* queue.c */
copse_status copse__cl_write(copse__device *device, copse__queue queue, copse__view to,
                             const void *host, size_t bytes, copse__fence *wait,
                             copse__fence **done, copse_error *err);
copse_status copse__cl_read(copse__device *device, copse__queue queue, void *host,
                            copse__view from, size_t bytes, copse__fence *wait,
                            copse__fence **done, copse_error *err);
copse_status copse__cl_copy(copse__device *device, copse__queue queue, copse__view to,
                            copse__view from, size_t bytes, copse__fence *wait,
                            copse__fence **done, copse_error *err);
copse_status copse__cl_fill(copse__device *device, copse__queue queue, copse__view to,
                            uint32_t pattern, copse__fence *wait, copse__fence **done,
                            copse_error *err);
copse_status copse__cl_map(void **out, copse__device *device, copse__queue queue,
                           copse__view view, bool for_writing, copse__fence *wait,
                           copse_error *err);
copse_status copse__cl_unmap(copse__device *device, copse__queue queue, copse__view view,
                             void *mapped, copse__fence **done, copse_error *err);
copse_status copse__cl_queue_flush(copse__device *device, copse__queue queue,
                                   copse_error *err);
copse_status copse__cl_queue_hold(copse__device *device, copse__queue queue,
                                  copse_error *err);
copse_status copse__cl_queue_release(copse__device *device, copse__queue queue,
                                     copse_error *err);
copse_status copse__cl_queue_finish(copse__device *device, copse__queue queue,
                                    copse_error *err);

/* fence.c */
/* Takes the event, also on failure. */
copse_status copse__cl_fence_new(copse__fence **out, copse__device *device,
                                 copse__queue queue, cl_event event, copse_error *err);
copse_status copse__cl_mark(copse__fence **out, copse__device *device, copse__queue queue,
                            copse_error *err);
copse_status copse__cl_queue_wait(copse__device *device, copse__queue queue,
                                  copse__fence *fence, copse_error *err);
copse_status copse__cl_fence_wait(copse__fence *fence, uint64_t timeout_ns,
                                  copse_error *err);
copse_status copse__cl_fence_poll(bool *done, copse__fence *fence, copse_error *err);
void copse__cl_fence_free(copse__fence *fence);
/* Sees to it that the fence's commands are on their way, before something else waits. */
copse_status copse__cl_fence_flush(copse__fence *fence, copse_error *err);

/* program.c */
/* The program of a source with these options ("-DX=1"; "" for none), built at most once a
 * device, from the cache folder where it is there. Borrowed: it lives as long as the
 * device. Thread-safe; different programs build at the same time. COPSE_KERNEL with the
 * compiler's first line where it does not build. */
copse_status copse__cl_program_get(cl_program *out, copse__device *device,
                                   const copse__cl_source *source, const char *options,
                                   copse_error *err);
void copse__cl_programs_free(copse__device *device);

/* peak.c */
copse_status copse__cl_peak_flops(double *out, copse__device *device, copse_error *err);

/* clblast.c */
/* Gives up what CLBlast keeps, at a device's close: its programs hold the context, and some
 * drivers are gone before CLBlast frees them at the process's end. Other devices' go too,
 * and are built again when they are needed. */
void copse__cl_clblast_forget(copse__device *device);

/* binary.c: compiled programs on disk */
/* Hash of all that a binary depends on. key: a text that names it all. On a miss, or where
 * the entry is damaged, foreign or of another key, *out is NULL. free() *out. */
void copse__cl_binary_load(unsigned char **out, size_t *out_bytes, const char *folder,
                           const char *key);
/* Whether a note of this name lies in the folder, and its making. */
bool copse__cl_note_exists(const char *folder, const char *key);
void copse__cl_note_make(const char *folder, const char *key);
/* Failure is logged, not returned: a run without a cache is slower, not wrong. */
void copse__cl_binary_store(const char *folder, const char *key,
                            const unsigned char *binary, size_t bytes);

#endif
