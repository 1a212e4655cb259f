/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_IMPORT_TRAINER_H
#define COPSE_TRAIN_IMPORT_TRAINER_H

#include "train/trainer.h"

/* Puts the weights of init->file into a trainer: parameters and moving statistics, on all replicas
 * (train/import.h says how they are found). COPSE_CONFIG where they do not fit the model; then some
 * may be written already. */
copse_status copse__import_into(copse__trainer *trainer, const copse__config_init *init,
                                copse_error *err);

#endif
