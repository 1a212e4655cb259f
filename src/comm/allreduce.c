/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/allreduce.h"

#include "base/clock.h"
#include "comm/engine.h"

/* What a submission is worth; with the lock held. */
typedef enum verdict { TAKE, IGNORE, IGNORE_UNTOUCHED, REFUSE } verdict;

static verdict judge(copse__allreduce *engine, copse__rank *rank, uint64_t step,
                     size_t bucket, copse__view part, copse_error *err) {
    if (rank->dropped) {
        (void)copse__comm_invalid(err, "the rank was dropped", rank->index);
        return REFUSE;
    }
    if (rank->failed)
        return IGNORE_UNTOUCHED;
    if (engine->failing && !rank->told)
        return IGNORE;
    const size_t bytes = engine->buckets[bucket].bytes;
    if (bytes > 0 && (part.buffer == NULL || part.bytes < bytes)) {
        (void)copse__comm_invalid(err, "the part of a bucket is too small for it",
                                  bucket);
        return REFUSE;
    }
    if (engine->step_known && step != engine->base_step + rank->waited) {
        (void)copse__fail(err, COPSE_INVALID, 0, "all-reduce",
                          "rank %zu submits step %llu where step %llu is due",
                          rank->index, (unsigned long long)step,
                          (unsigned long long)(engine->base_step + rank->waited));
        return REFUSE;
    }
    if (rank->parts[bucket].given) {
        (void)copse__comm_invalid(err, "the bucket was submitted twice", bucket);
        return REFUSE;
    }
    return TAKE;
}

static void fill_part(copse__rank *rank, size_t bucket, copse__view view,
                      copse__fence *ready, bool contributes) {
    char *at =
        rank->path == COPSE__PATH_MAPPED ? rank->backend->buffer_host(view.buffer) : NULL;
    rank->parts[bucket] = (copse__part){.given = true,
                                        .filled = true,
                                        .contributes = contributes,
                                        .view = view,
                                        .ready = ready,
                                        .direct = at != NULL,
                                        .mapped = at != NULL ? at + view.offset : NULL};
}

copse_status copse__allreduce_submit(copse__allreduce *engine, size_t rank_index,
                                     uint64_t step, size_t bucket, copse__view part,
                                     copse__fence *ready, bool contributes,
                                     copse_error *err) {
    if (rank_index >= engine->rank_count)
        return copse__comm_invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    if (bucket >= engine->bucket_count) {
        rank->backend->fence_free(ready);
        return copse__comm_invalid(err, "there is no such bucket", bucket);
    }
    pthread_mutex_lock(&engine->lock);
    const verdict what = judge(engine, rank, step, bucket, part, err);
    const bool lives = copse__rank_lives(rank);
    if (what == TAKE) {
        if (!engine->step_known) {
            engine->step_known = true;
            engine->base_step = step;
        }
        const uint64_t now = copse__now_ns();
        if (rank->submitted++ == 0)
            rank->first_ns = now;
        rank->submit_ns = now;
        rank->submit_warned = false;
        rank->parts[bucket].given = true;
        const bool last = rank->submitted == engine->bucket_count;
        const uint64_t arrived = copse__engine_arrived(engine);
        if (engine->buckets[bucket].bytes > 0) {
            fill_part(rank, bucket, part, ready, contributes);
            ready = NULL;
            /* After its last part a rank waits, and sums meanwhile. */
            const bool left = copse__rank_lift_direct(rank, last ? 1 : 0);
            if (left || rank->parts[bucket].ready != NULL || !rank->parts[bucket].direct)
                pthread_cond_signal(&rank->mover.wake);
        }
        /* Its cores are free for what waits to be summed. */
        if (last && copse__engine_arrived(engine) == arrived &&
            copse__engine_can_sum(engine))
            copse__engine_call_for(engine, arrived - engine->claimed, 1);
    }
    pthread_mutex_unlock(&engine->lock);
    if (lives)
        rank->backend->fence_free(ready);
    return what == REFUSE ? COPSE_INVALID : COPSE_OK;
}

static void forget_step(copse__allreduce *engine, copse__rank *rank) {
    rank->submitted = 0;
    for (size_t b = 0; b < engine->bucket_count; b++)
        rank->parts[b].given = false;
}

/* Takes back what a told rank gave for an attempt that will not begin. Its mover is
 * parked; the lock is let go for the device's calls only. */
static void take_back(copse__allreduce *engine, copse__rank *rank) {
    forget_step(engine, rank);
    for (size_t b = 0; b < engine->bucket_count; b++)
        rank->parts[b].filled = false;
    for (size_t b = 0; b < engine->bucket_count; b++) {
        copse__fence *ready = rank->parts[b].ready;
        rank->parts[b].ready = NULL;
        pthread_mutex_unlock(&engine->lock);
        rank->backend->fence_free(ready);
        pthread_mutex_lock(&engine->lock);
    }
}

static copse_status tell(copse_error *err, const copse_error *failure, size_t rank,
                         copse__allreduce_result *result) {
    result->failed_rank = rank;
    if (err)
        *err = *failure;
    return failure->status;
}

/* A failed rank that was not dropped yet, or NULL. */
static copse__rank *find_failed(copse__allreduce *engine) {
    for (size_t r = 0; r < engine->rank_count; r++)
        if (engine->ranks[r].failed && !engine->ranks[r].dropped)
            return &engine->ranks[r];
    return NULL;
}

/* Blocks, with the lock held, until the step is through, failed, or overdue. */
static copse_status await(copse__allreduce *engine, copse__rank *rank,
                          copse__allreduce_result *result, copse_error *err) {
    for (;;) {
        if (rank->dropped)
            return copse__comm_invalid(err, "the rank was dropped", rank->index);
        if (rank->failed && (!engine->failing || rank->told))
            return tell(err, &rank->error, rank->index, result);
        if (engine->failing && !rank->told && (rank->failed || rank->mover.parked)) {
            rank->told = true;
            rank->waited = 0;
            forget_step(engine, rank);
            const copse_error failure = engine->failure;
            const size_t failed = engine->failure_rank;
            copse__engine_restart(engine);
            return tell(err, &failure, failed, result);
        }
        if (engine->failing && rank->told && find_failed(engine) != NULL) {
            const copse__rank *failed = find_failed(engine);
            take_back(engine, rank);
            return tell(err, &failed->error, failed->index, result);
        }
        if (!engine->failing &&
            rank->delivered >= (rank->waited + 1) * engine->chunks_per_step)
            return COPSE_OK;
        if (copse__engine_can_sum(engine))
            copse__engine_sum(engine);
        else
            pthread_cond_wait(&rank->waiter, &engine->lock);
    }
}

copse_status copse__allreduce_wait(copse__allreduce *engine, size_t rank_index,
                                   uint64_t step, copse__allreduce_result *result,
                                   copse_error *err) {
    copse__allreduce_result unused;
    result = result ? result : &unused;
    *result = (copse__allreduce_result){0, SIZE_MAX, SIZE_MAX, SIZE_MAX};
    if (rank_index >= engine->rank_count)
        return copse__comm_invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    pthread_mutex_lock(&engine->lock);
    copse_status status;
    const bool untold = engine->failing && !rank->told;
    if (!untold && copse__rank_lives(rank) &&
        (rank->submitted != engine->bucket_count ||
         (engine->step_known && step != engine->base_step + rank->waited))) {
        status = copse__comm_invalid(
            err, "the rank has not submitted every bucket of the step", rank_index);
    } else {
        status = await(engine, rank, result, err);
    }
    if (status == COPSE_OK) {
        if (engine->chunks_per_step > 0) {
            const copse__step_found *found = &engine->found[rank->waited & 1u];
            result->nonfinite = found->nonfinite;
            result->nonfinite_bucket = found->bucket;
            result->nonfinite_rank = found->rank;
        }
        rank->waited++;
        forget_step(engine, rank);
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

/* Nothing of any live rank is under way. */
static bool is_idle(const copse__allreduce *engine) {
    for (size_t r = 0; r < engine->rank_count; r++)
        if (!engine->ranks[r].dropped && engine->ranks[r].submitted > 0)
            return false;
    return true;
}

copse_status copse__allreduce_drop(copse__allreduce *engine, size_t rank_index,
                                   copse_error *err) {
    if (rank_index >= engine->rank_count)
        return copse__comm_invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    copse_status status = COPSE_OK;
    pthread_mutex_lock(&engine->lock);
    size_t live = 0;
    for (size_t r = 0; r < engine->rank_count; r++)
        live += engine->ranks[r].dropped ? 0u : 1u;
    if (rank->dropped)
        goto out;
    if (live == 1) {
        status = copse__comm_invalid(err, "the last rank cannot be dropped", rank_index);
        goto out;
    }
    rank->dropped = true;
    atomic_store(&rank->lost, true);
    if (engine->failing) {
        copse__engine_restart(engine);
    } else if (!is_idle(engine)) {
        copse_error failure = {0};
        copse__fail(&failure, COPSE_DEVICE, 0,
                    copse__device_get(rank->device)->choice.label,
                    "step %llu is discarded: rank %zu (%s) was dropped",
                    (unsigned long long)(engine->base_step + rank->waited), rank->index,
                    copse__device_get(rank->device)->choice.label);
        copse__engine_discard(engine, rank->index, &failure);
    }
    copse__engine_wake_all(engine);
out:
    pthread_mutex_unlock(&engine->lock);
    return status;
}
