/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_SPEEDS_H
#define COPSE_TRAIN_SPEEDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Shards for unlike devices: pure arithmetic on measured times. */

/* A device takes fixed_s + rows * row_s seconds for its part of a step: the passes over its shard and the update, which
 * every device makes in full. */
typedef struct copse__speed {
    double fixed_s, row_s; /* row_s <= 0: not to be used */
    double update_s;       /* of fixed_s */
    size_t most_rows;      /* that fit its memory; 0: no limit */
} copse__speed;

/* How to split a batch over the devices that are `in`, so that all finish at the same time: shares
 * are not whole numbers and sum to the batch. A device whose fixed time alone is longer than the
 * others need for everything gets 0. *seconds: how long they then take. COPSE_DEVICE_MEMORY where
 * they cannot hold the batch. */
copse_status copse__speeds_share(const copse__speed *speeds, size_t count, const bool *in,
                                 size_t batch, double *shares, double *seconds,
                                 copse_error *err);

/* Seconds that the all-reduce of two or more devices adds to a step. */
typedef copse_status copse__speeds_cost_fn(void *user, const bool *in, double *seconds,
                                           copse_error *err);

/* The devices that make steps shortest, and their shares: leaves out, one by one, the device with
 * the smallest share where what its samples save is less than what its part in the all-reduce costs.
 * in: whom to consider; then, who has a share. */
copse_status copse__speeds_plan(const copse__speed *speeds, size_t count, size_t batch,
                                copse__speeds_cost_fn *cost, void *user, bool *in,
                                double *shares, copse_error *err);

#endif
