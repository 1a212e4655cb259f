/* SPDX-License-Identifier: Apache-2.0
 *
 * What the commit of a step asks of flat buffers, as partial results that a second kernel or the host adds up.
 */
#include "common.clh"
#include "hash.clh"

/* How many of this item's share of n elements are not finite. */
static inline uint count_share(global const float *restrict g, ulong n) {
    uint count = 0;
    size_t parts = get_global_size(0), part = get_global_id(0);
#ifdef COPSE_CHUNKED
    COPSE_WIDE_INT found = (COPSE_WIDE_INT)(0);
    global const COPSE_WIDE_INT *bits = (global const COPSE_WIDE_INT *)g;
    COPSE_FOR(i, n / COPSE_VEC) {
        found -= (bits[i] & 0x7f800000) == 0x7f800000;
    }
    for (uint k = 0; k < COPSE_VEC; k++)
        count += (uint)((int *)&found)[k];
    if (part == 0)
        for (size_t i = n / COPSE_VEC * COPSE_VEC; i < n; i++)
            count += (as_uint(g[i]) & 0x7f800000u) == 0x7f800000u;
#else
    for (size_t i = part; i < n; i += parts)
        count += (as_uint(g[i]) & 0x7f800000u) == 0x7f800000u;
#endif
    return count;
}

/* partial[p] = how many of part p's elements are not finite; parts = get_global_size(0). */
kernel void count_not_finite_f32(global const float *restrict g, global uint *restrict partial,
                                 ulong n) {
    partial[get_global_id(0)] = count_share(g, n);
}

/* total[0] grows by the elements that are not finite, to at most 2^32 - 1. Any launch that COPSE_FOR over n / COPSE_VEC can
 * have. An item with nothing to tell touches no memory. */
kernel void add_not_finite_f32(global const float *restrict g, global uint *total, ulong n) {
    uint count = count_share(g, n);
    if (count == 0)
        return;
    uint seen, now = 0; /* a guess: only atomic operations look at it */
    do {
        seen = now;
        now = atomic_cmpxchg(total, seen, add_sat(seen, count));
    } while (now != seen);
}

/* total[0] = before[0] and the sum of parts counts, at most 2^32 - 1; total may be before. One work-item. */
kernel void sum_counts_u32(global const uint *restrict partial, global const uint *before,
                           global uint *total, uint parts) {
    uint sum = before[0];
    for (uint i = 0; i < parts; i++)
        sum = add_sat(sum, partial[i]);
    total[0] = sum;
}

/* partial[p] = sum modulo 2^64 of the mixed elements p, p + 256, …; get_global_size(0) = 256 parts, or where chunked
 * the p-th of 256 ranges: the sum over all parts is the same. */
kernel void hash_u64(global const uint *restrict w, global ulong *restrict partial, ulong n,
                     ulong base) {
    ulong sum = 0;
    COPSE_FOR(i, n) {
        sum += copse_hash_mix(base + i, w[i]);
    }
    partial[get_global_id(0)] = sum;
}
