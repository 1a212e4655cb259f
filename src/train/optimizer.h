/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_OPTIMIZER_H
#define COPSE_TRAIN_OPTIMIZER_H

#include <scalars.clh>

#include "graph/op.h"
#include "plan/store.h"
#include "train/config.h"

/* An optimizer as a backend knows it; formulas: cl/update.clh. */
typedef struct copse__optimizer {
    copse__op op; /* COPSE__OP_UPDATE_… */
    copse__attrs attrs;
    double weight_decay; /* AdamW; 0 elsewhere */
} copse__optimizer;

/* From a configuration's section; learning_rate is left to its schedule. */
copse__optimizer copse__optimizer_make(const copse__config_optimizer *config);

/* Optimizer slots a parameter needs, and what Keras calls them: "momentum", "velocity", … */
size_t copse__optimizer_slots(const copse__optimizer *optimizer);
const char *copse__optimizer_slot_name(const copse__optimizer *optimizer, size_t slot);
/* Which of the node's operands slot0 … slot2 (graph/op.h) it is. */
size_t copse__optimizer_slot_operand(const copse__optimizer *optimizer, size_t slot);

/* The scalars of optimizer step `step` (from 0) at a learning rate: learning_rate, step_size (Adam's bias
 * correction, made in double) and weight_decay. The other fields are left as they are. */
void copse__optimizer_scalars(const copse__optimizer *optimizer, uint64_t step,
                              double learning_rate, copse_scalars *scalars);

/* What a device does to whole buckets: check the gradients, update, hash. */
typedef struct copse__updater copse__updater;

/* What an updater of such a store allocates. Allocates nothing on the device. */
copse_status copse__updater_measure(copse__device *device, const copse__layout *layout,
                                    const copse__optimizer *optimizer,
                                    copse__memory_bytes *out, copse_error *err);
copse_status copse__updater_new(copse__updater **out, copse__store *store,
                                const copse__optimizer *optimizer, copse_error *err);
void copse__updater_free(copse__updater *updater);

/* Enqueues the check of all buckets. From where it finds elements that are not finite until `checked`
 * has told so, no update that is enqueued behind it changes anything. slot: one of COPSE__INPUT_SLOTS,
 * so that a step can be enqueued before the answer about the one before it is taken. */
copse_status copse__updater_check(copse__updater *updater, size_t slot, copse_error *err);
/* Blocks for the check's answer: how many elements are not finite, or those of an earlier check that
 * nobody has asked about were not. */
copse_status copse__updater_checked(copse__updater *updater, size_t slot,
                                    uint64_t *nonfinite, copse_error *err);
/* Enqueues the update of all buckets with the store's scalars and gradients. */
copse_status copse__updater_apply(copse__updater *updater, copse_error *err);
/* The 64-bit hash of all weights (cl/hash.clh). Blocks. */
copse_status copse__updater_hash(copse__updater *updater, uint64_t *hash,
                                 copse_error *err);

#endif
