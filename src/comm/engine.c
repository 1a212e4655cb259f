/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/engine.h"

#include <string.h>

const char *copse__stage_name(copse__stage stage) {
    static const char *const names[] = {
        [COPSE__STAGE_IDLE] = "idle",         [COPSE__STAGE_SUBMIT] = "gradient",
        [COPSE__STAGE_DOWNLOAD] = "download", [COPSE__STAGE_MAP] = "map",
        [COPSE__STAGE_SUM] = "sum",           [COPSE__STAGE_UPLOAD] = "upload",
        [COPSE__STAGE_UNMAP] = "unmap",
    };
    return names[stage];
}

copse_status copse__comm_invalid(copse_error *err, const char *what, size_t value) {
    return copse__fail(err, COPSE_INVALID, 0, "all-reduce", "%s (%zu)", what, value);
}

/* chunks_per_step > 0. */
size_t copse__bucket_of(const copse__allreduce *engine, uint64_t q, uint64_t *chunk) {
    const uint64_t at = q % engine->chunks_per_step;
    size_t low = 0, high = engine->bucket_count; /* first_chunk[low] <= at < [high] */
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (engine->buckets[middle].first_chunk <= at)
            low = middle;
        else
            high = middle;
    }
    /* Of several that begin there, all but the last are empty. */
    *chunk = at - engine->buckets[low].first_chunk;
    return low;
}

size_t copse__chunk_size(const copse__allreduce *engine, size_t bucket, uint64_t chunk) {
    const size_t at = (size_t)chunk * engine->chunk_bytes;
    const size_t left = engine->buckets[bucket].bytes - at;
    return left < engine->chunk_bytes ? left : engine->chunk_bytes;
}

uint64_t copse__bucket_end(const copse__allreduce *engine, uint64_t q) {
    uint64_t chunk;
    const size_t bucket = copse__bucket_of(engine, q, &chunk);
    return q - chunk + engine->buckets[bucket].chunk_count;
}

uint64_t copse__engine_arrived(const copse__allreduce *engine) {
    uint64_t arrived = UINT64_MAX;
    for (size_t r = 0; r < engine->rank_count; r++)
        if (!engine->ranks[r].dropped && engine->ranks[r].arrived < arrived)
            arrived = engine->ranks[r].arrived;
    return arrived;
}

void copse__engine_wake_all(copse__allreduce *engine) {
    pthread_cond_broadcast(&engine->work);
    pthread_cond_broadcast(&engine->watchdog_wake);
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        pthread_cond_broadcast(&rank->waiter);
        pthread_cond_broadcast(&rank->mover.wake);
    }
}

void copse__engine_discard(copse__allreduce *engine, size_t rank,
                           const copse_error *failure) {
    if (!engine->failing) {
        engine->failing = true;
        engine->failure = *failure;
        engine->failure_rank = rank;
        engine->step_known = false;
        for (size_t r = 0; r < engine->rank_count; r++)
            engine->ranks[r].told = false;
    }
    copse__engine_wake_all(engine);
}

void copse__engine_fail(copse__allreduce *engine, copse__rank *rank, copse__stage stage,
                        uint64_t q, const copse_error *cause) {
    if (rank->dropped)
        return;
    if (!rank->failed) {
        uint64_t chunk = 0, chunks = 0, step = engine->base_step + rank->waited;
        size_t bucket = 0;
        if (engine->chunks_per_step > 0) {
            bucket = copse__bucket_of(engine, q, &chunk);
            chunks = engine->buckets[bucket].chunk_count;
        }
        rank->failed = true;
        atomic_store(&rank->lost, true);
        copse__fail(&rank->error, cause->status, cause->native,
                    copse__device_get(rank->device)->choice.label,
                    "all-reduce of step %llu, bucket %zu, chunk %llu of %llu, %s of rank "
                    "%zu (%s): %s",
                    (unsigned long long)step, bucket, (unsigned long long)chunk + 1,
                    (unsigned long long)chunks, copse__stage_name(stage), rank->index,
                    copse__device_get(rank->device)->choice.label, cause->text);
        /* The step stands once all of it is summed: the others keep it. */
        if (!engine->failing && engine->step_known &&
            engine->summed >= (rank->waited + 1) * engine->chunks_per_step) {
            copse__engine_wake_all(engine);
            return;
        }
    }
    copse__engine_discard(engine, rank->index, &rank->error);
}

void copse__engine_restart(copse__allreduce *engine) {
    if (!engine->failing || engine->summing > 0)
        return;
    for (size_t r = 0; r < engine->rank_count; r++) {
        const copse__rank *rank = &engine->ranks[r];
        if (!rank->dropped && (rank->failed || !rank->told || !rank->mover.parked))
            return;
    }
    engine->failing = false;
    engine->attempt++;
    engine->claimed = engine->summed = 0;
    memset(engine->done, 0, sizeof engine->done);
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        rank->arrived = rank->delivered = 0;
        rank->mover.parked = false;
        rank->mover.down.issued = rank->mover.down.landed = 0;
        rank->mover.up.issued = rank->mover.up.landed = 0;
    }
    copse__engine_wake_all(engine);
}
