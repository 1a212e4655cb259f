/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/bench.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/rates.h"
#include "comm/stages.h"
#include "comm/sum.h"
#include "topo/bind.h"

#define TURNS                                                                            \
    5u /* of all-reduces, then of their limits: what disturbs one disturbs both */
#define MOST_REPETITIONS 2000u
/* Rank r gives pattern[r ..]: its own numbers without memory of its own. */
#define MARGIN 64u

typedef struct bench {
    const copse__allreduce_bench_options *options;
    size_t ranks, elements;
    copse__buffer **buffers;
    copse__allreduce *engine;
    float *pattern, *expected, *got;
    double *times_us;
    uint64_t step;
    copse__stages *stages;
    copse__allreduce_limits samples[TURNS];
    size_t sample_count;
} bench;

static void close_bench(bench *self) {
    copse__allreduce_free(self->engine);
    copse__stages_close(self->stages);
    for (size_t r = 0; self->buffers != NULL && r < self->ranks; r++)
        copse__backend_of(self->options->devices[r])->buffer_free(self->buffers[r]);
    free(self->buffers);
    free(self->pattern);
    free(self->expected);
    free(self->got);
    free(self->times_us);
}

static copse_status make_numbers(bench *self, copse_error *err) {
    copse_status status = COPSE_OK;
    const size_t count = self->elements + MARGIN;
    COPSE__TRY(copse__calloc(&self->pattern, count, sizeof(float), err), out);
    COPSE__TRY(copse__calloc(&self->expected, count, sizeof(float), err), out);
    COPSE__TRY(copse__calloc(&self->got, count, sizeof(float), err), out);
    uint32_t x = 1;
    for (size_t e = 0; e < count; e++) {
        x = x * 1664525u + 1013904223u;
        self->pattern[e] = (float)(int32_t)x * 0x1p-31f;
    }
    copse__tree_range parts[MARGIN];
    const void *sources[MARGIN];
    for (size_t r = 0; r < self->ranks; r++) {
        parts[r] = (copse__tree_range){r, 1};
        sources[r] = self->pattern + r;
    }
    copse__sum_plan plan;
    copse__sum_found found = {0};
    COPSE__TRY(copse__sum_plan_make(&plan, self->ranks, parts, self->ranks, err), out);
    void *targets[] = {self->expected};
    copse__sum_run(&plan, COPSE__SUM_PORTABLE, COPSE_F32, sources, targets, 1,
                   self->elements, false, &found);
out:
    return status;
}

static copse_status open_bench(bench *self, copse_error *err) {
    const copse__allreduce_bench_options *options = self->options;
    copse_status status = COPSE_OK;
    COPSE__TRY(make_numbers(self, err), out);
    COPSE__TRY(copse__calloc(&self->times_us, MOST_REPETITIONS, sizeof(double), err),
               out);
    COPSE__TRY(copse__calloc(&self->buffers, self->ranks, sizeof(void *), err), out);
    for (size_t r = 0; r < self->ranks; r++)
        COPSE__TRY(copse__backend_of(options->devices[r])
                       ->buffer_new(&self->buffers[r], options->devices[r],
                                    options->bytes, COPSE__MEMORY_SHARED, err),
                   out);
    const copse__allreduce_options engine = {.devices = options->devices,
                                             .rank_count = self->ranks,
                                             .bucket_elements = &self->elements,
                                             .bucket_count = 1,
                                             .chunk_bytes = options->chunk_bytes,
                                             .path = options->path,
                                             .reducer_threads = options->reducer_threads};
    COPSE__TRY(copse__allreduce_new(&self->engine, &engine, err), out);
    copse__stage_path paths[MARGIN];
    for (size_t r = 0; r < self->ranks; r++)
        paths[r] = copse__allreduce_path(self->engine, r);
    COPSE__TRY(copse__stages_open(&self->stages, options->devices, self->buffers, paths,
                                  self->ranks, options->bytes,
                                  copse__allreduce_chunk_bytes(self->engine), err),
               out);
out:
    return status;
}

static copse__view view_of(const bench *self, size_t rank) {
    return (copse__view){self->buffers[rank], 0, self->options->bytes};
}

static copse_status fill(bench *self, copse_error *err) {
    for (size_t r = 0; r < self->ranks; r++) {
        copse__device *device = self->options->devices[r];
        const copse__backend *backend = copse__backend_of(device);
        copse_status status =
            backend->write(device, COPSE__QUEUE_COMPUTE, view_of(self, r),
                           self->pattern + r, self->options->bytes, NULL, NULL, err);
        if (status == COPSE_OK)
            status = backend->finish(device, COPSE__QUEUE_COMPUTE, err);
        if (status != COPSE_OK)
            return status;
    }
    return COPSE_OK;
}

static copse_status verify(bench *self, copse_error *err) {
    for (size_t r = 0; r < self->ranks; r++) {
        copse__device *device = self->options->devices[r];
        const copse__backend *backend = copse__backend_of(device);
        memset(self->got, 0xff, self->options->bytes);
        copse_status status =
            backend->read(device, COPSE__QUEUE_COMPUTE, self->got, view_of(self, r),
                          self->options->bytes, NULL, NULL, err);
        if (status == COPSE_OK)
            status = backend->finish(device, COPSE__QUEUE_COMPUTE, err);
        if (status != COPSE_OK)
            return status;
        if (memcmp(self->got, self->expected, self->options->bytes) != 0)
            return copse__fail(err, COPSE_KERNEL, 0,
                               copse__device_get(device)->choice.label,
                               "the all-reduce of %zu bytes left wrong numbers on rank "
                               "%zu; please report this",
                               self->options->bytes, r);
    }
    return COPSE_OK;
}

static copse_status run_once(bench *self, double *time_us, copse_error *err) {
    copse_status status = fill(self, err);
    if (status != COPSE_OK)
        return status;
    const uint64_t begin = copse__now_ns();
    for (size_t r = 0; r < self->ranks && status == COPSE_OK; r++)
        status = copse__allreduce_submit(self->engine, r, self->step, 0, view_of(self, r),
                                         NULL, true, err);
    for (size_t r = 0; r < self->ranks && status == COPSE_OK; r++)
        status = copse__allreduce_wait(self->engine, r, self->step, NULL, err);
    *time_us = (double)(copse__now_ns() - begin) * 1e-3;
    self->step++;
    return status == COPSE_OK ? verify(self, err) : status;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times of the limits, once. */
static copse_status sample_limits(bench *self, copse_error *err) {
    const copse__allreduce_bench_options *options = self->options;
    const double bytes = (double)options->bytes;
    const size_t cpus = copse__allowed_cpus();
    copse__allreduce_limits *out = &self->samples[self->sample_count++];
    copse__stage_times times;
    copse_status status =
        copse__rate_memory(&out->memory_rate, self->ranks * options->bytes, cpus, err);
    if (status == COPSE_OK)
        status = copse__stages_run(self->stages, &times, err);
    if (status != COPSE_OK)
        return status;
    out->memory = copse__allreduce_passes(self->engine) * bytes / out->memory_rate;
    out->sum_rate = (double)self->ranks * bytes / times.sum;
    double core_seconds = times.sum, down = 0, up = 0;
    for (size_t r = 0; r < self->ranks; r++) {
        const double slowest = times.down[r] > times.up[r] ? times.down[r] : times.up[r];
        const double link = slowest > times.duplex[r] ? slowest : times.duplex[r];
        out->link = link > out->link ? link : out->link;
        down = times.down[r] > down ? times.down[r] : down;
        up = times.up[r] > up ? times.up[r] : up;
        if (copse__device_get(options->devices[r])->caps.cpu)
            core_seconds += times.down[r] + times.up[r]; /* the same cores' time */
    }
    out->down_rate = down > 0 ? bytes / down : 0;
    out->up_rate = up > 0 ? bytes / up : 0;
    out->cores = core_seconds / (double)cpus;
    return COPSE_OK;
}

static copse_status run_all(bench *self, copse__allreduce_bench *out, copse_error *err) {
    const double limit_us =
        1e6 * (self->options->seconds > 0 ? self->options->seconds : 1.0);
    double warm_us;
    copse_status status = run_once(self, &warm_us, err);
    for (size_t turn = 0; turn < TURNS && status == COPSE_OK; turn++) {
        double turn_us = 0;
        const size_t most = MOST_REPETITIONS / TURNS * (turn + 1);
        do {
            status = run_once(self, &self->times_us[out->repetitions], err);
            if (status == COPSE_OK)
                turn_us += self->times_us[out->repetitions++];
        } while (status == COPSE_OK && out->repetitions < most &&
                 turn_us < limit_us / TURNS);
        if (status == COPSE_OK)
            status = sample_limits(self, err);
    }
    if (status != COPSE_OK)
        return status;
    qsort(self->times_us, out->repetitions, sizeof(double), compare);
    out->min_us = self->times_us[0];
    out->max_us = self->times_us[out->repetitions - 1];
    out->median_us = self->times_us[out->repetitions / 2];
    return COPSE_OK;
}

/* Of each figure the median over all turns. */
static copse__allreduce_limits median_limits(const bench *self) {
    static const size_t fields[] = {offsetof(copse__allreduce_limits, memory),
                                    offsetof(copse__allreduce_limits, link),
                                    offsetof(copse__allreduce_limits, cores),
                                    offsetof(copse__allreduce_limits, memory_rate),
                                    offsetof(copse__allreduce_limits, sum_rate),
                                    offsetof(copse__allreduce_limits, down_rate),
                                    offsetof(copse__allreduce_limits, up_rate)};
    copse__allreduce_limits out = {0};
    for (size_t f = 0; f < COPSE__COUNT(fields); f++) {
        double values[TURNS];
        for (size_t i = 0; i < self->sample_count; i++)
            memcpy(&values[i], (const char *)&self->samples[i] + fields[f],
                   sizeof(double));
        qsort(values, self->sample_count, sizeof(double), compare);
        memcpy((char *)&out + fields[f], &values[self->sample_count / 2], sizeof(double));
    }
    return out;
}

static void rate(const bench *self, copse__allreduce_bench *out) {
    out->limits = median_limits(self);
    const copse__allreduce_limits *limits = &out->limits;
    double most = limits->memory;
    out->bound = "mem";
    if (limits->link > most) {
        most = limits->link;
        out->bound = "link";
    }
    if (limits->cores > most) {
        most = limits->cores;
        out->bound = "cpu";
    }
    out->eta = most * 1e6 / out->median_us;
    out->busbw = (double)self->options->bytes / (out->median_us * 1e-6) * 2 *
                 (double)(self->ranks - 1) / (double)self->ranks;
    for (size_t r = 0; r < self->ranks; r++)
        out->mapped += copse__allreduce_path(self->engine, r) == COPSE__PATH_MAPPED;
}

copse_status copse__bench_allreduce(copse__allreduce_bench *out,
                                    const copse__allreduce_bench_options *options,
                                    copse_error *err) {
    *out = (copse__allreduce_bench){.bound = ""};
    bench self = {.options = options,
                  .ranks = options->rank_count,
                  .elements = options->bytes / sizeof(float)};
    if (options->rank_count < 1 || options->rank_count > MARGIN ||
        options->bytes < sizeof(float) || options->bytes % sizeof(float) != 0)
        return copse__fail(err, COPSE_INVALID, 0, "bench allreduce",
                           "it takes 1 to 64 devices and a multiple of 4 bytes");
    copse_status status = open_bench(&self, err);
    if (status == COPSE_OK)
        status = run_all(&self, out, err);
    if (status == COPSE_OK)
        rate(&self, out);
    if (status != COPSE_TIMEOUT) /* else a driver hangs: no further call */
        close_bench(&self);
    return status;
}
