/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/engine.h"

/* A rank's thread. It holds the lock except between call_begin and call_end, where it talks
 * to the device; a device that hangs keeps its own thread only. */

static void call_begin(copse__rank *rank, copse__stage stage, uint64_t q) {
    copse__mover *mover = &rank->mover;
    mover->stage = stage;
    mover->since = copse__now_ns();
    mover->q = q;
    mover->warned = false;
    pthread_mutex_unlock(&rank->engine->lock);
}

/* Takes the lock again; a failure of the call fails the rank. */
static void call_end(copse__rank *rank, copse_status status, const copse_error *error) {
    copse__mover *mover = &rank->mover;
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

static copse__part *part_of(copse__rank *rank, uint64_t q, size_t *bucket,
                            uint64_t *chunk) {
    *bucket = copse__bucket_of(rank->engine, q, chunk);
    return &rank->parts[*bucket];
}

/* The whole part of a bucket. */
static copse__view view_of(const copse__rank *rank, size_t bucket) {
    copse__view view = rank->parts[bucket].view;
    view.bytes = rank->engine->buckets[bucket].bytes;
    return view;
}

static bool in_flight(const copse__flow *flow) {
    return flow->landed < flow->issued;
}

/* The way whose oldest chunk was given to the device first; NULL: nothing is in flight. */
static copse__flow *oldest_flow(copse__rank *rank) {
    copse__flow *down = &rank->mover.down, *up = &rank->mover.up;
    if (!in_flight(down) || !in_flight(up))
        return in_flight(down) ? down : in_flight(up) ? up : NULL;
    const size_t slots = rank->engine->slot_count;
    return down->turns[down->landed % slots] < up->turns[up->landed % slots] ? down : up;
}

/* ---- what became of chunks ---- */

/* All ranks' next chunks may be there now, to be summed. */
static void arrive(copse__rank *rank, uint64_t chunks, uint64_t own) {
    copse__allreduce *engine = rank->engine;
    rank->arrived += chunks;
    const uint64_t all = copse__engine_arrived(engine);
    if (all <= engine->claimed || rank->arrived - chunks >= all)
        return; /* others are behind */
    copse__engine_call_for(engine, all - engine->claimed, own);
}

/* A mover that waits for nothing sums a chunk itself. */
static uint64_t own_of(copse__rank *rank) {
    return oldest_flow(rank) == NULL ? 1 : 0;
}

/* The rank has `chunks` more of the sum. */
static void deliver(copse__rank *rank, uint64_t chunks) {
    copse__allreduce *engine = rank->engine;
    rank->delivered += chunks;
    size_t bucket;
    uint64_t chunk;
    copse__part *part = part_of(rank, rank->delivered - 1, &bucket, &chunk);
    if (chunk + 1 == engine->buckets[bucket].chunk_count) {
        part->filled = part->direct = false;
        part->mapped = NULL;
    }
    if (rank->delivered == (rank->waited + 1) * engine->chunks_per_step)
        pthread_cond_broadcast(&rank->waiter);
}

/* ---- copied ranks: chunk by chunk, through slots ---- */

/* Gives the device the next chunk of a way: to its slot, or home from there. */
static void move_chunk(copse__rank *rank, copse__flow *flow) {
    copse__allreduce *engine = rank->engine;
    const bool down = flow == &rank->mover.down;
    const uint64_t q = flow->issued;
    size_t bucket;
    uint64_t chunk;
    copse__part *part = part_of(rank, q, &bucket, &chunk);
    const size_t bytes = copse__chunk_size(engine, bucket, chunk);
    const copse__view view = {part->view.buffer,
                              part->view.offset + chunk * engine->chunk_bytes, bytes};
    char *slot = rank->slots + q % engine->slot_count * engine->chunk_bytes;
    copse__fence *ready = part->ready, *done = NULL;
    part->ready = NULL;
    if (down && !part->contributes) {
        done = ready; /* nothing to read, but the sum may not overwrite it earlier */
    } else {
        copse_error error = {0};
        call_begin(rank, down ? COPSE__STAGE_DOWNLOAD : COPSE__STAGE_UPLOAD, q);
        copse_status status =
            down ? rank->backend->read(rank->device, COPSE__QUEUE_DOWNLOAD, slot, view,
                                       bytes, ready, &done, &error)
                 : rank->backend->write(rank->device, COPSE__QUEUE_UPLOAD, view, slot,
                                        bytes, NULL, &done, &error);
        if (status == COPSE_OK)
            free_fence(rank, ready);
        call_end(rank, status, &error);
        if (status != COPSE_OK)
            return;
    }
    flow->fences[q % engine->slot_count] = done;
    flow->turns[q % engine->slot_count] = rank->mover.turn++;
    flow->unflushed = true;
    flow->issued++;
}

/* Whatever was enqueued runs while the mover waits. */
static copse_status flush_both(copse__rank *rank, copse_error *error) {
    copse__mover *mover = &rank->mover;
    copse_status status = COPSE_OK;
    if (mover->down.unflushed)
        status = flush(rank, COPSE__QUEUE_DOWNLOAD, error);
    if (status == COPSE_OK && mover->up.unflushed)
        status = flush(rank, COPSE__QUEUE_UPLOAD, error);
    mover->down.unflushed = mover->up.unflushed = false;
    return status;
}

/* Waits for a way's oldest chunk in flight. False: it did not come. */
static bool land_one(copse__rank *rank, copse__flow *flow) {
    const bool down = flow == &rank->mover.down;
    const uint64_t q = flow->landed;
    copse__fence *fence = flow->fences[q % rank->engine->slot_count];
    copse_error error = {0};
    call_begin(rank, down ? COPSE__STAGE_DOWNLOAD : COPSE__STAGE_UPLOAD, q);
    copse_status status = flush_both(rank, &error);
    if (status == COPSE_OK)
        status = take_fence(rank, fence, &error);
    call_end(rank, status, &error);
    if (status == COPSE_OK)
        flow->landed++;
    return status == COPSE_OK;
}

/* ---- mapped ranks: bucket by bucket ---- */

/* The host has a bucket. */
static void lifted(copse__rank *rank, size_t bucket, uint64_t own) {
    const uint64_t chunks = rank->engine->buckets[bucket].chunk_count;
    rank->mover.down.landed = rank->mover.down.issued += chunks;
    arrive(rank, chunks, own);
}

/* The device has a bucket's sum. */
static void lowered(copse__rank *rank, size_t bucket) {
    const uint64_t chunks = rank->engine->buckets[bucket].chunk_count;
    rank->mover.up.landed = rank->mover.up.issued += chunks;
    deliver(rank, chunks);
}

static void lift_mapped(copse__rank *rank) {
    copse__flow *flow = &rank->mover.down;
    size_t index;
    uint64_t chunk;
    copse__part *part = part_of(rank, flow->issued, &index, &chunk);
    copse__fence *ready = part->ready;
    part->ready = NULL;
    void *mapped = part->mapped;
    copse_error error = {0};
    const copse__view view = view_of(rank, index);
    const bool direct = part->direct;
    call_begin(rank, COPSE__STAGE_MAP, flow->issued);
    copse_status status;
    if (direct) {
        status = take_fence(rank, ready, &error);
    } else {
        status = rank->backend->map(&mapped, rank->device, COPSE__QUEUE_DOWNLOAD, view,
                                    true, ready, &error);
        if (status == COPSE_OK)
            free_fence(rank, ready);
    }
    call_end(rank, status, &error);
    part->mapped = mapped;
    if (may_move(rank))
        lifted(rank, index, own_of(rank));
}

/* Unmaps and waits until the device has it. */
static copse_status unmap(copse__rank *rank, copse__view view, void *mapped,
                          copse_error *error) {
    copse__fence *done = NULL;
    copse_status status = rank->backend->unmap(rank->device, COPSE__QUEUE_UPLOAD, view,
                                               mapped, &done, error);
    if (status == COPSE_OK)
        status = flush(rank, COPSE__QUEUE_UPLOAD, error);
    return status == COPSE_OK ? take_fence(rank, done, error) : status;
}

static void lower_mapped(copse__rank *rank) {
    copse__flow *flow = &rank->mover.up;
    size_t index;
    uint64_t chunk;
    copse__part *part = part_of(rank, flow->issued, &index, &chunk);
    void *mapped = part->mapped;
    copse_error error = {0};
    const copse__view view = view_of(rank, index);
    call_begin(rank, COPSE__STAGE_UNMAP, flow->issued);
    const copse_status status = unmap(rank, view, mapped, &error);
    call_end(rank, status, &error);
    if (status != COPSE_OK)
        return;
    part->mapped = NULL;
    if (may_move(rank))
        lowered(rank, index);
}

/* ---- the thread ---- */

static bool can_lift(copse__rank *rank) {
    copse__allreduce *engine = rank->engine;
    if (engine->chunks_per_step == 0)
        return false;
    size_t bucket;
    uint64_t chunk;
    const uint64_t q = rank->mover.down.issued;
    /* A rank may submit the next step only when all of this one was delivered. */
    if (q >= (rank->waited + 1) * engine->chunks_per_step ||
        !part_of(rank, q, &bucket, &chunk)->filled)
        return false;
    return rank->path == COPSE__PATH_MAPPED ||
           q < rank->mover.up.landed + engine->slot_count;
}

bool copse__rank_can_lower(const copse__rank *rank) {
    const copse__allreduce *engine = rank->engine;
    const uint64_t q = rank->mover.up.issued;
    if (q >= engine->summed)
        return false;
    return rank->path == COPSE__PATH_COPIED ||
           copse__bucket_end(engine, q) <= engine->summed;
}

/* The next part on a way of a mapped rank, where it is direct and the mover is not in the middle of
 * one. */
static copse__part *direct_part(copse__rank *rank, const copse__flow *flow,
                                size_t *bucket) {
    uint64_t chunk;
    copse__part *part = part_of(rank, flow->issued, bucket, &chunk);
    return part->direct && rank->mover.stage == COPSE__STAGE_IDLE ? part : NULL;
}

bool copse__rank_lift_direct(copse__rank *rank, uint64_t own) {
    size_t bucket;
    while (may_move(rank) && can_lift(rank)) {
        const copse__part *part = rank->path == COPSE__PATH_MAPPED
                                      ? direct_part(rank, &rank->mover.down, &bucket)
                                      : NULL;
        if (part == NULL || part->ready != NULL)
            return true;
        lifted(rank, bucket, own);
    }
    return false;
}

void copse__rank_lower_direct(copse__rank *rank) {
    size_t bucket;
    while (may_move(rank) && rank->path == COPSE__PATH_MAPPED &&
           copse__rank_can_lower(rank) &&
           direct_part(rank, &rank->mover.up, &bucket) != NULL)
        lowered(rank, bucket);
}

/* Does the next thing that is due; false where nothing is. Sums go home first: they free
 * slots, and somebody may wait for them. */
static bool go_on(copse__rank *rank) {
    copse__mover *mover = &rank->mover;
    const bool mapped = rank->path == COPSE__PATH_MAPPED;
    copse__rank_lower_direct(rank);
    (void)copse__rank_lift_direct(rank, own_of(rank));
    copse__flow *oldest = oldest_flow(rank);
    if (copse__rank_can_lower(rank)) {
        if (mapped)
            lower_mapped(rank);
        else
            move_chunk(rank, &mover->up);
    } else if (can_lift(rank)) {
        if (mapped)
            lift_mapped(rank);
        else
            move_chunk(rank, &mover->down);
    } else if (oldest != NULL) {
        if (!land_one(rank, oldest) || !may_move(rank))
            return true;
        if (oldest == &mover->down)
            arrive(rank, 1, own_of(rank));
        else
            deliver(rank, 1);
    } else if (copse__engine_can_sum(rank->engine)) {
        copse__engine_sum(rank->engine);
        if (copse__engine_can_sum(rank->engine) &&
            (copse__rank_can_lower(rank) || can_lift(rank)))
            copse__engine_call_for(rank->engine, 1, 0); /* this one has to do elsewhere */
    } else {
        return false;
    }
    return true;
}

/* Gives up the parts of a discarded attempt: unmapped, their fences freed. Nobody sums any
 * more. */
static void release_parts(copse__rank *rank) {
    copse__allreduce *engine = rank->engine;
    for (size_t b = 0; b < engine->bucket_count && copse__rank_lives(rank); b++) {
        copse__part *part = &rank->parts[b];
        if (!part->filled)
            continue;
        const copse__view view = view_of(rank, b);
        char *mapped = part->direct ? NULL : part->mapped;
        copse__fence *ready = part->ready;
        *part = (copse__part){.given = part->given};
        copse_error error = {0};
        copse_status status = COPSE_OK;
        call_begin(rank, COPSE__STAGE_UNMAP, engine->buckets[b].first_chunk);
        if (mapped != NULL)
            status = unmap(rank, view, mapped, &error);
        if (status == COPSE_OK)
            free_fence(rank, ready);
        call_end(rank, status, &error);
    }
}

/* The attempt is over: what is in flight lands, and once nobody sums any more the parts are
 * given up, as far as the device lives. */
static void settle(copse__rank *rank) {
    copse__flow *flows[] = {&rank->mover.down, &rank->mover.up};
    for (size_t i = 0; i < 2; i++)
        while (in_flight(flows[i]) && copse__rank_lives(rank))
            (void)land_one(rank, flows[i]); /* a failure ends the rank's life */
    while (copse__rank_lives(rank) && rank->engine->summing > 0)
        pthread_cond_wait(&rank->mover.wake, &rank->engine->lock);
    release_parts(rank);
}

/* Parks until the next attempt; whoever waits for that is told. */
static void park(copse__rank *rank) {
    copse__allreduce *engine = rank->engine;
    const uint64_t attempt = engine->attempt;
    rank->mover.parked = true;
    pthread_cond_broadcast(&rank->waiter);
    copse__engine_restart(engine);
    while (engine->attempt == attempt && !must_leave(rank))
        pthread_cond_wait(&rank->mover.wake, &engine->lock);
}

void *copse__mover_main(void *user) {
    copse__rank *rank = user;
    copse__allreduce *engine = rank->engine;
    copse__thread_is_brief();
    pthread_mutex_lock(&engine->lock);
    while (!must_leave(rank)) {
        if (engine->failing) {
            settle(rank);
            if (!must_leave(rank))
                park(rank);
        } else if (!go_on(rank)) {
            rank->mover.idle = true;
            pthread_cond_wait(&rank->mover.wake, &engine->lock);
            rank->mover.idle = false;
        }
    }
    settle(rank); /* taken down in the middle of a step */
    rank->mover.exited = true;
    pthread_cond_broadcast(&engine->exits);
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
