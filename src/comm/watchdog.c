/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "comm/engine.h"

/* Looks at the heartbeats. It calls no device, so a hung driver cannot hold it. */

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Whether others wait for a gradient that the rank has not submitted, and since when. */
static bool owes_part(const copse__allreduce *engine, const copse__rank *rank,
                      uint64_t *since) {
    /* A rank that has given all of a step and received its sums owes the next one. */
    const bool through = rank->submitted == engine->bucket_count &&
                         rank->delivered >= (rank->waited + 1) * engine->chunks_per_step;
    if (rank->submitted == engine->bucket_count && !through)
        return false;
    const uint64_t step = rank->waited + (through ? 1 : 0);
    uint64_t first = UINT64_MAX;
    for (size_t r = 0; r < engine->rank_count; r++) {
        const copse__rank *other = &engine->ranks[r];
        if (copse__rank_lives(other) && other != rank && other->submitted > 0 &&
            other->waited == step && other->first_ns < first)
            first = other->first_ns;
    }
    *since = later(first, rank->submit_ns);
    return first != UINT64_MAX;
}

/* The first bucket that the rank has not given. */
static uint64_t owed_chunk(const copse__allreduce *engine, const copse__rank *rank) {
    size_t bucket = 0;
    while (bucket + 1 < engine->bucket_count && rank->parts[bucket].given)
        bucket++;
    return engine->buckets[bucket].first_chunk;
}

static void stalled(copse__allreduce *engine, copse__rank *rank, copse__stage stage,
                    uint64_t q, uint64_t waited_ns, bool *warned) {
    const double seconds = (double)waited_ns * 1e-9;
    if (waited_ns >= engine->fail_ns) {
        copse_error cause = {.status = COPSE_TIMEOUT};
        copse__fail(&cause, COPSE_TIMEOUT, 0, NULL,
                    "nothing came for %.3g s; the device is left out from here", seconds);
        copse__engine_fail(engine, rank, stage, q, &cause);
        return;
    }
    if (waited_ns < engine->warn_ns || *warned)
        return;
    *warned = true;
    uint64_t chunk = 0, chunks = 0;
    size_t bucket = 0;
    if (engine->chunks_per_step > 0) {
        bucket = copse__bucket_of(engine, q, &chunk);
        chunks = engine->buckets[bucket].chunk_count;
    }
    copse__log(
        COPSE_LOG_WARN,
        "all-reduce of step %llu waits for rank %zu (%s) since %.3g s: bucket %zu, "
        "chunk %llu of %llu, %s; it fails after %.3g s",
        (unsigned long long)(engine->base_step + rank->waited), rank->index,
        copse__device_get(rank->device)->choice.label, seconds, bucket,
        (unsigned long long)chunk + 1, (unsigned long long)chunks,
        copse__stage_name(stage), (double)engine->fail_ns * 1e-9);
}

static void look_at(copse__allreduce *engine, copse__rank *rank, uint64_t now) {
    copse__mover *mover = &rank->mover;
    if (copse__rank_lives(rank) && mover->stage != COPSE__STAGE_IDLE &&
        now > mover->since)
        stalled(engine, rank, mover->stage, mover->q, now - mover->since, &mover->warned);
    uint64_t since;
    if (copse__rank_lives(rank) && !engine->failing && owes_part(engine, rank, &since) &&
        now > since)
        stalled(engine, rank, COPSE__STAGE_SUBMIT, owed_chunk(engine, rank), now - since,
                &rank->submit_warned);
}

void *copse__watchdog_main(void *user) {
    copse__allreduce *engine = user;
    uint64_t period =
        engine->warn_ns < engine->fail_ns ? engine->warn_ns : engine->fail_ns;
    period = period / 4 < 1000000 ? 1000000 : period / 4;
    pthread_mutex_lock(&engine->lock);
    while (!engine->quit) {
        const uint64_t until = copse__now_ns() + period;
        const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                                    .tv_nsec = (long)(until % 1000000000u)};
        pthread_cond_timedwait(&engine->watchdog_wake, &engine->lock, &at);
        const uint64_t now = copse__now_ns();
        for (size_t r = 0; r < engine->rank_count && !engine->quit; r++)
            look_at(engine, &engine->ranks[r], now);
        if (copse__engine_can_sum(
                engine)) /* a rank gave its last part and does not wait */
            copse__engine_call_for(engine, UINT64_MAX, 0);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
