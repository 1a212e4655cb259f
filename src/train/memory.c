/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "train/trainer_private.h"

/* What each replica takes, of its device's memory and of the host's. */

static size_t part_bytes(size_t rows, const copse__graph *graph,
                         copse__tensor_id tensor) {
    copse__extents one = copse__shard_extents(graph, 1);
    if (tensor == COPSE__NO_TENSOR)
        return 0;
    return copse__memory_lines(rows * copse__tensor_bytes(&graph->tensors[tensor], &one));
}

/* Of a batch that a pipeline makes ready for a rank with this share. */
static size_t batch_bytes(const copse__trainer *t, const copse__graph *graph,
                          size_t share, size_t batch) {
    size_t unit = copse__max_size(t->micro_shard, 1);
    size_t groups = copse__max_size((share + unit - 1) / unit, 1);
    size_t rows = copse__min_size(groups * unit, batch);
    return part_bytes(rows, graph, graph->input) + part_bytes(rows, graph, graph->label);
}

static bool is_exchanged(const copse__trainer *t, size_t rank) {
    size_t with_share = 0;
    for (size_t r = 0; r < t->replica_count; r++)
        with_share += t->shards[r] > 0 && !copse__trainer_is_lost(t, r);
    return t->training && t->micro_shard == 0 && with_share > 1 && t->shards[rank] > 0;
}

static bool is_copied(const copse__trainer *t, size_t rank) {
    copse__stage_path path =
        t->allreduce && copse__takes_part(t, rank)
            ? copse__allreduce_path(t->allreduce, t->engine_ranks[rank])
            : copse__group_known_path(t, rank);
    /* What a device shares with the host is measured to be best where it is. */
    if (path == COPSE__PATH_AUTO)
        return !copse__device_get(t->replicas[rank].device)->caps.unified;
    return path == COPSE__PATH_COPIED;
}

static size_t exchange_bytes(const copse__trainer *t, size_t rank) {
    size_t *elements, ranks = 0;
    if (!is_exchanged(t, rank) || !is_copied(t, rank) ||
        copse__calloc(&elements, t->layout->bucket_count, sizeof *elements, NULL) !=
            COPSE_OK)
        return 0;
    for (size_t b = 0; b < t->layout->bucket_count; b++)
        elements[b] = t->layout->buckets[b].elements;
    for (size_t r = 0; r < t->replica_count; r++)
        ranks += is_exchanged(t, r) && !copse__trainer_is_lost(t, r);
    size_t bytes = copse__memory_lines(
        copse__allreduce_slot_bytes(elements, t->layout->bucket_count, ranks));
    free(elements);
    return bytes;
}

void copse__trainer_memory(const copse__trainer *t, size_t rank,
                           copse__memory_report *out) {
    const copse__replica *r = &t->replicas[rank];
    *out = (copse__memory_report){0};
    if (copse__trainer_is_lost(t, rank))
        return;
    out->plan = r->memory;
    out->evaluation = (COPSE__EVALUATION_PREFETCH + COPSE__INPUT_SLOTS +
                       copse__evaluation_runs_ahead(t)) *
                      batch_bytes(t, r->eval_graph, t->eval_shards[rank], t->eval_batch);
    if (r->train_graph)
        out->batches = (copse__fit_prefetch(t) + copse__fit_held(t)) *
                       batch_bytes(t, r->train_graph, t->shards[rank], t->batch);
    out->exchange = exchange_bytes(t, rank);
    out->planned = copse__replica_bytes(r);
    out->planned.pinned += out->batches + out->exchange;
    out->now = copse__device_memory(r->device);
    out->peak = copse__device_memory_peak(r->device);
}

void copse__trainer_tell_memory(const copse__trainer *t) {
    char text[4][32];
    if (!copse__log_wanted(COPSE_LOG_DEBUG))
        return;
    for (size_t r = 0; r < t->replica_count; r++) {
        copse__memory_report m;
        copse__trainer_memory(t, r, &m);
        copse__log(COPSE_LOG_DEBUG,
                   "%s: %s of device memory (planned %s), %s pinned on the host (planned "
                   "%s)",
                   t->choices[r].label,
                   copse__format_bytes(text[0], sizeof text[0], m.now.device),
                   copse__format_bytes(text[1], sizeof text[1], m.planned.device),
                   copse__format_bytes(text[2], sizeof text[2], m.now.pinned),
                   copse__format_bytes(text[3], sizeof text[3], m.planned.pinned));
    }
}
