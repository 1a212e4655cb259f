/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/store.h"

#include <scalars.clh>
#include <stdlib.h>

#include "base/mem.h"

static copse_status new_zeroed(copse__store *store, copse__buffer **out, size_t bytes,
                               copse__memory memory, copse_error *err) {
    const copse__backend *backend = copse__backend_of(store->device);
    bytes = copse__round_up(bytes ? bytes : 1, 4);
    copse_status status = backend->buffer_new(out, store->device, bytes, memory, err);
    if (status != COPSE_OK)
        return status;
    copse__view all = {.buffer = *out, .bytes = bytes};
    return backend->fill(store->device, COPSE__QUEUE_COMPUTE, all, 0, NULL, NULL, err);
}

static copse_status new_buckets(copse__store *store, copse__buffer ***out,
                                copse__memory memory, copse_error *err) {
    const copse__layout *layout = store->layout;
    copse_status status = copse__calloc(out, layout->bucket_count, sizeof **out, err);
    for (size_t b = 0; b < layout->bucket_count && status == COPSE_OK; b++)
        status = new_zeroed(store, &(*out)[b],
                            layout->buckets[b].elements * sizeof(float), memory, err);
    return status;
}

static copse_status clear_buckets(copse__store *store, copse__buffer **buffers,
                                  copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t b = 0; buffers && b < store->layout->bucket_count && status == COPSE_OK;
         b++) {
        copse__view all = {.buffer = buffers[b],
                           .bytes = store->layout->buckets[b].elements * sizeof(float)};
        status = copse__backend_of(store->device)
                     ->fill(store->device, COPSE__QUEUE_COMPUTE, all, 0, NULL, NULL, err);
    }
    return status;
}

copse_status copse__store_clear(copse__store *store, copse_error *err) {
    copse_status status = clear_buckets(store, store->weights, err);
    if (status == COPSE_OK)
        status = clear_buckets(store, store->gradients, err);
    for (size_t s = 0; s < store->slot_count && status == COPSE_OK; s++)
        status = clear_buckets(store, store->slots[s], err);
    return status == COPSE_OK ? copse__backend_of(store->device)
                                    ->finish(store->device, COPSE__QUEUE_COMPUTE, err)
                              : status;
}

/* What a block needs so that each plan finds room in it. */
static size_t block_bytes(const copse__plan *const *plans, size_t plan_count,
                          size_t block) {
    size_t bytes = 0;
    for (size_t i = 0; i < plan_count; i++)
        if (block < plans[i]->block_count)
            bytes = copse__max_size(bytes, plans[i]->block_bytes[block]);
    return copse__round_up(bytes ? bytes : 1, 4);
}

static size_t most_blocks(const copse__plan *const *plans, size_t plan_count) {
    size_t count = 0;
    for (size_t i = 0; i < plan_count; i++)
        count = copse__max_size(count, plans[i]->block_count);
    return count;
}

size_t copse__store_bucket_bytes(const copse__layout *layout) {
    size_t bytes = 0;
    for (size_t b = 0; b < layout->bucket_count; b++)
        bytes += copse__memory_lines(layout->buckets[b].elements * sizeof(float));
    return bytes;
}

size_t copse__store_arena_bytes(const copse__plan *const *plans, size_t plan_count) {
    size_t bytes = 0;
    for (size_t b = 0; b < most_blocks(plans, plan_count); b++)
        bytes += copse__memory_lines(block_bytes(plans, plan_count, b));
    return bytes;
}

static copse_status new_arena(copse__store *store, const copse__plan *const *plans,
                              size_t plan_count, copse_error *err) {
    store->block_count = most_blocks(plans, plan_count);
    copse_status status =
        copse__calloc(&store->blocks, store->block_count, sizeof *store->blocks, err);
    for (size_t b = 0; b < store->block_count && status == COPSE_OK; b++)
        status = copse__backend_of(store->device)
                     ->buffer_new(&store->blocks[b], store->device,
                                  block_bytes(plans, plan_count, b), COPSE__MEMORY_DEVICE,
                                  err);
    return status;
}

copse_status copse__store_new(copse__store **out, copse__device *device,
                              const copse__layout *layout, size_t slot_count,
                              bool with_gradients, const copse__plan *const *plans,
                              size_t plan_count, copse_error *err) {
    *out = NULL;
    copse__store *store;
    copse_status status = copse__calloc(&store, 1, sizeof *store, err);
    if (status != COPSE_OK)
        return status;
    store->device = device;
    store->layout = layout;
    store->slot_count = slot_count;
    for (size_t i = 0; i < plan_count; i++)
        store->state_bytes = copse__max_size(store->state_bytes, plans[i]->state_bytes);
    COPSE__TRY(new_buckets(store, &store->weights, COPSE__MEMORY_DEVICE, err), fail);
    if (with_gradients) /* which the host sums */
        COPSE__TRY(new_buckets(store, &store->gradients, COPSE__MEMORY_SHARED, err),
                   fail);
    for (size_t s = 0; s < slot_count; s++)
        COPSE__TRY(new_buckets(store, &store->slots[s], COPSE__MEMORY_DEVICE, err), fail);
    if (store->state_bytes > 0)
        COPSE__TRY(new_zeroed(store, &store->state, store->state_bytes,
                              COPSE__MEMORY_DEVICE, err),
                   fail);
    COPSE__TRY(new_zeroed(store, &store->scalars, sizeof(copse_scalars),
                          COPSE__MEMORY_DEVICE, err),
               fail);
    COPSE__TRY(new_arena(store, plans, plan_count, err), fail);
    COPSE__TRY(copse__backend_of(device)->finish(device, COPSE__QUEUE_COMPUTE, err),
               fail);
    *out = store;
    return COPSE_OK;
fail:
    copse__store_free(store);
    return status;
}

static void free_buffers(copse__store *store, copse__buffer **buffers, size_t count) {
    for (size_t i = 0; buffers && i < count; i++)
        copse__backend_of(store->device)->buffer_free(buffers[i]);
    free(buffers);
}

void copse__store_free(copse__store *store) {
    if (!store)
        return;
    size_t buckets = store->layout->bucket_count;
    free_buffers(store, store->weights, buckets);
    free_buffers(store, store->gradients, buckets);
    for (size_t s = 0; s < COPSE__MAX_SLOTS; s++)
        free_buffers(store, store->slots[s], buckets);
    free_buffers(store, store->blocks, store->block_count);
    copse__backend_of(store->device)->buffer_free(store->state);
    copse__backend_of(store->device)->buffer_free(store->scalars);
    free(store);
}

copse__view copse__store_bucket(const copse__store *store, copse__kind kind, size_t slot,
                                size_t bucket) {
    copse__buffer **buffers = kind == COPSE__KIND_WEIGHT     ? store->weights
                              : kind == COPSE__KIND_GRADIENT ? store->gradients
                                                             : store->slots[slot];
    return (copse__view){.buffer = buffers[bucket],
                         .bytes =
                             store->layout->buckets[bucket].elements * sizeof(float)};
}

copse_status copse__store_replan(copse__store *store, const copse__plan *const *plans,
                                 size_t plan_count, copse_error *err) {
    free_buffers(store, store->blocks, store->block_count);
    store->blocks = NULL;
    store->block_count = 0;
    return new_arena(store, plans, plan_count, err);
}

/* Where one parameter's bytes lie. A parameter starts at a multiple of the view alignment. */
static copse__view parameter_view(const copse__store *store, copse__kind kind,
                                  size_t slot, size_t parameter) {
    const copse__parameter_place *place = &store->layout->places[parameter];
    copse__view view = copse__store_bucket(store, kind, slot, place->bucket);
    view.offset = place->offset * sizeof(float);
    view.bytes = place->elements * sizeof(float);
    return view;
}

static copse_status wait_and_free(copse__store *store, copse__fence *done,
                                  copse_error *err) {
    const copse__backend *backend = copse__backend_of(store->device);
    if (!done)
        return COPSE_OK;
    copse_status status = backend->flush(store->device, COPSE__QUEUE_COMPUTE, err);
    if (status == COPSE_OK)
        status = backend->fence_wait(done, UINT64_MAX, err);
    backend->fence_free(done);
    return status;
}

copse_status copse__store_write(copse__store *store, copse__kind kind, size_t slot,
                                size_t parameter, const float *values, copse_error *err) {
    copse__view view = parameter_view(store, kind, slot, parameter);
    copse__fence *done;
    copse_status status = copse__backend_of(store->device)
                              ->write(store->device, COPSE__QUEUE_COMPUTE, view, values,
                                      view.bytes, NULL, &done, err);
    return status == COPSE_OK ? wait_and_free(store, done, err) : status;
}

copse_status copse__store_read(copse__store *store, copse__kind kind, size_t slot,
                               size_t parameter, float *values, copse_error *err) {
    copse__view view = parameter_view(store, kind, slot, parameter);
    copse__fence *done;
    copse_status status = copse__backend_of(store->device)
                              ->read(store->device, COPSE__QUEUE_COMPUTE, values, view,
                                     view.bytes, NULL, &done, err);
    return status == COPSE_OK ? wait_and_free(store, done, err) : status;
}

copse_status copse__store_write_state(copse__store *store, const void *bytes,
                                      copse_error *err) {
    if (!store->state)
        return COPSE_OK;
    copse__view view = {.buffer = store->state, .bytes = store->state_bytes};
    copse__fence *done;
    copse_status status = copse__backend_of(store->device)
                              ->write(store->device, COPSE__QUEUE_COMPUTE, view, bytes,
                                      view.bytes, NULL, &done, err);
    return status == COPSE_OK ? wait_and_free(store, done, err) : status;
}
