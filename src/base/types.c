/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/types.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
#define DTYPE_ROW(code, name, bytes) {name, bytes},
    COPSE_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

#define DTYPE_COUNT (sizeof dtypes / sizeof dtypes[0])

const char *copse_dtype_name(copse_dtype dtype) {
    return (size_t)dtype < DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}

size_t copse_dtype_bytes(copse_dtype dtype) {
    return (size_t)dtype < DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}
