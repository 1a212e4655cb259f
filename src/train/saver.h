/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_SAVER_H
#define COPSE_TRAIN_SAVER_H

#include "io/jsonl.h"
#include "train/run_folder.h"

/* Writes checkpoints in a thread of its own, from a copy in host memory that is allocated once:
 * training stands still for the copy only. Used from one thread. */
typedef struct copse__saver copse__saver;

/* tensors tell names, types and shapes (copied; their data is not looked at). folder and log (NULL: none), which is
 * made durable before each checkpoint that remembers its length, are borrowed and must outlive the saver; keep as in
 * copse__run_folder_save. */
copse_status copse__saver_open(copse__saver **out, const copse__run_folder *folder,
                               uint64_t keep, copse__jsonl *log,
                               const copse__safetensor *tensors, size_t tensor_count,
                               copse_error *err);

/* Begins a checkpoint: waits until the one before is written, and gives the copy to be filled: set
 * its numbers, and write every tensor into copse__saver_memory(). Borrowed until submit. */
copse__checkpoint *copse__saver_begin(copse__saver *saver);
void *copse__saver_memory(copse__saver *saver, size_t index);

/* Hands the copy over to be written; returns at once. */
void copse__saver_submit(copse__saver *saver, bool is_best);

typedef struct copse__saved {
    uint64_t step;
    copse_status status;
    copse_error error; /* where status is not COPSE_OK */
    double seconds;    /* that writing took */
} copse__saved;

/* What became of the last checkpoint, once: true, with *out, where one was finished since the
 * last call. Does not wait, or waits for one that is being written. A failed checkpoint leaves the
 * previous one whole; whether training goes on is the caller's choice. */
bool copse__saver_result(copse__saver *saver, bool wait, copse__saved *out);

/* Waits for what is being written, and frees. NULL is allowed. */
void copse__saver_close(copse__saver *saver);

#endif
