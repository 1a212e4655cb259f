/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "train/trainer_private.h"

/* The replicas that take part, and what joins them. */

size_t copse__trainer_active(const copse__trainer *t) {
    size_t count = 0;
    for (size_t r = 0; r < t->replica_count; r++)
        count += copse__takes_part(t, r);
    return count;
}

/* Of a saved bench; AUTO: to be measured now. */
copse__stage_path copse__group_known_path(const copse__trainer *t, size_t rank) {
    const copse__rank *known = t->ranks ? &t->ranks->ranks[rank] : NULL;
    if (!known || !known->measured)
        return COPSE__PATH_AUTO;
    return known->mapped ? COPSE__PATH_MAPPED : COPSE__PATH_COPIED;
}

/* What opening an all-reduce needs. On the heap, where it stays if a driver does not come back. */
typedef struct opening {
    copse__allreduce *engine;
    copse__allreduce_options options;
    copse__device **devices;
    copse__stage_path *paths;
    size_t *elements;
    size_t failed_rank; /* of the engine; SIZE_MAX: none */
} opening;

static void opening_free(opening *o) {
    if (o) {
        free(o->devices);
        free(o->paths);
        free(o->elements);
    }
    free(o);
}

static copse_status open_engine(size_t rank, void *user, copse_error *err) {
    opening *o = user;
    (void)rank;
    return copse__allreduce_new(&o->engine, &o->options, err);
}

static copse_status describe_engine(const copse__trainer *t, const bool *in, opening *o,
                                    size_t *engine_ranks, copse_error *err) {
    copse_status status;
    size_t count = 0;
    COPSE__TRY(copse__calloc(&o->devices, t->replica_count, sizeof(copse__device *), err),
               out);
    COPSE__TRY(
        copse__calloc(&o->elements, t->layout->bucket_count, sizeof *o->elements, err),
        out);
    COPSE__TRY(copse__calloc(&o->paths, t->replica_count, sizeof *o->paths, err), out);
    for (size_t r = 0; r < t->replica_count; r++) {
        if (!in[r])
            continue;
        engine_ranks[r] = count;
        o->paths[count] = copse__group_known_path(t, r);
        o->devices[count++] = t->replicas[r].device;
    }
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        o->elements[b] = t->layout->buckets[b].elements;
    o->options = (copse__allreduce_options){.devices = o->devices,
                                            .rank_count = count,
                                            .bucket_elements = o->elements,
                                            .bucket_count = t->layout->bucket_count,
                                            .paths = o->paths,
                                            .failed_rank = &o->failed_rank,
                                            .warn_ns = t->stall_ns / 12 + 1,
                                            .fail_ns = t->stall_ns};
out:
    return status;
}

/* Its driver hangs: from now on no call is made to it. */
static void leave_out(copse__trainer *t, const bool *in, const size_t *engine_ranks,
                      size_t failed_rank, copse_status status, const copse_error *why) {
    for (size_t r = 0; r < t->replica_count && t->grouping > 0; r++)
        if (in[r] && engine_ranks[r] == failed_rank)
            copse__trainer_lose(t, r, status, why);
    if (t->grouping > 0)
        return;
    t->lead = SIZE_MAX;
    for (size_t r = t->replica_count; r > 0; r--) {
        if (in[r - 1] && engine_ranks[r - 1] == failed_rank) {
            atomic_store(&t->replicas[r - 1].lost, true);
            copse__workers_rest(t->workers, r - 1, true);
        }
        if (copse__takes_part(t, r - 1))
            t->lead = r - 1;
    }
}

copse_status copse__group_engine(copse__trainer *t, const bool *in,
                                 copse__allreduce **out, size_t *engine_ranks,
                                 copse_error *err) {
    copse_status status;
    opening *o = NULL;
    size_t caller = 0; /* whose thread calls all devices, so that it can be left there */
    *out = NULL;
    while (caller + 1 < t->replica_count && !in[caller])
        caller++;
    COPSE__TRY(copse__calloc(&o, 1, sizeof *o, err), out);
    o->failed_rank = SIZE_MAX;
    COPSE__TRY(describe_engine(t, in, o, engine_ranks, err), out);
    t->replicas[caller].stage = "while the all-reduce was opened";
    status = copse__workers_run_on(t->workers, caller, open_engine, o, err);
    if (status != COPSE_OK && !copse__workers_is_out(t->workers, caller) &&
        o->failed_rank != SIZE_MAX)
        leave_out(t, in, engine_ranks, o->failed_rank, status, err);
    if (status == COPSE_OK)
        *out = o->engine;
out:
    if (!copse__workers_is_out(t->workers, caller))
        opening_free(o);
    return status;
}

copse_status copse__group_join(copse__trainer *t, copse_error *err) {
    copse_status status = COPSE_OK;
    bool *in;
    status = copse__calloc(&in, t->replica_count, sizeof *in, err);
    if (status != COPSE_OK)
        return status;
    t->lead = SIZE_MAX;
    for (size_t r = 0; r < t->replica_count; r++) {
        t->replicas[r].resting = t->shards[r] == 0;
        in[r] = copse__takes_part(t, r);
        copse__workers_rest(t->workers, r, !in[r]);
        if (in[r] && t->lead == SIZE_MAX)
            t->lead = r;
    }
    bool wanted = t->training && t->micro_shard == 0 && copse__trainer_active(t) > 1 &&
                  t->layout->bucket_count > 0;
    if (wanted)
        status = copse__group_engine(t, in, &t->allreduce, t->engine_ranks, err);
    t->grouping += status == COPSE_OK;
    free(in);
    return status;
}

static bool somebody_is_out(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__workers_is_out(t->workers, r))
            return true;
    return false;
}

void copse__group_retire(copse__trainer *t, copse__allreduce *engine) {
    if (!engine)
        return;
    bool out = somebody_is_out(t);
    if (!out)
        copse__allreduce_free(engine);
    else if (copse__grow(&t->retired, &t->retired_capacity, t->retired_count + 1,
                         sizeof(copse__allreduce *), NULL) == COPSE_OK)
        t->retired[t->retired_count++] = engine;
}

void copse__trainer_free_shared(copse__trainer *t, void *memory) {
    if (!memory || !somebody_is_out(t))
        free(memory);
    else if (copse__grow(&t->kept, &t->kept_capacity, t->kept_count + 1, sizeof(void *),
                         NULL) == COPSE_OK)
        t->kept[t->kept_count++] = memory;
}

void copse__group_part(copse__trainer *t) {
    copse__group_retire(t, t->allreduce);
    t->allreduce = NULL;
}
