/* SPDX-License-Identifier: Apache-2.0 */
#include "data/shuffle.h"

copse_philox4 copse__draw128(uint64_t seed, uint64_t epoch, uint64_t number,
                             uint32_t tag) {
    copse_philox4 counter = {{(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)epoch,
                              tag ^ (uint32_t)(epoch >> 32)}};
    return copse_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

uint64_t copse__draw64(uint64_t seed, uint64_t epoch, uint64_t number, uint32_t tag) {
    copse_philox4 got = copse__draw128(seed, epoch, number, tag);
    return (uint64_t)got.v[1] << 32 | got.v[0];
}

static void swap_down(uint64_t *order, size_t last, uint64_t bits) {
    size_t other = (size_t)copse__bounded(bits, (uint64_t)last + 1);
    uint64_t kept = order[last];
    order[last] = order[other];
    order[other] = kept;
}

void copse__permute(uint64_t *order, size_t count, uint64_t seed, uint64_t epoch) {
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    /* One Philox block serves two swaps. */
    for (size_t last = count; last-- > 1;) {
        copse_philox4 got = copse__draw128(seed, epoch, last, COPSE__DRAW_PERMUTATION);
        swap_down(order, last, (uint64_t)got.v[1] << 32 | got.v[0]);
        if (last == 1)
            break;
        swap_down(order, --last, (uint64_t)got.v[3] << 32 | got.v[2]);
    }
}
