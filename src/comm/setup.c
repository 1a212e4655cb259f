/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/allreduce.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/budget.h"
#include "comm/engine.h"
#include "comm/opening.h"
#include "comm/rates.h"
#include "topo/bind.h"

#define ALIGNMENT 4096u
#define LEAST_CHUNK ((size_t)256 << 10)
#define MOST_CHUNK ((size_t)4 << 20)
#define SMALLEST_CHUNK ((size_t)64 << 10) /* where memory is short */
#define MOST_SLOTS 8u
#define MOST_NODES 64u
#define OPENING_PATIENCE 3 /* a first call may take so many times as long as another */

/* With a latency of a, a rate of b and three stages, chunks of sqrt(a S b / 2) bytes make the
 * least of latency and of filling and draining the pipeline. About 30 us and 10 GB/s are
 * what threads and memory of current machines have; the optimum is flat. Slots of copied
 * ranks should stay in the last cache between download, sum and upload, of which the gradients
 * themselves and others use the rest. */
static size_t choose_chunk(const copse__allreduce *engine, size_t largest) {
    size_t chunk = LEAST_CHUNK;
    while (chunk < MOST_CHUNK &&
           4 * (double)chunk * (double)chunk <= 1.5e5 * (double)largest / 2)
        chunk *= 2;
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    while (cache > 0 && chunk > LEAST_CHUNK &&
           engine->rank_count * MOST_SLOTS * chunk > (size_t)cache / 4)
        chunk /= 2;
    return chunk;
}

static void cut(copse__allreduce *engine) {
    engine->chunks_per_step = 0;
    for (size_t b = 0; b < engine->bucket_count; b++) {
        copse__bucket *bucket = &engine->buckets[b];
        bucket->first_chunk = engine->chunks_per_step;
        bucket->chunk_count =
            (bucket->bytes + engine->chunk_bytes - 1) / engine->chunk_bytes;
        engine->chunks_per_step += bucket->chunk_count;
    }
    if (engine->chunks_per_step > 0 && engine->chunks_per_step < engine->slot_count)
        engine->slot_count = (size_t)engine->chunks_per_step;
}

static copse_status lay_out(copse__allreduce *engine,
                            const copse__allreduce_options *options, copse_error *err) {
    for (size_t b = 0; b < engine->bucket_count; b++) {
        copse__bucket *bucket = &engine->buckets[b];
        bucket->elements = options->bucket_elements[b];
        if (!copse__mul_size(bucket->elements, copse_dtype_bytes(engine->dtype),
                             &bucket->bytes) ||
            bucket->bytes > SIZE_MAX / 4)
            return copse__comm_invalid(err, "a bucket has too many elements",
                                       bucket->elements);
        engine->largest = copse__max_size(engine->largest, bucket->bytes);
    }
    size_t chunk = options->chunk_bytes;
    if (chunk > SIZE_MAX / 4)
        return copse__comm_invalid(err, "a chunk is too large", chunk);
    if (chunk == 0)
        chunk = choose_chunk(engine, engine->largest);
    /* Smaller where no bucket fills one. */
    chunk = copse__min_size(chunk, copse__max_size(engine->largest, 1));
    engine->chunk_bytes = copse__round_up(chunk, ALIGNMENT);
    engine->slot_count = MOST_SLOTS;
    cut(engine);
    return COPSE_OK;
}

size_t copse__allreduce_slot_bytes(const size_t *bucket_elements, size_t bucket_count,
                                   size_t rank_count) {
    copse__allreduce engine = {
        .dtype = COPSE_F32, .bucket_count = bucket_count, .rank_count = rank_count};
    const copse__allreduce_options options = {.bucket_elements = bucket_elements};
    size_t bytes = 0;
    if (copse__calloc(&engine.buckets, bucket_count, sizeof *engine.buckets, NULL) ==
            COPSE_OK &&
        lay_out(&engine, &options, NULL) == COPSE_OK && engine.chunks_per_step > 0)
        bytes = engine.slot_count * engine.chunk_bytes;
    free(engine.buckets);
    return bytes;
}

static copse_status set_rank(copse__allreduce *engine, size_t index,
                             const copse__allreduce_options *options, copse_error *err) {
    copse__rank *rank = &engine->ranks[index];
    copse_status status = COPSE_OK;
    rank->engine = engine;
    rank->index = index;
    rank->device = options->devices[index];
    rank->backend = copse__backend_of(rank->device);
    rank->path = options->paths ? options->paths[index] : options->path;
    if (rank->path == COPSE__PATH_MAPPED &&
        !copse__device_get(rank->device)->caps.unified)
        return copse__fail(err, COPSE_UNSUPPORTED, 0,
                           copse__device_get(rank->device)->choice.label,
                           "its memory is not the host's and cannot be summed in place; "
                           "let its path be chosen, or copied");
    COPSE__TRY(
        copse__calloc(&rank->parts, engine->bucket_count, sizeof *rank->parts, err), out);
    copse__flow *flows[] = {&rank->mover.down, &rank->mover.up};
    for (size_t i = 0; i < COPSE__COUNT(flows); i++) {
        COPSE__TRY(
            copse__calloc(&flows[i]->fences, MOST_SLOTS, sizeof(copse__fence *), err),
            out);
        COPSE__TRY(copse__calloc(&flows[i]->turns, MOST_SLOTS, sizeof(uint64_t), err),
                   out);
    }
out:
    return status;
}

/* Fewer slots, then smaller ones. False: they are as small as they may be. */
static bool shrink(copse__allreduce *engine) {
    if (engine->slot_count > 2)
        engine->slot_count /= 2;
    else if (engine->chunk_bytes > SMALLEST_CHUNK)
        engine->chunk_bytes = copse__round_up(engine->chunk_bytes / 2, ALIGNMENT);
    else
        return false;
    cut(engine);
    return true;
}

static void free_slots(copse__allreduce *engine) {
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        if (rank->slot_buffer != NULL)
            rank->backend->buffer_free(rank->slot_buffer);
        rank->slot_buffer = NULL;
        rank->slots = NULL;
    }
}

static copse_status make_slots(copse__allreduce *engine, copse__calls *calls,
                               copse_error *err) {
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        size_t bytes;
        if (rank->path != COPSE__PATH_COPIED || engine->chunks_per_step == 0)
            continue;
        if (!copse__mul_size(engine->slot_count, engine->chunk_bytes, &bytes))
            return copse__comm_invalid(err, "the chunks are too large",
                                       engine->chunk_bytes);
        copse_status status =
            copse__calls_next(calls, r, "allocation of pinned memory", err);
        if (status != COPSE_OK)
            return status;
        status = rank->backend->buffer_new(&rank->slot_buffer, rank->device, bytes,
                                           COPSE__MEMORY_STAGING, err);
        if (status != COPSE_OK)
            return status;
        rank->slots = rank->backend->buffer_host(rank->slot_buffer);
    }
    return COPSE_OK;
}

static copse_status fit_slots(copse__allreduce *engine, size_t budget,
                              copse__calls *calls, copse_error *err) {
    if (budget == 0)
        budget = copse__free_memory("") / 4;
    size_t copied = 0;
    for (size_t r = 0; r < engine->rank_count; r++)
        copied += engine->ranks[r].path == COPSE__PATH_COPIED;
    while (copied > 0 && engine->chunk_bytes > budget / copied / engine->slot_count)
        if (!shrink(engine))
            return copse__fail(
                err, COPSE_NOMEM, 0, "all-reduce",
                "%zu bytes are left for the staging memory of %zu devices; "
                "free some, or use fewer devices",
                budget, copied);
    for (;;) {
        copse_status status = make_slots(engine, calls, err);
        if (status == COPSE_OK || status == COPSE_TIMEOUT)
            return status;
        free_slots(engine);
        if (status != COPSE_DEVICE_MEMORY || !shrink(engine))
            return status;
    }
}

/* What calls the devices: which path each takes, and its slots. */
typedef struct opened {
    copse__allreduce *engine;
    size_t budget;
} opened;

static copse_status call_devices(copse__calls *calls, void *user, copse_error *err) {
    const opened *now = user;
    copse__allreduce *engine = now->engine;
    const size_t bytes =
        copse__min_size(copse__max_size(engine->largest, 4096), (size_t)1 << 20);
    copse_status status = COPSE_OK;
    for (size_t r = 0; r < engine->rank_count && status == COPSE_OK; r++)
        if (engine->ranks[r].path == COPSE__PATH_AUTO)
            status = copse__measure_path(&engine->ranks[r].path, engine->ranks[r].device,
                                         bytes, calls, r, err);
    return status == COPSE_OK ? fit_slots(engine, now->budget, calls, err) : status;
}

/* A driver may hang at its first call as at any other. COPSE_TIMEOUT: the engine must stay. */
static copse_status open_ranks(copse__allreduce *engine,
                               const copse__allreduce_options *options,
                               copse_error *err) {
    opened *now = NULL; /* on the heap, where a thread left alone still finds it */
    size_t failed_rank;
    copse_status status = copse__calloc(&now, 1, sizeof *now, err);
    if (status != COPSE_OK)
        return status;
    *now = (opened){engine, options->staging_bytes};
    status = copse__calls_run(call_devices, now, options->devices,
                              OPENING_PATIENCE * engine->fail_ns, &failed_rank, err);
    if (options->failed_rank != NULL)
        *options->failed_rank = failed_rank;
    if (status != COPSE_TIMEOUT)
        free(now);
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
    int nodes[MOST_NODES];
    uint32_t cpus[MOST_NODES];
    const size_t node_count = copse__numa_nodes(nodes, cpus, MOST_NODES);
    COPSE__TRY(copse__calloc(&engine->reducers, reducers, sizeof *engine->reducers, err),
               out);
    for (; engine->reducers_started < reducers; engine->reducers_started++) {
        copse__reducer *one = &engine->reducers[engine->reducers_started];
        const size_t index = engine->reducers_started;
        *one = (copse__reducer){.engine = engine, .numa = -1};
        if (node_count > 1) /* else there is nothing to choose */
            one->numa = nodes[copse__numa_of_thread(cpus, node_count, index, reducers)];
        COPSE__TRY(start(&one->thread, NULL, copse__reducer_main, one, err), out);
    }
    for (size_t r = 0; r < engine->rank_count; r++) {
        copse__rank *rank = &engine->ranks[r];
        COPSE__TRY(start(&rank->mover.thread, &rank->mover.started, copse__mover_main,
                         rank, err),
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
        pthread_cond_init(&rank->mover.wake, NULL);
    }
    pthread_condattr_destroy(&monotonic);
}

copse_status copse__allreduce_new(copse__allreduce **out,
                                  const copse__allreduce_options *options,
                                  copse_error *err) {
    *out = NULL;
    if (options->failed_rank != NULL)
        *options->failed_rank = SIZE_MAX;
    if (options->rank_count < 1 || options->rank_count > COPSE__MAX_REPLICAS)
        return copse__comm_invalid(err, "it takes 1 to 64 ranks", options->rank_count);
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
        COPSE__TRY(set_rank(engine, r, options, err), out);
    status = open_ranks(engine, options, err);
    if (status == COPSE_TIMEOUT)
        return status; /* what the thread left alone may reach stays */
    if (status != COPSE_OK)
        goto out;
    COPSE__TRY(start_threads(engine, reducers, err), out);
    *out = engine;
    return COPSE_OK;
out:
    copse__allreduce_free(engine);
    return status;
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
            if (!rank->mover.started || rank->mover.exited)
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
    free(rank->mover.down.fences);
    free(rank->mover.up.fences);
    free(rank->mover.down.turns);
    free(rank->mover.up.turns);
}

static void destroy(copse__allreduce *engine) {
    for (size_t r = 0; r < engine->rank_count; r++) {
        pthread_cond_destroy(&engine->ranks[r].waiter);
        pthread_cond_destroy(&engine->ranks[r].mover.wake);
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
        pthread_join(engine->reducers[i].thread, NULL);
    if (engine->watchdog_started)
        pthread_join(engine->watchdog, NULL);
    for (size_t r = 0; r < engine->rank_count; r++) {
        if (finish_mover(engine, &engine->ranks[r].mover))
            close_rank(&engine->ranks[r]);
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
