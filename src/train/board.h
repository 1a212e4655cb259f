/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_BOARD_H
#define COPSE_TRAIN_BOARD_H

#include "train/trainer.h"

/* A run's curves for TensorBoard, under the names and in the folders that Keras' callback uses: in
 * train/ epoch_loss, epoch_accuracy and epoch_learning_rate at step = epoch (from 0), batch_loss and
 * batch_accuracy at step = optimizer step (log.tensorboard.update_freq), and each parameter's
 * histogram (histogram_freq); in validation/ epoch_loss and epoch_accuracy. Every function that takes
 * a board allows NULL. Used from one thread. */
typedef struct copse__board copse__board;

/* *out is NULL where the configuration wants no curves. at: where the run begins, or goes on. */
copse_status copse__board_open(copse__board **out, const copse__config *config,
                               const char *folder, copse__position at, copse_error *err);
void copse__board_close(copse__board *board);

copse_status copse__board_step(copse__board *board, const copse__progress *progress,
                               copse_error *err);
/* Reads the parameters from trainer where their histograms are due. */
copse_status copse__board_epoch(copse__board *board, const copse__epoch_report *report,
                                copse__trainer *trainer, copse_error *err);

#endif
