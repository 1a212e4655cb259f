/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "base/hash.h"

#define POLYNOMIAL 0x82F63B78u

/* tables[k][b]: the CRC of byte b followed by k zero bytes, so that eight bytes are
 * folded at once ("slicing by 8", Kounavis and Berry 2005). */
static uint32_t tables[8][256];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables[k][byte] =
                (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
}

static uint32_t crc_portable(uint32_t crc, const unsigned char *at, size_t bytes) {
    pthread_once(&tables_once, make_tables);
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 |
                              (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][(low >> 8) & 255] ^
              tables[5][(low >> 16) & 255] ^ tables[4][low >> 24] ^ tables[3][at[4]] ^
              tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; bytes > 0; at++, bytes--)
        crc = (crc >> 8) ^ tables[0][(crc ^ *at) & 255];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t
crc_sse42(uint32_t crc, const unsigned char *at, size_t bytes) {
    uint64_t wide = crc;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; bytes > 0; at++, bytes--)
        crc = _mm_crc32_u8(crc, *at);
    return crc;
}
#endif

uint32_t copse__crc32c(uint32_t crc, const void *data, size_t bytes) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_sse42(~crc, data, bytes);
#endif
    return ~crc_portable(~crc, data, bytes);
}
