/* SPDX-License-Identifier: Apache-2.0 */
#include "train/partials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct level {
    copse__buffer **sums; /* by bucket */
    copse__launch **adds; /* by bucket: gradients += sums */
} level;

struct copse__partials {
    copse__store *store;
    const copse__backend *backend;
    size_t bucket_count, level_count, waiting;
    copse__graph *graph; /* describes the flat buffers to the backend */
    level *levels;
    copse__buffer *workspace; /* NULL where the additions need none */
};

/* ---- The tree -------------------------------------------------------------------------- */

size_t copse__partials_tree_levels(size_t count) {
    size_t levels = 0;
    for (size_t covered = 1; covered < count; covered *= 2)
        levels++;
    return levels;
}

size_t copse__partials_tree_merges(size_t index, size_t count, size_t waiting) {
    if (index + 1 == count)
        return waiting;
    size_t merges = 0;
    for (; index & 1; index >>= 1)
        merges++;
    return merges;
}

/* ---- Making ---------------------------------------------------------------------------- */

static copse_status flat_tensor(copse__partials *p, const char *what, size_t bucket,
                                copse__tensor_id *out, copse_error *err) {
    char name[64];
    snprintf(name, sizeof name, "bucket_%zu/%s", bucket, what);
    copse__dim dim = {.size = p->store->layout->buckets[bucket].elements,
                      .symbol = COPSE__FIXED};
    return copse__graph_tensor(p->graph, name, COPSE_F32, COPSE__ROLE_ACTIVATION, 1, &dim,
                               out, err);
}

static copse_status describe_bucket(copse__partials *p, size_t bucket, size_t *workspace,
                                    copse_error *err) {
    copse__tensor_id gradient, sum;
    copse_status status;
    char name[64];
    snprintf(name, sizeof name, "accumulate/bucket_%zu", bucket);
    COPSE__TRY(flat_tensor(p, "g", bucket, &gradient, err), out);
    COPSE__TRY(flat_tensor(p, "sum", bucket, &sum, err), out);
    copse__node add = {.op = COPSE__OP_ACCUMULATE,
                       .name = name,
                       .input_count = 2,
                       .inputs = {gradient, sum},
                       .output_count = 1,
                       .outputs = {gradient}};
    COPSE__TRY(copse__graph_node(p->graph, &add, err), out);
    size_t bytes = 0;
    COPSE__TRY(p->backend->supports(p->store->device, p->graph, &p->graph->nodes[bucket],
                                    &bytes, err),
               out);
    *workspace = copse__max_size(*workspace, bytes);
out:
    return status;
}

static copse_status make_level(copse__partials *p, level *made, size_t workspace_bytes,
                               copse_error *err) {
    copse_status status;
    COPSE__TRY(copse__calloc(&made->sums, p->bucket_count, sizeof *made->sums, err), out);
    COPSE__TRY(copse__calloc(&made->adds, p->bucket_count, sizeof *made->adds, err), out);
    for (size_t b = 0; b < p->bucket_count; b++) {
        copse__view gradient = copse__store_bucket(p->store, COPSE__KIND_GRADIENT, 0, b);
        COPSE__TRY(p->backend->buffer_new(&made->sums[b], p->store->device,
                                          gradient.bytes, COPSE__MEMORY_DEVICE, err),
                   out);
        copse__operands operands = {
            .inputs = {gradient, {.buffer = made->sums[b], .bytes = gradient.bytes}},
            .outputs = {gradient},
            .workspace = {.buffer = p->workspace, .bytes = workspace_bytes},
            .scalars = {.buffer = p->store->scalars, .bytes = sizeof(copse_scalars)}};
        COPSE__TRY(p->backend->launch_new(&made->adds[b], p->store->device, p->graph,
                                          &p->graph->nodes[b], &operands, err),
                   out);
    }
out:
    return status;
}

/* Everything but what lies on the device. */
static copse_status new_described(copse__partials **out, copse__store *store,
                                  size_t levels, size_t *workspace, copse_error *err) {
    *out = NULL;
    *workspace = 0;
    copse__partials *p;
    copse_status status = copse__calloc(&p, 1, sizeof *p, err);
    if (status != COPSE_OK)
        return status;
    p->store = store;
    p->backend = copse__backend_of(store->device);
    p->bucket_count = store->layout->bucket_count;
    p->level_count = levels;
    COPSE__TRY(copse__calloc(&p->levels, levels, sizeof *p->levels, err), fail);
    COPSE__TRY(copse__graph_new(&p->graph, err), fail);
    for (size_t b = 0; b < p->bucket_count && levels > 0; b++)
        COPSE__TRY(describe_bucket(p, b, workspace, err), fail);
    *out = p;
    return COPSE_OK;
fail:
    copse__partials_free(p);
    return status;
}

copse_status copse__partials_measure(copse__device *device, const copse__layout *layout,
                                     size_t levels, size_t *bytes, copse_error *err) {
    copse__store store = {.device = device, .layout = layout};
    copse__partials *p;
    size_t workspace;
    *bytes = 0;
    copse_status status = new_described(&p, &store, levels, &workspace, err);
    if (status != COPSE_OK)
        return status;
    *bytes = levels * copse__store_bucket_bytes(layout) + copse__memory_lines(workspace);
    copse__partials_free(p);
    return COPSE_OK;
}

copse_status copse__partials_new(copse__partials **out, copse__store *store,
                                 size_t levels, copse_error *err) {
    copse__partials *p;
    size_t workspace;
    *out = NULL;
    copse_status status = new_described(&p, store, levels, &workspace, err);
    if (status != COPSE_OK)
        return status;
    if (workspace > 0)
        COPSE__TRY(p->backend->buffer_new(&p->workspace, store->device,
                                          copse__round_up(workspace, 4),
                                          COPSE__MEMORY_DEVICE, err),
                   fail);
    for (size_t l = 0; l < levels; l++)
        COPSE__TRY(make_level(p, &p->levels[l], workspace, err), fail);
    *out = p;
    return COPSE_OK;
fail:
    copse__partials_free(p);
    return status;
}

void copse__partials_free(copse__partials *p) {
    if (!p)
        return;
    for (size_t l = 0; p->levels && l < p->level_count; l++) {
        for (size_t b = 0; b < p->bucket_count; b++) {
            if (p->levels[l].adds)
                p->backend->launch_free(p->levels[l].adds[b]);
            if (p->levels[l].sums)
                p->backend->buffer_free(p->levels[l].sums[b]);
        }
        free(p->levels[l].adds);
        free(p->levels[l].sums);
    }
    p->backend->buffer_free(p->workspace);
    copse__graph_free(p->graph);
    free(p->levels);
    free(p);
}

/* ---- Running --------------------------------------------------------------------------- */

size_t copse__partials_levels(const copse__partials *p) {
    return p->level_count;
}

size_t copse__partials_waiting(const copse__partials *p) {
    return p->waiting;
}

void copse__partials_clear(copse__partials *p) {
    p->waiting = 0;
}

copse_status copse__partials_push(copse__partials *p, copse_error *err) {
    if (p->waiting == p->level_count)
        return copse__fail(err, COPSE_INTERNAL, 0, NULL,
                           "%zu sums of gradients wait already", p->waiting);
    for (size_t b = 0; b < p->bucket_count; b++) {
        copse__view from = copse__store_bucket(p->store, COPSE__KIND_GRADIENT, 0, b);
        copse__view to = {.buffer = p->levels[p->waiting].sums[b], .bytes = from.bytes};
        copse_status status = p->backend->copy(p->store->device, COPSE__QUEUE_COMPUTE, to,
                                               from, from.bytes, NULL, NULL, err);
        if (status != COPSE_OK)
            return status;
    }
    p->waiting++;
    return COPSE_OK;
}

static copse_status add(copse__partials *p, size_t first, size_t count,
                        copse_error *err) {
    copse__extents extents = {.of = {1, 1, 1}}; /* flat: they do not matter */
    if (p->waiting == 0)
        return copse__fail(err, COPSE_INTERNAL, 0, NULL, "no sum of gradients waits");
    return p->backend->run(p->store->device, p->levels[p->waiting - 1].adds + first,
                           count, &extents, err);
}

copse_status copse__partials_merge(copse__partials *p, copse_error *err) {
    copse_status status = add(p, 0, p->bucket_count, err);
    if (status == COPSE_OK)
        p->waiting--;
    return status;
}

copse_status copse__partials_merge_bucket(copse__partials *p, size_t bucket,
                                          copse_error *err) {
    return add(p, bucket, 1, err);
}

/* ---- The check ------------------------------------------------------------------------- */

/* Pairs whose sums are, or pass through, numbers below the smallest normal one. */
static const float pairs[][2] = {
    {1e-40f, 2e-40f}, {1.5e-38f, -1.4e-38f}, {-1.1754942e-38f, 1.4e-45f},
    {1e-39f, 1.0f},   {-0.0f, 0.0f},         {-0.0f, -0.0f},
    {0.1f, 0.7f},     {16777216.0f, 1.0f}};

/* Fills the first bucket with one number. */
static copse_status put(copse__partials *p, float value, copse_error *err) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    copse__view all = copse__store_bucket(p->store, COPSE__KIND_GRADIENT, 0, 0);
    return p->backend->fill(p->store->device, COPSE__QUEUE_COMPUTE, all, bits, NULL, NULL,
                            err);
}

static copse_status check_pair(copse__partials *p, const float pair[2],
                               copse_error *err) {
    copse_status status;
    copse__view all = copse__store_bucket(p->store, COPSE__KIND_GRADIENT, 0, 0);
    copse__fence *done = NULL;
    float sum = 0;
    copse__partials_clear(p);
    COPSE__TRY(put(p, pair[0], err), out);
    COPSE__TRY(copse__partials_push(p, err), out);
    COPSE__TRY(put(p, pair[1], err), out);
    COPSE__TRY(copse__partials_merge(p, err), out);
    COPSE__TRY(p->backend->read(p->store->device, COPSE__QUEUE_COMPUTE, &sum, all,
                                sizeof sum, NULL, &done, err),
               out);
    COPSE__TRY(p->backend->flush(p->store->device, COPSE__QUEUE_COMPUTE, err), out);
    COPSE__TRY(p->backend->fence_wait(done, UINT64_MAX, err), out);
    volatile float expected = pair[0] + pair[1];
    float wanted = expected;
    if (memcmp(&wanted, &sum, sizeof sum) != 0)
        status = copse__fail(
            err, COPSE_UNSUPPORTED, 0, copse__device_get(p->store->device)->choice.label,
            "it adds %.9g and %.9g to %.9g, not to %.9g as the host "
            "does; train.reproducible: devices cannot use it",
            (double)pair[0], (double)pair[1], (double)sum, (double)wanted);
out:
    p->backend->fence_free(done);
    return status;
}

copse_status copse__partials_check(copse__partials *p, copse_error *err) {
    copse_status status = COPSE_OK;
    bool can = p->level_count > 0 && p->bucket_count > 0 &&
               p->store->layout->buckets[0].elements > 0;
    for (size_t i = 0; can && i < COPSE__COUNT(pairs) && status == COPSE_OK; i++)
        status = check_pair(p, pairs[i], err);
    copse__partials_clear(p);
    return status;
}
