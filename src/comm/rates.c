/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/rates.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TRIES 7
#define MOST_MEMORY_TRIES 32 /* of small footprints, which any interruption disturbs */
#define LEAST_MEMORY_TRIES 3
#define SMALL_FOOTPRINT ((size_t)1 << 20)
#define TRIED_BYTES ((size_t)64 << 20) /* of all tries together, about */
#define MOST_THREADS 64

static double best_rate(double bytes, uint64_t begin, uint64_t end, double best) {
    const double rate = end > begin ? bytes / ((double)(end - begin) * 1e-9) : 0;
    return rate > best ? rate : best;
}

/* ---- the host's memory ---- */

/* Threads wait at the gate until it is known how many there are. */
typedef struct gate {
    pthread_mutex_t lock;
    atomic_size_t arrived; /* threads at the barrier, over all its rounds */
    bool open;
    float *memory;
    size_t pieces, count; /* a piece a thread, of so many floats */
    int tries;
} gate;

typedef struct loop {
    gate *gate;
    size_t index;
    uint64_t plain[MOST_MEMORY_TRIES][2], streamed[MOST_MEMORY_TRIES][2]; /* begin, end */
} loop;

static void add_in_place(float *x, size_t count) {
    for (size_t i = 0; i < count; i++)
        x[i] += 1.0f;
}

static void copy_streaming(float *to, const float *from, size_t count) {
#if defined(__x86_64__)
    size_t i = 0;
    for (; i + 16 <= count; i += 16)
        for (size_t k = 0; k < 16; k += 4)
            _mm_stream_ps(to + i + k, _mm_loadu_ps(from + i + k));
    _mm_sfence();
    memcpy(to + i, from + i, (count - i) * sizeof *to);
#else
    memcpy(to, from, count * sizeof *to);
#endif
}

/* Whoever slept would begin long after the others, and small footprints would measure that. */
static void meet(gate *all, size_t round) {
    atomic_fetch_add(&all->arrived, 1);
    for (unsigned spins = 1; atomic_load(&all->arrived) < round * all->pieces; spins++)
        if (spins % 1024 == 0)
            sched_yield(); /* the other one may need this core */
}

/* What one core wrote into its own cache it reads faster than several read from each other's. */
static void rate_alone(double *best, float *memory, size_t count) {
    for (int t = 0; t < MOST_MEMORY_TRIES; t++) {
        memset(memory, t, count * sizeof *memory);
        const uint64_t begin = copse__now_ns();
        add_in_place(memory, count);
        *best =
            best_rate((double)count * 2 * sizeof *memory, begin, copse__now_ns(), *best);
    }
}

/* Each thread writes its piece, as a device writes its buffer; then all take the same share of
 * every piece, as those who sum do. What one core wrote last another reads. */
static void *run_loop(void *user) {
    loop *self = user;
    gate *all = self->gate;
    pthread_mutex_lock(&all->lock);
    const bool open = all->open;
    pthread_mutex_unlock(&all->lock);
    if (!open)
        return NULL;
    const size_t share = all->count / all->pieces / 32 * 32;
    size_t round = 0;
    for (int t = 0; t < all->tries; t++)
        for (int streamed = 0; streamed < 2; streamed++) {
            memset(all->memory + self->index * all->count, t, all->count * sizeof(float));
            meet(all, ++round);
            uint64_t *span = streamed ? self->streamed[t] : self->plain[t];
            span[0] = copse__now_ns();
            for (size_t p = 0; p < all->pieces; p++) {
                float *mine = all->memory + p * all->count + self->index * share;
                if (streamed)
                    copy_streaming(mine + share / 2, mine, share / 2);
                else
                    add_in_place(mine, share);
            }
            span[1] = copse__now_ns();
            meet(all, ++round);
        }
    return NULL;
}

/* From the first begin to the last end of a try, over all threads. */
static void take_rates(const loop *loops, size_t threads, double bytes, double *best) {
    for (int t = 0; t < loops->gate->tries; t++) {
        uint64_t begin[2] = {UINT64_MAX, UINT64_MAX}, end[2] = {0, 0};
        for (size_t i = 0; i < threads; i++) {
            const uint64_t *const spans[2] = {loops[i].plain[t], loops[i].streamed[t]};
            for (int k = 0; k < 2; k++) {
                begin[k] = spans[k][0] < begin[k] ? spans[k][0] : begin[k];
                end[k] = spans[k][1] > end[k] ? spans[k][1] : end[k];
            }
        }
        *best = best_rate(2 * bytes, begin[0], end[0], *best);
        *best = best_rate(bytes, begin[1], end[1], *best); /* half read, half written */
    }
}

copse_status copse__rate_memory(double *out, size_t footprint, size_t threads,
                                copse_error *err) {
    *out = 0;
    threads = copse__min_size(copse__max_size(threads, 1), MOST_THREADS);
    const size_t per_thread =
        copse__round_up(copse__max_size(footprint / threads, 4096), 4096);
    pthread_t ids[MOST_THREADS];
    loop loops[MOST_THREADS] = {0};
    gate entry = {.lock = PTHREAD_MUTEX_INITIALIZER,
                  .pieces = threads,
                  .count = per_thread / sizeof(float),
                  .tries = (int)copse__max_size(
                      copse__min_size(TRIED_BYTES / copse__max_size(footprint, 1),
                                      MOST_MEMORY_TRIES),
                      LEAST_MEMORY_TRIES)};
    entry.memory = aligned_alloc(4096, per_thread * threads);
    if (entry.memory == NULL)
        return copse__fail_nomem(err, per_thread * threads);
    pthread_mutex_lock(&entry.lock);
    size_t started = 0;
    for (; started < threads; started++) {
        loops[started] = (loop){.gate = &entry, .index = started};
        if (pthread_create(&ids[started], NULL, run_loop, &loops[started]) != 0)
            break;
    }
    entry.open = started == threads;
    pthread_mutex_unlock(&entry.lock);
    for (size_t t = 0; t < started; t++)
        pthread_join(ids[t], NULL);
    if (entry.open && footprint <= SMALL_FOOTPRINT)
        rate_alone(out, entry.memory, entry.count * threads);
    free(entry.memory);
    if (!entry.open)
        return copse__fail(err, COPSE_NOMEM, 0, "memory rate", "cannot start threads");
    const size_t share = entry.count / threads / 32 * 32;
    take_rates(loops, threads, (double)(threads * threads * share * sizeof(float)), out);
    return COPSE_OK;
}

/* ---- a device's link ---- */

typedef struct link {
    const copse__backend *backend;
    copse__device *device;
    copse__buffer *memory, *slots;
    char *host;
    size_t bytes, chunk_bytes, slot_count;
    copse__calls *calls;
    size_t rank;
} link_probe;

static copse_status next(const link_probe *probe, const char *call, copse_error *err) {
    return copse__calls_next(probe->calls, probe->rank, call, err);
}

/* calls and rank are set. */
static copse_status open_link(link_probe *probe, copse__device *device, size_t bytes,
                              size_t chunk_bytes, copse__memory memory,
                              copse_error *err) {
    *probe = (link_probe){.backend = copse__backend_of(device),
                          .device = device,
                          .bytes = bytes,
                          .chunk_bytes = chunk_bytes,
                          .slot_count = 8,
                          .calls = probe->calls,
                          .rank = probe->rank};
    copse_status status = COPSE_OK;
    COPSE__TRY(next(probe, "allocation", err), out);
    COPSE__TRY(probe->backend->buffer_new(&probe->memory, device, bytes, memory, err),
               out);
    COPSE__TRY(next(probe, "allocation of pinned memory", err), out);
    COPSE__TRY(probe->backend->buffer_new(&probe->slots, device,
                                          probe->slot_count * chunk_bytes,
                                          COPSE__MEMORY_STAGING, err),
               out);
    probe->host = probe->backend->buffer_host(probe->slots);
    memset(probe->host, 0, probe->slot_count * chunk_bytes);
out:
    return status;
}

/* After a failure some commands may still run: their memory is freed when they are done, and where
 * even that fails the device is lost and keeps it. */
static void close_link(link_probe *probe, copse_status status) {
    const copse__backend *backend = probe->backend;
    if (status == COPSE_TIMEOUT) /* nobody waits any more */
        return;
    if (next(probe, "release", NULL) != COPSE_OK)
        return;
    if (status != COPSE_OK &&
        (backend->finish(probe->device, COPSE__QUEUE_DOWNLOAD, NULL) != COPSE_OK ||
         backend->finish(probe->device, COPSE__QUEUE_UPLOAD, NULL) != COPSE_OK))
        return;
    probe->backend->buffer_free(probe->memory);
    probe->backend->buffer_free(probe->slots);
}

/* Enqueues all of it on one queue and flushes. */
static copse_status send(link_probe *probe, bool down, copse_error *err) {
    const copse__queue queue = down ? COPSE__QUEUE_DOWNLOAD : COPSE__QUEUE_UPLOAD;
    copse_status status = next(probe, down ? "download" : "upload", err);
    size_t slot = 0;
    for (size_t at = 0; at < probe->bytes && status == COPSE_OK; slot++) {
        const size_t bytes = copse__min_size(probe->chunk_bytes, probe->bytes - at);
        const copse__view view = {probe->memory, at, bytes};
        char *host = probe->host + slot % probe->slot_count * probe->chunk_bytes;
        status = down ? probe->backend->read(probe->device, queue, host, view, bytes,
                                             NULL, NULL, err)
                      : probe->backend->write(probe->device, queue, view, host, bytes,
                                              NULL, NULL, err);
        at += bytes;
    }
    return status == COPSE_OK ? probe->backend->flush(probe->device, queue, err) : status;
}

static copse_status rate_copy(double *out, const link_probe *watched,
                              copse__device *device, size_t bytes, size_t chunk_bytes,
                              bool down, copse_error *err) {
    *out = 0;
    link_probe probe = {.calls = watched->calls, .rank = watched->rank};
    copse_status status =
        open_link(&probe, device, bytes, chunk_bytes, COPSE__MEMORY_DEVICE, err);
    for (int t = 0; t < TRIES && status == COPSE_OK; t++) {
        const uint64_t begin = copse__now_ns();
        status = send(&probe, down, err);
        if (status == COPSE_OK)
            status = probe.backend->finish(
                device, down ? COPSE__QUEUE_DOWNLOAD : COPSE__QUEUE_UPLOAD, err);
        *out = best_rate((double)bytes, begin, copse__now_ns(), *out);
    }
    close_link(&probe, status);
    return status;
}

copse_status copse__measure_path(copse__stage_path *out, copse__device *device,
                                 size_t bytes, copse__calls *calls, size_t rank,
                                 copse_error *err) {
    *out = COPSE__PATH_COPIED;
    if (!copse__device_get(device)->caps.unified)
        return COPSE_OK;
    double down, up, map_rate = 0;
    link_probe probe = {.calls = calls, .rank = rank};
    copse_status status = COPSE_OK;
    COPSE__TRY(open_link(&probe, device, 4096, 4096, COPSE__MEMORY_SHARED, err), out);
    if (probe.backend->buffer_host(probe.memory) != NULL) { /* neither call nor copy */
        *out = COPSE__PATH_MAPPED;
        goto out;
    }
    close_link(&probe, status);
    probe = (link_probe){.calls = calls, .rank = rank};
    COPSE__TRY(rate_copy(&down, &probe, device, bytes, bytes, true, err), out);
    COPSE__TRY(rate_copy(&up, &probe, device, bytes, bytes, false, err), out);
    COPSE__TRY(open_link(&probe, device, bytes, 4096, COPSE__MEMORY_DEVICE, err), out);
    const copse__view view = {probe.memory, 0, bytes};
    for (int t = 0; t < TRIES; t++) {
        void *mapped;
        const uint64_t begin = copse__now_ns();
        COPSE__TRY(next(&probe, "map", err), out);
        COPSE__TRY(probe.backend->map(&mapped, device, COPSE__QUEUE_DOWNLOAD, view, true,
                                      NULL, err),
                   out);
        COPSE__TRY(next(&probe, "unmap", err), out);
        COPSE__TRY(
            probe.backend->unmap(device, COPSE__QUEUE_DOWNLOAD, view, mapped, NULL, err),
            out);
        COPSE__TRY(probe.backend->finish(device, COPSE__QUEUE_DOWNLOAD, err), out);
        map_rate = best_rate((double)bytes, begin, copse__now_ns(), map_rate);
    }
    if (1 / map_rate < 1 / down + 1 / up)
        *out = COPSE__PATH_MAPPED;
out:
    if (probe.backend != NULL)
        close_link(&probe, status);
    return status;
}
