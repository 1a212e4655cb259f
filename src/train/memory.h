/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_MEMORY_H
#define COPSE_TRAIN_MEMORY_H

#include "backend/backend.h"

/* Bytes that a replica takes, by what they are for. */
typedef struct copse__replica_memory {
    size_t weights, gradients, slots; /* slots: of the optimizer */
    size_t sums;                      /* of gradients, that wait */
    size_t arena;                     /* activations, and workspaces of nodes */
    size_t inputs;                    /* batches, their metrics and moments */
    size_t others;                    /* moving statistics, scalars, the update's own */
    size_t pinned;                    /* host memory for results and sums on their way */
} copse__replica_memory;

/* What a replica takes: as planned, and as its device's buffers are counted. */
typedef struct copse__memory_report {
    copse__replica_memory plan; /* of the replica itself */
    size_t batches; /* pinned on the host, for batches that are made ready; in training */
    size_t evaluation; /* the same while a set is evaluated, which is more of it */
    size_t exchange;   /* pinned on the host, for gradients that are summed there */
    copse__memory_bytes planned;   /* of all these, but for evaluation's, in training */
    copse__memory_bytes now, peak; /* counted; 0 where the device is lost */
} copse__memory_report;

#endif
