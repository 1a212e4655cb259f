/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_PROVIDER_H
#define COPSE_BACKEND_OPENCL_PROVIDER_H

#include "backend/opencl/internal.h"

/* Where a provider sends what it could be timed with. */
typedef struct copse__cl_candidate_sink {
    /* general: they may suit other sizes of the operation, too. */
    void (*take)(const char *parameters, bool general, void *user);
    void *user;
} copse__cl_candidate_sink;

/* One implementation of an operation. An operation finds its implementations in the table of
 * providers.c; among those that fit a node, the recorded table decides, else the lowest
 * cost. Providers know capabilities and sizes, never vendors. */
typedef struct copse__cl_provider {
    const char *name;  /* "clblast", "tiled": in plans and reports */
    bool from_library; /* built by a library, which takes seconds */

    /* Whether it can run the node at its planned sizes. *reason (static) where it cannot.
     * Builds nothing. NULL: always. */
    bool (*fits)(const copse__device *device, const copse__graph *graph,
                 const copse__node *node, const char **reason);

    /* Lower is preferred; only the order among one node's providers means something. Our
     * own plain kernels answer 1. NULL: 1. */
    double (*cost)(const copse__device *device, const copse__graph *graph,
                   const copse__node *node);

    /* Whether these are parameters of its own (backend/tuned.h) that this device can have. NULL: it has
     * none. What was tuned for a node is asked for by copse__cl_parameters. */
    bool (*takes)(const copse__device *device, const char *parameters);

    /* Sends the parameters that are worth timing for the node, likely ones first; without the defaults.
     * thorough: also those for which kernels are compiled anew. NULL: none. */
    void (*candidates)(const copse__device *device, const copse__graph *graph,
                       const copse__node *node, bool thorough,
                       const copse__cl_candidate_sink *sink);

    /* Bytes of workspace at the planned sizes. NULL: none. */
    copse_status (*workspace)(size_t *bytes, copse__device *device,
                              const copse__graph *graph, const copse__node *node,
                              copse_error *err);

    /* Builds, makes kernels (copse__cl_kernel) and sets the arguments that never change.
     * Called from any thread: touches no queue. On failure the core calls release. */
    copse_status (*prepare)(copse__launch *launch, copse_error *err);

    /* Enqueues on the compute queue. changed: the extents differ from the last call's, so
     * arguments that depend on them are to be set again (true the first time). */
    copse_status (*enqueue)(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err);

    /* Frees what launch->state holds beside itself, which the core frees. NULL: nothing. */
    void (*release)(copse__launch *launch);
} copse__cl_provider;

/* NULL-terminated, in the order in which equal costs are preferred. */
const copse__cl_provider *const *copse__cl_providers(copse__op op);

#define COPSE__CL_MAX_KERNELS 8

typedef struct copse__cl_kernel {
    cl_kernel kernel;
    size_t max_local; /* work-items of a group that this kernel can have here */
} copse__cl_kernel;

struct copse__launch {
    copse__device *device;
    const copse__graph *graph;
    const copse__node *node;
    copse__operands operands;
    const copse__cl_provider *provider;
    char *parameters; /* of it, tuned; "" */
    copse__cl_kernel kernels[COPSE__CL_MAX_KERNELS];
    size_t kernel_count;
    void *state; /* the provider's own, made with copse__calloc; freed by the core */
    bool bound;  /* extents are those of the last run */
    copse__extents extents;
    cl_event first, last; /* where profiled: of the last run */
};

/* The node's tensor at a position, or NULL where it is absent. */
const copse__tensor *copse__cl_input(const copse__graph *graph, const copse__node *node,
                                     size_t position);
const copse__tensor *copse__cl_output(const copse__graph *graph, const copse__node *node,
                                      size_t position);

/* Makes the next kernel of the launch; its number is *index (may be NULL). */
copse_status copse__cl_kernel_add(copse__launch *launch, size_t *index,
                                  const copse__cl_source *source, const char *options,
                                  const char *name, copse_error *err);

/* Sets arguments from `first` on. What follows is told by the format's letters:
 *   v  const copse__view *   its memory; a view of no buffer binds a small dummy
 *   m  cl_mem
 *   u  uint32_t
 *   i  int32_t
 *   z  size_t, given to the kernel as a ulong
 *   f  double, given to the kernel as a float
 *   l  size_t, bytes of local memory */
copse_status copse__cl_args(copse__launch *launch, size_t kernel, unsigned first,
                            copse_error *err, const char *format, ...);

/* Enqueues a kernel of the launch. Everything in `global` is above 0. */
copse_status copse__cl_enqueue(copse__launch *launch, size_t kernel, unsigned dimensions,
                               const size_t *global, const size_t *local,
                               copse_error *err);

/* Groups of one work-item each for `items` pieces of work of `steps` loop passes: enough to
 * keep all units busy, few enough to pay for their start, and none with more work than
 * drivers let a work-item have. */
size_t copse__cl_chunks(const copse__device *device, size_t items, size_t steps);

/* Enqueues a kernel that walks over `items` with COPSE_FOR (cl/common.clh): on devices whose
 * work-items take whole ranges copse__cl_chunks of them, elsewhere groups that stride over
 * all. items may be 0: then nothing is enqueued. */
copse_status copse__cl_enqueue_flat(copse__launch *launch, size_t kernel, size_t items,
                                    size_t steps, copse_error *err);

/* Fills a view's first bytes (a multiple of 4) with zeros, on the compute queue. */
copse_status copse__cl_enqueue_zero(copse__launch *launch, copse__view view, size_t bytes,
                                    copse_error *err);

/* For a library that enqueues by itself: takes the event of its last command (may be
 * NULL). */
void copse__cl_note_event(copse__launch *launch, cl_event event);

/* launch.c */
copse_status copse__cl_supports(copse__device *device, const copse__graph *graph,
                                const copse__node *node, size_t *workspace_bytes,
                                copse_error *err);
copse_status copse__cl_launch_new(copse__launch **out, copse__device *device,
                                  const copse__graph *graph, const copse__node *node,
                                  const copse__operands *operands, copse_error *err);
void copse__cl_launch_free(copse__launch *launch);
const char *copse__cl_provider_name(copse__device *device, const copse__graph *graph,
                                    const copse__node *node);
const char *copse__cl_launch_provider(const copse__launch *launch);
const char *copse__cl_launch_parameters(const copse__launch *launch);
copse_status copse__cl_run(copse__device *device, copse__launch *const *launches,
                           size_t count, const copse__extents *extents, copse_error *err);
uint64_t copse__cl_launch_time_ns(const copse__launch *launch);
bool copse__cl_launch_span(const copse__launch *launch, uint64_t *begin_ns,
                           uint64_t *end_ns);

#endif
