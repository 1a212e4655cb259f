/* SPDX-License-Identifier: Apache-2.0
 *
 * Which samples are in which batch. */
#include <inttypes.h>

#include "data/pipeline.h"
#include "data/shuffle.h"

static size_t groups_of(const copse_pipeline *p, size_t rows) {
    return rows / p->unit + (rows % p->unit != 0);
}

void copse__pipeline_groups_to_rows(const copse_pipeline *p, size_t total, size_t *rows) {
    for (size_t r = 0; r < p->replicas; r++) {
        size_t groups = rows[r];
        rows[r] = groups_of(p, total) <= groups ? total : groups * p->unit;
        total -= rows[r];
    }
}

/* How a batch of `total` rows is cut, without cutting a group of rows. */
static copse_status split_rows(const copse_pipeline *p, size_t total, size_t *rows,
                               copse_error *err) {
    size_t *full;
    copse_status status = copse__calloc(&full, p->replicas, sizeof *full, err);
    if (status != COPSE_OK)
        return status;
    for (size_t r = 0; r < p->replicas; r++)
        full[r] = groups_of(p, p->shards[r]);
    status = copse_shard_split_partial(groups_of(p, total), p->replicas, full, rows, err);
    free(full);
    if (status == COPSE_OK)
        copse__pipeline_groups_to_rows(p, total, rows);
    return status;
}

copse_status copse__pipeline_set_parts(copse_pipeline *p, copse__slot *slot,
                                       copse_error *err) {
    copse_status status = split_rows(p, slot->batch.rows, slot->rows, err);
    if (status != COPSE_OK)
        return status;
    size_t first = 0;
    for (size_t r = 0; r < p->replicas; r++) {
        slot->parts[r] = (copse_batch_part){
            .rows = slot->rows[r],
            .first_row = first,
            .features = slot->features[r],
            .labels = slot->labels ? slot->labels[r] : NULL,
        };
        first += slot->rows[r];
    }
    return COPSE_OK;
}

/* ---- Sets that can be indexed --------------------------------------------------------- */

static copse_status make_order(copse_pipeline *p, uint64_t epoch, copse_error *err) {
    if (!p->order || (p->order_known && p->order_epoch == epoch))
        return COPSE_OK;
    copse_status status = COPSE_OK;
    if (p->shuffle == COPSE_SHUFFLE_BUFFER)
        status = copse__window_order(p->order, p->set->count, p->seed, epoch,
                                     p->shuffle_buffer, err);
    else
        copse__permute(p->order, p->set->count, p->seed, epoch);
    p->order_epoch = epoch;
    p->order_known = status == COPSE_OK;
    return status;
}

static copse_status plan_indexed(copse_pipeline *p, copse__slot *slot, copse_error *err) {
    copse_batch *batch = &slot->batch;
    copse_status status = make_order(p, batch->epoch, err);
    if (status != COPSE_OK)
        return status;
    uint64_t left = p->set->count - batch->first_position;
    batch->rows = left < p->batch ? (size_t)left : p->batch;
    batch->last = batch->index + 1 == p->batches;
    for (size_t i = 0; i < batch->rows; i++) {
        uint64_t position = batch->first_position + i;
        slot->samples[i] = p->order ? p->order[position] : position;
    }
    return COPSE_OK;
}

/* ---- Streams -------------------------------------------------------------------------- */

static copse_status look_ahead(copse_pipeline *p, copse_error *err) {
    return copse__feed_next(&p->feed, &p->ahead, &p->ahead_end, err);
}

/* Starts the epoch and drops what a resumed run has had of it. */
static copse_status start_stream(copse_pipeline *p, copse_error *err) {
    copse_status status = copse__feed_start(&p->feed, p->next_epoch, err);
    if (status == COPSE_OK)
        status = look_ahead(p, err);
    if (status == COPSE_OK && p->ahead_end)
        return copse__fail(err, COPSE_FORMAT, 0, p->set->name,
                           "there is no sample in it; check the paths");
    uint64_t rows = p->next_index * p->batch;
    for (uint64_t i = 0; i < rows && status == COPSE_OK && !p->ahead_end; i++)
        status = look_ahead(p, err);
    p->feed_started = status == COPSE_OK;
    return status;
}

static copse_status plan_stream(copse_pipeline *p, copse__slot *slot, copse_error *err) {
    copse_batch *batch = &slot->batch;
    if (p->ahead_status != COPSE_OK) {
        *err = p->ahead_error;
        return p->ahead_status;
    }
    copse_status status = p->feed_started ? COPSE_OK : start_stream(p, err);
    while (status == COPSE_OK && !p->ahead_end && batch->rows < p->batch) {
        copse__raw taken = p->ahead;
        p->ahead = slot->raws[batch->rows];
        slot->raws[batch->rows] = taken;
        slot->samples[batch->rows++] = taken.ordinal;
        slot->skipped += taken.left_out;
        status = look_ahead(p, err);
    }
    if (status != COPSE_OK && batch->rows == p->batch) {
        p->ahead_status = status;
        p->ahead_error = *err;
        return COPSE_OK;
    }
    batch->last = p->ahead_end;
    slot->skipped += batch->last ? p->feed.left_out : 0;
    if (p->drop_remainder && batch->rows < p->batch)
        batch->rows = 0;
    p->feed_started = p->feed_started && !batch->last;
    return status;
}

copse_status copse__pipeline_plan(copse_pipeline *p, copse__slot *slot,
                                  copse_error *err) {
    copse_batch *batch = &slot->batch;
    *batch = (copse_batch){
        .epoch = p->next_epoch,
        .index = p->next_index,
        .first_position = p->next_index * p->batch,
        .samples = slot->samples,
        .part_count = p->replicas,
        .parts = slot->parts,
    };
    copse_status status =
        p->stream ? plan_stream(p, slot, err) : plan_indexed(p, slot, err);
    p->next_index = batch->last ? 0 : p->next_index + 1;
    p->next_epoch += batch->last;
    if (status == COPSE_OK)
        status = copse__pipeline_set_parts(p, slot, err);
    return status;
}
