/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_MEM_H
#define COPSE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

/* false where the exact result does not fit. */
static inline bool copse__mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool copse__add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Zeroed count * size bytes (at least 1) into *out; *out is NULL on failure. free() it.
 */
copse_status copse__calloc(void *out_pointer, size_t count, size_t size,
                           copse_error *err);

/* Makes room for at least `need` elements in a growing array: *items is the array of
 * *capacity elements of `size` bytes. Doubles; keeps the array on failure. */
copse_status copse__grow(void *items_pointer, size_t *capacity, size_t need, size_t size,
                         copse_error *err);

/* A copy that the caller frees. */
copse_status copse__strdup(char **out, const char *text, copse_error *err);

static inline size_t copse__round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

static inline size_t copse__min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t copse__max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

#define COPSE__COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
