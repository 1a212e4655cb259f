/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_RUN_H
#define COPSE_TRAIN_RUN_H

#include "train/run_folder.h"
#include "train/trainer.h"

/* A training run with its folder: config.yaml, plan.json, log.jsonl and checkpoints, so that it can be
 * looked at, evaluated, and continued as if it had never stopped. Used from one thread. */
typedef struct copse__run copse__run;

/* Opens and locks the folder (path NULL: runs/NAME-DATE, NAME from the configuration's file). With resume
 * its latest checkpoint is read: COPSE_CONFIG where it was made with another network, data order or
 * optimizer. config is borrowed. */
copse_status copse__run_open(copse__run **out, const copse__config *config,
                             const char *path, bool resume, copse_error *err);
/* Whether copse__run_open could: nothing is made, written or locked. */
copse_status copse__run_look(const copse__config *config, const char *path, bool resume,
                             copse_error *err);
/* NULL is allowed. Waits for a checkpoint that is being written. */
void copse__run_close(copse__run *run);

const char *copse__run_path(const copse__run *run); /* borrowed */

/* The recorded shards for these devices, in rank order, where the run is resumed on the devices it ran
 * on, as of the checkpoint's step (*cuts: and when they change, or NULL); NULL otherwise, and then the choice
 * is made anew, with a warning and a line in the log. Borrowed. */
const size_t *copse__run_shards(copse__run *run, const copse__device_choice *choices,
                                size_t choice_count, const copse__cuts **cuts);

/* What those devices followed of what was tuned, by rank, where copse__run_shards found them; else NULL.
 * Borrowed. */
const copse__tuned_list *copse__run_tuned(const copse__run *run);

/* Writes config.yaml and plan.json, begins the log, and puts the checkpoint's state into the trainer.
 * trainer is borrowed. */
copse_status copse__run_start(copse__run *run, copse__trainer *trainer, copse_error *err);

/* To be called from the trainer's hooks: log a step or epoch, save where it is due. A checkpoint that
 * cannot be written is a warning: training goes on, the one before is whole. */
copse_status copse__run_step(copse__run *run, const copse__progress *progress,
                             copse_error *err);
/* The trainer's hook of this name, which saving by minutes or by wish depends on: whether a checkpoint
 * is due behind the step. */
bool copse__run_needs_state(copse__run *run, uint64_t step);
copse_status copse__run_epoch(copse__run *run, const copse__epoch_report *report,
                              copse_error *err);

/* What the last epoch has decided (to stop early, another learning rate) as one line; NULL: nothing.
 * Borrowed until the next epoch. */
const char *copse__run_decision(const copse__run *run);

/* Saves behind the next step that is begun, too. Async-signal-safe. */
void copse__run_want_save(copse__run *run);

/* Likewise, from on_event: logs it, and writes plan.json where shards changed. */
void copse__run_event(copse__run *run, const copse__trainer_event *event);

/* Once fit has returned COPSE_OK: with early_stopping.restore_best_weights, saves what is not saved yet,
 * then gives the trainer the best epoch's weights. *restored: it has them. COPSE_IO or COPSE_FORMAT where
 * that epoch's checkpoint is not to be had: then the last weights stay. */
copse_status copse__run_restore_best(copse__run *run, bool *restored, copse_error *err);

/* Saves where something is not saved yet, and writes the log's last line. outcome: what fit returned, with its
 * error; test NULL: there was no test. */
copse_status copse__run_end(copse__run *run, copse_status outcome, const copse_error *why,
                            const copse__score *test, copse_error *err);

/* From on_hang: waits for a checkpoint that is being written, and ends the log. Nothing can be saved. */
void copse__run_abandon(copse__run *run, const copse_error *why);

/* The weights of a checkpoint, or of a file of another program (train/import.h), into a trainer.
 * COPSE_CONFIG names the first parameter that is missing or of another shape. */
copse_status copse__run_load_weights(copse__trainer *trainer, const char *path,
                                     copse_error *err);

#endif
