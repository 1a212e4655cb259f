/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "train/replica_walk.h"

/* Hands a bucket to the all-reduce as soon as what is queued so far has run. */
static copse_status submit_bucket(copse__replica *r, const copse__step *step,
                                  size_t bucket, copse_error *err) {
    const copse__backend *backend = copse__backend_of(r->device);
    copse__fence *ready = NULL;
    bool contributes = step->share.rows > 0;
    copse_status status = copse__replica_wanted(r, err);
    if (status == COPSE_OK)
        status = backend->mark(&ready, r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->flush(r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = copse__replica_wanted(r, err);
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
static copse_status run_and_submit(const copse__walk *w, copse__step *step,
                                   copse_error *err) {
    copse_status status;
    copse__replica *r = w->r;
    size_t at = 0, end = w->graph->node_count;
    copse__extents extents = {0};
    if (w->count > 0)
        extents = copse__walk_extents(w, w->count - 1);
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        size_t ready = copse__min_size(r->train_plan->bucket_ready[b] + 1, end);
        if (w->count > 0)
            COPSE__TRY(copse__program_run(w->program, *w->slot, at, ready, &extents, err),
                       out);
        COPSE__TRY(copse__replica_wanted(r, err), out);
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

copse_status copse__walk_gradients(const copse__walk *w, copse__step *step,
                                   copse_error *err) {
    copse_status status;
    copse__replica *r = w->r;
    climb at = {0};
    if (w->count != 1) /* else those of the step before may still have to be taken */
        copse__replica_begin_results(r, w->share->rows);
    copse__partials_clear(r->partials);
    COPSE__TRY(plan_climb(r, step, w->count, err), out);
    for (size_t k = 0; k < w->count; k++) {
        bool submits = step->allreduce && k + 1 == w->count;
        copse__extents extents = copse__walk_extents(w, k);
        /* First of all, as the all-reduce uses the upload queue from the first bucket on. */
        COPSE__TRY(copse__walk_upload_next(w, k, err), out);
        COPSE__TRY(copse__replica_send_scalars(
                       r, step, w->share->first_row + k * w->micro_rows, err),
                   out);
        if (submits)
            COPSE__TRY(run_and_submit(w, step, err), out);
        else
            COPSE__TRY(copse__program_run(w->program, *w->slot, 0, w->graph->node_count,
                                          &extents, err),
                       out);
        COPSE__TRY(copse__replica_wanted(r, err), out);
        if (k > 0)
            COPSE__TRY(copse__walk_take(w, k - 1, copse__other_slot(*w->slot), 0, err),
                       out);
        COPSE__TRY(copse__program_collect(w->program, *w->slot, &extents, err), out);
        if (step->tree_leaves > 0)
            COPSE__TRY(climb_tree(r, step, &at, err), out);
        else if (!submits && w->count > 1)
            COPSE__TRY(add_in_order(r, k, w->count, err), out);
        copse__walk_turn(w);
        COPSE__TRY(copse__replica_wanted(r, err), out);
    }
    if (w->count == 0) {
        COPSE__TRY(copse__replica_load(r, true, w->next ? w->next : w->share, err), out);
        COPSE__TRY(copse__replica_send_scalars(r, step, 0, err), out);
        if (step->allreduce)
            COPSE__TRY(run_and_submit(w, step, err), out);
    }
out:
    return status;
}
