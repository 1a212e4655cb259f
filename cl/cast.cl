/* SPDX-License-Identifier: Apache-2.0
 *
 * y = (float)x * scale + offset, built once for each source type: COPSE_FROM is its OpenCL name, COPSE_FROM_F16 and
 * COPSE_FROM_F64 (taken apart as bits by devices without 64-bit floats) stand for those that are no arithmetic type everywhere.
 * Launch: one dimension, COPSE_FOR over n. No fused multiply-add: the same bits on all devices.
 */
#include "common.clh"

#pragma OPENCL FP_CONTRACT OFF

#if defined(COPSE_FROM_F16)
#define TYPE half
#define LOAD(i) vload_half(i, x)
#elif defined(COPSE_FROM_F64) && defined(COPSE_HAS_FP64)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TYPE double
/* scaled before it is narrowed: what a float cannot hold may fit afterwards */
#define SCALED(i) ((float)(x[i] * (double)scale + (double)offset))
#elif defined(COPSE_FROM_F64)
#define TYPE ulong
#define SCALED(i) (narrow(x[i], scale) + offset)
/* The double of these bits times scale. Its significand alone is rounded to a float, ties to even, so that what a
 * float cannot hold may fit once it is scaled. */
static inline float narrow(ulong bits, float scale) {
    int field = (int)(bits >> 52) & 0x7ff;
    ulong fraction = bits & 0xfffffffffffffUL;
    uint sign = (uint)(bits >> 32) & 0x80000000u;
    if (field == 0x7ff)
        return as_float(sign | 0x7f800000u | (fraction ? 0x400000u : 0u)) * scale;
    if (field == 0)
        return as_float(sign) * scale;
    uint kept = (uint)(fraction >> 29);
    uint rest = (uint)fraction & 0x1fffffffu;
    if (rest > 0x10000000u || (rest == 0x10000000u && (kept & 1u)))
        kept++;
    /* in [1, 2]: a carry makes it 2 */
    float significand = as_float((sign | 0x3f800000u) + kept);
    return ldexp(significand * scale, field - 1023);
}
#else
#define TYPE COPSE_FROM
#define LOAD(i) ((float)x[i])
#endif

#ifndef SCALED
#define SCALED(i) (LOAD(i) * scale + offset)
#endif

kernel void cast_f32(global const TYPE *restrict x, global float *restrict y, ulong n,
                     float scale, float offset) {
#ifdef COPSE_CHUNKED
#pragma clang loop vectorize(enable)
#endif
    COPSE_FOR(i, n) {
        y[i] = SCALED(i);
    }
}
