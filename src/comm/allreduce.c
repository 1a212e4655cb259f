/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/allreduce.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/engine.h"
#include "topo/bind.h"

#define ALIGNMENT 4096u
#define LEAST_CHUNK ((size_t)256 << 10)
#define MOST_CHUNK ((size_t)4 << 20)
#define LEAST_SLOTS 4u
#define MOST_SLOTS 8u

static copse_status invalid(copse_error *err, const char *what, size_t value) {
    return copse__fail(err, COPSE_INVALID, 0, "all-reduce", "%s (%zu)", what, value);
}

/* ---- building and taking down ---- */

/* With a latency of a, a rate of b and three stages, chunks of sqrt(a S b / 2) bytes make the
 * least of latency and of filling and draining the pipeline. About 30 us and 10 GB/s are
 * what threads and memory of current machines have; the optimum is flat. Slots of copied
 * ranks should stay in the last cache between download, sum and upload. */
static size_t choose_chunk(const copse__allreduce *engine, size_t largest) {
    size_t chunk = LEAST_CHUNK;
    while (chunk < MOST_CHUNK &&
           (double)chunk * (double)chunk < 1.5e5 * (double)largest / 2)
        chunk *= 2;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    while (cache > 0 && chunk > LEAST_CHUNK &&
           engine->rank_count * LEAST_SLOTS * chunk > (size_t)cache)
        chunk /= 2;
    return chunk;
}

static copse_status lay_out(copse__allreduce *engine,
                            const copse__allreduce_options *options, copse_error *err) {
    size_t largest = 0;
    for (size_t b = 0; b < engine->bucket_count; b++) {
        copse__bucket *bucket = &engine->buckets[b];
        bucket->elements = options->bucket_elements[b];
        if (!copse__mul_size(bucket->elements, copse_dtype_bytes(engine->dtype),
                             &bucket->bytes) ||
            bucket->bytes > SIZE_MAX / 4)
            return invalid(err, "a bucket has too many elements", bucket->elements);
        largest = copse__max_size(largest, bucket->bytes);
    }
    size_t chunk = options->chunk_bytes;
    if (chunk > SIZE_MAX / 4)
        return invalid(err, "a chunk is too large", chunk);
    if (chunk == 0)
        chunk = choose_chunk(engine, largest);
    /* Smaller where no bucket fills one. */
    chunk = copse__min_size(chunk, copse__max_size(largest, 1));
    engine->chunk_bytes = copse__round_up(chunk, ALIGNMENT);
    for (size_t b = 0; b < engine->bucket_count; b++) {
        copse__bucket *bucket = &engine->buckets[b];
        bucket->first_chunk = engine->chunks_per_step;
        bucket->chunk_count =
            (bucket->bytes + engine->chunk_bytes - 1) / engine->chunk_bytes;
        engine->chunks_per_step += bucket->chunk_count;
    }
    engine->slot_count = MOST_SLOTS;
    if (engine->chunks_per_step > 0 && engine->chunks_per_step < engine->slot_count)
        engine->slot_count = (size_t)engine->chunks_per_step;
    return COPSE_OK;
}

static copse_status open_rank(copse__allreduce *engine, size_t index,
                              const copse__allreduce_options *options, copse_error *err) {
    copse__rank *rank = &engine->ranks[index];
    copse_status status = COPSE_OK;
    rank->engine = engine;
    rank->index = index;
    rank->device = options->devices[index];
    rank->backend = copse__backend_of(rank->device);
    rank->path = options->path;
    if (rank->path == COPSE__PATH_AUTO)
        rank->path = copse__device_get(rank->device)->caps.unified ? COPSE__PATH_MAPPED
                                                                   : COPSE__PATH_COPIED;
    COPSE__TRY(
        copse__calloc(&rank->parts, engine->bucket_count, sizeof *rank->parts, err), out);
    COPSE__TRY(copse__calloc(&rank->lift_fences, engine->slot_count,
                             sizeof *rank->lift_fences, err),
               out);
    COPSE__TRY(copse__calloc(&rank->lower_fences, engine->slot_count,
                             sizeof *rank->lower_fences, err),
               out);
    if (rank->path == COPSE__PATH_COPIED && engine->chunks_per_step > 0) {
        size_t bytes;
        if (!copse__mul_size(engine->slot_count, engine->chunk_bytes, &bytes))
            return invalid(err, "the chunks are too large", engine->chunk_bytes);
        COPSE__TRY(rank->backend->buffer_new(&rank->slot_buffer, rank->device, bytes,
                                             COPSE__MEMORY_STAGING, err),
                   out);
        rank->slots = rank->backend->buffer_host(rank->slot_buffer);
    }
out:
    return status;
}

static copse_status start(pthread_t *thread, bool *started, void *(*body)(void *),
                          void *user, copse_error *err) {
    const int failed = pthread_create(thread, NULL, body, user);
    if (failed)
        return copse__fail(err, COPSE_NOMEM, failed, "all-reduce",
                           "cannot start a thread: %s", strerror(failed));
    if (started)
        *started = true;
    return COPSE_OK;
}

static copse_status start_threads(copse__allreduce *engine, size_t reducers,
                                  copse_error *err) {
    copse_status status = COPSE_OK;
    COPSE__TRY(copse__calloc(&engine->reducers, reducers, sizeof *engine->reducers, err),
               out);
    for (; engine->reducers_started < reducers; engine->reducers_started++)
        COPSE__TRY(start(&engine->reducers[engine->reducers_started], NULL,
                         copse__reducer_main, engine, err),
                   out);
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        COPSE__TRY(start(&rank->lifter.thread, &rank->lifter.started, copse__lifter_main,
                         rank, err),
                   out);
        COPSE__TRY(start(&rank->lowerer.thread, &rank->lowerer.started,
                         copse__lowerer_main, rank, err),
                   out);
    }
    COPSE__TRY(start(&engine->watchdog, &engine->watchdog_started, copse__watchdog_main,
                     engine, err),
               out);
out:
    return status;
}

static void init_locks(copse__allreduce *engine) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->watchdog_wake, &monotonic);
    pthread_cond_init(&engine->exits, &monotonic);
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        pthread_cond_init(&rank->waiter, &monotonic);
        pthread_cond_init(&rank->lifter.wake, NULL);
        pthread_cond_init(&rank->lowerer.wake, NULL);
    }
    pthread_condattr_destroy(&monotonic);
}

copse_status copse__allreduce_new(copse__allreduce **out,
                                  const copse__allreduce_options *options,
                                  copse_error *err) {
    *out = NULL;
    if (options->rank_count < 1 || options->rank_count > COPSE__MAX_REPLICAS)
        return invalid(err, "it takes 1 to 64 ranks", options->rank_count);
    if (options->dtype != COPSE_F32 && options->dtype != COPSE_F16)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, "all-reduce",
                           "it sums f32 and f16, not %s",
                           copse_dtype_name(options->dtype));
    copse__allreduce *engine = NULL;
    copse_status status = copse__calloc(&engine, 1, sizeof *engine, err);
    if (status != COPSE_OK)
        return status;
    status =
        copse__calloc(&engine->ranks, options->rank_count, sizeof *engine->ranks, err);
    if (status != COPSE_OK) {
        free(engine);
        return status;
    }
    engine->rank_count = options->rank_count;
    init_locks(engine);
    engine->bucket_count = options->bucket_count;
    engine->warn_ns = options->warn_ns ? options->warn_ns : UINT64_C(5000000000);
    engine->fail_ns = options->fail_ns ? options->fail_ns : UINT64_C(60000000000);
    engine->isa = copse__sum_isa_best();
    engine->dtype = options->dtype;
    size_t reducers = options->reducer_threads;
    if (reducers == 0)
        reducers = copse__min_size(copse__allowed_cpus(), 16);
    engine->sum_limit = reducers;
    COPSE__TRY(copse__calloc(&engine->buckets, engine->bucket_count,
                             sizeof *engine->buckets, err),
               out);
    COPSE__TRY(lay_out(engine, options, err), out);
    for (size_t r = 0; r < engine->rank_count; r++)
        COPSE__TRY(open_rank(engine, r, options, err), out);
    copse__engine_find_sources(engine);
    COPSE__TRY(start_threads(engine, reducers, err), out);
    *out = engine;
    return COPSE_OK;
out:
    copse__allreduce_free(engine);
    return status;
}

static bool moving(const copse__mover *mover) {
    return mover->started && !mover->exited;
}

/* Waits for the movers to leave: those of live ranks as long as a stall may last, those of
 * a lost device only a moment. False: some are stuck in their driver. */
static bool movers_left(copse__allreduce *engine) {
    const uint64_t begun = copse__now_ns();
    for (;;) {
        uint64_t patience = 0;
        bool stuck = false;
        for (size_t r = 0; r < engine->rank_count; r++) {
            const copse__rank *rank = &engine->ranks[r];
            if (!moving(&rank->lifter) && !moving(&rank->lowerer))
                continue;
            stuck = true;
            const uint64_t limit =
                copse__rank_lives(rank) ? engine->fail_ns : UINT64_C(100000000);
            patience = limit > patience ? limit : patience;
        }
        const uint64_t until = begun + patience;
        if (!stuck || copse__now_ns() >= until)
            return !stuck;
        const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                                    .tv_nsec = (long)(until % 1000000000u)};
        pthread_cond_timedwait(&engine->exits, &engine->lock, &at);
    }
}

/* False: it is stuck in its driver, and left there. */
static bool finish_mover(copse__allreduce *engine, copse__mover *mover) {
    if (!mover->started)
        return true;
    pthread_mutex_lock(&engine->lock);
    const bool exited = mover->exited;
    pthread_mutex_unlock(&engine->lock);
    if (exited)
        pthread_join(mover->thread, NULL);
    else
        pthread_detach(mover->thread);
    return exited;
}

/* What a rank has of its own; of a lost device only what its driver cannot know. */
static void close_rank(copse__rank *rank) {
    if (copse__rank_lives(rank) && rank->slot_buffer != NULL)
        rank->backend->buffer_free(rank->slot_buffer);
    free(rank->parts);
    free(rank->lift_fences);
    free(rank->lower_fences);
}

static void destroy(copse__allreduce *engine) {
    for (size_t r = 0; r < engine->rank_count; r++) {
        pthread_cond_destroy(&engine->ranks[r].waiter);
        pthread_cond_destroy(&engine->ranks[r].lifter.wake);
        pthread_cond_destroy(&engine->ranks[r].lowerer.wake);
    }
    pthread_mutex_destroy(&engine->lock);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->watchdog_wake);
    pthread_cond_destroy(&engine->exits);
    free(engine->ranks);
    free(engine->buckets);
    free(engine->reducers);
    free(engine);
}

void copse__allreduce_free(copse__allreduce *engine) {
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->quit = true;
    copse__engine_wake_all(engine);
    const bool all_left = movers_left(engine);
    pthread_mutex_unlock(&engine->lock);
    for (size_t i = 0; i < engine->reducers_started; i++)
        pthread_join(engine->reducers[i], NULL);
    if (engine->watchdog_started)
        pthread_join(engine->watchdog, NULL);
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        const bool lifter_left = finish_mover(engine, &rank->lifter);
        const bool lowerer_left = finish_mover(engine, &rank->lowerer);
        if (lifter_left && lowerer_left)
            close_rank(rank);
    }
    if (all_left)
        destroy(engine);
}

copse__stage_path copse__allreduce_path(const copse__allreduce *engine, size_t rank) {
    return engine->ranks[rank].path;
}

size_t copse__allreduce_chunk_bytes(const copse__allreduce *engine) {
    return engine->chunk_bytes;
}

double copse__allreduce_passes(const copse__allreduce *engine) {
    double passes = 0;
    for (size_t r = 0; r < engine->rank_count; r++) {
        const bool shared = copse__device_get(engine->ranks[r].device)->caps.unified;
        passes += engine->ranks[r].path == COPSE__PATH_MAPPED || shared ? 2 : 4;
    }
    return passes;
}

/* ---- steps ---- */

/* What a submission is worth; with the lock held. */
typedef enum verdict { TAKE, IGNORE, IGNORE_UNTOUCHED, REFUSE } verdict;

static verdict judge(copse__allreduce *engine, copse__rank *rank, uint64_t step,
                     size_t bucket, copse__view part, copse_error *err) {
    if (rank->dropped) {
        (void)invalid(err, "the rank was dropped", rank->index);
        return REFUSE;
    }
    if (rank->failed)
        return IGNORE_UNTOUCHED;
    if (engine->failing && !rank->told)
        return IGNORE;
    const size_t bytes = engine->buckets[bucket].bytes;
    if (bytes > 0 && (part.buffer == NULL || part.bytes < bytes)) {
        (void)invalid(err, "the part of a bucket is too small for it", bucket);
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
        (void)invalid(err, "the bucket was submitted twice", bucket);
        return REFUSE;
    }
    return TAKE;
}

copse_status copse__allreduce_submit(copse__allreduce *engine, size_t rank_index,
                                     uint64_t step, size_t bucket, copse__view part,
                                     copse__fence *ready, bool contributes,
                                     copse_error *err) {
    if (rank_index >= engine->rank_count)
        return invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    if (bucket >= engine->bucket_count) {
        rank->backend->fence_free(ready);
        return invalid(err, "there is no such bucket", bucket);
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
        copse__part *record = &rank->parts[bucket];
        record->given = true;
        if (engine->buckets[bucket].bytes > 0) {
            *record = (copse__part){.given = true,
                                    .filled = true,
                                    .contributes = contributes,
                                    .view = part,
                                    .ready = ready};
            ready = NULL;
            pthread_cond_signal(&rank->lifter.wake);
        }
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

/* Takes back what a told rank gave for an attempt that will not begin. Its movers are
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
            return invalid(err, "the rank was dropped", rank->index);
        if (rank->failed && (!engine->failing || rank->told))
            return tell(err, &rank->error, rank->index, result);
        const bool drained = rank->lifter.parked && rank->lowerer.parked;
        if (engine->failing && !rank->told && (rank->failed || drained)) {
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
        return invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    pthread_mutex_lock(&engine->lock);
    copse_status status;
    const bool untold = engine->failing && !rank->told;
    if (!untold && copse__rank_lives(rank) &&
        (rank->submitted != engine->bucket_count ||
         (engine->step_known && step != engine->base_step + rank->waited))) {
        status = invalid(err, "the rank has not submitted every bucket of the step",
                         rank_index);
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
        return invalid(err, "there is no such rank", rank_index);
    copse__rank *rank = &engine->ranks[rank_index];
    copse_status status = COPSE_OK;
    pthread_mutex_lock(&engine->lock);
    size_t live = 0;
    for (size_t r = 0; r < engine->rank_count; r++)
        live += engine->ranks[r].dropped ? 0u : 1u;
    if (rank->dropped)
        goto out;
    if (live == 1) {
        status = invalid(err, "the last rank cannot be dropped", rank_index);
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
    } else {
        copse__engine_find_sources(engine);
        copse__engine_retire(engine);
    }
    copse__engine_wake_all(engine);
out:
    pthread_mutex_unlock(&engine->lock);
    return status;
}
