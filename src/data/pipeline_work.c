/* SPDX-License-Identifier: Apache-2.0
 *
 * What the worker threads do: plan batches (which samples, in the run's order, one
 * planner at a time) and fill them (any number of workers, rows apart from each other).
 */
#include <string.h>

#include "base/clock.h"
#include "data/pipeline.h"
#include "data/shuffle.h"

/* ---- Planning, outside the lock by the one planner ------------------------------------
 */

static void set_parts(copse_pipeline *p, copse__slot *slot) {
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
}

static void pick_samples(copse_pipeline *p, copse__slot *slot) {
    copse_batch *batch = &slot->batch;
    if (p->order && !(p->order_known && p->order_epoch == batch->epoch)) {
        copse__permute(p->order, p->set->count, p->seed, batch->epoch);
        p->order_epoch = batch->epoch;
        p->order_known = true;
    }
    for (size_t i = 0; i < batch->rows; i++) {
        uint64_t position = batch->first_position + i;
        slot->samples[i] = p->order ? p->order[position] : position;
    }
}

/* Fills in slot's batch from the planner's position and moves that on. */
static copse_status plan(copse_pipeline *p, copse__slot *slot) {
    copse_batch *batch = &slot->batch;
    uint64_t first = p->next_index * p->batch;
    uint64_t left = p->set->count - first;
    *batch = (copse_batch){
        .epoch = p->next_epoch,
        .index = p->next_index,
        .first_position = first,
        .rows = left < p->batch ? (size_t)left : p->batch,
        .last = p->next_index + 1 == p->batches,
        .samples = slot->samples,
        .part_count = p->replicas,
        .parts = slot->parts,
    };
    slot->claimed = slot->done = 0;
    slot->status = COPSE_OK;
    if (batch->last) {
        p->next_epoch++;
        p->next_index = 0;
    } else {
        p->next_index++;
    }
    copse_status status = copse_shard_split_partial(batch->rows, p->replicas, p->shards,
                                                    slot->rows, &slot->error);
    if (status == COPSE_OK) {
        set_parts(p, slot);
        pick_samples(p, slot);
    }
    return status;
}

/* ---- Filling, outside the lock --------------------------------------------------------
 */

static copse_status check_label(copse_pipeline *p, uint64_t sample, const void *labels,
                                copse_error *err) {
    if (p->label_classes == 0 || p->set->labels.dtype != COPSE_I32)
        return COPSE_OK;
    for (size_t i = 0; i < p->set->label_bytes / 4; i++) {
        int32_t label;
        memcpy(&label, (const unsigned char *)labels + i * 4, 4);
        if (label >= 0 && (size_t)label < p->label_classes)
            continue;
        char where[256];
        p->set->ops->locate(p->set, (size_t)sample, where, sizeof where);
        return copse__fail(err, COPSE_FORMAT, 0, where,
                           "its label is %d, but the model has %zu classes (0 to %zu); "
                           "correct the data or the model's last layer",
                           label, p->label_classes, p->label_classes - 1);
    }
    return COPSE_OK;
}

static copse_status fill_row(copse_pipeline *p, copse__slot *slot, size_t row,
                             const copse_batch_part *part, size_t replica,
                             copse__scratch *scratch, copse_error *err) {
    copse_dataset *set = p->set;
    size_t at = row - part->first_row;
    void *features = slot->features[replica] + at * set->feature_bytes;
    void *labels = slot->labels ? slot->labels[replica] + at * set->label_bytes : NULL;
    uint64_t sample = slot->samples[row];
    copse_status status =
        set->ops->read(set, (size_t)sample, scratch, features, labels, err);
    if (status == COPSE_OK && labels)
        status = check_label(p, sample, labels, err);
    return status;
}

/* Rows from..to; stops at the first that fails, which is *bad_row. */
static copse_status fill_rows(copse_pipeline *p, copse__slot *slot, size_t from,
                              size_t to, copse__scratch *scratch, size_t *bad_row,
                              copse_error *err) {
    size_t replica = 0;
    for (size_t row = from; row < to; row++) {
        while (row - slot->parts[replica].first_row >= slot->parts[replica].rows)
            replica++;
        copse_status status =
            fill_row(p, slot, row, &slot->parts[replica], replica, scratch, err);
        if (status != COPSE_OK) {
            *bad_row = row;
            return status;
        }
    }
    return COPSE_OK;
}

/* ---- The workers ----------------------------------------------------------------------
 */

static copse__slot *find_claimable(copse_pipeline *p) {
    for (size_t i = 0; i < p->queue_count; i++) {
        copse__slot *slot = p->queue[(p->queue_start + i) % p->slot_count];
        if (slot->claimed < slot->batch.rows)
            return slot;
    }
    return NULL;
}

/* Of several bad rows the first one is reported, whoever met it first. */
static void record_failure(copse__slot *slot, copse_status status, size_t row,
                           const copse_error *error) {
    if (slot->status != COPSE_OK && slot->error_row <= row)
        return;
    slot->status = status;
    slot->error = *error;
    slot->error.status = status;
    slot->error_row = row;
}

static void fill_claimed(copse_pipeline *p, copse__slot *slot, copse__scratch *scratch) {
    size_t from = slot->claimed;
    size_t to = copse__min_size(from + p->claim_rows, slot->batch.rows);
    slot->claimed = to;
    pthread_mutex_unlock(&p->lock);

    copse_error error = {0};
    size_t bad_row = 0;
    uint64_t begun = copse__now_ns();
    copse_status status = fill_rows(p, slot, from, to, scratch, &bad_row, &error);
    uint64_t spent = copse__now_ns() - begun;

    pthread_mutex_lock(&p->lock);
    p->stats.work_ns += spent;
    if (status != COPSE_OK)
        record_failure(slot, status, bad_row, &error);
    slot->done += to - from;
    if (slot->done == slot->batch.rows)
        pthread_cond_broadcast(&p->ready);
}

static bool can_plan(const copse_pipeline *p) {
    return !p->planning && !p->planned_all && p->unused_count > 0;
}

static void plan_next(copse_pipeline *p) {
    copse__slot *slot = p->unused[--p->unused_count];
    p->planning = true;
    pthread_mutex_unlock(&p->lock);
    copse_status status = plan(p, slot);
    pthread_mutex_lock(&p->lock);
    p->planning = false;
    if (status != COPSE_OK) {
        slot->batch.rows = 0;
        slot->status = status;
        p->planned_all = true;
    }
    if (p->epochs && p->next_epoch >= p->epochs)
        p->planned_all = true;
    p->queue[(p->queue_start + p->queue_count) % p->slot_count] = slot;
    p->queue_count++;
    pthread_cond_broadcast(&p->work);
    if (slot->batch.rows == 0)
        pthread_cond_broadcast(&p->ready);
}

void *copse__pipeline_worker(void *argument) {
    copse_pipeline *p = argument;
    copse__scratch scratch = {0};
    pthread_mutex_lock(&p->lock);
    while (!p->stopping) {
        copse__slot *slot = find_claimable(p);
        if (slot)
            fill_claimed(p, slot, &scratch);
        else if (can_plan(p))
            plan_next(p);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    copse__scratch_free(&scratch);
    return NULL;
}
