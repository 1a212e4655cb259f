/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_SHUFFLE_H
#define COPSE_DATA_SHUFFLE_H

#include <philox.clh>
#include <stddef.h>
#include <stdint.h>

/* What a stream of random numbers is for: the last word of its Philox counter, so that no
 * two uses share numbers. (Kernels use node numbers there, which are small.) */
enum {
    COPSE__DRAW_PERMUTATION = 0x50455200,
    COPSE__DRAW_BUFFER = 0x42554600,
    COPSE__DRAW_AUGMENT = 0x41554700,
    COPSE__DRAW_SYNTHETIC = 0x53594e00
};

/* 128 random bits, a pure function of the arguments. */
copse_philox4 copse__draw128(uint64_t seed, uint64_t epoch, uint64_t number,
                             uint32_t tag);

/* 64 random bits, a pure function of its arguments. */
uint64_t copse__draw64(uint64_t seed, uint64_t epoch, uint64_t number, uint32_t tag);

/* Uniform in 0..bound-1, from 64 bits; the bias is below bound / 2^64. */
static inline uint64_t copse__bounded(uint64_t bits, uint64_t bound) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)(((wide)bits * bound) >> 64);
}

/* Epoch's order of a set: fills order[0..count) with a permutation that depends on (seed,
 * epoch, count) only. Fisher and Yates' shuffle. 2.5 ms for 60,000 entries at most. */
void copse__permute(uint64_t *order, size_t count, uint64_t seed, uint64_t epoch);

#endif
