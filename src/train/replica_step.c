/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "train/replica_walk.h"

/* ---- Timed steps ----------------------------------------------------------------------- */

static copse_status time_upload(const copse__walk *w, copse__step *step,
                                copse_error *err) {
    if (!step->timed)
        return COPSE_OK;
    step->times = (copse__step_times){.begin_ns = copse__now_ns()};
    copse_status status = copse__program_wait_upload(w->program, *w->slot, err);
    step->times.uploaded_ns = copse__now_ns();
    return status;
}

static copse_status time_compute(const copse__walk *w, copse__step *step,
                                 copse_error *err) {
    if (!step->timed)
        return COPSE_OK;
    copse_status status = copse__program_wait(w->program, step->slot, UINT64_MAX, err);
    step->times.computed_ns = copse__now_ns();
    return status;
}

static copse_status time_update(copse__replica *r, copse__step *step, copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse__fence *done = NULL;
    if (!step->timed)
        return COPSE_OK;
    copse_status status = backend->mark(&done, r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->flush(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->fence_wait(
            done, step->patience_ns ? step->patience_ns : UINT64_MAX, err);
    if (status == COPSE_OK)
        backend->fence_free(done);
    step->times.updated_ns = copse__now_ns();
    return status;
}

/* ---- The step -------------------------------------------------------------------------- */

/* Whether nobody left before giving its gradients. */
static copse_status check_complete(copse__step *step, copse_error *err) {
    uint64_t left = atomic_load(step->left);
    if (left / 256 != step->attempt)
        return COPSE_OK;
    step->failed_rank = (size_t)(left % 256);
    return copse__fail(err, COPSE_DEVICE, 0, NULL,
                       "rank %zu left the all-reduce before it had given its gradients",
                       step->failed_rank);
}

/* After a failure of its own device a rank either leaves the all-reduce, whose step is discarded, or,
 * where it has given everything already, learns whether the step stands. */
static void settle(copse__step *step) {
    copse__allreduce_result reduced;
    if (!step->allreduce)
        return;
    if (!step->submitted) {
        /* Before leaving: where nobody had submitted anything yet, the all-reduce would go through. */
        atomic_store(step->left, step->attempt * 256 + step->engine_rank);
        /* The last live rank cannot leave, but nobody waits for it either. */
        (void)!copse__allreduce_drop(step->allreduce, step->engine_rank, NULL);
    } else if (copse__allreduce_wait(step->allreduce, step->engine_rank, step->step,
                                     &reduced, NULL) == COPSE_OK &&
               atomic_load(step->left) / 256 != step->attempt) {
        step->committed = true;
        step->nonfinite = reduced.nonfinite;
    }
}

static copse_status wait_for_parts(copse__replica *r, uint64_t patience_ns,
                                   copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    if (!r->parts_read)
        return COPSE_OK;
    copse_status status = backend->flush(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->fence_wait(r->parts_read,
                                     patience_ns ? patience_ns : UINT64_MAX, err);
    if (status == COPSE_OK) {
        backend->fence_free(r->parts_read);
        r->parts_read = NULL;
    }
    return status;
}

/* Blocks until the gradients are summed over all replicas. */
static copse_status reduce(copse__step *step, copse_error *err) {
    copse__allreduce_result reduced = {.failed_rank = SIZE_MAX};
    copse_status status = copse__allreduce_wait(step->allreduce, step->engine_rank,
                                                step->step, &reduced, err);
    step->nonfinite = reduced.nonfinite;
    step->failed_rank = reduced.failed_rank;
    if (status == COPSE_OK)
        status = check_complete(step, err);
    step->committed = status == COPSE_OK;
    return status;
}

static copse_status update(copse__replica *r, copse__step *step, copse_error *err) {
    if (step->nonfinite > 0 || !step->update)
        return COPSE_OK;
    r->stage = "while it was given the update";
    copse_status status = copse__updater_apply(r->updater, err);
    if (status == COPSE_OK && step->hash)
        status = copse__updater_hash(r->updater, &step->weights_hash, err);
    return status == COPSE_OK ? time_update(r, step, err) : status;
}

/* The results of the last micro-batch. */
static copse_status take_last(const copse__walk *w, copse__step *step, copse_error *err) {
    copse_status status = COPSE_OK;
    if (w->count == 1)
        copse__replica_begin_results(w->r, w->share->rows);
    if (w->count > 0)
        status = copse__walk_take(w, w->count - 1, step->slot, step->patience_ns, err);
    step->measured = status == COPSE_OK;
    return status;
}

/* A replica by itself asks nobody whether its gradients are finite: its update, which is enqueued
 * behind the check, does nothing where they are not. */
static copse_status enqueue_update(copse__replica *r, copse__step *step,
                                   copse_error *err) {
    copse_status status = copse__updater_check(r->updater, step->slot, err);
    if (status == COPSE_OK && step->update)
        status = copse__updater_apply(r->updater, err);
    return status;
}

copse_status copse__replica_finish(copse__replica *r, copse__step *step,
                                   copse_error *err) {
    copse__walk w = copse__walk_begin(r, true, &step->share, NULL);
    r->stage = "while its gradients and losses were waited for";
    step->ahead = false;
    copse_status status =
        copse__updater_checked(r->updater, step->slot, &step->nonfinite, err);
    step->committed = status == COPSE_OK;
    if (status == COPSE_OK)
        status = take_last(&w, step, err);
    if (status == COPSE_OK && step->hash && step->update && step->nonfinite == 0)
        status = copse__updater_hash(r->updater, &step->weights_hash, err);
    return status;
}

/* All of a step that runs ahead, handed over at once. */
static copse_status step_ahead(copse__replica *r, const copse__walk *w, copse__step *step,
                               copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse_status status = COPSE_OK;
    if (backend->hold)
        status = backend->hold(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = copse__walk_gradients(w, step, err);
    if (status == COPSE_OK)
        status = enqueue_update(r, step, err);
    copse_status released = backend->release
                                ? backend->release(r->device, COPSE__QUEUE_COMPUTE,
                                                   status == COPSE_OK ? err : NULL)
                                : COPSE_OK;
    return status == COPSE_OK ? released : status;
}

copse_status copse__replica_step(copse__replica *r, copse__step *step, copse_error *err) {
    step->nonfinite = 0;
    step->weights_hash = 0;
    step->committed = step->submitted = step->measured = false;
    step->failed_rank = SIZE_MAX;
    copse__walk w = copse__walk_begin(r, true, &step->share,
                                      step->next.rows > 0 ? &step->next : NULL);
    step->ahead &= w.count == 1 && !step->allreduce && !step->host_adds && !step->hash &&
                   !step->timed;
    step->slot = *w.slot; /* of its first micro-batch */
    r->stage = "while it was given the forward and backward passes";
    if (step->ahead)
        return step_ahead(r, &w, step, err);
    copse_status status = time_upload(&w, step, err);
    if (status == COPSE_OK)
        status = copse__walk_gradients(&w, step, err);
    step->slot = copse__other_slot(*w.slot); /* which has been turned since */
    if (status == COPSE_OK)
        status = time_compute(&w, step, err);
    if (status != COPSE_OK) {
        if (!atomic_load(&r->lost))
            settle(step);
        return status;
    }
    r->stage = "while its gradients were waited for";
    if (!step->allreduce && !step->host_adds) {
        step->times.summed_ns = copse__now_ns();
        status = enqueue_update(r, step, err);
        if (status == COPSE_OK)
            status = copse__replica_finish(r, step, err);
        return status == COPSE_OK ? time_update(r, step, err) : status;
    }
    status =
        step->host_adds ? wait_for_parts(r, step->patience_ns, err) : reduce(step, err);
    step->times.summed_ns = copse__now_ns();
    r->stage = "while its losses were waited for";
    if (status == COPSE_OK)
        status = take_last(&w, step, err);
    return status != COPSE_OK || step->host_adds ? status : update(r, step, err);
}

copse_status copse__replica_apply(copse__replica *r, copse__step *step,
                                  copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    const char *from = backend->buffer_host(r->parts[0]);
    step->weights_hash = 0;
    step->times.summed_ns = copse__now_ns();
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        copse__view to = copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, b);
        copse_status status = backend->write(r->device, COPSE__QUEUE_COMPUTE, to, from,
                                             to.bytes, NULL, NULL, err);
        if (status != COPSE_OK)
            return status;
        from += to.bytes;
    }
    return update(r, step, err);
}
