/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_PIPELINE_H
#define COPSE_DATA_PIPELINE_H

#include <pthread.h>

#include "data/dataset.h"

/* Memory for one global batch, and the batch in it. */
typedef struct copse__slot {
    copse_batch batch; /* what the caller sees */
    copse_batch_part *parts;
    unsigned char **features; /* one of each a replica */
    unsigned char **labels;
    uint64_t *samples;
    size_t *rows; /* split of this batch */

    /* Under the pipeline's lock. */
    bool held;
    size_t claimed, done; /* rows */
    copse_status status;
    copse_error error;
    size_t error_row;
} copse__slot;

struct copse_pipeline {
    copse_dataset *set;
    size_t batch, replicas;
    size_t *shards;
    copse_shuffle shuffle;
    uint64_t seed, epochs, batches;
    bool drop_remainder;
    size_t label_classes;
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

    /* The caller's side. */
    bool end_due; /* the next call reports an epoch's end */
    bool failed;
    copse_error failure;
    copse_pipeline_stats stats;
};

/* A worker thread's body; argument is the pipeline. */
void *copse__pipeline_worker(void *pipeline);

#endif
