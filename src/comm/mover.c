/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/engine.h"

/* The two threads of a rank. Both hold the lock except between call_begin and call_end,
 * where they talk to the device; a device that hangs keeps its own threads only. */

static void call_begin(copse__rank *rank, copse__mover *mover, copse__stage stage,
                       uint64_t q) {
    mover->stage = stage;
    mover->since = copse__now_ns();
    mover->q = q;
    mover->warned = false;
    pthread_mutex_unlock(&rank->engine->lock);
}

/* Takes the lock again; a failure of the call fails the rank. */
static void call_end(copse__rank *rank, copse__mover *mover, copse_status status,
                     const copse_error *error) {
    pthread_mutex_lock(&rank->engine->lock);
    if (status != COPSE_OK)
        copse__engine_fail(rank->engine, rank, mover->stage, mover->q, error);
    mover->stage = COPSE__STAGE_IDLE;
}

/* Whether the mover may still talk to its device for this attempt's sake. */
static bool may_move(const copse__rank *rank) {
    return copse__rank_lives(rank) && !rank->engine->quit && !rank->engine->failing;
}

static bool must_leave(const copse__rank *rank) {
    return !copse__rank_lives(rank) || rank->engine->quit;
}

/* Outside the lock, after a call: the device may have been lost meanwhile, by what another
 * thread met, and then nothing of it is touched again. */
static void free_fence(copse__rank *rank, copse__fence *fence) {
    if (!atomic_load(&rank->lost))
        rank->backend->fence_free(fence);
}

/* Waits for a fence and frees it. */
static copse_status take_fence(copse__rank *rank, copse__fence *fence,
                               copse_error *error) {
    if (fence == NULL || atomic_load(&rank->lost))
        return COPSE_OK;
    copse_status status = rank->backend->fence_wait(fence, UINT64_MAX, error);
    if (status == COPSE_OK)
        free_fence(rank, fence);
    return status;
}

static copse_status flush(copse__rank *rank, copse__queue queue, copse_error *error) {
    return atomic_load(&rank->lost) ? COPSE_OK
                                    : rank->backend->flush(rank->device, queue, error);
}

/* What a mover has given to the device, by chunk number modulo the slots. */
typedef struct flight {
    copse__fence **fences;
    uint64_t first, end; /* chunks whose fences are kept */
    bool unflushed;
} flight;

/* Waits for everything in flight, while the device lives. */
static void land_all(copse__rank *rank, copse__mover *mover, flight *air) {
    const size_t slots = rank->engine->slot_count;
    for (; air->first < air->end && copse__rank_lives(rank); air->first++) {
        copse__fence *fence = air->fences[air->first % slots];
        copse_error error = {0};
        call_begin(rank, mover,
                   mover == &rank->lifter ? COPSE__STAGE_DOWNLOAD : COPSE__STAGE_UPLOAD,
                   air->first);
        const copse_status status = take_fence(rank, fence, &error);
        call_end(rank, mover, status, &error);
    }
    *air = (flight){.fences = air->fences};
}

/* Parks until the next attempt; whoever waits for that is told. */
static void park(copse__rank *rank, copse__mover *mover, copse__mover *other) {
    copse__allreduce *engine = rank->engine;
    const uint64_t attempt = engine->attempt;
    mover->parked = true;
    pthread_cond_signal(&other->wake);
    pthread_cond_broadcast(&rank->waiter);
    copse__engine_restart(engine);
    while (engine->attempt == attempt && !must_leave(rank))
        pthread_cond_wait(&mover->wake, &engine->lock);
}

static void leave(copse__rank *rank, copse__mover *mover) {
    copse__allreduce *engine = rank->engine;
    mover->exited = true;
    pthread_cond_broadcast(&engine->exits);
    pthread_mutex_unlock(&engine->lock);
}

/* ---- device to host ---- */

static copse__part *part_of(copse__rank *rank, uint64_t q, size_t *bucket,
                            uint64_t *chunk) {
    *bucket = copse__bucket_of(rank->engine, q, chunk);
    return &rank->parts[*bucket];
}

static bool can_lift(copse__rank *rank) {
    copse__allreduce *engine = rank->engine;
    if (engine->chunks_per_step == 0)
        return false;
    size_t bucket;
    uint64_t chunk;
    const uint64_t q = rank->lifter.issued;
    /* A rank may submit the next step only when all of this one was delivered. */
    if (q >= (rank->waited + 1) * engine->chunks_per_step ||
        !part_of(rank, q, &bucket, &chunk)->filled)
        return false;
    return rank->path == COPSE__PATH_MAPPED || q < engine->retired + engine->slot_count;
}

static void arrive(copse__rank *rank, uint64_t chunks) {
    copse__allreduce *engine = rank->engine;
    rank->arrived += chunks;
    const uint64_t all = copse__engine_arrived(engine);
    if (all <= engine->claimed || rank->arrived - chunks >= all)
        return; /* others are behind */
    /* A lifter that maps takes the first one itself. */
    const uint64_t open = all - engine->claimed;
    copse__engine_call_for(engine, rank->path == COPSE__PATH_MAPPED ? open - 1 : open);
}

static void lift_mapped(copse__rank *rank) {
    copse__mover *mover = &rank->lifter;
    size_t index;
    uint64_t chunk;
    copse__part *part = part_of(rank, mover->issued, &index, &chunk);
    const copse__bucket *bucket = &rank->engine->buckets[index];
    copse__view view = part->view;
    view.bytes = bucket->bytes;
    copse__fence *ready = part->ready;
    part->ready = NULL;
    void *mapped = NULL;
    copse_error error = {0};
    call_begin(rank, mover, COPSE__STAGE_MAP, mover->issued);
    copse_status status = rank->backend->map(&mapped, rank->device, COPSE__QUEUE_DOWNLOAD,
                                             view, true, ready, &error);
    if (status == COPSE_OK)
        free_fence(rank, ready);
    call_end(rank, mover, status, &error);
    part->mapped = mapped;
    if (!may_move(rank))
        return;
    mover->issued += bucket->chunk_count;
    arrive(rank, bucket->chunk_count);
}

static void lift_copied(copse__rank *rank, flight *air) {
    copse__allreduce *engine = rank->engine;
    copse__mover *mover = &rank->lifter;
    const uint64_t q = mover->issued;
    size_t bucket;
    uint64_t chunk;
    copse__part *part = part_of(rank, q, &bucket, &chunk);
    copse__fence *ready = part->ready, *done = NULL;
    part->ready = NULL;
    copse_status status = COPSE_OK;
    copse_error error = {0};
    if (part->contributes) {
        const size_t bytes = copse__chunk_size(engine, bucket, chunk);
        const copse__view from = {part->view.buffer,
                                  part->view.offset + chunk * engine->chunk_bytes, bytes};
        char *slot = rank->slots + q % engine->slot_count * engine->chunk_bytes;
        call_begin(rank, mover, COPSE__STAGE_DOWNLOAD, q);
        status = rank->backend->read(rank->device, COPSE__QUEUE_DOWNLOAD, slot, from,
                                     bytes, ready, &done, &error);
        if (status == COPSE_OK)
            free_fence(rank, ready);
        call_end(rank, mover, status, &error);
    } else {
        done = ready; /* nothing to read, but the sum may not overwrite it earlier */
    }
    if (status != COPSE_OK)
        return;
    air->fences[q % engine->slot_count] = done;
    air->end = q + 1;
    air->unflushed = true;
    mover->issued++;
}

/* Waits for the oldest chunk in flight. False: it did not come. */
static bool land_one(copse__rank *rank, copse__mover *mover, copse__stage stage,
                     copse__queue queue, flight *air) {
    const uint64_t q = air->first;
    copse__fence *fence = air->fences[q % rank->engine->slot_count];
    copse_error error = {0};
    copse_status status = COPSE_OK;
    const bool unflushed = air->unflushed;
    air->unflushed = false;
    call_begin(rank, mover, stage, q);
    if (unflushed)
        status = flush(rank, queue, &error);
    if (status == COPSE_OK)
        status = take_fence(rank, fence, &error);
    call_end(rank, mover, status, &error);
    if (status == COPSE_OK)
        air->first++;
    return status == COPSE_OK && may_move(rank);
}

/* ---- host to device ---- */

static bool can_lower(const copse__rank *rank) {
    const copse__allreduce *engine = rank->engine;
    const uint64_t q = rank->lowerer.issued;
    if (q >= engine->summed)
        return false;
    return rank->path == COPSE__PATH_COPIED ||
           copse__bucket_end(engine, q) <= engine->summed;
}

/* The rank has `chunks` more of the sum. */
static void deliver(copse__rank *rank, uint64_t chunks) {
    copse__allreduce *engine = rank->engine;
    rank->delivered += chunks;
    size_t bucket;
    uint64_t chunk;
    copse__part *part = part_of(rank, rank->delivered - 1, &bucket, &chunk);
    if (chunk + 1 == engine->buckets[bucket].chunk_count) {
        part->filled = false;
        part->mapped = NULL;
    }
    if (rank->delivered == (rank->waited + 1) * engine->chunks_per_step)
        pthread_cond_broadcast(&rank->waiter);
    if (rank->path == COPSE__PATH_MAPPED)
        return; /* it fills no slots, and brings whole buckets home only */
    copse__engine_retire(engine);
}

/* Unmaps and waits until the device has it. */
static void lower_mapped(copse__rank *rank) {
    copse__mover *mover = &rank->lowerer;
    size_t index;
    uint64_t chunk;
    copse__part *part = part_of(rank, mover->issued, &index, &chunk);
    const copse__bucket *bucket = &rank->engine->buckets[index];
    copse__view view = part->view;
    view.bytes = bucket->bytes;
    void *mapped = part->mapped;
    copse__fence *done = NULL;
    copse_error error = {0};
    call_begin(rank, mover, COPSE__STAGE_UNMAP, mover->issued);
    copse_status status = rank->backend->unmap(rank->device, COPSE__QUEUE_UPLOAD, view,
                                               mapped, &done, &error);
    if (status == COPSE_OK)
        status = flush(rank, COPSE__QUEUE_UPLOAD, &error);
    if (status == COPSE_OK)
        status = take_fence(rank, done, &error);
    call_end(rank, mover, status, &error);
    if (status != COPSE_OK)
        return;
    part->mapped = NULL;
    if (!may_move(rank))
        return;
    mover->issued += bucket->chunk_count;
    deliver(rank, bucket->chunk_count);
}

static void lower_copied(copse__rank *rank, flight *air) {
    copse__allreduce *engine = rank->engine;
    copse__mover *mover = &rank->lowerer;
    const uint64_t q = mover->issued;
    size_t bucket;
    uint64_t chunk;
    const copse__part *part = part_of(rank, q, &bucket, &chunk);
    const size_t bytes = copse__chunk_size(engine, bucket, chunk);
    const copse__view to = {part->view.buffer,
                            part->view.offset + chunk * engine->chunk_bytes, bytes};
    const char *slot =
        engine->ranks[rank->source].slots + q % engine->slot_count * engine->chunk_bytes;
    copse__fence *done = NULL;
    copse_error error = {0};
    call_begin(rank, mover, COPSE__STAGE_UPLOAD, q);
    copse_status status = rank->backend->write(rank->device, COPSE__QUEUE_UPLOAD, to,
                                               slot, bytes, NULL, &done, &error);
    call_end(rank, mover, status, &error);
    if (status != COPSE_OK)
        return;
    air->fences[q % engine->slot_count] = done;
    air->end = q + 1;
    air->unflushed = true;
    mover->issued++;
}

/* Gives up the parts of a discarded attempt: unmapped, their fences freed. Nobody sums any
 * more and the lifter is parked. */
static void release_parts(copse__rank *rank) {
    copse__allreduce *engine = rank->engine;
    for (size_t b = 0; b < engine->bucket_count && copse__rank_lives(rank); b++) {
        copse__part *part = &rank->parts[b];
        if (!part->filled)
            continue;
        copse__view view = part->view;
        view.bytes = engine->buckets[b].bytes;
        char *mapped = part->mapped;
        copse__fence *ready = part->ready;
        *part = (copse__part){.given = part->given};
        copse_error error = {0};
        copse_status status = COPSE_OK;
        copse__fence *done = NULL;
        call_begin(rank, &rank->lowerer, COPSE__STAGE_UNMAP,
                   engine->buckets[b].first_chunk);
        if (mapped != NULL)
            status = rank->backend->unmap(rank->device, COPSE__QUEUE_UPLOAD, view, mapped,
                                          &done, &error);
        if (status == COPSE_OK && mapped != NULL)
            status = flush(rank, COPSE__QUEUE_UPLOAD, &error);
        if (status == COPSE_OK)
            status = take_fence(rank, done, &error);
        if (status == COPSE_OK)
            free_fence(rank, ready);
        call_end(rank, &rank->lowerer, status, &error);
    }
}

/* ---- the threads ---- */

void *copse__lifter_main(void *user) {
    copse__rank *rank = user;
    copse__allreduce *engine = rank->engine;
    copse__mover *mover = &rank->lifter;
    const bool mapped = rank->path == COPSE__PATH_MAPPED;
    flight air = {0};
    pthread_mutex_lock(&engine->lock);
    air.fences = rank->lift_fences;
    while (!must_leave(rank)) {
        if (engine->failing) {
            land_all(rank, mover, &air);
            if (!must_leave(rank))
                park(rank, mover, &rank->lowerer);
        } else if (mapped && can_lower(rank)) {
            lower_mapped(rank);
        } else if (mapped && copse__engine_can_sum(engine)) {
            copse__engine_sum(engine);
        } else if (can_lift(rank)) {
            if (mapped)
                lift_mapped(rank);
            else
                lift_copied(rank, &air);
        } else if (air.first < air.end) {
            if (land_one(rank, mover, COPSE__STAGE_DOWNLOAD, COPSE__QUEUE_DOWNLOAD, &air))
                arrive(rank, 1);
        } else {
            mover->idle = mapped;
            pthread_cond_wait(&mover->wake, &engine->lock);
            mover->idle = false;
        }
    }
    land_all(rank, mover, &air);
    pthread_cond_signal(&rank->lowerer.wake);
    leave(rank, mover);
    return NULL;
}

void *copse__lowerer_main(void *user) {
    copse__rank *rank = user;
    copse__allreduce *engine = rank->engine;
    copse__mover *mover = &rank->lowerer;
    flight air = {0};
    pthread_mutex_lock(&engine->lock);
    air.fences = rank->lower_fences;
    while (!must_leave(rank)) {
        if (engine->failing) {
            land_all(rank, mover, &air);
            while (!must_leave(rank) && !(rank->lifter.parked && engine->summing == 0))
                pthread_cond_wait(&mover->wake, &engine->lock);
            if (!must_leave(rank))
                release_parts(rank);
            if (!must_leave(rank))
                park(rank, mover, &rank->lifter);
        } else if (rank->path == COPSE__PATH_COPIED && can_lower(rank)) {
            lower_copied(rank, &air);
        } else if (air.first < air.end) {
            if (land_one(rank, mover, COPSE__STAGE_UPLOAD, COPSE__QUEUE_UPLOAD, &air))
                deliver(rank, 1);
        } else {
            pthread_cond_wait(&mover->wake, &engine->lock);
        }
    }
    land_all(rank, mover, &air);
    while (copse__rank_lives(rank) && !(rank->lifter.exited && engine->summing == 0))
        pthread_cond_wait(&mover->wake, &engine->lock);
    release_parts(rank); /* taken down in the middle of a step */
    leave(rank, mover);
    return NULL;
}
