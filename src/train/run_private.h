/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_RUN_PRIVATE_H
#define COPSE_TRAIN_RUN_PRIVATE_H

/* Shared by run.c (opening, starting, ending), run_epoch.c (what happens while it trains) and run_save.c
 * (its state to and from checkpoints) only. */

#include <stdatomic.h>

#include "io/jsonl.h"
#include "train/board.h"
#include "train/run.h"
#include "train/run_plan.h"
#include "train/saver.h"

struct copse__run {
    const copse__config *config;
    copse__run_folder *folder;
    copse__checkpoint *resumed; /* NULL: a new run, or restored already */
    copse__run_plan *recorded;  /* of the resumed run; NULL where there is none */
    bool resume, replanned;
    copse__trainer *trainer;
    copse__jsonl *log;
    copse__board *board;
    copse__saver *saver; /* NULL: no checkpoints are wanted */
    uint64_t start_ns, saved_ns;
    uint64_t saved_step, saved_epoch;
    uint64_t save_step; /* behind which a checkpoint is due; 0: none yet */
    copse__monitor_state early_stopping, plateau;
    double learning_rate; /* as lowered; -1: it was not */
    bool has_best;
    double best;
    bool log_failed; /* the last line could not be written, and that was said */
    bool new_best;   /* the next checkpoint is the best so far */
    bool told_waited;
    atomic_bool save_wanted;
    copse__text plan; /* what plan.json says */
    char decision[160];
    char config_hash[33];
};

/* ---- run_save.c ---- */

/* Nothing where no checkpoints are wanted. */
copse_status copse__run_open_saver(copse__run *run, copse_error *err);
/* The resumed checkpoint's state, into the trainer and the run. */
copse_status copse__run_restore(copse__run *run, copse_error *err);
/* Hands a copy of the state to the saver; returns once the copy is made. */
copse_status copse__run_save(copse__run *run, copse_error *err);
/* Whether something was trained since. */
bool copse__run_is_unsaved(const copse__run *run);
/* Replaces plan.json by the trainer's plan of now, which the checkpoints to come hold as well, even where the file
 * cannot be written. Waits for a checkpoint that is being written. */
copse_status copse__run_put_plan(copse__run *run, copse_error *err);
/* Tells of checkpoints that could not be written. */
void copse__run_check_saved(copse__run *run);

/* ---- run_epoch.c ---- */

/* Ends the log's line. A log that cannot be written does not end a training. */
void copse__run_end_line(copse__run *run);

#endif
