/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "plan/program.h"
#include "train/optimizer.h"

#define HASH_PARTIALS 256

/* Three launches a bucket: FINITE_CHECK, UPDATE_…, PARAMETER_HASH, over whole root buffers. All checks add
 * to one count, also to the last step's; no update happens where it is not 0. */
typedef enum part { PART_CHECK, PART_UPDATE, PART_HASH, PART_COUNT } part;

struct copse__updater {
    copse__store *store;
    copse__optimizer optimizer;
    copse__device *device;
    const copse__backend *backend;
    size_t bucket_count;
    copse__graph *graph; /* describes the flat buffers to the backend */
    copse__launch **launches[PART_COUNT];
    copse__tensor_id counted;                     /* the count's tensor */
    copse__buffer *count;                         /* u32 */
    copse__buffer *total_host;                    /* u32 by slot: as it was read last */
    copse__fence *total_read[COPSE__INPUT_SLOTS]; /* NULL: none is on its way */
    copse__buffer *partials, *partials_host;      /* u64[HASH_PARTIALS] a bucket */
    size_t partial_stride;                        /* bytes */
    copse__buffer *workspace; /* of whichever node runs; NULL where none needs any */
    size_t workspace_bytes;
};

static copse_status flat_tensor(copse__updater *u, const char *what, size_t bucket,
                                copse_dtype dtype, size_t elements, copse__tensor_id *out,
                                copse_error *err) {
    char name[64];
    snprintf(name, sizeof name, "bucket_%zu/%s", bucket, what);
    copse__dim dim = {.size = elements, .symbol = COPSE__FIXED};
    return copse__graph_tensor(u->graph, name, dtype, COPSE__ROLE_ACTIVATION, 1, &dim,
                               out, err);
}

static copse_status add_node(copse__updater *u, copse__node *node, size_t bucket,
                             copse_error *err) {
    char name[64];
    snprintf(name, sizeof name, "%s/bucket_%zu", copse__op_name(node->op), bucket);
    node->name = name;
    return copse__graph_node(u->graph, node, err);
}

/* The bucket's nodes 3 * bucket + part. */
static copse_status describe_bucket(copse__updater *u, size_t bucket, copse_error *err) {
    copse_status status;
    const copse__bucket *at = &u->store->layout->buckets[bucket];
    copse__tensor_id w, g, partial;
    COPSE__TRY(flat_tensor(u, "w", bucket, COPSE_F32, at->elements, &w, err), out);
    COPSE__TRY(flat_tensor(u, "g", bucket, COPSE_F32, at->elements, &g, err), out);
    COPSE__TRY(flat_tensor(u, "hash", bucket, COPSE_U64, HASH_PARTIALS, &partial, err),
               out);
    copse__node check = {.op = COPSE__OP_FINITE_CHECK,
                         .input_count = 2,
                         .inputs = {g, u->counted},
                         .output_count = 1,
                         .outputs = {u->counted}};
    COPSE__TRY(add_node(u, &check, bucket, err), out);
    copse__node update = {
        .op = u->optimizer.op,
        .attrs = u->optimizer.attrs,
        .input_count = 2 + COPSE__MAX_SLOTS + 1,
        .inputs = {w, g, COPSE__NO_TENSOR, COPSE__NO_TENSOR, COPSE__NO_TENSOR,
                   u->counted},
        .output_count = 1 + COPSE__MAX_SLOTS,
        .outputs = {w, COPSE__NO_TENSOR, COPSE__NO_TENSOR, COPSE__NO_TENSOR}};
    for (size_t s = 0; s < u->store->slot_count; s++) {
        copse__tensor_id slot;
        size_t operand = copse__optimizer_slot_operand(&u->optimizer, s);
        COPSE__TRY(flat_tensor(u, "slot", bucket, COPSE_F32, at->elements, &slot, err),
                   out);
        update.inputs[2 + operand] = slot;
        update.outputs[1 + operand] = slot;
    }
    COPSE__TRY(add_node(u, &update, bucket, err), out);
    copse__node hash = {.op = COPSE__OP_PARAMETER_HASH,
                        .attrs.hash.base = at->base,
                        .input_count = 1,
                        .inputs = {w},
                        .output_count = 1,
                        .outputs = {partial}};
    COPSE__TRY(add_node(u, &hash, bucket, err), out);
out:
    return status;
}

static copse__view count_view(const copse__updater *u) {
    return (copse__view){.buffer = u->count, .bytes = sizeof(uint32_t)};
}

static copse_status prepare_bucket(copse__updater *u, size_t bucket, copse_error *err) {
    copse__view w = copse__store_bucket(u->store, COPSE__KIND_WEIGHT, 0, bucket);
    copse__view g = copse__store_bucket(u->store, COPSE__KIND_GRADIENT, 0, bucket);
    copse__view scalars = {.buffer = u->store->scalars, .bytes = sizeof(copse_scalars)};
    copse__operands operands[PART_COUNT] = {
        [PART_CHECK] = {.inputs = {g, count_view(u)},
                        .outputs = {count_view(u)},
                        .scalars = scalars},
        [PART_UPDATE] = {.inputs = {w, g, [2 + COPSE__MAX_SLOTS] = count_view(u)},
                         .outputs = {w},
                         .scalars = scalars},
        [PART_HASH] = {.inputs = {w},
                       .outputs = {{u->partials, bucket * u->partial_stride,
                                    HASH_PARTIALS * sizeof(uint64_t)}},
                       .scalars = scalars},
    };
    for (size_t s = 0; s < u->store->slot_count; s++) {
        copse__view slot = copse__store_bucket(u->store, COPSE__KIND_SLOT, s, bucket);
        size_t operand = copse__optimizer_slot_operand(&u->optimizer, s);
        operands[PART_UPDATE].inputs[2 + operand] = slot;
        operands[PART_UPDATE].outputs[1 + operand] = slot;
    }
    for (size_t p = 0; p < PART_COUNT; p++) {
        const copse__node *node = &u->graph->nodes[PART_COUNT * bucket + p];
        operands[p].workspace =
            (copse__view){.buffer = u->workspace, .bytes = u->workspace_bytes};
        copse_status status = u->backend->launch_new(&u->launches[p][bucket], u->device,
                                                     u->graph, node, &operands[p], err);
        if (status != COPSE_OK)
            return status;
    }
    return COPSE_OK;
}

/* Queued: the next check counts from 0. */
static copse_status clear_count(copse__updater *u, copse_error *err) {
    return u->backend->fill(u->device, COPSE__QUEUE_COMPUTE, count_view(u), 0, NULL, NULL,
                            err);
}

static size_t partials_bytes(const copse__updater *u) {
    return copse__max_size(u->bucket_count, 1) * u->partial_stride;
}

static copse_status new_results(copse__updater *u, copse_error *err) {
    copse_status status;
    size_t partials = partials_bytes(u);
    const copse__memory device = COPSE__MEMORY_DEVICE, staging = COPSE__MEMORY_STAGING;
    COPSE__TRY(
        u->backend->buffer_new(&u->count, u->device, sizeof(uint32_t), device, err), out);
    COPSE__TRY(clear_count(u, err), out);
    COPSE__TRY(u->backend->buffer_new(&u->total_host, u->device,
                                      COPSE__INPUT_SLOTS * sizeof(uint32_t), staging,
                                      err),
               out);
    COPSE__TRY(u->backend->buffer_new(&u->partials, u->device, partials, device, err),
               out);
    COPSE__TRY(
        u->backend->buffer_new(&u->partials_host, u->device, partials, staging, err),
        out);
out:
    return status;
}

/* One workspace for all nodes, as they run one after another. */
static copse_status find_workspace(copse__updater *u, copse_error *err) {
    for (size_t n = 0; n < u->graph->node_count; n++) {
        size_t bytes = 0;
        copse_status status =
            u->backend->supports(u->device, u->graph, &u->graph->nodes[n], &bytes, err);
        if (status != COPSE_OK)
            return status;
        u->workspace_bytes = copse__max_size(u->workspace_bytes, bytes);
    }
    return COPSE_OK;
}

static copse_status new_workspace(copse__updater *u, copse_error *err) {
    return u->workspace_bytes == 0
               ? COPSE_OK
               : u->backend->buffer_new(&u->workspace, u->device,
                                        copse__round_up(u->workspace_bytes, 4),
                                        COPSE__MEMORY_DEVICE, err);
}

/* Everything but what lies on the device. */
static copse_status new_described(copse__updater **out, copse__store *store,
                                  const copse__optimizer *optimizer, copse_error *err) {
    *out = NULL;
    copse__updater *u;
    copse_status status = copse__calloc(&u, 1, sizeof *u, err);
    if (status != COPSE_OK)
        return status;
    u->store = store;
    u->optimizer = *optimizer;
    u->device = store->device;
    u->backend = copse__backend_of(store->device);
    u->bucket_count = store->layout->bucket_count;
    COPSE__TRY(copse__graph_new(&u->graph, err), fail);
    COPSE__TRY(flat_tensor(u, "count", 0, COPSE_U32, 1, &u->counted, err), fail);
    for (size_t p = 0; p < PART_COUNT; p++)
        COPSE__TRY(
            copse__calloc(&u->launches[p], u->bucket_count, sizeof *u->launches[p], err),
            fail);
    for (size_t b = 0; b < u->bucket_count; b++)
        COPSE__TRY(describe_bucket(u, b, err), fail);
    size_t alignment =
        copse__max_size(copse__device_get(u->device)->caps.view_alignment, 4);
    u->partial_stride = copse__round_up(HASH_PARTIALS * sizeof(uint64_t), alignment);
    COPSE__TRY(find_workspace(u, err), fail);
    *out = u;
    return COPSE_OK;
fail:
    copse__updater_free(u);
    return status;
}

copse_status copse__updater_measure(copse__device *device, const copse__layout *layout,
                                    const copse__optimizer *optimizer,
                                    copse__memory_bytes *out, copse_error *err) {
    copse__store store = {.device = device,
                          .layout = layout,
                          .slot_count = copse__optimizer_slots(optimizer)};
    copse__updater *u;
    *out = (copse__memory_bytes){0};
    copse_status status = new_described(&u, &store, optimizer, err);
    if (status != COPSE_OK)
        return status;
    size_t partials = copse__memory_lines(partials_bytes(u));
    out->device = copse__memory_lines(sizeof(uint32_t)) + partials +
                  copse__memory_lines(u->workspace_bytes);
    out->pinned = copse__memory_lines(COPSE__INPUT_SLOTS * sizeof(uint32_t)) + partials;
    copse__updater_free(u);
    return COPSE_OK;
}

copse_status copse__updater_new(copse__updater **out, copse__store *store,
                                const copse__optimizer *optimizer, copse_error *err) {
    copse__updater *u;
    copse_status status = new_described(&u, store, optimizer, err);
    *out = NULL;
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(new_results(u, err), fail);
    COPSE__TRY(new_workspace(u, err), fail);
    for (size_t b = 0; b < u->bucket_count; b++)
        COPSE__TRY(prepare_bucket(u, b, err), fail);
    *out = u;
    return COPSE_OK;
fail:
    copse__updater_free(u);
    return status;
}

void copse__updater_free(copse__updater *u) {
    if (!u)
        return;
    for (size_t p = 0; p < PART_COUNT; p++) {
        for (size_t b = 0; u->launches[p] && b < u->bucket_count; b++)
            u->backend->launch_free(u->launches[p][b]);
        free(u->launches[p]);
    }
    for (size_t slot = 0; slot < COPSE__INPUT_SLOTS; slot++)
        u->backend->fence_free(u->total_read[slot]);
    u->backend->buffer_free(u->workspace);
    u->backend->buffer_free(u->count);
    u->backend->buffer_free(u->total_host);
    u->backend->buffer_free(u->partials);
    u->backend->buffer_free(u->partials_host);
    copse__graph_free(u->graph);
    free(u);
}

/* Runs one part over all buckets; flat nodes have no symbolic sizes, so the extents do not matter. */
static copse_status run_part(copse__updater *u, part p, copse_error *err) {
    copse__extents extents = {.of = {1, 1, 1}};
    return u->backend->run(u->device, u->launches[p], u->bucket_count, &extents, err);
}

/* Runs a part and brings its results to the host. */
static copse_status run_and_read(copse__updater *u, part p, copse__buffer *from,
                                 copse__buffer *to, size_t bytes, copse_error *err) {
    copse__fence *done = NULL;
    copse_status status = run_part(u, p, err);
    if (status == COPSE_OK)
        status = u->backend->read(
            u->device, COPSE__QUEUE_COMPUTE, u->backend->buffer_host(to),
            (copse__view){.buffer = from, .bytes = bytes}, bytes, NULL, &done, err);
    if (status == COPSE_OK)
        status = u->backend->flush(u->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK && done)
        status = u->backend->fence_wait(done, UINT64_MAX, err);
    u->backend->fence_free(done);
    return status;
}

copse_status copse__updater_check(copse__updater *u, size_t slot, copse_error *err) {
    if (u->bucket_count == 0)
        return COPSE_OK;
    copse__fence *done = NULL;
    uint32_t *to = u->backend->buffer_host(u->total_host);
    copse_status status = run_part(u, PART_CHECK, err);
    if (status == COPSE_OK)
        status = u->backend->read(u->device, COPSE__QUEUE_COMPUTE, &to[slot],
                                  count_view(u), sizeof *to, NULL, &done, err);
    if (status != COPSE_OK)
        return status;
    u->backend->fence_free(u->total_read[slot]);
    u->total_read[slot] = done;
    return COPSE_OK;
}

copse_status copse__updater_checked(copse__updater *u, size_t slot, uint64_t *nonfinite,
                                    copse_error *err) {
    *nonfinite = 0;
    if (!u->total_read[slot])
        return COPSE_OK;
    copse_status status = u->backend->fence_wait(u->total_read[slot], UINT64_MAX, err);
    if (status != COPSE_OK)
        return status;
    u->backend->fence_free(u->total_read[slot]);
    u->total_read[slot] = NULL;
    *nonfinite = ((const uint32_t *)u->backend->buffer_host(u->total_host))[slot];
    return *nonfinite > 0 ? clear_count(u, err) : COPSE_OK;
}

copse_status copse__updater_apply(copse__updater *u, copse_error *err) {
    copse_status status = run_part(u, PART_UPDATE, err);
    return status == COPSE_OK ? u->backend->flush(u->device, COPSE__QUEUE_COMPUTE, err)
                              : status;
}

copse_status copse__updater_hash(copse__updater *u, uint64_t *hash, copse_error *err) {
    *hash = 0;
    if (u->bucket_count == 0)
        return COPSE_OK;
    copse_status status = run_and_read(u, PART_HASH, u->partials, u->partials_host,
                                       u->bucket_count * u->partial_stride, err);
    if (status != COPSE_OK)
        return status;
    const char *partials = u->backend->buffer_host(u->partials_host);
    for (size_t b = 0; b < u->bucket_count; b++) {
        const void *at = partials + b * u->partial_stride;
        const uint64_t *values = at;
        for (size_t i = 0; i < HASH_PARTIALS; i++)
            *hash += values[i];
    }
    return COPSE_OK;
}
