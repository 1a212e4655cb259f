/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_STORE_H
#define COPSE_PLAN_STORE_H

#include "backend/backend.h"
#include "plan/layout.h"
#include "plan/plan.h"

/* What one device keeps from step to step: weights, gradients, optimizer slots (one root buffer a
 * bucket and kind, as OpenCL forbids kernels to write a buffer of which any part is mapped), moving
 * statistics and the step's scalars; and the arena that the programs of one device share. */

#define COPSE__MAX_SLOTS 3

typedef struct copse__store {
    copse__device *device;
    const copse__layout *layout;
    size_t slot_count;
    copse__buffer **weights, **gradients; /* by bucket */
    copse__buffer **slots[COPSE__MAX_SLOTS];
    copse__buffer *state; /* NULL where there are no moving statistics */
    size_t state_bytes;
    copse__buffer *scalars;
    copse__buffer **blocks; /* of the arena */
    size_t block_count;
} copse__store;

/* Borrows device and layout. All memory is zero. The arena has room for each of the plans, which
 * run one at a time. with_gradients false: weights and state only (evaluation). */
copse_status copse__store_new(copse__store **out, copse__device *device,
                              const copse__layout *layout, size_t slot_count,
                              bool with_gradients, const copse__plan *const *plans,
                              size_t plan_count, copse_error *err);
void copse__store_free(copse__store *store);

typedef enum copse__kind {
    COPSE__KIND_WEIGHT,
    COPSE__KIND_GRADIENT,
    COPSE__KIND_SLOT
} copse__kind;

/* Bytes of one buffer a bucket, and of an arena, as they are counted. */
size_t copse__store_bucket_bytes(const copse__layout *layout);
size_t copse__store_arena_bytes(const copse__plan *const *plans, size_t plan_count);

/* The whole buffer of a bucket; slot is used for COPSE__KIND_SLOT only. */
copse__view copse__store_bucket(const copse__store *store, copse__kind kind, size_t slot,
                                size_t bucket);

/* One parameter's values between the device and host memory (its elements, float32). Block. */
copse_status copse__store_write(copse__store *store, copse__kind kind, size_t slot,
                                size_t parameter, const float *values, copse_error *err);
copse_status copse__store_read(copse__store *store, copse__kind kind, size_t slot,
                               size_t parameter, float *values, copse_error *err);

/* Another arena, for these plans of the same layout. What the programs kept in the old one is lost, and
 * they must be gone; everything else stays. */
copse_status copse__store_replan(copse__store *store, const copse__plan *const *plans,
                                 size_t plan_count, copse_error *err);

/* Weights, gradients and slots become zero again. Blocks. */
copse_status copse__store_clear(copse__store *store, copse_error *err);

/* All moving statistics, state_bytes. Blocks. */
copse_status copse__store_write_state(copse__store *store, const void *bytes,
                                      copse_error *err);

#endif
