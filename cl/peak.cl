/* SPDX-License-Identifier: Apache-2.0
 *
 * The multiply-adds that a device can do when nothing but its registers takes part: what "% of peak" is of.
 * Each item runs CHAINS independent chains of `rounds` fused multiply-adds on vectors of WIDTH floats, so
 * 2 * CHAINS * WIDTH * rounds floating-point operations. x = x a + b converges to b / (1 - a).
 */
#ifndef WIDTH
#define WIDTH 1
#endif
#define CHAINS 12
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#if WIDTH == 1
typedef float vec;
#else
typedef JOIN(float, WIDTH) vec;
#endif

__kernel void peak_f32(__global float *out, float a, float b, uint rounds) {
    vec x[CHAINS], sum = (vec)(0.0f);
    _Pragma("unroll") for (int i = 0; i < CHAINS; i++)
        x[i] = (vec)((float)get_global_id(0) + (float)i);
    for (uint r = 0; r < rounds; r++)
        _Pragma("unroll") for (int i = 0; i < CHAINS; i++)
            x[i] = fma(x[i], (vec)(a), (vec)(b));
    _Pragma("unroll") for (int i = 0; i < CHAINS; i++) sum += x[i];
#if WIDTH == 1
    out[get_global_id(0)] = sum;
#else
    float total = 0;
    for (int i = 0; i < WIDTH; i++)
        total += ((const float *)&sum)[i];
    out[get_global_id(0)] = total;
#endif
}
