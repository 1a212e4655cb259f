/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "comm/engine.h"
#include "topo/bind.h"

/* A chunk ready to be summed: where it lies on the host. */
typedef struct work {
    uint64_t q;
    size_t bucket, elements;
    size_t source_count, target_count;
    const void *sources[COPSE__MAX_REPLICAS];
    size_t source_ranks[COPSE__MAX_REPLICAS];
    void *targets[COPSE__MAX_REPLICAS];
} work;

size_t copse__engine_sum_limit(const copse__allreduce *engine) {
    size_t busy = 0;
    for (size_t r = 0; r < engine->rank_count; r++) {
        const copse__rank *rank = &engine->ranks[r];
        const copse__caps *caps = &copse__device_get(rank->device)->caps;
        if (caps->cpu && copse__rank_lives(rank) &&
            rank->submitted < engine->bucket_count)
            busy += caps->compute_units;
    }
    return engine->sum_limit > busy ? engine->sum_limit - busy : 1;
}

bool copse__engine_can_sum(const copse__allreduce *engine) {
    return !engine->failing && !engine->quit && engine->chunks_per_step > 0 &&
           engine->claimed < engine->summed + COPSE__SUM_WINDOW &&
           engine->claimed < copse__engine_arrived(engine) &&
           engine->summing < copse__engine_sum_limit(engine);
}

/* Claims the next chunk. Its ranks stay as they are until it is summed. */
static void claim(copse__allreduce *engine, work *out) {
    uint64_t chunk;
    out->q = engine->claimed++;
    out->bucket = copse__bucket_of(engine, out->q, &chunk);
    copse__bucket *bucket = &engine->buckets[out->bucket];
    out->elements =
        copse__chunk_size(engine, out->bucket, chunk) / copse_dtype_bytes(engine->dtype);
    out->source_count = out->target_count = 0;
    uint64_t contributing = 0;
    copse__tree_range parts[COPSE__MAX_REPLICAS];
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        if (rank->dropped)
            continue;
        const copse__part *part = &rank->parts[out->bucket];
        char *at = rank->path == COPSE__PATH_MAPPED
                       ? part->mapped + chunk * engine->chunk_bytes
                       : rank->slots + out->q % engine->slot_count * engine->chunk_bytes;
        out->targets[out->target_count++] = at;
        if (!part->contributes)
            continue;
        parts[out->source_count] = (copse__tree_range){r, 1};
        out->source_ranks[out->source_count] = r;
        out->sources[out->source_count++] = at;
        contributing |= (uint64_t)1 << r;
    }
    if (!bucket->planned || bucket->plan_ranks != contributing) {
        copse_status status = copse__sum_plan_make(&bucket->plan, engine->rank_count,
                                                   parts, out->source_count, NULL);
        (void)status; /* ranks in order are always a valid plan */
        bucket->planned = true;
        bucket->plan_ranks = contributing;
    }
    if (out->q % engine->chunks_per_step == 0)
        engine->found[out->q / engine->chunks_per_step & 1u] =
            (copse__step_found){0, SIZE_MAX, SIZE_MAX};
}

static void merge_found(copse__allreduce *engine, const work *done,
                        const copse__sum_found *found) {
    copse__step_found *all = &engine->found[done->q / engine->chunks_per_step & 1u];
    size_t rank = SIZE_MAX;
    for (size_t i = done->source_count; i-- > 0;)
        if (found->parts[i])
            rank = done->source_ranks[i];
    all->nonfinite += found->nonfinite;
    if (done->bucket < all->bucket || (done->bucket == all->bucket && rank < all->rank)) {
        all->bucket = done->bucket;
        all->rank = rank;
    }
}

/* Advances the gapless front of summed chunks and wakes who can bring them home. */
static void advance(copse__allreduce *engine, uint64_t q) {
    const uint64_t before = engine->summed;
    engine->done[q % COPSE__SUM_WINDOW] = true;
    while (engine->done[engine->summed % COPSE__SUM_WINDOW])
        engine->done[engine->summed++ % COPSE__SUM_WINDOW] = false;
    if (engine->summed == before)
        return;
    if (engine->claimed == before + COPSE__SUM_WINDOW) /* others stopped there */
        copse__engine_call_for(engine, engine->sum_limit, 0);
    const bool bucket_done = copse__bucket_end(engine, before) <= engine->summed;
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        if (bucket_done)
            copse__rank_lower_direct(rank);
        if (copse__rank_can_lower(rank)) {
            rank->mover.idle = false;
            pthread_cond_signal(&rank->mover.wake);
        }
    }
}

void copse__engine_sum(copse__allreduce *engine) {
    work now;
    copse__sum_found found = {0};
    claim(engine, &now);
    engine->summing++;
    pthread_mutex_unlock(&engine->lock);
    copse__sum_run(&engine->buckets[now.bucket].plan, engine->isa, engine->dtype,
                   now.sources, now.targets, now.target_count, now.elements, false,
                   &found);
    pthread_mutex_lock(&engine->lock);
    engine->summing--;
    if (!engine->failing) {
        if (found.nonfinite > 0)
            merge_found(engine, &now, &found);
        advance(engine, now.q);
    }
    if ((engine->failing || engine->quit) && engine->summing == 0) {
        for (size_t r = 0; r < engine->rank_count; r++)
            pthread_cond_signal(&engine->ranks[r].mover.wake);
        copse__engine_restart(engine);
    }
}

void copse__engine_call_for(copse__allreduce *engine, uint64_t chunks, uint64_t own) {
    const size_t limit = copse__engine_sum_limit(engine);
    uint64_t wanted = limit > engine->summing ? limit - engine->summing : 0;
    wanted = chunks < wanted ? chunks : wanted;
    wanted = own < wanted ? wanted - own : 0;
    for (size_t r = 0; r < engine->rank_count && wanted > 0; r++) {
        copse__mover *mover = &engine->ranks[r].mover;
        if (!mover->idle)
            continue;
        mover->idle = false;
        pthread_cond_signal(&mover->wake);
        wanted--;
    }
    for (; wanted > 0; wanted--)
        pthread_cond_signal(&engine->work);
}

void *copse__reducer_main(void *user) {
    const copse__reducer *self = user;
    copse__allreduce *engine = self->engine;
    copse_error ignored; /* a thread that cannot be bound runs anywhere */
    (void)!copse__bind_to_numa(self->numa, &ignored);
    copse__thread_is_brief();
    pthread_mutex_lock(&engine->lock);
    while (!engine->quit) {
        if (copse__engine_can_sum(engine))
            copse__engine_sum(engine);
        else
            pthread_cond_wait(&engine->work, &engine->lock);
    }
    pthread_mutex_unlock(&engine->lock);
    return NULL;
}
