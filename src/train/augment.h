/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_AUGMENT_H
#define COPSE_TRAIN_AUGMENT_H

#include "train/config.h"

/* data.augment as copse_pipeline_options takes it: *out is *count entries, free() it. A wrong name or
 * value is COPSE_CONFIG with its place in the file. */
copse_status copse__config_augment(copse_augment **out, size_t *count,
                                   const copse__config *config, copse_error *err);

/* What that makes of a sample as it is stored: what the network reads. COPSE_CONFIG, with its place, where
 * a change cannot be applied. */
copse_status copse__config_augmented(copse_data_spec *out, const copse__config *config,
                                     const copse_data_spec *stored, copse_error *err);

/* What evaluation does in place of training's changes: nothing but the middle of every crop, so that
 * samples have the size that the network reads. out has room for count entries; returns how many it gets. */
size_t copse__augment_for_evaluation(copse_augment *out, const copse_augment *training,
                                     size_t count);

#endif
