/* SPDX-License-Identifier: Apache-2.0 */
#include "support/allocations.h"

#include <stdbool.h>
#include <stdint.h>

static size_t allowed = SIZE_MAX; /* allocations until one fails */
static size_t alive;              /* blocks given and not freed */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

void allocations_allow(size_t count) {
    allowed = count;
}

size_t allocations_left(void) {
    return allowed;
}

size_t allocations_alive(void) {
    return alive;
}

static bool refused(void) {
    if (allowed == 0)
        return true;
    allowed--;
    return false;
}

void *__wrap_malloc(size_t bytes) {
    void *block = refused() ? NULL : __real_malloc(bytes);
    alive += block != NULL;
    return block;
}

void *__wrap_calloc(size_t count, size_t size) {
    void *block = refused() ? NULL : __real_calloc(count, size);
    alive += block != NULL;
    return block;
}

void *__wrap_realloc(void *old, size_t bytes) {
    void *block = refused() ? NULL : __real_realloc(old, bytes);
    alive += block != NULL && old == NULL;
    return block;
}

void __wrap_free(void *block) {
    alive -= block != NULL;
    __real_free(block);
}
