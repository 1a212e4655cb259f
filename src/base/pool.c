/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BLOCK_BYTES ((size_t)16384)

struct copse__pool_block {
    struct copse__pool_block *previous;
    size_t capacity;
    alignas(max_align_t) char data[];
};

copse_status copse__pool_alloc(copse__pool *pool, void *out_pointer, size_t count,
                               size_t size, copse_error *err) {
    void **out = out_pointer;
    *out = NULL;
    size_t bytes, capacity;
    if (!copse__mul_size(count, size, &bytes) ||
        !copse__add_size(bytes, sizeof(struct copse__pool_block) + alignof(max_align_t),
                         &capacity))
        return copse__fail_nomem(err, UINT64_MAX);
    bytes = copse__round_up(bytes > 0 ? bytes : 1, alignof(max_align_t));
    if (!pool->last || pool->last->capacity - pool->used < bytes) {
        capacity = copse__max_size(bytes, BLOCK_BYTES);
        struct copse__pool_block *block = calloc(1, sizeof *block + capacity);
        if (!block)
            return copse__fail_nomem(err, capacity);
        block->capacity = capacity;
        block->previous = pool->last;
        pool->last = block;
        pool->used = 0;
    }
    *out = pool->last->data + pool->used;
    pool->used += bytes;
    return COPSE_OK;
}

copse_status copse__pool_text(copse__pool *pool, char **out, const char *text,
                              size_t length, copse_error *err) {
    size_t bytes;
    *out = NULL;
    if (!copse__add_size(length, 1, &bytes))
        return copse__fail_nomem(err, UINT64_MAX);
    copse_status status = copse__pool_alloc(pool, out, bytes, 1, err);
    if (status == COPSE_OK && length > 0)
        memcpy(*out, text, length);
    return status;
}

copse_status copse__pool_strdup(copse__pool *pool, char **out, const char *text,
                                copse_error *err) {
    return copse__pool_text(pool, out, text, strlen(text), err);
}

void copse__pool_free(copse__pool *pool) {
    struct copse__pool_block *block = pool->last;
    while (block) {
        struct copse__pool_block *previous = block->previous;
        free(block);
        block = previous;
    }
    *pool = (copse__pool){0};
}
