/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_PIPELINE_H
#define COPSE_DATA_PIPELINE_H

#include <pthread.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/stream.h"

/* Memory for one global batch, and the batch in it. */
typedef struct copse__slot {
    copse_batch
        batch; /* what the caller sees; rows 0: an epoch's end, or all rows were bad */
    copse_batch_part *parts;
    unsigned char **features; /* one of each a replica */
    unsigned char **labels;
    uint64_t *samples;
    copse__raw *raws;   /* of a stream: one a row */
    size_t *rows;       /* split of this batch */
    unsigned char *bad; /* one a row: left out */

    /* Under the pipeline's lock. */
    bool held;
    bool finished;
    size_t planned, claimed, done; /* rows */
    size_t skipped;
    copse_status status;
    copse_error error;
    size_t error_row;
} copse__slot;

struct copse_pipeline {
    copse_dataset *set;
    copse_data_spec features, labels; /* as delivered */
    size_t feature_bytes, label_bytes;
    size_t batch, replicas;
    size_t *shards;
    size_t unit; /* rows that stay together */
    copse_shuffle shuffle;
    size_t shuffle_buffer;
    uint64_t seed, epochs, batches;
    bool stream, drop_remainder, skip_errors, narrow;
    size_t label_classes;

    /* On its way a sample is narrowed, then changed by the augmentations but a last mixup, which
     * works on whole batches. step_specs[i] is what augment[i] reads. */
    copse_augment *augment;
    copse_data_spec *step_specs;
    size_t augment_count;
    size_t stage_bytes; /* of the largest sample on the way */
    bool mixes;
    copse_augment mixup;

    size_t claim_rows; /* a worker takes at a time */
    copse_slot_free_fn *free;
    void *alloc_user;

    pthread_mutex_t lock;
    pthread_cond_t work;  /* something to claim or to plan */
    pthread_cond_t ready; /* the head of the queue is finished */
    pthread_t *threads;
    size_t thread_count;
    bool stopping;

    copse__slot *slots;
    size_t slot_count;
    copse__slot **unused; /* a stack */
    size_t unused_count;
    /* Planned batches in the run's order: a ring of slot_count. */
    copse__slot **queue;
    size_t queue_start, queue_count;

    /* The planner: one worker at a time, who has set `planning`. */
    bool planning;
    bool planned_all; /* nothing more to plan */
    uint64_t next_epoch, next_index;
    uint64_t *order; /* of order_epoch, or NULL: no shuffling */
    uint64_t order_epoch;
    bool order_known;
    copse__feed feed;  /* of a stream */
    bool feed_started; /* for next_epoch */
    copse__raw ahead;  /* the stream's next sample, where ahead_end is false */
    bool ahead_end;
    copse_status ahead_status; /* of reading it; its batch fails, not the one before */
    copse_error ahead_error;

    /* The caller's side. */
    bool end_due;   /* the next call reports an epoch's end */
    size_t skipped; /* of batches that were not handed out, as nothing was left of them */
    bool failed;
    copse_error failure;
    copse_pipeline_stats stats;
};

/* A worker thread's body; argument is the pipeline. */
void *copse__pipeline_worker(void *pipeline);

/* By the one planner, outside the lock: fills in slot's batch (which samples) from the planner's
 * position and moves that on. */
copse_status copse__pipeline_plan(copse_pipeline *pipeline, copse__slot *slot,
                                  copse_error *err);

/* Turns rows[0..replicas) from whole groups of `unit` rows into rows, of `total` in all: only the
 * last group may be smaller. */
void copse__pipeline_groups_to_rows(const copse_pipeline *pipeline, size_t total,
                                    size_t *rows);

/* Splits slot->batch.rows over the replicas and points the parts at their memory. */
copse_status copse__pipeline_set_parts(copse_pipeline *pipeline, copse__slot *slot,
                                       copse_error *err);

/* Reads rows from..to of a planned slot; any number of workers, rows apart from each other. Stops
 * at the first failure, which is *bad_row. */
copse_status copse__pipeline_fill(copse_pipeline *pipeline, copse__slot *slot,
                                  size_t from, size_t to, copse__scratch *scratch,
                                  size_t *bad_row, copse_error *err);

/* By one worker, after all rows: leaves bad rows out, then mixes. */
copse_status copse__pipeline_finish(copse_pipeline *pipeline, copse__slot *slot,
                                    copse_error *err);
copse_status copse__pipeline_leave_out(copse_pipeline *pipeline, copse__slot *slot,
                                       copse_error *err);
copse_status copse__pipeline_mix(copse_pipeline *pipeline, copse__slot *slot,
                                 copse_error *err);

#endif
