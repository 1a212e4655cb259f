/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replica_walk.h"

#include <string.h>

#include "base/mem.h"

copse__walk copse__walk_begin(copse__replica *r, bool training, const copse__share *share,
                              const copse__share *next) {
    copse__walk w = {.r = r,
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

copse__share copse__walk_share(const copse__walk *w, const copse__share *share,
                               size_t k) {
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

copse__extents copse__walk_extents(const copse__walk *w, size_t k) {
    return copse__shard_extents(w->graph, copse__walk_share(w, w->share, k).rows);
}

copse_status copse__walk_upload(const copse__walk *w, size_t slot, copse__share part,
                                copse_error *err) {
    copse__extents extents = copse__shard_extents(w->graph, part.rows);
    return copse__program_upload(w->program, slot, part.features, part.labels, &extents,
                                 err);
}

size_t copse__other_slot(size_t slot) {
    return (slot + 1) % COPSE__INPUT_SLOTS;
}

copse_status copse__walk_upload_next(const copse__walk *w, size_t k, copse_error *err) {
    bool more = k + 1 < w->count;
    if (!more && !w->next)
        return COPSE_OK;
    copse__share part = copse__walk_share(w, more ? w->share : w->next, more ? k + 1 : 0);
    return copse__walk_upload(w, copse__other_slot(*w->slot), part, err);
}

void copse__walk_turn(const copse__walk *w) {
    *w->slot = copse__other_slot(*w->slot);
}

copse_status copse__replica_load(copse__replica *r, bool training,
                                 const copse__share *share, copse_error *err) {
    copse__walk w = copse__walk_begin(r, training, share, NULL);
    return copse__walk_upload(&w, *w.slot, copse__walk_share(&w, share, 0), err);
}

/* ---- Results --------------------------------------------------------------------------- */

void copse__replica_begin_results(copse__replica *r, size_t rows) {
    r->metric_rows = 0;
    r->moment_count = 0;
    r->share_rows = rows;
}

static copse_status take_metrics(const copse__walk *w, size_t slot,
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

static copse_status take_moments(const copse__walk *w, size_t slot, copse_error *err) {
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

copse_status copse__walk_take(const copse__walk *w, size_t k, size_t slot,
                              uint64_t patience_ns, copse_error *err) {
    copse__extents extents = copse__walk_extents(w, k);
    copse_status status = copse__program_wait(
        w->program, slot, patience_ns ? patience_ns : UINT64_MAX, err);
    if (status == COPSE_OK)
        status = take_metrics(w, slot, &extents, err);
    return status == COPSE_OK ? take_moments(w, slot, err) : status;
}

copse_status copse__replica_wanted(const copse__replica *r, copse_error *err) {
    return atomic_load(&r->lost) ? copse__fail(err, COPSE_DEVICE, 0,
                                               copse__device_get(r->device)->choice.label,
                                               "the device was given up")
                                 : COPSE_OK;
}

copse_status copse__replica_send_scalars(copse__replica *r, const copse__step *step,
                                         size_t first_row, copse_error *err) {
    copse_scalars *scalars = &r->scalars[r->train_slot];
    *scalars = step->scalars;
    scalars->sample_base = (uint32_t)first_row;
    copse__view to = {.buffer = r->store->scalars, .bytes = sizeof *scalars};
    return copse__backend_of(r->device)->write(r->device, COPSE__QUEUE_COMPUTE, to,
                                               scalars, sizeof *scalars, NULL, NULL, err);
}
