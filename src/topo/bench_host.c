/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/bench.h"
#include "topo/bind.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

enum { BYTES = 64 << 20, MAX_THREADS = 256, MAX_RUNS = 64, SUM_INPUTS = 4 };

/* A thread's share of an array of BYTES, its own memory, first touched by itself. */
typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const bool *stop;
    int numa, kind;
    size_t bytes;
    char *from, *to;
    bool good;
} worker;

enum { KIND_COPY, KIND_STREAM, KIND_SUM };

static void stream_copy(char *to, const char *from, size_t bytes) {
#if defined(__SSE__)
    const float *in = (const float *)(const void *)from;
    float *out = (float *)(void *)to;
    for (size_t i = 0; i < bytes / sizeof(float); i += 16)
        for (size_t k = 0; k < 16; k += 4)
            _mm_stream_ps(out + i + k, _mm_load_ps(in + i + k));
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

/* ((a+b)+(c+d)) in one pass, as the all-reduce of four ranks does. */
static void sum_four(char *to, const char *from, size_t bytes) {
    size_t n = bytes / sizeof(float) / SUM_INPUTS;
    const float *a = (const float *)(const void *)from;
    const float *b = a + n, *c = b + n, *d = c + n;
    float *out = (float *)(void *)to;
    for (size_t i = 0; i < n; i++)
        out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

static void *run_worker(void *argument) {
    worker *w = argument;
    /* Unbound is slower on many nodes, not wrong: the figure says what was reached. */
    copse_error ignored;
    if (copse__bind_to_numa(w->numa, &ignored) != COPSE_OK)
        w->numa = -1;
    for (size_t i = 0; i < w->bytes / sizeof(float); i++)
        ((float *)(void *)w->from)[i] = (float)(i % 251);
    memset(w->to, 0, w->bytes);
    for (;;) {
        pthread_barrier_wait(w->barrier);
        if (*w->stop)
            break;
        if (w->kind == KIND_SUM)
            sum_four(w->to, w->from, w->bytes);
        else if (w->kind == KIND_STREAM)
            stream_copy(w->to, w->from, w->bytes);
        else
            memcpy(w->to, w->from, w->bytes);
        pthread_barrier_wait(w->barrier);
    }
    if (w->kind != KIND_SUM) {
        w->good = memcmp(w->from, w->to, w->bytes) == 0;
        return NULL;
    }
    size_t n = w->bytes / sizeof(float) / SUM_INPUTS;
    const float *a = (const float *)(const void *)w->from;
    w->good = true;
    for (size_t i = 0; i < n; i++)
        w->good &= ((const float *)(const void *)w->to)[i] ==
                   (a[i] + a[i + n]) + (a[i + 2 * n] + a[i + 3 * n]);
    return NULL;
}

static bool start_workers(worker *w, size_t threads, size_t bytes, int numa, int kind,
                          pthread_barrier_t *barrier, const bool *stop) {
    size_t part = copse__round_up(bytes / threads, 4096), started = 0;
    for (size_t i = 0; i < threads; i++) {
        w[i] = (worker){
            .barrier = barrier, .stop = stop, .numa = numa, .kind = kind, .bytes = part};
        w[i].from = aligned_alloc(4096, part);
        w[i].to = aligned_alloc(4096, part);
        if (!w[i].from || !w[i].to)
            return false;
    }
    for (; started < threads; started++)
        if (pthread_create(&w[started].thread, NULL, run_worker, &w[started]) != 0)
            break;
    /* Threads that wait at the barrier for one that never came cannot be called back; the
     * process of the measurement ends soon. */
    return started == threads;
}

static void measure_host(copse__bench_result *to, const char *what, int numa, int kind,
                         size_t threads, double seconds) {
    worker *w = calloc(threads, sizeof *w);
    pthread_barrier_t barrier;
    bool stop = false, good = true;
    double times[MAX_RUNS];
    size_t runs = 0, bytes = 0;
    if (!w || pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1) != 0 ||
        !start_workers(w, threads, BYTES, numa, kind, &barrier, &stop)) {
        copse__put(to->problem, sizeof to->problem, "no memory or threads for %s", what);
        return;
    }
    for (size_t i = 0; i < threads; i++)
        bytes += w[i].bytes;
    uint64_t begin = copse__now_ns();
    for (size_t run = 0; runs < MAX_RUNS; run++) {
        pthread_barrier_wait(&barrier);
        uint64_t start = copse__now_ns();
        pthread_barrier_wait(&barrier);
        uint64_t end = copse__now_ns();
        if (run >= 2)
            times[runs++] = (double)(end - start) / 1e9;
        if (runs >= 5 && (double)(end - begin) / 1e9 > seconds)
            break;
    }
    stop = true;
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < threads; i++) {
        pthread_join(w[i].thread, NULL);
        good = good && w[i].good;
        free(w[i].from);
        free(w[i].to);
    }
    pthread_barrier_destroy(&barrier);
    static const char *const names[] = {"plain", "streaming", "four"};
    copse__measure *m = copse__bench_add(to, what, names[kind], "GB/s");
    if (m) {
        m->numa = numa;
        m->bytes = bytes;
        m->verified = good;
        /* A copy reads and writes each byte; a sum is counted by its input. */
        copse__bench_summarise(m, times, runs, (double)bytes * (kind == KIND_SUM ? 1 : 2),
                               1e9);
    }
    free(w);
}

static size_t cpus_of(const char *list) {
    size_t count = 0;
    while (*list) {
        char *end = NULL;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            break;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last < first || last - first > MAX_THREADS)
            break;
        count += last - first + 1;
        list = *end == ',' ? end + 1 : end;
    }
    return count;
}

void copse__bench_host(copse__bench_result *to, const copse__topo *topo,
                       const copse__bench_options *options) {
    size_t threads = copse__min_size(topo->cpu_count ? topo->cpu_count : 1, MAX_THREADS);
    size_t nodes = 0;
    double each = options->budget_s < 2 ? 0.25 : 0.5;
    if (options->progress)
        options->progress("host memory", options->user);
    measure_host(to, "host_copy", -1, KIND_COPY, threads, each);
    measure_host(to, "host_copy", -1, KIND_STREAM, threads, each);
    measure_host(to, "host_sum", -1, KIND_SUM, threads, each);
    for (size_t i = 0; i < topo->node_count; i++)
        nodes += topo->nodes[i].kind == COPSE__NODE_NUMA;
    for (size_t i = 0; nodes > 1 && i < topo->node_count; i++) {
        const copse__node *node = &topo->nodes[i];
        size_t cpus = cpus_of(node->cpus);
        if (node->kind != COPSE__NODE_NUMA || cpus == 0)
            continue;
        measure_host(to, "node_copy", node->numa, KIND_COPY,
                     copse__min_size(cpus, threads), each);
        measure_host(to, "node_copy", node->numa, KIND_STREAM,
                     copse__min_size(cpus, threads), each);
    }
}
