/* SPDX-License-Identifier: Apache-2.0
 *
 * Little-endian numbers in files, whatever the host's order and alignment. */
#ifndef COPSE_IO_BYTES_H
#define COPSE_IO_BYTES_H

#include <stdint.h>

static inline uint16_t copse__le16(const unsigned char *at) {
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t copse__le32(const unsigned char *at) {
    return copse__le16(at) | (uint32_t)copse__le16(at + 2) << 16;
}

static inline uint64_t copse__le64(const unsigned char *at) {
    return copse__le32(at) | (uint64_t)copse__le32(at + 4) << 32;
}

static inline void copse__put16(unsigned char *at, unsigned value) {
    at[0] = (unsigned char)value;
    at[1] = (unsigned char)(value >> 8);
}

static inline void copse__put32(unsigned char *at, uint32_t value) {
    copse__put16(at, value & 0xffffu);
    copse__put16(at + 2, value >> 16);
}

static inline void copse__put64(unsigned char *at, uint64_t value) {
    copse__put32(at, (uint32_t)value);
    copse__put32(at + 4, (uint32_t)(value >> 32));
}

/* Whether multi-byte numbers in memory have the file's (little-endian) order. */
static inline int copse__host_is_little(void) {
    const uint16_t one = 1;
    return *(const unsigned char *)&one == 1;
}

#endif
