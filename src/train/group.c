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
static copse__stage_path known_path(const copse__trainer *t, size_t rank) {
    const copse__rank *known = t->ranks ? &t->ranks->ranks[rank] : NULL;
    if (!known || !known->measured)
        return COPSE__PATH_AUTO;
    return known->mapped ? COPSE__PATH_MAPPED : COPSE__PATH_COPIED;
}

copse_status copse__group_engine(copse__trainer *t, const bool *in,
                                 copse__allreduce **out, size_t *engine_ranks,
                                 copse_error *err) {
    copse_status status;
    copse__device **devices = NULL;
    copse__stage_path *paths = NULL;
    size_t *elements = NULL, count = 0;
    *out = NULL;
    COPSE__TRY(copse__calloc(&devices, t->replica_count, sizeof(copse__device *), err),
               out);
    COPSE__TRY(copse__calloc(&elements, t->layout->bucket_count, sizeof *elements, err),
               out);
    COPSE__TRY(copse__calloc(&paths, t->replica_count, sizeof *paths, err), out);
    for (size_t r = 0; r < t->replica_count; r++) {
        if (!in[r])
            continue;
        engine_ranks[r] = count;
        paths[count] = known_path(t, r);
        devices[count++] = t->replicas[r].device;
    }
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        elements[b] = t->layout->buckets[b].elements;
    copse__allreduce_options options = {.devices = devices,
                                        .rank_count = count,
                                        .bucket_elements = elements,
                                        .bucket_count = t->layout->bucket_count,
                                        .paths = paths,
                                        .warn_ns = t->stall_ns / 12 + 1,
                                        .fail_ns = t->stall_ns};
    COPSE__TRY(copse__allreduce_new(out, &options, err), out);
out:
    free(devices);
    free(paths);
    free(elements);
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
    t->grouping++;
    bool wanted = t->training && t->micro_shard == 0 && copse__trainer_active(t) > 1 &&
                  t->layout->bucket_count > 0;
    if (wanted)
        status = copse__group_engine(t, in, &t->allreduce, t->engine_ranks, err);
    free(in);
    return status;
}

static bool somebody_is_out(copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__workers_is_out(t->workers, r))
            return true;
    return false;
}

void copse__group_part(copse__trainer *t) {
    if (!t->allreduce)
        return;
    bool kept = somebody_is_out(t) &&
                copse__grow(&t->retired, &t->retired_capacity, t->retired_count + 1,
                            sizeof(copse__allreduce *), NULL) == COPSE_OK;
    if (kept)
        t->retired[t->retired_count++] = t->allreduce;
    else if (!somebody_is_out(t))
        copse__allreduce_free(t->allreduce);
    t->allreduce = NULL;
}
