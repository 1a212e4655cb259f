/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker threads: who plans, who fills which rows. */
#include "base/clock.h"
#include "data/pipeline.h"

static copse__slot *find_claimable(copse_pipeline *p) {
    for (size_t i = 0; i < p->queue_count; i++) {
        copse__slot *slot = p->queue[(p->queue_start + i) % p->slot_count];
        if (!slot->finished && slot->claimed < slot->planned)
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

/* The last of the slot's workers completes it. Called with the lock, which it lets go. */
static void finish(copse_pipeline *p, copse__slot *slot) {
    copse_error error = {0};
    if (slot->status == COPSE_OK) {
        pthread_mutex_unlock(&p->lock);
        copse_status status = copse__pipeline_finish(p, slot, &error);
        pthread_mutex_lock(&p->lock);
        if (status != COPSE_OK)
            record_failure(slot, status, 0, &error);
    }
    slot->finished = true;
    pthread_cond_broadcast(&p->ready);
}

static void fill_claimed(copse_pipeline *p, copse__slot *slot, copse__scratch *scratch) {
    size_t from = slot->claimed;
    size_t to = copse__min_size(from + p->claim_rows, slot->planned);
    slot->claimed = to;
    pthread_mutex_unlock(&p->lock);

    copse_error error = {0};
    size_t bad_row = 0;
    uint64_t begun = copse__now_ns();
    copse_status status =
        copse__pipeline_fill(p, slot, from, to, scratch, &bad_row, &error);
    uint64_t spent = copse__now_ns() - begun;

    pthread_mutex_lock(&p->lock);
    p->stats.work_ns += spent;
    if (status != COPSE_OK)
        record_failure(slot, status, bad_row, &error);
    slot->done += to - from;
    if (slot->done == slot->planned)
        finish(p, slot);
}

static bool can_plan(const copse_pipeline *p) {
    return !p->planning && !p->planned_all && p->unused_count > 0;
}

static void plan_next(copse_pipeline *p) {
    copse__slot *slot = p->unused[--p->unused_count];
    p->planning = true;
    slot->planned = slot->claimed = slot->done = slot->skipped = 0;
    slot->status = COPSE_OK;
    slot->finished = false;
    pthread_mutex_unlock(&p->lock);

    copse_error error = {0};
    uint64_t begun = copse__now_ns();
    copse_status status = copse__pipeline_plan(p, slot, &error);
    uint64_t spent = copse__now_ns() - begun;

    pthread_mutex_lock(&p->lock);
    p->planning = false;
    p->stats.work_ns += spent;
    if (status != COPSE_OK) {
        record_failure(slot, status, 0, &error);
        slot->batch.rows = 0;
        p->planned_all = true;
    }
    if (p->epochs && p->next_epoch >= p->epochs)
        p->planned_all = true;
    slot->planned = slot->batch.rows;
    p->queue[(p->queue_start + p->queue_count) % p->slot_count] = slot;
    p->queue_count++;
    pthread_cond_broadcast(&p->work);
    if (slot->planned == 0) {
        slot->finished = true;
        pthread_cond_broadcast(&p->ready);
    }
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
