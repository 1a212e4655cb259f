/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_HASH_H
#define COPSE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct copse__hash128 {
    uint64_t low, high;
} copse__hash128;

/* XXH3, 64 and 128 bits, seed 0: fast, stable over machines, not cryptographic. */
uint64_t copse__hash64(const void *data, size_t bytes);
copse__hash128 copse__hash128_of(const void *data, size_t bytes);

/* 32 lower-case hexadecimal digits, high half first, and a NUL. Returns buffer. */
const char *copse__hash128_hex(char buffer[33], copse__hash128 hash);

/* CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as in RFC 3720 B.4. Continue
 * with the previous result as crc; start with 0. */
uint32_t copse__crc32c(uint32_t crc, const void *data, size_t bytes);

/* TFRecord's masking of a CRC-32C. */
static inline uint32_t copse__crc32c_mask(uint32_t crc) {
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
