/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_CHECKPOINT_H
#define COPSE_IO_CHECKPOINT_H

#include "base/pool.h"
#include "io/safetensors.h"

/* What a metric watched at the end of epochs has come to (train/monitor.h). */
typedef struct copse__monitor_state {
    bool has_best, stopped;
    double best;
    uint64_t wait, cooldown; /* epochs */
} copse__monitor_state;

/* Everything that a run needs to go on as if it had never stopped, as one safetensors file
 * (docs/formats.md). The tensors keep their names; the rest is text in __metadata__, together with
 * a hash over all of it, so that no changed bit goes unnoticed. */
typedef struct copse__checkpoint {
    uint64_t step;                 /* optimizer steps done */
    uint64_t epoch;                /* epochs done */
    uint64_t batch;                /* batches done in the epoch that is not */
    double epoch_loss, epoch_hits; /* sums over the samples of those */
    uint64_t epoch_samples;
    uint64_t skipped; /* steps left out because of numbers that are not finite */
    uint64_t seed;
    double loss_scale;   /* 0: none */
    uint64_t good_steps; /* since the loss scale last changed */
    bool has_best;
    double best; /* of the metric that checkpoint.best names */
    copse__monitor_state early_stopping, plateau;
    double learning_rate; /* as lowered on plateaus; -1: it was not */
    uint64_t log_bytes;   /* length of log.jsonl at that moment */
    char config_hash[33]; /* of what fixes the numbers; 32 hexadecimal digits, or "" */
    const char *plan;     /* plan.json's text at that moment; NULL is written as "" */
    const copse__safetensor *tensors;
    size_t tensor_count;
    copse__pool pool; /* what a loaded one owns; empty otherwise */
    void *memory;     /* likewise */
} copse__checkpoint;

/* Atomically; reads everything that the checkpoint points to. */
copse_status copse__checkpoint_write(const char *path,
                                     const copse__checkpoint *checkpoint,
                                     copse_error *err);

/* Reads all of it into memory and verifies the hash. COPSE_IO where the file cannot be read,
 * COPSE_FORMAT where it is damaged or no checkpoint. */
copse_status copse__checkpoint_read(copse__checkpoint **out, const char *path,
                                    copse_error *err);
/* Checks the hash of a file that says it is a checkpoint; COPSE_OK for every other file.
 * Reads it whole. COPSE_FORMAT where it is damaged. */
copse_status copse__checkpoint_verify(const char *path, copse_error *err);
/* Of a read one. NULL is allowed. */
void copse__checkpoint_free(copse__checkpoint *checkpoint);

/* NULL where there is none of this name. */
const copse__safetensor *copse__checkpoint_find(const copse__checkpoint *checkpoint,
                                                const char *name);

#endif
