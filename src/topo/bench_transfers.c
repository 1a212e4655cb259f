/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench_opencl.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

const char *const copse__staging_names[STAGINGS] = {"read_pinned", "copy_pinned", "map",
                                                    "use_host_ptr"};

void copse__bench_transfer(bench_device *d, staging how, bool up, size_t bytes,
                           void *at) {
    cl_mem stage_buffer = how == USE_HOST ? d->user : d->pinned;
    void *mapped;
    switch (how) {
    case READ_PINNED:
        if (up)
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, bytes, at, 0, NULL,
               NULL);
        else
            DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, bytes, at, 0, NULL,
               NULL);
        break;
    case COPY_PINNED:
    case USE_HOST:
        if (up) {
            mapped = copse__bench_map(d, d->queue, stage_buffer, CL_MAP_WRITE, bytes);
            copse__bench_unmap(d, d->queue, stage_buffer, mapped);
            DO(d, clEnqueueCopyBuffer, d->queue, stage_buffer, d->data, 0, 0, bytes, 0,
               NULL, NULL);
            DO(d, clFinish, d->queue);
        } else {
            DO(d, clEnqueueCopyBuffer, d->queue, d->data, stage_buffer, 0, 0, bytes, 0,
               NULL, NULL);
            mapped = copse__bench_map(d, d->queue, stage_buffer, CL_MAP_READ, bytes);
            copse__bench_unmap(d, d->queue, stage_buffer, mapped);
        }
        break;
    case MAP:
        mapped = copse__bench_map(d, d->queue, d->data, up ? CL_MAP_WRITE : CL_MAP_READ,
                                  bytes);
        copse__bench_unmap(d, d->queue, d->data, mapped);
        break;
    case STAGINGS:
        break;
    }
}

void copse__bench_prepare(bench_device *d, staging how, bool up, size_t bytes, void *at) {
    if (!up) {
        DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, bytes, d->pattern, 0,
           NULL, NULL);
        return;
    }
    if (how == READ_PINNED) {
        memcpy(at, d->pattern, bytes);
        return;
    }
    cl_mem buffer = how == MAP ? d->data : how == USE_HOST ? d->user : d->pinned;
    void *mapped = copse__bench_map(d, d->queue, buffer, CL_MAP_WRITE, bytes);
    if (mapped)
        memcpy(mapped, d->pattern, bytes);
    copse__bench_unmap(d, d->queue, buffer, mapped);
}

bool copse__bench_arrived(bench_device *d, staging how, bool up, size_t bytes, void *at) {
    if (up) {
        DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, bytes, d->check, 0,
           NULL, NULL);
        return !d->failure && memcmp(d->check, d->pattern, bytes) == 0;
    }
    if (how == READ_PINNED)
        return !d->failure && memcmp(at, d->pattern, bytes) == 0;
    cl_mem buffer = how == MAP ? d->data : how == USE_HOST ? d->user : d->pinned;
    void *mapped = copse__bench_map(d, d->queue, buffer, CL_MAP_READ, bytes);
    bool same = mapped && memcmp(mapped, d->pattern, bytes) == 0;
    copse__bench_unmap(d, d->queue, buffer, mapped);
    return same;
}

static copse__measure *measure_transfer(bench_device *d, staging how, bool up,
                                        size_t bytes) {
    double times[COPSE__BENCH_MOST_RUNS];
    size_t runs = 0;
    void *at = NULL;
    d->stage = up ? "h2d" : "d2h";
    copse__bench_fill(d->pattern, bytes, (uint32_t)(how * 2 + up) + (uint32_t)bytes);
    if (how == READ_PINNED)
        at = copse__bench_map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, bytes);
    if (d->failure)
        return NULL;
    if (at && !up)
        memset(at, 0, bytes);
    copse__bench_prepare(d, how, up, bytes, at);
    copse__bench_transfer(d, how, up, bytes,
                          at); /* warm-up, and the one that is compared */
    bool verified = copse__bench_arrived(d, how, up, bytes, at);
    copse__bench_transfer(d, how, up, bytes, at);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !copse__bench_enough(runs, begin, d->share_s)) {
        uint64_t start = copse__now_ns();
        copse__bench_transfer(d, how, up, bytes, at);
        times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    copse__bench_unmap(d, d->queue, d->pinned, at);
    if (d->failure)
        return NULL;
    copse__measure *m =
        copse__bench_figure(d, up ? "h2d" : "d2h", copse__staging_names[how], "GB/s");
    if (!m)
        return NULL;
    m->bytes = bytes;
    m->verified = verified;
    copse__bench_summarise(m, times, runs, (double)bytes, 1e9);
    return m;
}

static double seconds_of(const copse__measure *m) {
    return (double)m->bytes / (m->median * 1e9);
}

static void measure_paths(bench_device *d) {
    const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 64 << 20};
    for (int how = 0; how < STAGINGS; how++)
        for (int up = 0; up <= 1; up++) {
            copse__measure *first = NULL, *last = NULL;
            for (size_t i = 0; i < COPSE__COUNT(sizes) && sizes[i] <= d->bytes; i++) {
                copse__measure *m = measure_transfer(d, (staging)how, up, sizes[i]);
                if (!m)
                    return;
                first = first ? first : m;
                last = m;
            }
            /* 16 times the bytes and more in not even 4 times the time: nothing moved. */
            bool grows = !first || first == last || last->bytes < 16 * first->bytes ||
                         seconds_of(last) > 4 * seconds_of(first);
            for (copse__measure *m = first; m && !grows && m <= last; m++)
                m->moves = false;
        }
}

static void measure_latency(bench_device *d, bool up) {
    double times[COPSE__BENCH_MOST_RUNS];
    size_t runs = 0;
    uint32_t word = 0x12345678;
    d->stage = "latency";
    for (int i = 0; i < 5; i++)
        DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, sizeof word, &word, 0,
           NULL, NULL);
    uint64_t begin = copse__now_ns();
    uint32_t back = 0;
    while (!d->failure && !copse__bench_enough(runs, begin, d->share_s)) {
        uint64_t start = copse__now_ns();
        if (up)
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, sizeof word, &word,
               0, NULL, NULL);
        else
            DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, sizeof back, &back,
               0, NULL, NULL);
        times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    if (up)
        DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, sizeof back, &back, 0,
           NULL, NULL);
    copse__measure *m =
        d->failure ? NULL
                   : copse__bench_figure(d, up ? "alpha_h2d" : "alpha_d2h", "", "us");
    if (!m)
        return;
    m->bytes = sizeof word;
    m->verified = back == word;
    copse__bench_summarise(m, times, runs, 0, 1);
}

/* Both directions at once: on one queue each, other buffers, other pinned memory. */
static void measure_duplex(bench_device *d, staging how) {
    double times[COPSE__BENCH_MOST_RUNS];
    size_t runs = 0;
    d->stage = "duplex";
    void *at =
        copse__bench_map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    void *at2 =
        copse__bench_map(d, d->queue, d->pinned2, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    copse__bench_fill(d->pattern, d->bytes, 77 + (uint32_t)how);
    if (at && at2) {
        memcpy(at, d->pattern, d->bytes);
        memset(at2, 0, d->bytes);
    }
    if (how == COPY_PINNED) {
        copse__bench_unmap(d, d->queue, d->pinned, at);
        copse__bench_unmap(d, d->queue, d->pinned2, at2);
    }
    DO(d, clEnqueueWriteBuffer, d->queue, d->data2, CL_TRUE, 0, d->bytes, d->pattern, 0,
       NULL, NULL);
    uint64_t begin = copse__now_ns();
    for (size_t run = 0; !d->failure && !copse__bench_enough(runs, begin, d->share_s);
         run++) {
        uint64_t start = copse__now_ns();
        /* Waited for by their events: there is a driver whose clFinish returns at once after
         * a clFlush. */
        cl_event done[2] = {NULL, NULL};
        if (how == COPY_PINNED) {
            DO(d, clEnqueueCopyBuffer, d->queue, d->pinned, d->data, 0, 0, d->bytes, 0,
               NULL, &done[0]);
            DO(d, clEnqueueCopyBuffer, d->second, d->data2, d->pinned2, 0, 0, d->bytes, 0,
               NULL, &done[1]);
        } else {
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_FALSE, 0, d->bytes, at, 0,
               NULL, &done[0]);
            DO(d, clEnqueueReadBuffer, d->second, d->data2, CL_FALSE, 0, d->bytes, at2, 0,
               NULL, &done[1]);
        }
        DO(d, clFlush, d->queue);
        DO(d, clFlush, d->second);
        DO(d, clWaitForEvents, 2, done);
        for (int i = 0; i < 2; i++)
            if (done[i])
                clReleaseEvent(done[i]);
        if (run > 0)
            times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    if (how == COPY_PINNED)
        at2 = copse__bench_map(d, d->queue, d->pinned2, CL_MAP_READ, d->bytes);
    bool verified = !d->failure && at2 && memcmp(at2, d->pattern, d->bytes) == 0;
    DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, d->bytes, d->check, 0, NULL,
       NULL);
    verified = verified && !d->failure && memcmp(d->check, d->pattern, d->bytes) == 0;
    copse__bench_unmap(d, d->queue, d->pinned2, at2);
    if (how == READ_PINNED)
        copse__bench_unmap(d, d->queue, d->pinned, at);
    copse__measure *m =
        d->failure ? NULL
                   : copse__bench_figure(d, "duplex", copse__staging_names[how], "GB/s");
    if (!m)
        return;
    m->bytes = d->bytes;
    m->verified = verified;
    copse__bench_summarise(m, times, runs, 2 * (double)d->bytes, 1e9);
}

void copse__bench_transfers(bench_device *d) {
    measure_paths(d);
    measure_latency(d, true);
    measure_latency(d, false);
    measure_duplex(d, READ_PINNED);
    measure_duplex(d, COPY_PINNED);
}
