/* SPDX-License-Identifier: Apache-2.0 */
#include "train/tracer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/trace.h"

/* Rows: two of the host, then two a replica. */
#define TRACK_START 0u
#define TRACK_DATA 1u
#define TRACK_PARTS(rank) ((uint32_t)(2 + 2 * (rank)))
#define TRACK_NODES(rank) ((uint32_t)(3 + 2 * (rank)))

struct copse__tracer {
    copse__trace *trace;
    uint64_t first, last; /* steps */
    bool named;
    uint64_t begun_ns; /* the step of the moment */
};

copse_status copse__tracer_open(copse__tracer **out, const char *path, uint64_t first,
                                uint64_t count, copse_error *err) {
    *out = NULL;
    copse__tracer *tracer;
    copse_status status = copse__calloc(&tracer, 1, sizeof *tracer, err);
    if (status != COPSE_OK)
        return status;
    tracer->first = first;
    tracer->last = count - 1 > UINT64_MAX - first ? UINT64_MAX : first + count - 1;
    status = copse__trace_open(&tracer->trace, path, err);
    if (status == COPSE_OK)
        *out = tracer;
    else
        free(tracer);
    return status;
}

static bool is_wanted(const copse__tracer *tracer, uint64_t step) {
    return step >= tracer->first && step <= tracer->last;
}

static void name_rows(copse__tracer *tracer, const copse__trainer *trainer) {
    char name[128];
    copse__trace_name(tracer->trace, TRACK_DATA, "host: data");
    for (size_t r = 0; r < copse__trainer_replicas(trainer); r++) {
        const char *label = copse__trainer_label(trainer, r);
        snprintf(name, sizeof name, "%s: steps", label);
        copse__trace_name(tracer->trace, TRACK_PARTS(r), name);
        snprintf(name, sizeof name, "%s: nodes", label);
        copse__trace_name(tracer->trace, TRACK_NODES(r), name);
    }
    tracer->named = true;
}

void copse__tracer_begin(copse__tracer *tracer, copse__trainer *trainer, uint64_t step) {
    if (!tracer)
        return;
    copse__trainer_time_steps(trainer, is_wanted(tracer, step));
    if (is_wanted(tracer, step) && !tracer->named)
        name_rows(tracer, trainer);
    tracer->begun_ns = copse__now_ns();
}

static void add_parts(copse__tracer *tracer, size_t rank, const copse__step_times *t) {
    uint32_t track = TRACK_PARTS(rank);
    copse__trace_span(tracer->trace, track, "upload", t->begin_ns, t->uploaded_ns);
    copse__trace_span(tracer->trace, track, "forward and backward", t->uploaded_ns,
                      t->computed_ns);
    copse__trace_span(tracer->trace, track, "sum and check", t->computed_ns,
                      t->summed_ns);
    copse__trace_span(tracer->trace, track, "update", t->summed_ns, t->updated_ns);
}

static void add_nodes(copse__tracer *tracer, const copse__trainer *trainer, size_t rank) {
    copse__node_span span;
    char name[192];
    for (size_t n = 0; copse__trainer_node_span(trainer, rank, n, &span); n++) {
        if (!span.name)
            continue;
        snprintf(name, sizeof name, "%s (%s)", span.name, span.provider);
        copse__trace_span(tracer->trace, TRACK_NODES(rank), name, span.begin_ns,
                          span.end_ns);
    }
}

void copse__tracer_step(copse__tracer *tracer, const copse__trainer *trainer,
                        const copse__progress *now) {
    if (!tracer || !is_wanted(tracer, now->step))
        return;
    copse__trace *trace = tracer->trace;
    uint64_t waited_ns = (uint64_t)(now->data_seconds * 1e9);
    copse__trace_span(trace, TRACK_DATA, "waiting for the next batch",
                      tracer->begun_ns - waited_ns, tracer->begun_ns);
    copse__trace_counter(trace, "loss", copse__now_ns(), copse__score_loss(&now->last));
    for (size_t r = 0; r < copse__trainer_replicas(trainer); r++) {
        const copse__step_times *times = copse__trainer_times(trainer, r);
        if (!times)
            continue;
        add_parts(tracer, r, times);
        add_nodes(tracer, trainer, r);
    }
}

void copse__tracer_start(copse__tracer *tracer, const copse__stages *stages) {
    if (!tracer)
        return;
    copse__trace_name(tracer->trace, TRACK_START, "host: start");
    for (size_t i = 0; i < stages->count; i++)
        if (stages->of[i].end_ns)
            copse__trace_span(tracer->trace, TRACK_START, stages->of[i].name,
                              stages->of[i].begin_ns, stages->of[i].end_ns);
}

copse_status copse__tracer_close(copse__tracer *tracer, copse_error *err) {
    if (!tracer)
        return COPSE_OK;
    copse_status status = copse__trace_close(tracer->trace, err);
    free(tracer);
    return status;
}
