/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/rates.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TRIES 7
#define MOST_THREADS 64

static double best_rate(double bytes, uint64_t begin, uint64_t end, double best) {
    const double rate = end > begin ? bytes / ((double)(end - begin) * 1e-9) : 0;
    return rate > best ? rate : best;
}

/* ---- the host's memory ---- */

/* Threads wait at the gate until it is known how many there are. */
typedef struct gate {
    pthread_mutex_t lock;
    pthread_barrier_t start;
    bool open;
} gate;

typedef struct loop {
    gate *gate;
    float *memory;
    size_t count;                                 /* floats of this thread */
    uint64_t plain[TRIES][2], streamed[TRIES][2]; /* begin, end */
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

static void *run_loop(void *user) {
    loop *self = user;
    pthread_mutex_lock(&self->gate->lock);
    const bool open = self->gate->open;
    pthread_mutex_unlock(&self->gate->lock);
    if (!open)
        return NULL;
    const size_t half = self->count / 2 / 16 * 16;
    memset(self->memory, 0, self->count * sizeof(float));
    for (int t = 0; t < TRIES; t++) {
        pthread_barrier_wait(&self->gate->start);
        self->plain[t][0] = copse__now_ns();
        add_in_place(self->memory, self->count);
        self->plain[t][1] = copse__now_ns();
        pthread_barrier_wait(&self->gate->start);
        self->streamed[t][0] = copse__now_ns();
        copy_streaming(self->memory + half, self->memory, half);
        self->streamed[t][1] = copse__now_ns();
    }
    return NULL;
}

/* From the first begin to the last end of a try, over all threads. */
static void take_rates(const loop *loops, size_t threads, double bytes, double *best) {
    for (int t = 0; t < TRIES; t++) {
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
    gate entry = {.lock = PTHREAD_MUTEX_INITIALIZER};
    float *memory = aligned_alloc(4096, per_thread * threads);
    if (memory == NULL)
        return copse__fail_nomem(err, per_thread * threads);
    pthread_mutex_lock(&entry.lock);
    size_t started = 0;
    for (; started < threads; started++) {
        loops[started] = (loop){.gate = &entry,
                                .memory = memory + started * per_thread / sizeof(float),
                                .count = per_thread / sizeof(float)};
        if (pthread_create(&ids[started], NULL, run_loop, &loops[started]) != 0)
            break;
    }
    entry.open = started == threads;
    if (entry.open)
        pthread_barrier_init(&entry.start, NULL, (unsigned)threads);
    pthread_mutex_unlock(&entry.lock);
    for (size_t t = 0; t < started; t++)
        pthread_join(ids[t], NULL);
    free(memory);
    if (!entry.open)
        return copse__fail(err, COPSE_NOMEM, 0, "memory rate", "cannot start threads");
    pthread_barrier_destroy(&entry.start);
    take_rates(loops, threads, (double)(per_thread * threads), out);
    return COPSE_OK;
}

/* ---- the sum ---- */

copse_status copse__rate_sum(double *out, size_t ranks, size_t chunk_bytes,
                             copse_error *err) {
    *out = 0;
    copse__tree_range parts[COPSE__SUM_MAX_PARTS];
    const void *sources[COPSE__SUM_MAX_PARTS];
    void *targets[COPSE__SUM_MAX_PARTS];
    copse__sum_plan plan;
    char *memory = aligned_alloc(4096, ranks * copse__round_up(chunk_bytes, 4096));
    if (memory == NULL)
        return copse__fail_nomem(err, ranks * chunk_bytes);
    memset(memory, 0, ranks * copse__round_up(chunk_bytes, 4096));
    for (size_t r = 0; r < ranks; r++) {
        parts[r] = (copse__tree_range){r, 1};
        sources[r] = targets[r] = memory + r * copse__round_up(chunk_bytes, 4096);
    }
    copse_status status = copse__sum_plan_make(&plan, ranks, parts, ranks, err);
    for (int t = 0; t < 4 * TRIES && status == COPSE_OK; t++) {
        copse__sum_found found = {0};
        const uint64_t begin = copse__now_ns();
        copse__sum_run(&plan, copse__sum_isa_best(), COPSE_F32, sources, targets, ranks,
                       chunk_bytes / sizeof(float), false, &found);
        *out = best_rate((double)(ranks * chunk_bytes), begin, copse__now_ns(), *out);
    }
    free(memory);
    return status;
}

/* ---- a device's link ---- */

typedef struct link {
    const copse__backend *backend;
    copse__device *device;
    copse__buffer *memory, *slots;
    char *host;
    size_t bytes, chunk_bytes, slot_count;
} link_probe;

static copse_status open_link(link_probe *probe, copse__device *device, size_t bytes,
                              size_t chunk_bytes, copse_error *err) {
    *probe = (link_probe){.backend = copse__backend_of(device),
                          .device = device,
                          .bytes = bytes,
                          .chunk_bytes = chunk_bytes,
                          .slot_count = 8};
    copse_status status = COPSE_OK;
    COPSE__TRY(probe->backend->buffer_new(&probe->memory, device, bytes,
                                          COPSE__MEMORY_DEVICE, err),
               out);
    COPSE__TRY(probe->backend->buffer_new(&probe->slots, device,
                                          probe->slot_count * chunk_bytes,
                                          COPSE__MEMORY_STAGING, err),
               out);
    probe->host = probe->backend->buffer_host(probe->slots);
    memset(probe->host, 0, probe->slot_count * chunk_bytes);
out:
    return status;
}

static void close_link(link_probe *probe) {
    probe->backend->buffer_free(probe->memory);
    probe->backend->buffer_free(probe->slots);
}

/* Enqueues all of it on one queue and flushes. */
static copse_status send(link_probe *probe, bool down, copse_error *err) {
    const copse__queue queue = down ? COPSE__QUEUE_DOWNLOAD : COPSE__QUEUE_UPLOAD;
    copse_status status = COPSE_OK;
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

copse_status copse__rate_copy(double *out, copse__device *device, size_t bytes,
                              size_t chunk_bytes, bool down, copse_error *err) {
    *out = 0;
    link_probe probe;
    copse_status status = open_link(&probe, device, bytes, chunk_bytes, err);
    for (int t = 0; t < TRIES && status == COPSE_OK; t++) {
        const uint64_t begin = copse__now_ns();
        status = send(&probe, down, err);
        if (status == COPSE_OK)
            status = probe.backend->finish(
                device, down ? COPSE__QUEUE_DOWNLOAD : COPSE__QUEUE_UPLOAD, err);
        *out = best_rate((double)bytes, begin, copse__now_ns(), *out);
    }
    close_link(&probe);
    return status;
}

copse_status copse__rate_duplex(double *out, copse__device *device, size_t bytes,
                                size_t chunk_bytes, copse_error *err) {
    *out = 0;
    link_probe probe;
    copse_status status = open_link(&probe, device, bytes, chunk_bytes, err);
    for (int t = 0; t < TRIES && status == COPSE_OK; t++) {
        const uint64_t begin = copse__now_ns();
        COPSE__TRY(send(&probe, true, err), out);
        COPSE__TRY(send(&probe, false, err), out);
        COPSE__TRY(probe.backend->finish(device, COPSE__QUEUE_DOWNLOAD, err), out);
        COPSE__TRY(probe.backend->finish(device, COPSE__QUEUE_UPLOAD, err), out);
        *out = best_rate((double)bytes, begin, copse__now_ns(), *out);
    }
out:
    close_link(&probe);
    return status;
}

copse_status copse__measure_path(copse__stage_path *out, copse__device *device,
                                 size_t bytes, copse_error *err) {
    *out = COPSE__PATH_COPIED;
    if (!copse__device_get(device)->caps.unified)
        return COPSE_OK;
    double down, up, map_rate = 0;
    link_probe probe = {0};
    copse_status status = COPSE_OK;
    COPSE__TRY(copse__rate_copy(&down, device, bytes, bytes, true, err), out);
    COPSE__TRY(copse__rate_copy(&up, device, bytes, bytes, false, err), out);
    COPSE__TRY(open_link(&probe, device, bytes, 4096, err), out);
    const copse__view view = {probe.memory, 0, bytes};
    for (int t = 0; t < TRIES; t++) {
        void *mapped;
        const uint64_t begin = copse__now_ns();
        COPSE__TRY(probe.backend->map(&mapped, device, COPSE__QUEUE_DOWNLOAD, view, true,
                                      NULL, err),
                   out);
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
        close_link(&probe);
    return status;
}
