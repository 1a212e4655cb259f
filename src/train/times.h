/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_TIMES_H
#define COPSE_TRAIN_TIMES_H

#include <stdint.h>

/* When a replica reached the ends of a step's parts (base/clock.h). Such a step waits after each part for
 * what it queued, so it is a little longer than one that nobody times. */
typedef struct copse__step_times {
    uint64_t begin_ns;
    uint64_t uploaded_ns; /* its samples are there; most came during the step before */
    uint64_t computed_ns; /* forward and backward passes */
    uint64_t
        summed_ns; /* the gradients of all replicas are summed, or known to be finite */
    uint64_t updated_ns;
} copse__step_times;

#endif
