/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <string.h>

copse_status copse__calloc(void *out_pointer, size_t count, size_t size,
                           copse_error *err) {
    void *made = NULL;
    size_t bytes;
    if (copse__mul_size(count, size, &bytes))
        made = calloc(bytes ? bytes : 1, 1);
    else
        bytes = SIZE_MAX;
    memcpy(out_pointer, &made, sizeof made);
    return made ? COPSE_OK : copse__fail_nomem(err, bytes);
}

copse_status copse__grow(void *items_pointer, size_t *capacity, size_t need, size_t size,
                         copse_error *err) {
    if (need <= *capacity)
        return COPSE_OK;
    size_t wanted = *capacity > SIZE_MAX / 2 ? need : *capacity * 2;
    if (wanted < need)
        wanted = need;
    if (wanted < 8)
        wanted = 8;
    size_t bytes;
    if (!copse__mul_size(wanted, size, &bytes))
        return copse__fail_nomem(err, UINT64_MAX);
    void *old;
    memcpy(&old, items_pointer, sizeof old);
    void *made = realloc(old, bytes);
    if (!made)
        return copse__fail_nomem(err, bytes);
    memset((char *)made + *capacity * size, 0, bytes - *capacity * size);
    memcpy(items_pointer, &made, sizeof made);
    *capacity = wanted;
    return COPSE_OK;
}

copse_status copse__strdup(char **out, const char *text, copse_error *err) {
    size_t bytes = strlen(text) + 1;
    *out = malloc(bytes);
    if (!*out)
        return copse__fail_nomem(err, bytes);
    memcpy(*out, text, bytes);
    return COPSE_OK;
}
