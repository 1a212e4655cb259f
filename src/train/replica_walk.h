/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_REPLICA_WALK_H
#define COPSE_TRAIN_REPLICA_WALK_H

#include "train/replica.h"

/* What the files of a replica's work on its share have in common: replica_gradients.c, replica_step.c,
 * replica_evaluate.c, replica_nonfinite.c. */

/* A share on its way through one of the programs, a micro-batch at a time: while one is computed,
 * the next one travels into the other input slot. */
typedef struct copse__walk {
    copse__replica *r;
    copse__program *program;
    const copse__graph *graph;
    size_t *slot;
    size_t micro_rows, count; /* rows of a micro-batch but the last; micro-batches */
    const copse__share *share, *next;
} copse__walk;

copse__walk copse__walk_begin(copse__replica *r, bool training, const copse__share *share,
                              const copse__share *next);

/* Micro-batch k of a share; empty behind its end. */
copse__share copse__walk_share(const copse__walk *w, const copse__share *share, size_t k);
copse__extents copse__walk_extents(const copse__walk *w, size_t k);

copse_status copse__walk_upload(const copse__walk *w, size_t slot, copse__share part,
                                copse_error *err);
/* What comes after micro-batch k, into the other slot. */
copse_status copse__walk_upload_next(const copse__walk *w, size_t k, copse_error *err);
size_t copse__other_slot(size_t slot);
void copse__walk_turn(const copse__walk *w);

/* Forward and backward of every micro-batch, their gradients added up and sent off. All but the last
 * one's results are taken. */
copse_status copse__walk_gradients(const copse__walk *w, copse__step *step,
                                   copse_error *err);

void copse__replica_begin_results(copse__replica *r, size_t rows);
/* Waits for micro-batch k, which was in this slot, and keeps what it gave. */
copse_status copse__walk_take(const copse__walk *w, size_t k, size_t slot,
                              uint64_t patience_ns, copse_error *err);

/* A thread that comes back from a call long after its device was given up makes no other one. */
copse_status copse__replica_wanted(const copse__replica *r, copse_error *err);

copse_status copse__replica_send_scalars(copse__replica *r, const copse__step *step,
                                         size_t first_row, copse_error *err);

#endif
