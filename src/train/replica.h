/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_REPLICA_H
#define COPSE_TRAIN_REPLICA_H

#include "comm/allreduce.h"
#include "graph/model.h"
#include "plan/program.h"
#include "train/optimizer.h"

/* One copy of the model on one device. */

/* The network as a configuration gives it, before it is made for a device. */
typedef struct copse__network {
    const copse__layer_spec *layers;
    size_t layer_count;
    copse__model_options options; /* max_batch and training are set by the replica */
} copse__network;

typedef struct copse__replica {
    size_t rank;
    copse__device *device;
    size_t max_rows; /* largest shard, of training and of evaluation */
    copse__graph *train_graph, *eval_graph; /* train_graph NULL: evaluation only */
    copse__plan *train_plan, *eval_plan;
    const copse__layout *layout;
    size_t slot_count; /* of the optimizer */
    copse__store *store;
    copse__program *train, *eval;
    copse__updater *updater;
    copse_scalars scalars[COPSE__INPUT_SLOTS]; /* as last sent from each slot */
} copse__replica;

/* Builds and fuses the graphs; touches the device only to open it. */
copse_status copse__replica_open(copse__replica *out, size_t rank,
                                 const copse__device_choice *choice,
                                 const copse__device_options *device_options,
                                 const copse__network *network, size_t max_rows,
                                 bool training, copse_error *err);

/* Plans: allocates nothing on the device. layout comes from the group's training graph.
 * COPSE_DEVICE_MEMORY where the device has too little, with the shard that would fit. */
copse_status copse__replica_plan(copse__replica *replica, const copse__layout *layout,
                                 const copse__optimizer *optimizer, copse_error *err);
/* Bytes that the plan takes on the device, before or after they are allocated. */
size_t copse__replica_bytes(const copse__replica *replica);
/* Allocates what was planned and prepares every kernel. */
copse_status copse__replica_prepare(copse__replica *replica,
                                    const copse__optimizer *optimizer, copse_error *err);
/* Runs everything once on zeros, because drivers compile some kernels at their first launch only, and
 * leaves weights and slots zero. */
copse_status copse__replica_warm_up(copse__replica *replica, copse_error *err);
/* Also closes the device. A replica that is all zero is allowed. */
void copse__replica_close(copse__replica *replica);

/* One replica's share of one optimizer step. */
typedef struct copse__step {
    /* in */
    uint64_t step;
    size_t slot;            /* input slot that holds the shard */
    copse__extents extents; /* of the shard; may be empty */
    copse_scalars scalars;  /* with the shard's sample_base */
    const copse__layout *layout;
    copse__allreduce *allreduce; /* NULL: the only replica */
    const void *next_features,
        *next_labels; /* uploaded while this step computes; NULL: none */
    copse__extents next_extents;
    bool hash;   /* of the weights after the update is wanted */
    bool update; /* false: gradients only (calibration, accumulation) */
    /* out */
    uint64_t nonfinite; /* gradients that are not finite; then nothing was updated */
    uint64_t weights_hash;
} copse__step;

/* Forward, backward, reduction, check and update. The weights change only once every replica's gradients
 * are summed and all are finite. Returns when metrics and moments can be read; the update may still run. */
copse_status copse__replica_step(copse__replica *replica, copse__step *step,
                                 copse_error *err);

/* Runs the inference program over a shard and waits; then its metrics and output can be read. */
copse_status copse__replica_evaluate(copse__replica *replica, size_t slot,
                                     const copse__extents *extents,
                                     const void *next_features, const void *next_labels,
                                     const copse__extents *next_extents,
                                     copse_error *err);

/* Extents of a shard of `rows` samples. */
copse__extents copse__shard_extents(const copse__graph *graph, size_t rows);

#endif
