/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_BENCH_H
#define COPSE_TRAIN_BENCH_H

#include "train/trainer.h"

/* Whole training steps, measured in blocks, so that several trainers can take turns. */

/* Of one replica: seconds a step. */
typedef struct copse__step_parts {
    double upload;  /* of its samples, as far as the step before did not hide it */
    double compute; /* forward and backward passes */
    double others;  /* waits until the last replica has computed */
    double reduce;  /* from there until all gradients are summed: what nothing hides */
    double update;
} copse__step_parts;

typedef struct copse__step_block {
    uint64_t steps, rows;
    double seconds, cpu_seconds; /* of this process in that time, drivers and all */
    /* Of a timed block, seconds a step. */
    double data;              /* waits for the next batch */
    double exposed;           /* reduce of the replica for which it is longest */
    copse__step_parts *parts; /* by rank; the caller's, may be NULL */
} copse__step_block;

/* Trains for about so many seconds, three steps at least, from where the trainer stands; the step that
 * begins the block is not counted. The trainer was opened with copse__step_bench_hooks over this bench,
 * from a configuration without validation that ends far off. timed: steps in parts, else as always. */
typedef struct copse__step_bench {
    copse__trainer *trainer;
    /* Of the block in progress. */
    copse__step_block *block;
    uint64_t begun_ns;
    double wanted_s, cpu_begun_s;
    bool timed, begun;
} copse__step_bench;

copse__trainer_hooks copse__step_bench_hooks(copse__step_bench *bench);
copse_status copse__step_bench_run(copse__step_bench *bench, double seconds, bool timed,
                                   copse__step_block *block, copse_error *err);

#endif
