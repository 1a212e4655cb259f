/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_BACKEND_H
#define COPSE_BACKEND_BACKEND_H

#include <copse/types.h>
#include <scalars.clh>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/tuned.h"
#include "graph/graph.h"
#include "topo/select.h"

/* The seam: what the engine may ask of a device. Nothing above it names OpenCL.
 *
 * Threads: a device may be used from several threads at a time as long as each of its
 * queues is used by one. Fences may be waited for anywhere, and are freed once. Errors:
 * COPSE_DEVICE (the driver failed; the device must be considered lost),
 * COPSE_DEVICE_MEMORY, COPSE_KERNEL, COPSE_UNSUPPORTED, COPSE_TIMEOUT. Messages name the
 * device. */

typedef struct copse__device copse__device; /* begins with copse__device_base */
typedef struct copse__buffer copse__buffer;
typedef struct copse__fence copse__fence;
typedef struct copse__launch copse__launch;
typedef struct copse__backend copse__backend;

typedef struct copse__caps {
    size_t total_bytes;     /* memory of the device */
    size_t max_alloc_bytes; /* of one buffer */
    size_t view_alignment;  /* bytes; a view's offset is a multiple */
    uint32_t compute_units;
    bool cpu;               /* executes on the host's own cores */
    bool unified;           /* device memory is host memory: mapping moves nothing */
    bool fp16, fp64;        /* arithmetic, not only storage */
    bool exact_divide_sqrt; /* float32 division and square root are correctly rounded */
} copse__caps;

/* Memory is counted, and of devices handed out, in lines of so many bytes. */
#define COPSE__MEMORY_LINE 64

/* A device's own memory, and host memory that is pinned for its copies. */
typedef struct copse__memory_bytes {
    size_t device, pinned;
} copse__memory_bytes;

/* What every backend's device begins with. */
typedef struct copse__device_base {
    const copse__backend *backend;
    copse__device_choice choice;
    copse__caps caps;
    struct {
        atomic_size_t bytes, peak;
    } device_memory, pinned_memory; /* of its buffers: copse__device_took */
} copse__device_base;

static inline const copse__device_base *copse__device_get(const copse__device *device) {
    return (const copse__device_base *)(const void *)device;
}

static inline const copse__backend *copse__backend_of(const copse__device *device) {
    return copse__device_get(device)->backend;
}

/* In-order queues; nothing orders one against another but fences. */
typedef enum copse__queue {
    COPSE__QUEUE_COMPUTE,
    COPSE__QUEUE_UPLOAD,
    COPSE__QUEUE_DOWNLOAD,
    COPSE__QUEUE_COUNT
} copse__queue;

typedef enum copse__memory {
    COPSE__MEMORY_DEVICE,
    COPSE__MEMORY_STAGING, /* pinned host memory with an address: source and target of fast
                              copies */
    COPSE__MEMORY_SHARED /* DEVICE, where possible with an address: the host sees there what
                            commands wrote once a fence behind them is done, and commands
                            that are enqueued later see what it writes */
} copse__memory;

/* A range of a buffer. offset is a multiple of caps.view_alignment. */
typedef struct copse__view {
    copse__buffer *buffer; /* NULL: no tensor */
    size_t offset, bytes;
} copse__view;

/* The memory a node works on, by its positions in the node; absent operands have buffer
 * NULL. */
typedef struct copse__operands {
    copse__view inputs[COPSE__MAX_INPUTS];
    copse__view outputs[COPSE__MAX_OUTPUTS];
    copse__view workspace; /* of the size that `supports` asked for */
    copse__view scalars;   /* one copse_scalars */
} copse__operands;

typedef struct copse__device_options {
    bool profile;             /* queues take time stamps */
    const char *cache_folder; /* of compiled programs and tuning results; NULL: none */
    const char *const
        *providers; /* "op=provider" pairs, NULL-terminated, that fix the choice (a
                       recorded plan's table); NULL: the backend chooses */
    const copse__backend *backend; /* to open it with; NULL: the one for choice->api */
} copse__device_options;

/* What tuning results hold for, beside a device's name, driver and platform. */
typedef struct copse__tuning_id {
    uint32_t units, vector; /* compute units; floats that one item computes at once */
    char build[33];         /* over all that names device and driver, its library too */
    char sources[33];       /* over the kernels */
    char machine[65];       /* the host's processor, "x86_64": set by who asks */
} copse__tuning_id;

/* What a tuner is ready to wait for. */
typedef enum copse__effort {
    COPSE__EFFORT_QUICK,    /* kernels that are built anyway */
    COPSE__EFFORT_THOROUGH, /* also such as are compiled for it */
    COPSE__EFFORT_LIBRARIES /* also those of libraries, which take seconds each to build */
} copse__effort;

/* general: it may suit other sizes of the operation, too. */
typedef void copse__candidate_fn(const char *provider, const char *parameters,
                                 bool general, void *user);

struct copse__backend {
    const char *name; /* "opencl", "host" */

    copse_status (*open)(copse__device **out, const copse__device_choice *choice,
                         const copse__device_options *options, copse_error *err);
    void (*close)(copse__device *device); /* NULL is allowed; waits for the queues */

    copse_status (*buffer_new)(copse__buffer **out, copse__device *device, size_t bytes,
                               copse__memory memory, copse_error *err);
    void (*buffer_free)(copse__buffer *buffer); /* NULL is allowed */
    /* The address of staging memory, and of shared memory where the device has such; else
     * NULL. No call to the driver. */
    void *(*buffer_host)(copse__buffer *buffer);

    /* Asynchronous copies on a queue, after `wait` (may be NULL; not freed). host memory
     * must stay as it is until *done (may be NULL where nobody asks). On failure *done is
     * NULL. */
    copse_status (*write)(copse__device *device, copse__queue queue, copse__view to,
                          const void *host, size_t bytes, copse__fence *wait,
                          copse__fence **done, copse_error *err);
    copse_status (*read)(copse__device *device, copse__queue queue, void *host,
                         copse__view from, size_t bytes, copse__fence *wait,
                         copse__fence **done, copse_error *err);
    copse_status (*copy)(copse__device *device, copse__queue queue, copse__view to,
                         copse__view from, size_t bytes, copse__fence *wait,
                         copse__fence **done, copse_error *err);
    /* bytes: a multiple of 4. */
    copse_status (*fill)(copse__device *device, copse__queue queue, copse__view to,
                         uint32_t pattern, copse__fence *wait, copse__fence **done,
                         copse_error *err);

    /* Blocks until the view's bytes can be seen (for reading) or overwritten at *out.
     * While mapped, no kernel may write the *buffer*. unmap is queued. */
    copse_status (*map)(void **out, copse__device *device, copse__queue queue,
                        copse__view view, bool for_writing, copse__fence *wait,
                        copse_error *err);
    copse_status (*unmap)(copse__device *device, copse__queue queue, copse__view view,
                          void *mapped, copse__fence **done, copse_error *err);

    /* A fence that is done when all that is queued so far is. */
    copse_status (*mark)(copse__fence **out, copse__device *device, copse__queue queue,
                         copse_error *err);
    /* What is queued later on starts after the fence (of the same device). */
    copse_status (*queue_wait)(copse__device *device, copse__queue queue,
                               copse__fence *fence, copse_error *err);
    copse_status (*flush)(copse__device *device, copse__queue queue, copse_error *err);
    copse_status (*finish)(copse__device *device, copse__queue queue, copse_error *err);

    /* What is queued between the two may be kept from starting until release: where every command that
     * finds its queue empty wakes a driver's threads, those would take turns with the caller for each of
     * them. Nothing may wait for such a command before release, which is always called. NULL: no such
     * device. */
    copse_status (*hold)(copse__device *device, copse__queue queue, copse_error *err);
    copse_status (*release)(copse__device *device, copse__queue queue, copse_error *err);

    /* COPSE_TIMEOUT where it is not done by then; timeout_ns UINT64_MAX: no limit. */
    copse_status (*fence_wait)(copse__fence *fence, uint64_t timeout_ns,
                               copse_error *err);
    copse_status (*fence_poll)(bool *done, copse__fence *fence, copse_error *err);
    void (*fence_free)(copse__fence *fence); /* NULL is allowed */

    /* Whether the device can run the node at its planned sizes, and the workspace it
     * needs (0 for none). COPSE_UNSUPPORTED with the reason where it cannot. Cheap:
     * builds nothing. */
    copse_status (*supports)(copse__device *device, const copse__graph *graph,
                             const copse__node *node, size_t *workspace_bytes,
                             copse_error *err);
    /* The name of the provider that launch_new would choose; NULL where it cannot run. Static. */
    const char *(*provider)(copse__device *device, const copse__graph *graph,
                            const copse__node *node);
    /* Chooses a provider, builds and binds: afterwards a run only enqueues. graph and
     * node must outlive the launch; the buffers too. */
    copse_status (*launch_new)(copse__launch **out, copse__device *device,
                               const copse__graph *graph, const copse__node *node,
                               const copse__operands *operands, copse_error *err);
    void (*launch_free)(copse__launch *launch); /* NULL is allowed */
    const char *(*launch_provider)(
        const copse__launch *launch); /* "clblast", "packed", … */

    const char *(*launch_parameters)(const copse__launch *launch); /* "mr=4", "" */

    /* Tuning (src/tune). Results for this device replace earlier ones and are copied; nodes that are asked
     * about or prepared from then on follow them where the device can, else a line in the log says why not.
     * Launches stay as they are. No other thread may use the device meanwhile. All these are NULL
     * where a backend has nothing to choose. */
    copse_status (*tune)(copse__device *device, const copse__tuned *entries, size_t count,
                         copse_error *err);
    /* Whether a launch follows the entry of this number. */
    bool (*tuned_used)(const copse__device *device, size_t entry);
    /* Whether it was a node's, followed or not: what has to be recorded to choose the same again. */
    bool (*tuned_found)(const copse__device *device, size_t entry);
    /* Whether an error says that a launch asked for more than the device has; others say that it is lost. */
    bool (*is_launch_fault)(const copse_error *err);
    /* Calls fn for each provider with parameters that is worth timing for the node, near to what the device
     * follows now. Texts are valid during the call. */
    void (*candidates)(copse__device *device, const copse__graph *graph,
                       const copse__node *node, copse__effort effort,
                       copse__candidate_fn *fn, void *user);
    void (*tuning_id)(const copse__device *device, copse__tuning_id *out);

    /* Enqueues them in order on the compute queue, at these extents. */
    copse_status (*run)(copse__device *device, copse__launch *const *launches,
                        size_t count, const copse__extents *extents, copse_error *err);

    /* Nanoseconds that a launch's last finished run took on the device; 0 where not
     * profiled. */
    uint64_t (*launch_time_ns)(const copse__launch *launch);
    /* When that was, by the host's clock (base/clock.h). false: it is not known. */
    bool (*launch_span)(const copse__launch *launch, uint64_t *begin_ns,
                        uint64_t *end_ns);

    /* Float32 operations a second of multiply-adds in registers alone, measured in some 50 ms:
     * what a benchmark's share of the peak is of. NULL: not known. The device must be idle. */
    copse_status (*peak_flops)(double *out, copse__device *device, copse_error *err);
};

/* For backends: counts a buffer of so many bytes; what all buffers together took before. */
size_t copse__device_took(copse__device *device, copse__memory memory, size_t bytes);
void copse__device_gave(copse__device *device, copse__memory memory, size_t bytes);
/* What all buffers of the moment take, and the most that they took at a time. Not in it: what drivers and
 * libraries take for themselves. Thread-safe. */
copse__memory_bytes copse__device_memory(const copse__device *device);
copse__memory_bytes copse__device_memory_peak(const copse__device *device);
/* A buffer of so many bytes, as it is counted; 0 for none. */
size_t copse__memory_lines(size_t bytes);

extern const copse__backend copse__backend_host;
extern const copse__backend copse__backend_opencl;

/* By choice->api. Shorthand for backend->open. */
copse_status copse__device_open(copse__device **out, const copse__device_choice *choice,
                                const copse__device_options *options, copse_error *err);
void copse__device_close(copse__device *device);

#endif
