/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* After a device was lost. Nothing is asked of it any more, not even to release anything; those who
 * are left share its samples. */

bool copse__is_loss(copse_status status) {
    return status == COPSE_DEVICE || status == COPSE_DEVICE_MEMORY ||
           status == COPSE_TIMEOUT;
}

static size_t rank_in_engine(const copse__trainer *t, size_t engine_rank) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r) && t->engine_ranks[r] == engine_rank)
            return r;
    return SIZE_MAX;
}

bool copse__trainer_blame(copse__trainer *t) {
    bool about_devices = false;
    memset(t->failed, 0, t->replica_count * sizeof *t->failed);
    for (size_t r = 0; r < t->replica_count; r++) {
        if (t->statuses[r] == COPSE_OK || atomic_load(&t->replicas[r].lost))
            continue;
        bool out = copse__workers_is_out(t->workers, r);
        size_t named = out ? SIZE_MAX : t->steps[r].failed_rank;
        size_t who = named == SIZE_MAX ? r : rank_in_engine(t, named);
        if (who == SIZE_MAX || (who == r && !copse__is_loss(t->statuses[r])))
            return false;
        t->failed[who] = true;
        about_devices = true;
    }
    return about_devices;
}

/* The failure of a rank in its own words, or in those of one that waited for it. */
static const copse_error *words_about(const copse__trainer *t, size_t rank) {
    if (t->why_lost)
        return t->why_lost;
    bool silent = t->statuses[rank] == COPSE_OK || t->statuses[rank] == COPSE_TIMEOUT;
    for (size_t r = 0; silent && r < t->replica_count; r++)
        if (t->statuses[r] != COPSE_OK && r != rank &&
            t->steps[r].failed_rank != SIZE_MAX &&
            rank_in_engine(t, t->steps[r].failed_rank) == rank)
            return copse__workers_error(t->workers, r);
    return copse__workers_error(t->workers, rank);
}

/* One that does not come back: from where. */
static void say_stage(const copse__trainer *t, size_t rank, copse_error *why) {
    const char *stage = t->replicas[rank].stage;
    size_t used = strlen(why->text);
    if (stage && copse__workers_is_out(t->workers, rank))
        snprintf(why->text + used, sizeof why->text - used, ", %s", stage);
}

static void say(const copse__trainer *t, const char *what, size_t rank, const char *why) {
    copse__trainer_event event = {.what = what,
                                  .step = t->position.step,
                                  .device = t->choices[rank].label,
                                  .why = why};
    if (t->hooks.on_event)
        t->hooks.on_event(t->hooks.user, &event);
}

void copse__trainer_give_up(copse__trainer *t, bool repeated) {
    const char *then = t->config->train.on_device_loss == COPSE__ON_FAULT_STOP
                           ? "; stopping, as train.on_device_loss says"
                       : repeated ? "; the step is repeated without it"
                                  : "; going on without it";
    for (size_t r = 0; r < t->replica_count; r++) {
        if (!t->failed[r] || atomic_load(&t->replicas[r].lost))
            continue;
        copse_error why = *words_about(t, r);
        say_stage(t, r, &why);
        if (t->allreduce && !t->replicas[r].resting)
            (void)!copse__allreduce_drop(t->allreduce, t->engine_ranks[r], NULL);
        atomic_store(&t->replicas[r].lost, true);
        copse__workers_rest(t->workers, r, true);
        copse__log(COPSE_LOG_WARN, "%s is lost after step %" PRIu64 ": %s%s",
                   t->choices[r].label, t->position.step, why.text, then);
        say(t, "device_lost", r, why.text);
    }
    t->lead = SIZE_MAX;
    for (size_t r = t->replica_count; r > 0; r--)
        if (copse__takes_part(t, r - 1))
            t->lead = r - 1;
    t->regroup_due = true;
}

static void nobody_named(copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++) {
        t->statuses[r] = COPSE_OK;
        if (!atomic_load(&t->replicas[r].lost))
            t->steps[r].failed_rank = SIZE_MAX;
    }
}

copse_status copse__trainer_ask_all(copse__trainer *t, copse__work_fn *fn, void *user,
                                    copse_error *err) {
    nobody_named(t);
    copse_status status = copse__workers_run(t->workers, fn, user, t->statuses, err);
    if (status != COPSE_OK && copse__trainer_blame(t))
        copse__trainer_give_up(t, false);
    return status;
}

copse_status copse__trainer_ask(copse__trainer *t, size_t rank, copse__work_fn *fn,
                                void *user, copse_error *err) {
    copse_status status = copse__workers_run_on(t->workers, rank, fn, user, err);
    if (copse__is_loss(status))
        copse__trainer_lose(t, rank, status, NULL);
    return status;
}

void copse__trainer_lose(copse__trainer *t, size_t rank, copse_status status,
                         const copse_error *why) {
    nobody_named(t);
    t->statuses[rank] = status;
    t->why_lost = why;
    if (copse__trainer_blame(t))
        copse__trainer_give_up(t, false);
    t->why_lost = NULL;
}

/* ---- Going on -------------------------------------------------------------------------- */

static copse_status new_shards(copse__trainer *t, copse_error *err) {
    bool had = false;
    for (size_t r = 0; r < t->replica_count; r++)
        had |= atomic_load(&t->replicas[r].lost) && t->shards[r] > 0;
    if (!had) /* who is lost only rested */
        return COPSE_OK;
    if (t->speeds)
        return copse__shards_by_speed(t, err);
    double *weights;
    copse_status status = copse__calloc(&weights, t->replica_count, sizeof *weights, err);
    if (status != COPSE_OK)
        return status;
    bool any = false;
    for (size_t r = 0; r < t->replica_count; r++) {
        if (copse__takes_part(t, r))
            weights[r] = (double)t->shards[r];
        any |= weights[r] > 0;
    }
    for (size_t r = 0; r < t->replica_count && !any; r++)
        weights[r] = copse__takes_part(t, r);
    status = copse__shards_set(t, weights, err);
    free(weights);
    return status;
}

/* A survivor with too little memory for its larger share computes it in several micro-batches. */
static copse_status resize_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    copse__replica *r = &t->replicas[rank];
    copse__sizes sizes;
    if (t->shards[rank] == 0)
        return COPSE_OK;
    copse_status status = copse__shards_sizes(t, rank, &sizes, err);
    if (status != COPSE_OK)
        return status;
    for (;;) {
        status = copse__replica_resize(r, &t->network, &t->optimizer, sizes, err);
        bool smaller =
            t->micro_shard == 0 && (sizes.train_rows > 1 || sizes.eval_rows > 1);
        if (status != COPSE_DEVICE_MEMORY || !smaller)
            return status;
        sizes.train_rows = sizes.train_rows / 2 + sizes.train_rows % 2;
        sizes.eval_rows = sizes.eval_rows / 2 + sizes.eval_rows % 2;
        sizes.levels = 1;
    }
}

/* Everyone who now has a shard is made for it; who rested until now gets the weights. */
static copse_status make_ready(copse__trainer *t, copse_error *err) {
    for (size_t r = 0; r < t->replica_count; r++)
        copse__workers_rest(t->workers, r,
                            atomic_load(&t->replicas[r].lost) || t->shards[r] == 0);
    copse__workers_set_patience(t->workers, t->stall_ns * COPSE__BUILD_PATIENCE);
    nobody_named(t);
    copse_status status = copse__workers_run(t->workers, resize_one, t, t->statuses, err);
    copse__workers_set_patience(t->workers, t->stall_ns);
    copse__trainer_set_pace(t);
    for (size_t r = 0; r < t->replica_count && status == COPSE_OK; r++)
        if (t->replicas[r].resting && t->shards[r] > 0)
            status = copse__trainer_wake(t, r, err);
    return status;
}

static copse_status refuse(copse__trainer *t, copse_error *err) {
    const char *lost = "";
    const char *why = "";
    for (size_t r = 0; r < t->replica_count; r++)
        if (atomic_load(&t->replicas[r].lost)) {
            lost = t->choices[r].label;
            why = copse__workers_error(t->workers, r)->text;
        }
    if (t->lead == SIZE_MAX)
        return copse__fail(err, COPSE_DEVICE, 0, lost,
                           "no device is left after step %" PRIu64 ": %s",
                           t->position.step, why);
    return copse__fail(err, COPSE_DEVICE, 0, lost,
                       "the device was lost after step %" PRIu64
                       ": %s; go on without it (--devices), or set "
                       "train.on_device_loss: continue",
                       t->position.step, why);
}

copse_status copse__trainer_recut(copse__trainer *t, copse_error *err) {
    copse__group_part(t);
    copse_status status = make_ready(t, err);
    if (copse__is_loss(status) && (t->regroup_due || copse__trainer_blame(t))) {
        if (!t->regroup_due)
            copse__trainer_give_up(t, false);
        return COPSE_OK;
    }
    t->moving_changed = true; /* a replica that rested has old ones */
    if (status == COPSE_OK)
        status = copse__group_join(t, err);
    if (copse__is_loss(status) && t->regroup_due)
        return COPSE_OK;
    if (status == COPSE_OK)
        say(t, "replanned", t->lead, "");
    return status;
}

copse_status copse__trainer_regroup(copse__trainer *t, copse_error *err) {
    copse_status status = COPSE_OK;
    copse__group_part(t);
    t->moving_changed = true; /* a replica that rested has old ones */
    while (t->regroup_due) {
        if (t->lead == SIZE_MAX ||
            t->config->train.on_device_loss == COPSE__ON_FAULT_STOP)
            return refuse(t, err);
        COPSE__TRY(new_shards(t, err), out);
        copse__drift_forget(t->drift);
        copse__cuts_free(&t->cuts); /* others' */
        t->regroup_due = false;
        status = make_ready(t, err);
        if (copse__is_loss(status) && !t->regroup_due && copse__trainer_blame(t))
            copse__trainer_give_up(t, false);
        else if (status == COPSE_OK)
            status = copse__group_join(t, err);
        if (status != COPSE_OK && !t->regroup_due)
            return status;
    }
    say(t, "resharded", t->lead, "");
out:
    return status;
}
