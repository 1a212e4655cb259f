/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "train/trainer_private.h"

/* Whether all replicas hold the same parameters. */

static copse_status hash_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    t->replicas[rank].stage = "while its weights were hashed";
    return copse__updater_hash(t->replicas[rank].updater, &t->steps[rank].weights_hash,
                               err);
}

copse_status copse__hashes_compare(const copse__trainer *t, uint64_t step,
                                   copse_error *err) {
    const copse__step *first = &t->steps[t->lead];
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r) && t->steps[r].weights_hash != first->weights_hash)
            return copse__fail(
                err, COPSE_DRIFT, 0, t->choices[r].label,
                "after step %" PRIu64 " its parameters differ from those of %s (hash "
                "%016" PRIx64 " and %016" PRIx64
                "); leave the device out with --devices and run `copse selftest`",
                step, t->choices[t->lead].label, t->steps[r].weights_hash,
                first->weights_hash);
    return COPSE_OK;
}

copse_status copse__trainer_hash(copse__trainer *t, uint64_t *hash, copse_error *err) {
    *hash = 0;
    size_t before;
    copse_status status;
    do { /* again without those that failed at it */
        before = copse__trainer_active(t);
        if (before == 0)
            return copse__fail(err, COPSE_DEVICE, 0, NULL, "no device is left");
        status = copse__trainer_ask_all(t, hash_one, t, err);
    } while (copse__is_loss(status) && copse__trainer_active(t) < before);
    if (status == COPSE_OK)
        status = copse__hashes_compare(t, t->position.step, err);
    if (status == COPSE_OK)
        *hash = t->steps[t->lead].weights_hash;
    return status;
}
