/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_STAGES_H
#define COPSE_BASE_STAGES_H

#include <stddef.h>
#include <stdint.h>

#define COPSE__MAX_STAGES 24

/* What something that happens once, a start, is made of: stages that follow one another, each
 * from its own beginning to the next one's. Start from {0}. */
typedef struct copse__stage {
    const char *name; /* borrowed */
    uint64_t begin_ns, end_ns;
} copse__stage;

typedef struct copse__stages {
    size_t count;
    copse__stage of[COPSE__MAX_STAGES];
} copse__stages;

/* Ends the stage of the moment, and begins another; NULL begins none. What finds no place any
 * more counts for the last one. */
void copse__stages_next(copse__stages *stages, const char *name);

/* From the first one's beginning to the last one's end. */
double copse__stages_seconds(const copse__stages *stages);

/* One line at debug level: "what: 0.31 s: data 0.11, devices 0.05, …". */
void copse__stages_log(const copse__stages *stages, const char *what);

#endif
