/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_TRAINER_PRIVATE_H
#define COPSE_TRAIN_TRAINER_PRIVATE_H

/* Shared by the trainer's own sources only. */

#include "topo/ranks.h"
#include "train/replica.h"
#include "train/speeds.h"
#include "train/trainer.h"
#include "train/workers.h"
#include "tune/known.h"

/* A replica *takes part*, or it *rests* (too slow to pay its way: its weights are old), or it is *lost*.
 * Ranks keep their numbers through all of it. */
struct copse__trainer {
    const copse__config *config;
    const copse__datasets *sets;
    copse__trainer_hooks hooks;
    bool training;
    copse__network network;
    copse_augment *augment, *eval_augment; /* of training's samples; of evaluation's */
    size_t augment_count, eval_augment_count;
    copse__optimizer optimizer;
    size_t replica_count;
    copse__device_choice *choices;
    copse__rank_plan
        *ranks; /* what is known of their staging paths and limit; NULL: nothing */
    copse__replica *replicas;
    size_t lead; /* the first rank that takes part; SIZE_MAX: none is left */

    const char *shards_are;     /* "measured", "equal", … */
    size_t *shards;             /* of a full training batch, by rank */
    size_t *eval_shards;        /* of a full evaluation batch */
    copse__speed *speeds;       /* as measured; NULL: they were not */
    copse__cuts cuts;           /* in the whole run */
    struct copse__drift *drift; /* NULL: shards are fixed */
    size_t batch, eval_batch;
    size_t micro_shard; /* rows (train.reproducible: devices); 0: none */

    copse__tune_known *tuned; /* what each device follows, by rank */

    copse__layout *layout;
    copse__workers *workers;
    uint64_t stall_ns;
    copse__allreduce *allreduce; /* NULL: a single replica, or the host adds */
    size_t *engine_ranks;        /* in it, by rank */
    copse__allreduce **retired; /* that a thread which has not come back may still know */
    size_t retired_count, retired_capacity;
    void **kept; /* memory that such a thread may still know */
    size_t kept_count, kept_capacity;

    /* Of the step, or evaluated batch, of the moment, by rank. Here because a thread that has not come
     * back may still use its own: what is a lost rank's is never written again. */
    copse__step *steps;
    copse_status *statuses;
    bool *failed; /* whom the last failure is about */
    uint64_t attempt;
    atomic_uint_fast64_t left; /* see copse__step */

    bool times_steps;            /* see copse__trainer_time_steps */
    bool regroup_due;            /* a replica was lost; shards are still those with it */
    const copse_error *why_lost; /* while copse__trainer_lose is told so */
    uint64_t grouping; /* counts the groups: parts of open pipelines belong to one */

    /* Moving statistics: the master copy, in the order of the graph's states; each is mean then
     * variance. Devices get it before they evaluate. */
    float **moving; /* by state: [2][C] */
    bool moving_changed;

    struct copse__transfer *spare; /* of state.c; NULL: none */
    copse__position position;
    double set_rate; /* instead of the schedule's; negative: none */
    bool finished;   /* fit ends behind this epoch */
    atomic_bool stop;
};

/* Kernels are built before the first step and when shards change: a device may be so much longer at it than
 * at a step. */
#define COPSE__BUILD_PATIENCE 10

static inline bool copse__takes_part(const copse__trainer *t, size_t rank) {
    return !atomic_load(&t->replicas[rank].lost) && !t->replicas[rank].resting;
}

/* network.c: the layers, and the model's options that follow from the data. */
COPSE_CHECKED copse_status copse__network_make(copse__network *out,
                                               const copse__config *config,
                                               const copse__datasets *sets,
                                               copse_error *err);

/* tuning.c: what the devices are to follow, before anything is planned for them. */
COPSE_CHECKED copse_status copse__trainer_tune(copse__trainer *trainer,
                                               const copse__trainer_options *options,
                                               const char *cache_folder,
                                               copse_error *err);
void copse__trainer_tell_tuned(const copse__trainer *trainer, size_t rank);
void copse__trainer_free_tuned(copse__trainer *trainer);

/* hashes.c: COPSE_DRIFT, naming the first that differs, where the hashes that the replicas computed of their
 * parameters after `step` steps are not equal. */
COPSE_CHECKED copse_status copse__hashes_compare(const copse__trainer *trainer,
                                                 uint64_t step, copse_error *err);

/* What class labels must stay below: the network's outputs. 0 where labels are no classes. */
size_t copse__trainer_label_bound(const copse__trainer *trainer);
/* The network's outputs, where labels are classes; else 0. */
size_t copse__trainer_label_outputs(const copse__trainer *trainer);

/* Whether the rank has metrics and moments of the last step: also one that was lost at its end. */
static inline bool copse__trainer_measured(const copse__trainer *t, size_t rank) {
    return t->steps[rank].attempt == t->attempt &&
           !copse__workers_is_out(t->workers, rank) && t->steps[rank].measured;
}

/* Ranks that take part. */
size_t copse__trainer_active(const copse__trainer *trainer);

/* The graph that describes parameters and states: the training one where there is one. Of a lost
 * replica too, as its graphs stay. */
static inline const copse__graph *copse__trainer_main_graph(const copse__trainer *t) {
    const copse__replica *r = &t->replicas[t->lead == SIZE_MAX ? 0 : t->lead];
    return r->train_graph ? r->train_graph : r->eval_graph;
}

/* Tells the workers what a step is expected to take. */
void copse__trainer_set_pace(copse__trainer *trainer);

/* A line for on_prepare; NULL ends it. */
void copse__trainer_tell(const copse__trainer *trainer, const char *what);

/* ---- shards.c ---- */

/* Shards before anything was measured: recorded ones (by rank), else by weight or equal. *measure:
 * they are to be measured. */
copse_status copse__shards_begin(copse__trainer *trainer, const size_t *recorded,
                                 bool *measure, copse_error *err);
/* Shards in proportion to weights[rank], in whole micro-shards where there are such; shards of
 * evaluation batches with them. */
copse_status copse__shards_set(copse__trainer *trainer, const double *weights,
                               copse_error *err);
/* Just these, by rank. */
copse_status copse__shards_take(copse__trainer *trainer, const size_t *shards,
                                copse_error *err);
/* Whether the shards are to follow the devices' speeds. */
bool copse__shards_are_free(const copse__trainer *trainer);
/* What a replica must be made for. */
copse_status copse__shards_sizes(const copse__trainer *trainer, size_t rank,
                                 copse__sizes *out, copse_error *err);

/* ---- calibrate.c ---- */

/* Measures all replicas, which are prepared, at once, and sets speeds and shards. */
copse_status copse__calibrate(copse__trainer *trainer, copse_error *err);
/* Measures those with a shard once more, made for just that, and corrects speeds by it, and shards where that makes
 * steps clearly shorter: *changed, so that they are to be made for others. */
copse_status copse__calibrate_again(copse__trainer *trainer, bool *changed,
                                    copse_error *err);
/* Shards from the speeds of those that are not lost. */
copse_status copse__shards_by_speed(copse__trainer *trainer, copse_error *err);

/* Speeds of those who[] names, by rank, all at once; the others' are 0. updates: whose update is measured too, which
 * leaves their weights and slots zero. */
copse_status copse__speeds_measure(copse__trainer *trainer, const bool *who,
                                   const bool *updates, copse__speed *speeds,
                                   copse_error *err);

/* ---- reduce_cost.c ---- */

/* A copse__speeds_cost_fn; user is the trainer. */
copse_status copse__reduce_cost(void *user, const bool *in, double *seconds,
                                copse_error *err);

/* ---- resting.c ---- */

/* Between two epochs: whether devices that rest have become fast enough for a share. *changed: they have, and speeds
 * and shards are set by what was measured. */
copse_status copse__resting_ask(copse__trainer *trainer, bool *changed, copse_error *err);

/* ---- replan.c ---- */

#define COPSE__DRIFT_SAMPLES 16 /* of an epoch, at most */

/* Times of some steps. Shards fixed by the user, by `equal` or by micro-shards have none. */
typedef struct copse__drift copse__drift;
copse_status copse__drift_new(copse__drift **out, size_t replica_count, copse_error *err);
void copse__drift_free(copse__drift *drift);
void copse__drift_forget(copse__drift *drift);
/* Whether a step of so many rows, the index-th of its epoch, is to be timed. */
bool copse__drift_wants(const copse__trainer *trainer, size_t rows, uint64_t index,
                        uint64_t batches);
/* Takes the times of the step that was just made, where it was timed. */
void copse__drift_add(copse__trainer *trainer);
/* Between two epochs: sets other shards where a recorded plan did so at this step, or where steps have been
 * at least 1.2 times as long as they need be in two judgements in a row. *changed: for them nobody is made
 * yet. */
copse_status copse__replan(copse__trainer *trainer, bool *changed, copse_error *err);

/* ---- group.c ---- */

/* An all-reduce over the ranks that are `in`; engine_ranks receives their numbers in it. */
copse_status copse__group_engine(copse__trainer *trainer, const bool *in,
                                 copse__allreduce **out, size_t *engine_ranks,
                                 copse_error *err);
/* How its gradients travel, of a saved bench; AUTO: to be measured at the start. */
copse__stage_path copse__group_known_path(const copse__trainer *t, size_t rank);
/* Who has no shard rests; those with one get an all-reduce. */
copse_status copse__group_join(copse__trainer *trainer, copse_error *err);
/* Frees an all-reduce (NULL is allowed), or puts it aside where somebody may still know it. */
void copse__group_retire(copse__trainer *trainer, copse__allreduce *engine);
/* The same for the one that joins the replicas. */
void copse__group_part(copse__trainer *trainer);
/* Frees what all threads were given to work with; where one was left alone, and may return at any time, not before
 * the trainer's end. */
void copse__trainer_free_shared(copse__trainer *trainer, void *memory);

/* ---- recover.c ---- */

/* What came of a failed run of the workers over steps: sets `failed` by statuses and steps.
 * False where the failure is not about a device. */
bool copse__trainer_blame(copse__trainer *trainer);
/* The ranks that `failed` names are lost: no further call is made to them. Says so. */
void copse__trainer_give_up(copse__trainer *trainer, bool repeated);
/* The same for one rank that failed with this status outside a step. why: in whose words; NULL: its worker's last. */
void copse__trainer_lose(copse__trainer *trainer, size_t rank, copse_status status,
                         const copse_error *why);
/* After a loss: stops (COPSE_DEVICE) where that is wanted or nobody is left, else cuts the batch anew
 * for those who are left. */
copse_status copse__trainer_regroup(copse__trainer *trainer, copse_error *err);
/* After the shards were set anew without a loss: everyone is made for them. A loss at it is told by
 * regroup_due. */
copse_status copse__trainer_recut(copse__trainer *trainer, copse_error *err);
/* The workers' run, or one rank's, outside a step: where devices fail, they are given up. Their status
 * comes back all the same. */
copse_status copse__trainer_ask_all(copse__trainer *trainer, copse__work_fn *fn,
                                    void *user, copse_error *err);
copse_status copse__trainer_ask(copse__trainer *trainer, size_t rank, copse__work_fn *fn,
                                void *user, copse_error *err);
/* Whether a device is to be considered lost after this. */
bool copse__is_loss(copse_status status);

/* ---- combine.c ---- */

/* Adds the subtrees of all replicas along the tree over micro-shards, all threads together, into
 * parts[0] of each. *nonfinite: elements of the sum that are not finite. */
copse_status copse__combine(copse__trainer *trainer, size_t leaves, uint64_t *nonfinite,
                            copse_error *err);

/* ---- slots.c ---- */

typedef struct copse__slot_entry copse__slot_entry;

/* Memory of a pipeline's slots: pinned memory of each replica's device, plain memory where there is none
 * to be had. A device that fails at it is given up. */
typedef struct copse__slot_memory {
    copse__trainer *trainer;
    copse__slot_entry *entries;
    size_t count, capacity;
} copse__slot_memory;

copse_status copse__slot_alloc(void *user, size_t replica, size_t bytes, void **out,
                               copse_error *err);
/* What lies on a lost device stays. */
void copse__slot_free(void *user, size_t replica, void *memory);

/* ---- state.c, evaluate.c ---- */

/* Adds the metrics that a replica has of its last share. */
void copse__score_add(copse__score *score, const copse__replica *replica);

/* Merges the batch moments of a finished step into the moving statistics. */
copse_status copse__trainer_move_statistics(copse__trainer *trainer, copse_error *err);
/* Brings the moving statistics to all devices, where they changed. */
copse_status copse__trainer_send_statistics(copse__trainer *trainer, copse_error *err);
/* Brings weights and slots to a replica that has rested. */
copse_status copse__trainer_wake(copse__trainer *trainer, size_t rank, copse_error *err);

/* Waits for what the replicas that take part still run or upload. */
void copse__trainer_finish_queues(copse__trainer *trainer);

/* A batch's part as a share. */
static inline copse__share copse__share_of(const copse_batch *batch, size_t rank) {
    if (!batch)
        return (copse__share){0};
    const copse_batch_part *part = &batch->parts[rank];
    return (copse__share){.features = part->features,
                          .labels = part->labels,
                          .rows = part->rows,
                          .first_row = part->first_row};
}

/* Batches that a pipeline makes ready ahead, and that the loop holds: one more where it runs ahead. */
#define COPSE__EVALUATION_PREFETCH 2

/* Where every share is one micro-batch. */
bool copse__evaluation_runs_ahead(const copse__trainer *t);

static inline size_t copse__fit_prefetch(const copse__trainer *t) {
    size_t wanted = (size_t)t->config->data.prefetch;
    return wanted ? wanted : 2;
}

static inline size_t copse__fit_held(const copse__trainer *t) {
    return COPSE__INPUT_SLOTS + (copse__trainer_active(t) == 1);
}

#endif
