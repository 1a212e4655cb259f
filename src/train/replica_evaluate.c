/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "train/replica_walk.h"

/* Micro-batch k, to its end. Whoever wants outputs has no use for the loss. */
static copse_status enqueue(const copse__walk *w, size_t k, float *outputs,
                            copse_error *err) {
    copse__extents extents = copse__walk_extents(w, k);
    size_t end = outputs ? copse__program_output_end(w->program) : w->graph->node_count;
    copse_status status = copse__program_run(w->program, *w->slot, 0, end, &extents, err);
    if (status == COPSE_OK)
        status = copse__replica_wanted(w->r, err);
    if (status != COPSE_OK)
        return status;
    return outputs ? copse__program_collect_output(w->program, *w->slot, &extents,
                                                   outputs, err)
                   : copse__program_collect(w->program, *w->slot, &extents, err);
}

/* Waits for micro-batch k, which was in this slot; outputs have come by then, metrics are kept. */
static copse_status take(const copse__walk *w, size_t k, size_t slot, bool outputs,
                         copse_error *err) {
    return outputs ? copse__program_wait(w->program, slot, UINT64_MAX, err)
                   : copse__walk_take(w, k, slot, 0, err);
}

/* The same, handed over at once. */
static copse_status enqueue_held(const copse__walk *w, size_t k, float *outputs,
                                 copse_error *err) {
    const copse__backend *backend = copse__backend_of(w->r->device);
    copse_status status = COPSE_OK;
    if (backend->hold)
        status = backend->hold(w->r->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = enqueue(w, k, outputs, err);
    copse_status released = backend->release
                                ? backend->release(w->r->device, COPSE__QUEUE_COMPUTE,
                                                   status == COPSE_OK ? err : NULL)
                                : COPSE_OK;
    return status == COPSE_OK ? released : status;
}

static size_t output_elements(const copse__walk *w, size_t k) {
    copse__extents extents = copse__walk_extents(w, k);
    return copse__tensor_elements(&w->graph->tensors[w->graph->output], &extents);
}

copse_status copse__replica_evaluated(copse__replica *r, copse_error *err) {
    copse__share share = r->under_way;
    copse__walk w = copse__walk_begin(r, false, &share, NULL);
    r->stage = "while the results of a batch were waited for";
    copse__replica_begin_results(r, share.rows);
    copse_status status = w.count > 0
                              ? take(&w, 0, r->under_way_slot, r->under_way_outputs, err)
                              : COPSE_OK;
    r->under_way = (copse__share){0};
    return status == COPSE_OK ? copse__replica_wanted(r, err) : status;
}

static copse_status evaluate_ahead(copse__replica *r, const copse__walk *w,
                                   float *outputs, copse_error *err) {
    copse_status status = COPSE_OK;
    size_t slot = *w->slot;
    if (w->count > 0) {
        status = enqueue_held(w, 0, outputs, err);
        if (status == COPSE_OK)
            status = copse__replica_wanted(r, err);
        if (status == COPSE_OK)
            status = copse__walk_upload_next(w, 0, err);
        copse__walk_turn(w);
    } else if (w->next) {
        status = copse__replica_load(r, false, w->next, err);
    }
    if (status == COPSE_OK)
        status = copse__replica_wanted(r, err);
    if (status == COPSE_OK)
        status = copse__replica_evaluated(r, err);
    r->under_way = *w->share;
    r->under_way_slot = slot;
    r->under_way_outputs = outputs != NULL;
    return status;
}

copse_status copse__replica_evaluate(copse__replica *r, const copse__step *step,
                                     copse_error *err) {
    copse_status status = COPSE_OK;
    float *outputs = step->outputs;
    copse__walk w = copse__walk_begin(r, false, &step->share,
                                      step->next.rows > 0 ? &step->next : NULL);
    r->stage = "while a batch was evaluated";
    if (step->ahead)
        return evaluate_ahead(r, &w, outputs, err);
    copse__replica_begin_results(r, step->share.rows);
    if (w.count == 0 && w.next)
        return copse__replica_load(r, false, w.next, err);
    for (size_t k = 0; k < w.count; k++) {
        COPSE__TRY(enqueue(&w, k, outputs, err), out);
        if (outputs)
            outputs += output_elements(&w, k);
        COPSE__TRY(copse__walk_upload_next(&w, k, err), out);
        copse__walk_turn(&w);
        COPSE__TRY(copse__replica_wanted(r, err), out);
        if (k > 0)
            COPSE__TRY(take(&w, k - 1, *w.slot, step->outputs, err), out);
    }
    if (w.count > 0)
        COPSE__TRY(take(&w, w.count - 1, copse__other_slot(*w.slot), step->outputs, err),
                   out);
    status = copse__replica_wanted(r, err);
out:
    return status;
}

copse_status copse__replica_update_trial(copse__replica *r, copse_error *err) {
    copse_status status = copse__updater_apply(r->updater, err);
    if (status == COPSE_OK)
        status = copse__replica_wanted(r, err);
    if (status == COPSE_OK)
        status =
            copse__backend_of(r->device)->finish(r->device, COPSE__QUEUE_COMPUTE, err);
    return status == COPSE_OK ? copse__replica_wanted(r, err) : status;
}

copse_status copse__replica_trial(copse__replica *r, size_t rows, copse_error *err) {
    copse__extents extents = copse__shard_extents(r->train_graph, rows);
    size_t slot = r->train_slot, end = r->train_graph->node_count;
    copse_status status = copse__program_run(r->train, slot, 0, end, &extents, err);
    if (status == COPSE_OK)
        status = copse__replica_wanted(r, err);
    if (status == COPSE_OK)
        status = copse__program_collect(r->train, slot, &extents, err);
    if (status == COPSE_OK)
        status = copse__program_wait(r->train, slot, UINT64_MAX, err);
    return status == COPSE_OK ? copse__replica_wanted(r, err) : status;
}
