/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_OPEN_DATA_H
#define TOOLS_COPSE_OPEN_DATA_H

#include "command.h"
#include "train/datasets.h"

/* A configuration's sets and augmentations, for commands that look at data and use no device. */
typedef struct copse_open_data {
    copse__config *config;
    copse__datasets sets; /* with a training set */
    copse_augment *augment;
    size_t augment_count;
} copse_open_data;

/* On failure everything is closed. */
copse_status copse_open_data_open(copse_open_data *out, const char *path,
                                  const copse_overrides *overrides, copse_error *err);
void copse_open_data_close(copse_open_data *data);

/* The training set's batches as training reads them, augmented or not, for one replica. */
copse_pipeline_options copse_open_data_reading(const copse_open_data *data, size_t batch,
                                               bool augmented);

#endif
