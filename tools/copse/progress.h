/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_PROGRESS_H
#define TOOLS_COPSE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "train/trainer.h"

/* What a person sees of a run, on stderr: a bar that redraws itself on a terminal, a line every few
 * seconds elsewhere, nothing where quiet. */
typedef struct progress {
    bool quiet, verbose, terminal, color;
    bool drawn;          /* a bar stands on the current line */
    uint64_t start_ns;   /* of the current epoch or evaluation */
    uint64_t drawn_ns;   /* when it was last drawn */
    uint64_t started_at; /* index at which it began */
} progress;

void progress_begin(progress *p, bool quiet, bool verbose);

/* A short notice in place of the bar ("building kernels"); NULL removes it. */
void progress_notice(progress *p, const char *what);

void progress_step(progress *p, const copse__progress *now);
void progress_epoch(progress *p, const copse__epoch_report *report, uint64_t epochs);

/* A line above the bar; NULL: none. */
void progress_say(progress *p, const char *line);

/* Removes the bar, so that other lines can be printed. */
void progress_clear(progress *p);

#endif
