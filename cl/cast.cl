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
#define LOAD(i) narrow(x[i])
/* The bits of a double to the nearest float, ties to even. */
static inline float narrow(ulong bits) {
    uint sign = (uint)(bits >> 32) & 0x80000000u;
    int field = (int)(bits >> 52) & 0x7ff;
    ulong fraction = bits & 0xfffffffffffffUL;
    if (field == 0x7ff)
        return as_float(sign | 0x7f800000u | (fraction ? 0x400000u : 0u));
    int exponent = field - 1023 + 127;
    if (exponent >= 255)
        return as_float(sign | 0x7f800000u);
    if (exponent < -24 || field == 0)
        return as_float(sign);
    ulong mantissa = fraction | 0x10000000000000UL;
    uint drop = exponent > 0 ? 29u : (uint)(30 - exponent);
    ulong kept = mantissa >> drop;
    ulong rest = mantissa & (((ulong)1 << drop) - 1), middle = (ulong)1 << (drop - 1);
    if (rest > middle || (rest == middle && (kept & 1)))
        kept++;
    return as_float(sign | (uint)((exponent > 0 ? (ulong)(exponent - 1) << 23 : 0) + kept));
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
