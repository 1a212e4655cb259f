/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_MONITOR_H
#define COPSE_TRAIN_MONITOR_H

#include "io/checkpoint.h"
#include "train/config.h"

/* What is decided from a metric when an epoch has ended, once for all replicas: Keras' EarlyStopping and
 * ReduceLROnPlateau, epoch for epoch. A value that is not finite is never better. */

bool copse__metric_is_loss(const char *metric);

typedef struct copse__early_decision {
    bool better; /* the weights of this epoch are the best so far */
    bool stop;
} copse__early_decision;

/* epoch: of the value; the first is 0. Once it has said stop, the state is `stopped`. */
copse__early_decision
copse__early_stopping_epoch(const copse__config_early_stopping *config,
                            copse__monitor_state *state, uint64_t epoch, double value);

/* Whether a run whose state says `stopped` is still to stop under this configuration, which may have got
 * another patience. */
bool copse__early_stopping_stands(const copse__config_early_stopping *config,
                                  const copse__monitor_state *state);

/* The learning rate of the following epochs: `rate`, or lower; then as Keras keeps it, in float32. */
double copse__plateau_epoch(const copse__config_plateau *config,
                            copse__monitor_state *state, double value, double rate);

#endif
