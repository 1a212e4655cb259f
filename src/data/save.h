/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing datasets: one set of functions a format. */
#ifndef COPSE_DATA_SAVE_H
#define COPSE_DATA_SAVE_H

#include "data/dataset.h"

/* What is written where, and the samples' kind. */
typedef struct copse__saving {
    const copse_data_target *target;
    const copse_dataset *set;
    size_t count; /* samples that will come: known before the first */
    void *state;
} copse__saving;

typedef struct copse__save_ops {
    /* Refuses what the format cannot hold; makes state. */
    copse_status (*begin)(copse__saving *saving, copse_error *err);
    copse_status (*put)(copse__saving *saving, size_t index, const void *features,
                        const void *labels, copse_error *err);
    /* Both free state; commit makes the result appear, abort removes it. state may be NULL. */
    copse_status (*commit)(copse__saving *saving, copse_error *err);
    void (*abort)(copse__saving *saving);
} copse__save_ops;

extern const copse__save_ops copse__save_idx, copse__save_cifar, copse__save_npy,
    copse__save_tfrecord, copse__save_folder, copse__save_csv;

/* COPSE_UNSUPPORTED for a target whose format cannot hold such samples. */
copse_status copse__save_refuse(const copse__saving *saving, const char *why,
                                copse_error *err);

#endif
