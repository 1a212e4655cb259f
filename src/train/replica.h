/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_REPLICA_H
#define COPSE_TRAIN_REPLICA_H

#include <stdatomic.h>

#include "comm/allreduce.h"
#include "comm/tree.h"
#include "graph/model.h"
#include "plan/program.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/partials.h"
#include "train/times.h"

/* One copy of the model on one device.
 *
 * A replica computes its share of a batch in *micro-batches*, one after the other: usually one, the
 * whole share; several where gradients are accumulated, or where every micro-batch is a micro-shard
 * of a tree that must not depend on the devices. */

/* The network as a configuration gives it, before it is made for a device. */
typedef struct copse__network {
    const copse__layer_spec *layers;
    size_t layer_count;
    copse__model_options options; /* max_batch and training are set by the replica */
} copse__network;

/* What a replica is made for. */
typedef struct copse__sizes {
    size_t train_rows, eval_rows; /* of the largest micro-batch of each kind */
    size_t levels; /* sums of gradients that wait on the device (train/partials.h) */
    size_t parts;  /* sums of subtrees that it gives to the host in a step; 0: none */
} copse__sizes;

/* Rows of a batch in host memory. */
typedef struct copse__share {
    const void *features, *labels; /* labels NULL: none */
    size_t rows;                   /* 0: none */
    size_t first_row;              /* in the global batch */
} copse__share;

typedef struct copse__replica {
    size_t rank;
    copse__device *device;
    copse__sizes sizes;
    uint64_t pass_ns; /* that a micro-batch took when it was warmed up, or would have */
    double row_ns;    /* that a row more of it takes, by two small passes */
    copse__graph *train_graph, *eval_graph; /* train_graph NULL: evaluation only */
    copse__plan *train_plan, *eval_plan;
    const copse__layout *layout;
    size_t slot_count;            /* of the optimizer */
    copse__replica_memory memory; /* as planned */
    copse__store *store;
    copse__program *train, *eval;
    copse__updater *updater;
    copse__partials *partials;                 /* NULL: evaluation only */
    size_t train_slot, eval_slot;              /* input slots of the next micro-batch */
    copse_scalars scalars[COPSE__INPUT_SLOTS]; /* as last sent with each slot */

    /* Of the last share: kept here because each micro-batch overwrites the program's. */
    float *metrics; /* [metric_rows, 2]: loss and hit */
    size_t metric_rows, metric_capacity;
    float *moments;                       /* by micro-batch, then state: [2, C] */
    size_t moment_count, moment_capacity; /* floats */
    size_t share_rows;

    /* The share that is evaluated at the moment; its results are not taken yet. rows 0: none. */
    copse__share under_way;
    size_t under_way_slot;
    bool under_way_outputs; /* it gives outputs instead of metrics */

    /* Sums of maximal subtrees, in pinned memory, bucket after bucket. */
    copse__buffer **parts;
    copse__tree_range *part_ranges;
    size_t part_count;
    copse__fence *parts_read;

    const char
        *_Atomic stage; /* what its thread waits for, for a message; NULL: nothing */
    atomic_bool lost;   /* its device failed: no call is made to it any more */
    bool resting;       /* too slow to pay its way: takes part in nothing for now */
} copse__replica;

/* Builds and fuses the graphs; touches the device only to open it. */
copse_status copse__replica_open(copse__replica *out, size_t rank,
                                 const copse__device_choice *choice,
                                 const copse__device_options *device_options,
                                 const copse__network *network, copse__sizes sizes,
                                 bool training, copse_error *err);

/* Plans: allocates nothing on the device. layout comes from the group's training graph.
 * COPSE_DEVICE_MEMORY where the device has too little, with the shard that would fit. */
copse_status copse__replica_plan(copse__replica *replica, const copse__layout *layout,
                                 const copse__optimizer *optimizer, copse_error *err);
/* Bytes that it takes once prepared, as the backend counts them, before or after they are allocated. */
copse__memory_bytes copse__replica_bytes(const copse__replica *replica);
/* About how many training samples there is memory for, by what the plan takes. */
size_t copse__replica_room(const copse__replica *replica);
/* Allocates what was planned and prepares every kernel. */
copse_status copse__replica_prepare(copse__replica *replica,
                                    const copse__optimizer *optimizer, copse_error *err);
/* Runs everything once on zeros, because drivers compile some kernels at their first launch only, and
 * leaves weights and slots zero. */
copse_status copse__replica_warm_up(copse__replica *replica, copse_error *err);
/* Plans and prepares a prepared replica anew for other sizes. Weights and slots stay. Where that cannot
 * be planned (COPSE_DEVICE_MEMORY), it stays as it was; after another failure it cannot compute. */
copse_status copse__replica_resize(copse__replica *replica, const copse__network *network,
                                   const copse__optimizer *optimizer, copse__sizes sizes,
                                   copse_error *err);
/* Also closes the device. A replica that is all zero is allowed. Of a lost one nothing is released: its
 * driver may still use all of it. */
void copse__replica_close(copse__replica *replica);

/* One replica's share of one optimizer step. */
typedef struct copse__step {
    /* in */
    uint64_t step;
    copse__share
        share; /* its first micro-batch is loaded; it stays where it is until the end */
    copse__share
        next; /* whose first micro-batch is to be loaded meanwhile; rows 0: none */
    copse_scalars scalars;       /* sample_base is set for each micro-batch */
    copse__allreduce *allreduce; /* NULL: no other replica, or the host adds */
    size_t engine_rank;          /* in it */
    /* Shared by all ranks of an attempt: who left it before its gradients were all submitted, so that
     * what the others then sum lacks them. attempt * 256 + engine_rank; attempts count from 1. */
    atomic_uint_fast64_t *left;
    uint64_t attempt;
    /* A tree over micro-shards: how many the whole batch has, and which is this share's first.
     * tree_leaves 0: micro-batches are added in order. */
    size_t tree_leaves, first_leaf;
    bool host_adds; /* end with the sums of the share's subtrees in `parts` */
    bool hash;      /* of the weights after the update is wanted */
    bool update;    /* false: gradients only */
    bool timed;     /* wait after each part, for `times` */
    bool
        ahead; /* in: need not wait for its own end; then, whether copse__replica_finish is due */
    uint64_t patience_ns; /* of waits after the commit; 0: none */
    float *
        outputs; /* of evaluation: where the share's rows of the network's output go; NULL: nowhere */
    /* out */
    size_t slot;        /* of inputs, in which its last micro-batch was */
    bool submitted;     /* every bucket was given to the all-reduce */
    bool committed;     /* all gradients are summed: the step stands */
    bool measured;      /* metrics and moments of the whole share are there */
    uint64_t nonfinite; /* gradients that are not finite; then nothing was updated */
    uint64_t weights_hash;
    size_t
        failed_rank; /* of the all-reduce, whose failure ended it; SIZE_MAX: none known */
    copse__step_times times; /* where timed */
} copse__step;

/* Uploads the first micro-batch of a share that the next step, or evaluation, begins with. */
copse_status copse__replica_load(copse__replica *replica, bool training,
                                 const copse__share *share, copse_error *err);

/* Forward, backward, reduction, check and update. The weights change only once every replica's gradients
 * are summed and all are finite. Returns when metrics and moments can be read; the update may still run.
 * With host_adds it ends before the reduction. A failure before the commit leaves weights as they are,
 * and tells the all-reduce. A replica by itself that may run ahead returns when everything is enqueued;
 * the next step may then be begun before this one is finished, not the one after that. */
copse_status copse__replica_step(copse__replica *replica, copse__step *step,
                                 copse_error *err);

/* The end of a step that ran ahead: blocks until it is done. One whose gradients are not finite, and every
 * one that was begun before this told so, have changed no weight. */
copse_status copse__replica_finish(copse__replica *replica, copse__step *step,
                                   copse_error *err);

/* The end of a step whose gradients the host added: uploads them from parts[0], updates, hashes. */
copse_status copse__replica_apply(copse__replica *replica, copse__step *step,
                                  copse_error *err);

/* Runs the inference program over step->share: for metrics, or, where step->outputs is not NULL, for outputs,
 * which go there; labels are of no use then. With
 * step->ahead, which a share of one micro-batch allows, it is only enqueued, and results are those of the share
 * before, or of none; outputs and the share stay where they are until this one's results were taken. Else it
 * blocks until the results can be read; nothing may be under way then. */
copse_status copse__replica_evaluate(copse__replica *replica, const copse__step *step,
                                     copse_error *err);
/* Blocks until the share that is under way is done: results are its own, or of none. */
copse_status copse__replica_evaluated(copse__replica *replica, copse_error *err);

/* Forward and backward of `rows` samples (what is in the input slot) without any consequence, and waits.
 */
copse_status copse__replica_trial(copse__replica *replica, size_t rows, copse_error *err);

/* An update by whatever the gradients hold, and waits. Weights and slots are nothing to go on with then. */
copse_status copse__replica_update_trial(copse__replica *replica, copse_error *err);

/* The first node of a step whose output is not finite; its name, or NULL where all are, or where it
 * could not be found. Runs the step's nodes again one by one. */
const char *copse__replica_find_nonfinite(copse__replica *replica,
                                          const copse__step *step);

/* Extents of a shard of `rows` samples. */
copse__extents copse__shard_extents(const copse__graph *graph, size_t rows);

/* Frees what the host alone has of a lost replica; nobody must be using it any more. */
void copse__replica_forget(copse__replica *replica);

/* Bytes of all buckets, one after the other. */
size_t copse__layout_bytes(const copse__layout *layout);

#endif
