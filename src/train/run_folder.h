/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_RUN_FOLDER_H
#define COPSE_TRAIN_RUN_FOLDER_H

#include "io/checkpoint.h"

/* The folder that a run writes: config.yaml, plan.json, log.jsonl, step-00000100.safetensors,
 * latest and best (texts with a checkpoint's file name), best.safetensors. While it is open for writing it is locked
 * against other processes; the lock ends with the process, however that ends. */
typedef struct copse__run_folder copse__run_folder;

typedef struct copse__run_folder_options {
    const char *path; /* NULL: a new folder, BASE/NAME-20261201-153012 */
    const char *base; /* NULL: "runs" */
    const char *name; /* NULL: "run" */
    bool resume;      /* path holds a run that is to be continued; else it must not */
    bool look;        /* path only: check that, make and lock nothing */
} copse__run_folder_options;

/* COPSE_INVALID where another process has the folder, or it holds a run already (without resume),
 * or none (with it); COPSE_IO where it cannot be written. What a killed writer left half-done is
 * removed. */
copse_status copse__run_folder_open(copse__run_folder **out,
                                    const copse__run_folder_options *options,
                                    copse_error *err);
/* NULL is allowed. */
void copse__run_folder_close(copse__run_folder *folder);

/* Borrowed. */
const char *copse__run_folder_path(const copse__run_folder *folder);

/* The path of a file in it; free() it. */
copse_status copse__run_folder_file(const copse__run_folder *folder, const char *name,
                                    char **out, copse_error *err);

/* Writes a file of it atomically: "config.yaml", "plan.json". */
copse_status copse__run_folder_put(const copse__run_folder *folder, const char *name,
                                   const void *data, size_t bytes, copse_error *err);

/* Writes a checkpoint, then (where is_best) its weights alone as best.safetensors, then moves `best` (where
 * is_best) and `latest` to it, then removes all but the `keep` newest (0: all stay) and the best. A
 * failure at any point leaves the previous checkpoint whole and latest on a whole one; a checkpoint that
 * cannot be removed is only a warning in the log. */
copse_status copse__run_folder_save(const copse__run_folder *folder,
                                    const copse__checkpoint *checkpoint, bool is_best,
                                    uint64_t keep, copse_error *err);

/* ---- Reading, without a lock ---- */

typedef enum copse__which_checkpoint {
    COPSE__CHECKPOINT_LATEST,
    COPSE__CHECKPOINT_BEST
} copse__which_checkpoint;

/* The path of a run's checkpoint, not looked into; free() it. COPSE_IO where there is none. */
copse_status copse__run_folder_find(const char *path, copse__which_checkpoint which,
                                    char **out, copse_error *err);

/* Reads and verifies the latest checkpoint. Where it is damaged, the message names the next older
 * one that is whole, if there is one. */
copse_status copse__run_folder_load(const char *path, copse__checkpoint **out,
                                    copse_error *err);

#endif
