/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_TRAINER_H
#define COPSE_TRAIN_TRAINER_H

#include <copse/data.h>
#include <stdatomic.h>

#include "backend/backend.h"
#include "plan/layout.h"
#include "topo/select.h"
#include "train/config.h"
#include "train/datasets.h"
#include "train/memory.h"
#include "train/times.h"

/* A network on its devices: trains, evaluates, predicts. */
typedef struct copse__trainer copse__trainer;

/* Metrics of a set of samples: sums, so that they can be added. */
typedef struct copse__score {
    double loss_sum, hits;
    uint64_t samples; /* rows that the loss counts */
    uint64_t
        skipped; /* samples left out as they could not be read (data.on_error: skip) */
} copse__score;

double copse__score_loss(const copse__score *score); /* NaN where there are no samples */
double copse__score_accuracy(const copse__score *score);

typedef struct copse__progress {
    uint64_t step;            /* steps done in the whole run */
    uint64_t epoch, epochs;   /* the first is 0 */
    uint64_t index, count;    /* batches done and in all, in this epoch or evaluation */
    copse__score last;        /* of the last batch alone, before its update */
    copse__score epoch_score; /* of this epoch, or evaluation, so far */
    size_t rows;              /* samples of the last batch */
    double seconds;           /* that it took */
    double data_seconds;      /* of them in which its successor's data was waited for */
    double learning_rate;
    bool evaluating;
    const char *set; /* "validation", "test", … where evaluating */
} copse__progress;

typedef struct copse__epoch_report {
    uint64_t epoch;
    uint64_t step; /* done so far */
    copse__score train, validation;
    bool partial; /* train.steps ended the run within the epoch */
    bool validated;
    const char *validation_name;
    double seconds, samples_per_s; /* of training, without validation */
    double data_wait_seconds;
} copse__epoch_report;

/* Something that changes who computes. */
typedef struct copse__trainer_event {
    const char *
        what; /* "device_lost"; "resharded", "replanned": shards are those of copse__trainer_shard
                 now, after a loss or as speeds have changed; "step_skipped" */
    uint64_t step;      /* done so far */
    const char *device; /* its label; NULL: it is about none */
    const char *why;    /* NULL: no more is known */
} copse__trainer_event;

/* Called in the thread that called the trainer. NULL members are not called. A status other than COPSE_OK
 * ends the run with it. */
typedef struct copse__trainer_hooks {
    copse_status (*on_step)(void *user, const copse__progress *progress,
                            copse_error *err);
    copse_status (*on_epoch)(void *user, const copse__epoch_report *report,
                             copse_error *err);
    /* Asked once before each step is begun: whether on_step of that step (counted from 1) will look at
     * weights or other state. Where it will not, the next step may be under way by then. NULL: it
     * always will. */
    bool (*needs_state)(void *user, uint64_t step);
    void (*on_evaluate)(void *user, const copse__progress *progress);
    void (*on_prepare)(void *user, const char *what); /* "preparing 0:0" */
    void (*on_event)(void *user, const copse__trainer_event *event);
    /* A single device (of several the last one too, but that one can be left alone) has not answered for
     * devices.stall_seconds, and for 20 times as long as anything took before: its driver hangs, and so
     * does the thread that called the trainer. For ending the process: called in another thread, which
     * must not call the trainer. The line names device, step and stage. NULL: a line in the log only. */
    void (*on_hang)(void *user, const copse_error *why);
    void *user;
} copse__trainer_hooks;

/* Shards of full batches by rank, each from a step on, in order. All zero: they were never changed. */
typedef struct copse__cuts {
    uint64_t *steps;
    size_t *shards; /* [cut][rank] */
    size_t count, step_capacity, capacity;
} copse__cuts;

copse_status copse__cuts_add(copse__cuts *cuts, size_t replica_count, uint64_t step,
                             const size_t *shards, copse_error *err);
void copse__cuts_free(copse__cuts *cuts);

/* Texts that a recorded plan holds of one device. */
typedef struct copse__tuned_list {
    const copse__tuned *entries;
    size_t count;
    const char *kernels; /* copse__tuning_id.sources of then; NULL: not recorded */
} copse__tuned_list;

typedef struct copse__trainer_options {
    const copse__device_choice *choices; /* in rank order */
    size_t choice_count;
    const copse__topo
        *topo;     /* of the choices: with the figures of a bench, staging paths follow
                                from those instead of being measured; NULL: unknown */
    bool training; /* false: evaluate and predict only */
    bool selftest; /* the quick part of it on each device first */
    bool profile;
    bool plan_only; /* open the devices and plan, but allocate and build nothing */
    const size_t
        *shards; /* of a full batch, by rank (a recorded plan's); NULL: decided here */
    const copse__cuts *cuts; /* where shards are a recorded plan's: what it did at
                                which step, which is repeated; NULL: nothing */
    const char *const
        *providers; /* likewise: "op=provider", NULL-terminated; NULL: chosen */
    const copse__tuned_list
        *tuned; /* likewise, by rank: what each device is to follow, and
                                       nothing else; NULL: devices.tune decides */
    const copse__backend *backend;     /* of all devices; NULL: by each one's API */
    const copse__trainer_hooks *hooks; /* NULL: none */
} copse__trainer_options;

/* For `copse tune`: a device, and its nodes that could be run in more than one way. */
struct copse__tune_list;
copse__device *copse__trainer_device(const copse__trainer *trainer, size_t rank);
COPSE_CHECKED copse_status copse__trainer_list_nodes(const copse__trainer *trainer,
                                                     size_t rank,
                                                     struct copse__tune_list *list,
                                                     copse_error *err);

/* COPSE_UNSUPPORTED where a configuration asks for what no trainer can do yet. */
copse_status copse__trainer_check(const copse__config *config, copse_error *err);

/* Opens the devices, builds and prepares everything, and draws the initial weights. Without recorded
 * shards, weights (*W) or devices.shards: equal, several devices are measured first, all at once, for half
 * a second; one that is too slow to pay its way gets an empty shard and rests. config and sets are
 * borrowed and must outlive the trainer. */
copse_status copse__trainer_open(copse__trainer **out, const copse__config *config,
                                 const copse__datasets *sets,
                                 const copse__trainer_options *options, copse_error *err);
void copse__trainer_close(copse__trainer *trainer);

/* Trains from the current position to the end of the configured epochs or steps.
 * COPSE_INTERRUPTED after copse__trainer_stop: the step is finished, the position is kept, a further
 * call goes on. A device that fails, or does not answer for devices.stall_seconds, is lost: no further
 * call is made to it, and either the others go on (train.on_device_loss: continue), from the step whose
 * gradients were not summed yet, or COPSE_DEVICE comes back, and the state can be read from those left.
 * COPSE_NUMERIC names step, replica and layer of a number that is not finite: the weights
 * are those before that step. COPSE_DRIFT where replicas differ. */
copse_status copse__trainer_fit(copse__trainer *trainer, copse_error *err);

/* From the next step on: whether steps are timed part by part. */
void copse__trainer_time_steps(copse__trainer *trainer, bool on);
/* Of the last step, within its on_step: the replica's times; NULL where it took no part or is not
 * timed. Borrowed. */
const copse__step_times *copse__trainer_times(const copse__trainer *trainer, size_t rank);

/* One node of a replica's program in that step's last micro-batch. */
typedef struct copse__node_span {
    const char *name, *provider;
    uint64_t begin_ns, end_ns;
} copse__node_span;

/* In the order of execution: false behind the last one. Where the trainer was opened for profiling, and
 * where copse__trainer_times gives times; *span is left all zero where a node was not run. */
bool copse__trainer_node_span(const copse__trainer *trainer, size_t rank, size_t node,
                              copse__node_span *span);

/* Ends fit or evaluate after the current batch. Async-signal-safe. */
void copse__trainer_stop(copse__trainer *trainer);

/* From on_epoch: fit returns COPSE_OK behind it, as if this had been the last epoch. Before fit: it
 * returns at once. A further fit goes on. */
void copse__trainer_finish(copse__trainer *trainer);

/* The learning rate of optimizer step `step` (the first is 0): the configuration's, or the one that was
 * set (negative: the configuration's again). Set from on_epoch, or from on_step of a step for which needs_state
 * said yes: elsewhere one more step may be under way with the old rate. */
double copse__trainer_rate(const copse__trainer *trainer, uint64_t step);
void copse__trainer_set_rate(copse__trainer *trainer, double rate);

/* One pass over a set without training. name is for progress only. */
copse_status copse__trainer_evaluate(copse__trainer *trainer, copse_dataset *set,
                                     const char *name, copse__score *out,
                                     copse_error *err);

/* Receives `rows` rows of `columns` floats, in the set's order. */
typedef copse_status copse__predict_fn(void *user, const float *values, size_t rows,
                                       size_t columns, copse_error *err);
copse_status copse__trainer_predict(copse__trainer *trainer, copse_dataset *set,
                                    copse__predict_fn *fn, void *user, copse_error *err);

/* Where training is: batches done in the current epoch, and steps in all. */
typedef struct copse__position {
    uint64_t epoch, batch, step;
    copse__score score; /* of the current epoch's batches so far */
    uint64_t skipped;   /* steps left out because of numbers that are not finite */
} copse__position;

copse__position copse__trainer_position(const copse__trainer *trainer);
void copse__trainer_seek(copse__trainer *trainer, copse__position position);

/* The parts of a trainer's state by name, in a fixed order: each parameter ("dense/kernel"), each moving
 * statistic, then (training) each optimizer slot ("optimizer/dense/kernel/momentum"). */
typedef struct copse__state_item {
    char name[256];
    size_t rank;
    size_t shape[COPSE_MAX_RANK];
    size_t elements;
    bool trainable; /* a parameter; else a moving statistic or optimizer slot */
    bool slot;
} copse__state_item;

size_t copse__trainer_state_count(const copse__trainer *trainer);
copse__state_item copse__trainer_state_item(const copse__trainer *trainer, size_t index);
/* elements floats; read from the first replica that takes part, written to all of them. Block.
 * COPSE_DEVICE where none is left. */
copse_status copse__trainer_state_read(copse__trainer *trainer, size_t index,
                                       float *values, copse_error *err);
copse_status copse__trainer_state_write(copse__trainer *trainer, size_t index,
                                        const float *values, copse_error *err);

/* The 64-bit hash of all weights, equal on all replicas; COPSE_DRIFT names the one that differs. */
copse_status copse__trainer_hash(copse__trainer *trainer, uint64_t *hash,
                                 copse_error *err);

/* What fixes the bits, as JSON: devices, shards, providers. */
copse_status copse__trainer_plan(copse__trainer *trainer, copse__text *out,
                                 copse_error *err);

size_t copse__trainer_replicas(const copse__trainer *trainer);
/* As --devices names it: "0:0". Borrowed. */
const char *copse__trainer_label(const copse__trainer *trainer, size_t rank);
/* Samples of a full batch that replica `rank` takes. */
size_t copse__trainer_shard(const copse__trainer *trainer, size_t rank);
/* "measured", "equal", "by weight", "as recorded". Static. */
const char *copse__trainer_shards_are(const copse__trainer *trainer);
/* Whether the replica's device was lost. Closing a trainer then releases nothing of it. */
bool copse__trainer_is_lost(const copse__trainer *trainer, size_t rank);
/* Bytes that a replica takes. */
void copse__trainer_memory(const copse__trainer *trainer, size_t rank,
                           copse__memory_report *out);
/* A line a replica at debug level: what is counted, and what was planned. */
void copse__trainer_tell_memory(const copse__trainer *trainer);
/* As they were given to copse__trainer_open. Borrowed. */
const copse__datasets *copse__trainer_sets(const copse__trainer *trainer);
/* What a replica's device runs a step, for people (src/plan/describe.h). */
void copse__trainer_describe(copse__trainer *trainer, size_t rank, copse__text *out);
/* Buckets and places of the parameters. Borrowed. */
const copse__layout *copse__trainer_layout(const copse__trainer *trainer);
/* The inference graph, for a summary. Borrowed. */
const copse__graph *copse__trainer_graph(const copse__trainer *trainer);

/* The network of a configuration for samples of a set: as copse__trainer_open builds it, without any
 * device. max_batch samples are planned. */
copse_status copse__trainer_build_graph(copse__graph **out, const copse__config *config,
                                        const copse__datasets *sets, size_t max_batch,
                                        bool training, copse_error *err);

#endif
