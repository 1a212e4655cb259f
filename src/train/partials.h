/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_PARTIALS_H
#define COPSE_TRAIN_PARTIALS_H

#include "plan/store.h"

/* Sums of gradients that a device makes by itself, one micro-batch after the other: a stack of
 * copies of the gradient buffers. push and merge only enqueue, on the compute queue. */
typedef struct copse__partials copse__partials;

/* What they take on a device. Allocates nothing there. */
copse_status copse__partials_measure(copse__device *device, const copse__layout *layout,
                                     size_t levels, size_t *bytes, copse_error *err);
/* levels: how many sums may wait at once (0 is allowed). Borrows the store. */
copse_status copse__partials_new(copse__partials **out, copse__store *store,
                                 size_t levels, copse_error *err);
void copse__partials_free(copse__partials *partials); /* NULL is allowed */

size_t copse__partials_levels(const copse__partials *partials);

/* The fixed tree (comm/tree.h) over `count` leaves needs so many levels. */
size_t copse__partials_tree_levels(size_t count);
/* When leaf `index` of `count` lies in the gradient buffers: how many of the sums that wait it is
 * merged with before it is pushed (or, being the last, is the whole). */
size_t copse__partials_tree_merges(size_t index, size_t count, size_t waiting);

/* Sums that wait. */
size_t copse__partials_waiting(const copse__partials *partials);
/* Forgets them: a step begins. */
void copse__partials_clear(copse__partials *partials);
/* The gradients wait. */
copse_status copse__partials_push(copse__partials *partials, copse_error *err);
/* gradients = gradients + the sum pushed last, which waits no longer. */
copse_status copse__partials_merge(copse__partials *partials, copse_error *err);
/* One bucket of it; the sum goes on waiting. */
copse_status copse__partials_merge_bucket(copse__partials *partials, size_t bucket,
                                          copse_error *err);

/* Whether the device adds as the host does, down to the smallest numbers: COPSE_UNSUPPORTED
 * where it rounds them to zero. Overwrites gradients and waiting sums. Blocks. */
copse_status copse__partials_check(copse__partials *partials, copse_error *err);

#endif
