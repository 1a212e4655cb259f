/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_TRAINER_PRIVATE_H
#define COPSE_TRAIN_TRAINER_PRIVATE_H

/* Shared by the trainer's own sources only. */

#include "train/replica.h"
#include "train/trainer.h"
#include "train/workers.h"

struct copse__trainer {
    const copse__config *config;
    const copse__datasets *sets;
    copse__trainer_hooks hooks;
    bool training;
    copse__network network;
    copse__optimizer optimizer;
    size_t replica_count;
    copse__device_choice *choices;
    copse__replica *replicas;
    size_t *shards;       /* of a full training batch, by rank */
    double *eval_weights; /* for evaluation batches: the shards as numbers */
    size_t batch, eval_batch;
    copse__layout *layout;
    copse__workers *workers;
    copse__allreduce *allreduce; /* NULL: a single replica */

    /* Moving statistics: the master copy, in the order of the graph's states; each is mean then
     * variance. Devices get it before they evaluate. */
    float **moving; /* by state: [2][C] */
    bool moving_changed;

    copse__position position;
    atomic_bool stop;
};

/* The graph that describes parameters and states: the training one where there is one. */
static inline const copse__graph *copse__trainer_main_graph(const copse__trainer *t) {
    return t->replicas[0].train_graph ? t->replicas[0].train_graph
                                      : t->replicas[0].eval_graph;
}

/* What class labels must stay below: the network's outputs. 0 where labels are no classes. */
size_t copse__trainer_label_bound(const copse__trainer *trainer);

/* Memory of a pipeline's slots: pinned memory of each replica's device. */
typedef struct copse__slot_memory {
    copse__trainer *trainer;
    copse__buffer **buffers;
    size_t *ranks;
    size_t count, capacity;
} copse__slot_memory;

copse_status copse__slot_alloc(void *user, size_t replica, size_t bytes, void **out,
                               copse_error *err);
void copse__slot_free(void *user, size_t replica, void *memory);

/* Adds the metrics of a shard of `rows` samples (its program has been waited for). */
void copse__score_add(copse__score *score, const copse__program *program,
                      const copse__graph *graph, size_t rows);

/* Merges the batch moments of a finished step into the moving statistics: rows[rank] samples each. */
copse_status copse__trainer_move_statistics(copse__trainer *trainer, const size_t *rows,
                                            copse_error *err);
/* Brings the moving statistics to all devices, where they changed. */
copse_status copse__trainer_send_statistics(copse__trainer *trainer, copse_error *err);

/* The first node of a shard's step whose output is not finite; its name, or NULL where all are. Runs
 * the step's nodes again one by one. */
const char *copse__replica_find_nonfinite(copse__replica *replica, size_t slot,
                                          const copse__extents *extents);

#endif
