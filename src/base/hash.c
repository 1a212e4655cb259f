/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

uint64_t copse__hash64(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}

copse__hash128 copse__hash128_of(const void *data, size_t bytes) {
    XXH128_hash_t hash = XXH3_128bits(data, bytes);
    return (copse__hash128){.low = hash.low64, .high = hash.high64};
}

const char *copse__hash128_hex(char buffer[33], copse__hash128 hash) {
    snprintf(buffer, 33, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
    return buffer;
}
