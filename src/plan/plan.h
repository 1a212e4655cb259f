/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_PLAN_H
#define COPSE_PLAN_PLAN_H

#include "backend/backend.h"
#include "graph/graph.h"
#include "plan/layout.h"

/* A graph made ready for one device: where every tensor and workspace lies. */

typedef enum copse__home {
    COPSE__HOME_NONE, /* nobody asks for it */
    COPSE__HOME_ARENA, /* block, offset: shared over time by tensors that never live together */
    COPSE__HOME_WEIGHT,   /* block = bucket */
    COPSE__HOME_GRADIENT, /* block = bucket */
    COPSE__HOME_STATE,    /* one buffer with all moving statistics */
    COPSE__HOME_STATS,    /* one buffer with all batch moments */
    COPSE__HOME_INPUT,    /* two of each, for uploads ahead */
    COPSE__HOME_LABEL,
    COPSE__HOME_METRIC
} copse__home;

typedef struct copse__placement {
    copse__home home;
    uint32_t block;
    size_t offset, bytes;
} copse__placement;

typedef struct copse__plan {
    copse__placement *tensors;    /* by tensor id; a view has its storage's place */
    copse__placement *workspaces; /* by node; bytes 0 where none is needed */
    size_t *
        bucket_ready; /* by bucket of the layout: its gradients are written once this node has run */
    size_t *block_bytes; /* of the arena's blocks, each one allocation */
    size_t block_count;
    size_t state_bytes, stats_bytes, input_bytes, label_bytes, metric_bytes;
    size_t unshared_bytes; /* what the arena would take if no two tensors shared memory */
} copse__plan;

/* Asks the device for limits and workspaces only; allocates nothing on it. layout: of the training graph
 * with the same parameters. COPSE_UNSUPPORTED names a node that the device cannot run;
 * COPSE_DEVICE_MEMORY the tensor that passes its largest allocation and the batch that would fit. */
copse_status copse__plan_new(copse__plan **out, const copse__graph *graph,
                             const copse__layout *layout, copse__device *device,
                             copse_error *err);
void copse__plan_free(copse__plan *plan);

/* All blocks together. */
size_t copse__plan_arena_bytes(const copse__plan *plan);

/* Offset in bytes of moving mean / variance of a state in the STATE buffer, and of its moments in the
 * STATS buffer, are tensors[...].offset. */

#endif
