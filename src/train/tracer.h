/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_TRACER_H
#define COPSE_TRAIN_TRACER_H

#include "base/stages.h"
#include "train/trainer.h"

/* Where the time of some steps goes, as a trace (io/trace.h): a row on which the host waits for data, and
 * for each replica a row with the parts of its steps and one with the nodes that its device ran. Such
 * steps are timed, so none of them runs ahead of the one before. */
typedef struct copse__tracer copse__tracer;

/* Steps first .. first + count - 1, counted from 1; the trainer must have been opened for profiling. */
copse_status copse__tracer_open(copse__tracer **out, const char *path, uint64_t first,
                                uint64_t count, copse_error *err);

/* To be called from the trainer's hooks, with the numbers that they get; NULL is allowed: from needs_state, */
void copse__tracer_begin(copse__tracer *tracer, copse__trainer *trainer, uint64_t step);
/* and from on_step. */
void copse__tracer_step(copse__tracer *tracer, const copse__trainer *trainer,
                        const copse__progress *now);

/* A row above the others: what the start of the run was made of. NULL is allowed. */
void copse__tracer_start(copse__tracer *tracer, const copse__stages *stages);

/* Completes the file; NULL is allowed. The first error of all writes is told here. */
copse_status copse__tracer_close(copse__tracer *tracer, copse_error *err);

#endif
