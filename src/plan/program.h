/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_PROGRAM_H
#define COPSE_PLAN_PROGRAM_H

#include "plan/plan.h"
#include "plan/store.h"

/* A plan bound to its device: every node prepared, its memory fixed; a run only enqueues.
 *
 * There are two input slots, so that the next batch can travel while this one is computed. */

#define COPSE__INPUT_SLOTS 2

typedef struct copse__program copse__program;

/* Borrows graph, plan and store, which must outlive it. Prepares (and where needed builds) every
 * node's kernels. */
/* What a program allocates beside its store. */
copse__memory_bytes copse__program_bytes(const copse__plan *plan);
copse_status copse__program_new(copse__program **out, const copse__graph *graph,
                                const copse__plan *plan, copse__store *store,
                                copse_error *err);
void copse__program_free(copse__program *program);

/* Queues the upload of a shard's features and labels (labels NULL: none) into an input slot, after
 * the slot's last run. The memory must stay until the next run of this slot is finished. */
copse_status copse__program_upload(copse__program *program, size_t slot,
                                   const void *features, const void *labels,
                                   const copse__extents *extents, copse_error *err);

/* Enqueues nodes [first, last) on the compute queue, after the slot's upload. Nothing for an empty
 * batch: then no output is written. */
copse_status copse__program_run(copse__program *program, size_t slot, size_t first,
                                size_t last, const copse__extents *extents,
                                copse_error *err);

/* Blocks until what was uploaded to the slot is there. For measuring: a run waits by itself. */
copse_status copse__program_wait_upload(const copse__program *program, size_t slot,
                                        copse_error *err);

/* Queues the download of per-row metrics and batch moments behind the slot's run; after
 * copse__program_wait they can be seen in metrics() and stats(), until the slot's next collect. */
copse_status copse__program_collect(copse__program *program, size_t slot,
                                    const copse__extents *extents, copse_error *err);
copse_status copse__program_wait(copse__program *program, size_t slot,
                                 uint64_t timeout_ns, copse_error *err);

/* [rows, 2]: loss and hit of each row of the slot's last collected run. Borrowed; NULL without a loss. */
const float *copse__program_metrics(const copse__program *program, size_t slot);
/* [2, C]: mean and variance of the slot's last collected run, for a state. Borrowed. */
const float *copse__program_stats(const copse__program *program, size_t slot,
                                  size_t state);

/* A run of the nodes before this one makes the network's output. */
size_t copse__program_output_end(const copse__program *program);
/* In place of copse__program_collect: queues the download of the network's output (float32) behind the slot's
 * run; `out` must stay until copse__program_wait. Metrics and moments are not brought. */
copse_status copse__program_collect_output(copse__program *program, size_t slot,
                                           const copse__extents *extents, float *out,
                                           copse_error *err);
/* The network's output at these extents into host memory. Blocks. */
copse_status copse__program_read_output(copse__program *program,
                                        const copse__extents *extents, float *out,
                                        copse_error *err);

/* Any tensor that still has its bytes after a run, for tests and for naming a non-finite layer. Blocks.
 * COPSE_INVALID where the plan keeps no place for it. */
copse_status copse__program_read_tensor(copse__program *program, copse__tensor_id tensor,
                                        const copse__extents *extents, void *out,
                                        copse_error *err);

/* The provider chosen for a node: "clblast", "packed", … Borrowed. */
const char *copse__program_provider(const copse__program *program, size_t node);
/* Its tuned parameters; "" where they are its own. Borrowed. */
const char *copse__program_parameters(const copse__program *program, size_t node);
/* When the slot's last run of a node was, by the host's clock; false where that is not known. */
bool copse__program_span(const copse__program *program, size_t slot, size_t node,
                         uint64_t *begin_ns, uint64_t *end_ns);
/* Device time of a node's last run; 0 where the device was not opened for profiling. */
uint64_t copse__program_time_ns(const copse__program *program, size_t node);

#endif
