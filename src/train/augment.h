/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_AUGMENT_H
#define COPSE_TRAIN_AUGMENT_H

#include "train/config.h"

/* data.augment as copse_pipeline_options takes it: *out is *count entries, free() it. A wrong name or
 * value is COPSE_CONFIG with its place in the file. */
copse_status copse__config_augment(copse_augment **out, size_t *count,
                                   const copse__config *config, copse_error *err);

#endif
