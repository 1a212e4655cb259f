/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/replica.h"

/* ---- Micro-batches --------------------------------------------------------------------- */

/* A share on its way through one of the programs, a micro-batch at a time: while one is computed,
 * the next one travels into the other input slot. */
typedef struct walk {
    copse__replica *r;
    copse__program *program;
    const copse__graph *graph;
    size_t *slot;
    size_t micro_rows, count; /* rows of a micro-batch but the last; micro-batches */
    const copse__share *share, *next;
} walk;

static walk begin_walk(copse__replica *r, bool training, const copse__share *share,
                       const copse__share *next) {
    walk w = {.r = r,
              .program = training ? r->train : r->eval,
              .graph = training ? r->train_graph : r->eval_graph,
              .slot = training ? &r->train_slot : &r->eval_slot,
              .share = share,
              .next = next};
    w.micro_rows =
        copse__max_size(training ? r->sizes.train_rows : r->sizes.eval_rows, 1);
    w.count = share->rows / w.micro_rows + (share->rows % w.micro_rows != 0);
    return w;
}

/* Micro-batch k of a share; empty behind its end. */
static copse__share micro_batch(const walk *w, const copse__share *share, size_t k) {
    size_t first = k * w->micro_rows;
    if (first >= share->rows)
        return (copse__share){0};
    copse__extents extents = copse__shard_extents(w->graph, first);
    const copse__tensor *input = &w->graph->tensors[w->graph->input];
    copse__share part = {.features = (const char *)share->features +
                                     copse__tensor_bytes(input, &extents),
                         .rows = copse__min_size(w->micro_rows, share->rows - first),
                         .first_row = share->first_row + first};
    if (share->labels && w->graph->label != COPSE__NO_TENSOR)
        part.labels = (const char *)share->labels +
                      copse__tensor_bytes(&w->graph->tensors[w->graph->label], &extents);
    return part;
}

static copse__extents micro_extents(const walk *w, size_t k) {
    return copse__shard_extents(w->graph, micro_batch(w, w->share, k).rows);
}

static copse_status upload(const walk *w, size_t slot, copse__share part,
                           copse_error *err) {
    copse__extents extents = copse__shard_extents(w->graph, part.rows);
    return copse__program_upload(w->program, slot, part.features, part.labels, &extents,
                                 err);
}

static size_t other_slot(size_t slot) {
    return (slot + 1) % COPSE__INPUT_SLOTS;
}

/* What comes after micro-batch k, into the other slot. */
static copse_status upload_after(const walk *w, size_t k, copse_error *err) {
    bool more = k + 1 < w->count;
    if (!more && !w->next)
        return COPSE_OK;
    copse__share part = micro_batch(w, more ? w->share : w->next, more ? k + 1 : 0);
    return upload(w, other_slot(*w->slot), part, err);
}

static void turn_slot(const walk *w) {
    *w->slot = other_slot(*w->slot);
}

copse_status copse__replica_load(copse__replica *r, bool training,
                                 const copse__share *share, copse_error *err) {
    walk w = begin_walk(r, training, share, NULL);
    return upload(&w, *w.slot, micro_batch(&w, share, 0), err);
}

/* ---- Results --------------------------------------------------------------------------- */

static void begin_results(copse__replica *r, size_t rows) {
    r->metric_rows = 0;
    r->moment_count = 0;
    r->share_rows = rows;
}

static copse_status take_metrics(const walk *w, size_t slot,
                                 const copse__extents *extents, copse_error *err) {
    copse__replica *r = w->r;
    const float *metrics = copse__program_metrics(w->program, slot);
    if (!metrics)
        return COPSE_OK;
    size_t rows = copse__tensor_rows(&w->graph->tensors[w->graph->metrics], extents);
    copse_status status =
        copse__grow(&r->metrics, &r->metric_capacity, 2 * (r->metric_rows + rows),
                    sizeof *r->metrics, err);
    if (status != COPSE_OK)
        return status;
    memcpy(r->metrics + 2 * r->metric_rows, metrics, 2 * rows * sizeof *metrics);
    r->metric_rows += rows;
    return COPSE_OK;
}

static copse_status take_moments(const walk *w, size_t slot, copse_error *err) {
    copse__replica *r = w->r;
    for (size_t s = 0; s < w->graph->state_count; s++) {
        const copse__state *state = &w->graph->states[s];
        if (state->stats == COPSE__NO_TENSOR)
            continue;
        size_t floats = copse__tensor_elements(&w->graph->tensors[state->stats], NULL);
        copse_status status =
            copse__grow(&r->moments, &r->moment_capacity, r->moment_count + floats,
                        sizeof *r->moments, err);
        if (status != COPSE_OK)
            return status;
        memcpy(r->moments + r->moment_count, copse__program_stats(w->program, slot, s),
               floats * sizeof *r->moments);
        r->moment_count += floats;
    }
    return COPSE_OK;
}

/* Waits for micro-batch k, which was in this slot, and keeps what it gave. */
static copse_status take_results(const walk *w, size_t k, size_t slot,
                                 uint64_t patience_ns, copse_error *err) {
    copse__extents extents = micro_extents(w, k);
    copse_status status = copse__program_wait(
        w->program, slot, patience_ns ? patience_ns : UINT64_MAX, err);
    if (status == COPSE_OK)
        status = take_metrics(w, slot, &extents, err);
    return status == COPSE_OK ? take_moments(w, slot, err) : status;
}

/* ---- Gradients ------------------------------------------------------------------------- */

/* A thread that comes back from a call long after its device was given up makes no other one. */
static copse_status still_wanted(const copse__replica *r, copse_error *err) {
    return atomic_load(&r->lost) ? copse__fail(err, COPSE_DEVICE, 0,
                                               copse__device_get(r->device)->choice.label,
                                               "the device was given up")
                                 : COPSE_OK;
}

static copse_status send_scalars(copse__replica *r, const copse__step *step,
                                 size_t first_row, copse_error *err) {
    copse_scalars *scalars = &r->scalars[r->train_slot];
    *scalars = step->scalars;
    scalars->sample_base = (uint32_t)first_row;
    copse__view to = {.buffer = r->store->scalars, .bytes = sizeof *scalars};
    return copse__backend_of(r->device)->write(r->device, COPSE__QUEUE_COMPUTE, to,
                                               scalars, sizeof *scalars, NULL, NULL, err);
}

/* Hands a bucket to the all-reduce as soon as what is queued so far has run. */
static copse_status submit_bucket(copse__replica *r, const copse__step *step,
                                  size_t bucket, copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse__fence *ready = NULL;
    bool contributes = step->share.rows > 0;
    copse_status status = still_wanted(r, err);
    if (status == COPSE_OK)
        status = backend->mark(&ready, r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->flush(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = still_wanted(r, err);
    if (status != COPSE_OK) {
        if (!atomic_load(&r->lost))
            backend->fence_free(ready);
        return status;
    }
    return copse__allreduce_submit(
        step->allreduce, step->engine_rank, step->step, bucket,
        copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, bucket), ready,
        contributes, err);
}

/* The last micro-batch, cut where a bucket's gradients are whole, which then are sent off. */
static copse_status run_and_submit(const walk *w, copse__step *step, copse_error *err) {
    copse_status status;
    copse__replica *r = w->r;
    size_t at = 0, end = w->graph->node_count;
    copse__extents extents = {0};
    if (w->count > 0)
        extents = micro_extents(w, w->count - 1);
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        size_t ready = copse__min_size(r->train_plan->bucket_ready[b] + 1, end);
        if (w->count > 0)
            COPSE__TRY(copse__program_run(w->program, *w->slot, at, ready, &extents, err),
                       out);
        COPSE__TRY(still_wanted(r, err), out);
        if (copse__partials_waiting(r->partials) > 0)
            COPSE__TRY(copse__partials_merge_bucket(r->partials, b, err), out);
        COPSE__TRY(submit_bucket(r, step, b, err), out);
        at = copse__max_size(at, ready);
    }
    step->submitted = true;
    if (w->count > 0)
        COPSE__TRY(copse__program_run(w->program, *w->slot, at, end, &extents, err), out);
    copse__partials_clear(r->partials);
out:
    return status;
}

/* Brings the sum of a subtree, which the gradient buffers hold, to the host. */
static copse_status read_part(copse__replica *r, size_t part, copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    char *to = backend->buffer_host(r->parts[part]);
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        copse__view from = copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, b);
        bool last = b + 1 == r->layout->bucket_count;
        copse__fence *done = NULL;
        copse_status status = backend->read(r->device, COPSE__QUEUE_COMPUTE, to, from,
                                            from.bytes, NULL, last ? &done : NULL, err);
        if (status != COPSE_OK)
            return status;
        if (last) { /* in order: it covers all before it */
            backend->fence_free(r->parts_read);
            r->parts_read = done;
        }
        to += from.bytes;
    }
    return COPSE_OK;
}

/* Where a share stands in the tree over micro-shards. */
typedef struct climb {
    size_t part;  /* subtree of the share */
    size_t index; /* leaf in the subtree */
} climb;

/* Adds the micro-shard whose gradients are there to its subtree. */
static copse_status climb_tree(copse__replica *r, const copse__step *step, climb *at,
                               copse_error *err) {
    copse_status status = COPSE_OK;
    size_t count = r->part_ranges[at->part].count;
    size_t merges = copse__partials_tree_merges(at->index, count,
                                                copse__partials_waiting(r->partials));
    for (; merges > 0 && status == COPSE_OK; merges--)
        status = copse__partials_merge(r->partials, err);
    if (status != COPSE_OK)
        return status;
    if (++at->index < count)
        return copse__partials_push(r->partials, err);
    at->index = 0;
    at->part++;
    return step->host_adds ? read_part(r, at->part - 1, err) : COPSE_OK;
}

/* Adds micro-batch k of several, in order. */
static copse_status add_in_order(copse__replica *r, size_t k, size_t count,
                                 copse_error *err) {
    copse_status status = COPSE_OK;
    if (k > 0)
        status = copse__partials_merge(r->partials, err);
    if (status == COPSE_OK && k + 1 < count)
        status = copse__partials_push(r->partials, err);
    return status;
}

static copse_status plan_climb(copse__replica *r, const copse__step *step, size_t count,
                               copse_error *err) {
    r->part_count = 0;
    if (step->tree_leaves == 0)
        return COPSE_OK;
    copse__tree_range mine = {.first = step->first_leaf, .count = count};
    size_t most = 2 * sizeof(size_t) * 8; /* copse__tree_subtrees_max of anything */
    copse__tree_range ranges[2 * sizeof(size_t) * 8];
    if (count > 0)
        r->part_count = copse__tree_subtrees(step->tree_leaves, mine, ranges);
    if (r->part_count > r->sizes.parts || r->part_count > most)
        return copse__fail(err, COPSE_INTERNAL, 0, NULL,
                           "%zu sums of micro-shards where %zu were planned",
                           r->part_count, r->sizes.parts);
    memcpy(r->part_ranges, ranges, r->part_count * sizeof *ranges);
    return COPSE_OK;
}

/* Forward and backward of every micro-batch, their gradients added up and sent off. All but the last
 * one's results are taken. */
static copse_status run_share(const walk *w, copse__step *step, copse_error *err) {
    copse_status status;
    copse__replica *r = w->r;
    climb at = {0};
    if (w->count != 1) /* else those of the step before may still have to be taken */
        begin_results(r, w->share->rows);
    copse__partials_clear(r->partials);
    COPSE__TRY(plan_climb(r, step, w->count, err), out);
    for (size_t k = 0; k < w->count; k++) {
        bool submits = step->allreduce && k + 1 == w->count;
        copse__extents extents = micro_extents(w, k);
        /* First of all, as the all-reduce uses the upload queue from the first bucket on. */
        COPSE__TRY(upload_after(w, k, err), out);
        COPSE__TRY(send_scalars(r, step, w->share->first_row + k * w->micro_rows, err),
                   out);
        if (submits)
            COPSE__TRY(run_and_submit(w, step, err), out);
        else
            COPSE__TRY(copse__program_run(w->program, *w->slot, 0, w->graph->node_count,
                                          &extents, err),
                       out);
        COPSE__TRY(still_wanted(r, err), out);
        if (k > 0)
            COPSE__TRY(take_results(w, k - 1, other_slot(*w->slot), 0, err), out);
        COPSE__TRY(copse__program_collect(w->program, *w->slot, &extents, err), out);
        if (step->tree_leaves > 0)
            COPSE__TRY(climb_tree(r, step, &at, err), out);
        else if (!submits && w->count > 1)
            COPSE__TRY(add_in_order(r, k, w->count, err), out);
        turn_slot(w);
        COPSE__TRY(still_wanted(r, err), out);
    }
    if (w->count == 0) {
        COPSE__TRY(copse__replica_load(r, true, w->next ? w->next : w->share, err), out);
        COPSE__TRY(send_scalars(r, step, 0, err), out);
        if (step->allreduce)
            COPSE__TRY(run_and_submit(w, step, err), out);
    }
out:
    return status;
}

/* ---- Timed steps ----------------------------------------------------------------------- */

static copse_status time_upload(const walk *w, copse__step *step, copse_error *err) {
    if (!step->timed)
        return COPSE_OK;
    step->times = (copse__step_times){.begin_ns = copse__now_ns()};
    copse_status status = copse__program_wait_upload(w->program, *w->slot, err);
    step->times.uploaded_ns = copse__now_ns();
    return status;
}

static copse_status time_compute(const walk *w, copse__step *step, copse_error *err) {
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
static copse_status take_last(const walk *w, copse__step *step, copse_error *err) {
    copse_status status = COPSE_OK;
    if (w->count == 1)
        begin_results(w->r, w->share->rows);
    if (w->count > 0)
        status = take_results(w, w->count - 1, step->slot, step->patience_ns, err);
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
    walk w = begin_walk(r, true, &step->share, NULL);
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
static copse_status step_ahead(copse__replica *r, const walk *w, copse__step *step,
                               copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse_status status = COPSE_OK;
    if (backend->hold)
        status = backend->hold(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = run_share(w, step, err);
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
    walk w = begin_walk(r, true, &step->share, step->next.rows > 0 ? &step->next : NULL);
    step->ahead &= w.count == 1 && !step->allreduce && !step->host_adds && !step->hash &&
                   !step->timed;
    step->slot = *w.slot; /* of its first micro-batch */
    r->stage = "while it was given the forward and backward passes";
    if (step->ahead)
        return step_ahead(r, &w, step, err);
    copse_status status = time_upload(&w, step, err);
    if (status == COPSE_OK)
        status = run_share(&w, step, err);
    step->slot = other_slot(*w.slot); /* which has been turned since */
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

/* ---- Inference and trials -------------------------------------------------------------- */

copse_status copse__replica_evaluate(copse__replica *r, const copse__share *share,
                                     const copse__share *next, float *outputs,
                                     copse_error *err) {
    copse_status status = COPSE_OK;
    walk w = begin_walk(r, false, share, next->rows > 0 ? next : NULL);
    r->stage = "while a batch was evaluated";
    begin_results(r, share->rows);
    if (w.count == 0 && w.next)
        return copse__replica_load(r, false, w.next, err);
    for (size_t k = 0; k < w.count; k++) {
        copse__extents extents = micro_extents(&w, k);
        COPSE__TRY(
            copse__program_run(w.program, *w.slot, 0, w.graph->node_count, &extents, err),
            out);
        COPSE__TRY(copse__program_collect(w.program, *w.slot, &extents, err), out);
        COPSE__TRY(upload_after(&w, k, err), out);
        COPSE__TRY(take_results(&w, k, *w.slot, 0, err), out);
        if (outputs) {
            COPSE__TRY(copse__program_read_output(w.program, &extents, outputs, err),
                       out);
            outputs +=
                copse__tensor_elements(&w.graph->tensors[w.graph->output], &extents);
        }
        turn_slot(&w);
        COPSE__TRY(still_wanted(r, err), out);
    }
out:
    return status;
}

copse_status copse__replica_trial(copse__replica *r, size_t rows, copse_error *err) {
    copse__extents extents = copse__shard_extents(r->train_graph, rows);
    size_t slot = r->train_slot, end = r->train_graph->node_count;
    copse_status status = copse__program_run(r->train, slot, 0, end, &extents, err);
    if (status == COPSE_OK)
        status = copse__program_collect(r->train, slot, &extents, err);
    return status == COPSE_OK ? copse__program_wait(r->train, slot, UINT64_MAX, err)
                              : status;
}

/* ---- Numbers that are not finite ------------------------------------------------------- */

static bool is_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

/* False where they are not; what cannot be read is not looked at. */
static bool outputs_are_finite(const walk *w, const copse__node *node,
                               const copse__extents *extents) {
    bool fine = true;
    for (size_t o = 0; o < node->output_count && fine; o++) {
        copse__tensor_id id = node->outputs[o];
        if (id == COPSE__NO_TENSOR || w->graph->tensors[id].dtype != COPSE_F32)
            continue;
        size_t count = copse__tensor_elements(&w->graph->tensors[id], extents);
        float *values = NULL;
        if (copse__calloc(&values, count, sizeof *values, NULL) != COPSE_OK)
            return true;
        if (copse__program_read_tensor(w->program, id, extents, values, NULL) != COPSE_OK)
            return true; /* the device may still be at it: the memory stays */
        fine = is_finite(values, count);
        free(values);
    }
    return fine;
}

const char *copse__replica_find_nonfinite(copse__replica *r, const copse__step *step) {
    walk w = begin_walk(r, true, &step->share, NULL);
    for (size_t k = 0; k < w.count; k++) {
        copse__share part = micro_batch(&w, w.share, k);
        copse__extents extents = micro_extents(&w, k);
        if (upload(&w, *w.slot, part, NULL) != COPSE_OK ||
            send_scalars(r, step, part.first_row, NULL) != COPSE_OK)
            return NULL;
        for (size_t n = 0; n < w.graph->node_count; n++) {
            const copse__node *node = &w.graph->nodes[n];
            if (copse__program_run(w.program, *w.slot, n, n + 1, &extents, NULL) !=
                COPSE_OK)
                return NULL;
            if (!outputs_are_finite(&w, node, &extents))
                return node->name;
        }
    }
    return NULL;
}
