/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_FIT_H
#define COPSE_TRAIN_FIT_H

/* A training run in progress; shared by fit.c and step.c only. */

#include "train/trainer_private.h"

typedef struct copse__fit {
    copse__trainer *trainer;
    copse_pipeline *pipeline;
    copse__slot_memory memory;
    uint64_t grouping; /* of the trainer when the pipeline was opened */
    const copse_batch *now, *next;
    const copse_batch *before; /* whose step is under way, not finished; NULL: none */
    copse__step before_step;
    uint64_t epoch_samples;
    uint64_t epoch_start_ns, step_start_ns;
    uint64_t step_wait_ns;     /* for data, in the step of the moment */
    uint64_t before_wait_ns;   /* in the one before, which is still under way */
    uint64_t waited_ns;        /* for data, in this epoch, on pipelines that are closed */
    uint64_t waited_before_ns; /* on the open one, until this epoch */
    uint64_t given_skipped;    /* samples left out of the batches that it has given */
} copse__fit;

/* The pipeline's next batch; NULL at the epoch's end. */
copse_status copse__fit_next(copse__fit *fit, const copse_batch **out, copse_error *err);

/* One optimizer step over the current batch. *stands: it was made, and the position moved on; else it
 * is to be repeated with those who are left. */
copse_status copse__fit_step(copse__fit *fit, bool *stands, copse_error *err);

/* Ends the step that is still under way, if any, and reports it. */
copse_status copse__fit_land(copse__fit *fit, copse_error *err);

#endif
