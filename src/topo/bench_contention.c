/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench_opencl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* One device among all at once. */
typedef struct contender {
    bench_device d;
    pthread_t thread;
    pthread_barrier_t *barrier;
    bool up, verified;
    double times[COPSE__BENCH_LEAST_RUNS * 2];
    size_t runs;
} contender;

static void *contend(void *argument) {
    contender *c = argument;
    bench_device *d = &c->d;
    void *at =
        copse__bench_map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    copse__bench_fill(d->pattern, d->bytes, (uint32_t)c->up + 5);
    copse__bench_prepare(d, READ_PINNED, c->up, d->bytes, at ? at : d->check);
    for (size_t run = 0; run <= COPSE__COUNT(c->times); run++) {
        /* A device that failed still comes to the barrier: the others wait there. */
        pthread_barrier_wait(c->barrier);
        uint64_t start = copse__now_ns();
        if (!d->failure)
            copse__bench_transfer(d, READ_PINNED, c->up, d->bytes, at);
        if (run > 0 && !d->failure)
            c->times[c->runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    c->verified = at && copse__bench_arrived(d, READ_PINNED, c->up, d->bytes, at);
    copse__bench_unmap(d, d->queue, d->pinned, at);
    return NULL;
}

static void contend_once(contender *all, size_t count, bool up, copse__bench_result *to) {
    pthread_barrier_t barrier;
    size_t started = 0;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)count) != 0)
        return;
    for (; started < count; started++) {
        all[started].barrier = &barrier;
        all[started].up = up;
        all[started].runs = 0;
        if (pthread_create(&all[started].thread, NULL, contend, &all[started]) != 0)
            break;
    }
    if (started < count) {
        /* The started ones wait for ever; this process ends with the measurement. */
        copse__put(to->problem, sizeof to->problem, "no thread for each device");
        return;
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (size_t i = 0; i < count; i++) {
        if (all[i].d.failure)
            continue;
        copse__measure *m = copse__bench_figure(
            &all[i].d, up ? "h2d" : "d2h", copse__staging_names[READ_PINNED], "GB/s");
        if (!m)
            return;
        m->devices = (uint32_t)count;
        m->bytes = all[i].d.bytes;
        m->verified = all[i].verified;
        copse__bench_summarise(m, all[i].times, all[i].runs, (double)m->bytes, 1e9);
    }
}

void copse__bench_contention(copse__bench_result *to, const copse__device_choice *choices,
                             const int *handles, size_t count,
                             const copse__bench_options *options) {
    contender *all = calloc(count, sizeof *all);
    size_t opened = 0;
    if (!all)
        return;
    copse__bench_tell(options, "all devices", "at once");
    for (size_t i = 0; i < count; i++) {
        if (copse__bench_open(&all[opened].d, &choices[i], handles[i], to,
                              options->budget_s))
            opened++;
        else
            copse__bench_close(&all[opened].d);
    }
    if (opened > 1) {
        contend_once(all, opened, false, to);
        contend_once(all, opened, true, to);
    }
    for (size_t i = 0; i < opened; i++)
        copse__bench_close(&all[i].d);
    free(all);
}
