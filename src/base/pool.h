/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_POOL_H
#define COPSE_BASE_POOL_H

#include "base/error.h"

#include <stddef.h>

/* Memory that is freed all at once: for trees and tables of small pieces that live and die
 * together. Start from {0}. Not thread-safe. */
typedef struct copse__pool {
    struct copse__pool_block *last;
    size_t used; /* of the last block */
} copse__pool;

/* Zeroed count * size bytes, aligned for any type; *out is NULL on failure. */
copse_status copse__pool_alloc(copse__pool *pool, void *out_pointer, size_t count,
                               size_t size, copse_error *err);

/* A copy of the first length bytes, with a NUL after them. */
copse_status copse__pool_text(copse__pool *pool, char **out, const char *text,
                              size_t length, copse_error *err);

/* A copy of a whole text. */
copse_status copse__pool_strdup(copse__pool *pool, char **out, const char *text,
                                copse_error *err);

void copse__pool_free(copse__pool *pool);

#endif
