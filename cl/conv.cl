/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions without a column matrix. NHWC images, HWIO filters; copse_window gives the sizes. No padding is stored: taps
 * outside the image are left out. Reference: src/backend/host/conv.c.
 *
 * A work-item makes PIXELS neighbouring pixels x COPSE_VEC neighbouring channels; launch: one dimension, COPSE_FOR.
 */
#include "act.clh"
#include "window.clh"

#define PIXELS 6

/* sum[j] += source[from[j] + d] * filter[d * width + lane], for d < depth and the pixels whose `inside` is set */
static inline void accumulate(copse_wide *sum, global const float *restrict source,
                              const size_t *from, uint inside,
                              global const float *restrict filter, uint depth, uint width) {
    if (inside == (1u << PIXELS) - 1) {
        for (uint d = 0; d < depth; d++) {
            copse_wide v = *(global const copse_wide_any *)(filter + (size_t)d * width);
#pragma unroll
            for (uint j = 0; j < PIXELS; j++)
                sum[j] += source[from[j] + d] * v;
        }
        return;
    }
    for (uint j = 0; j < PIXELS; j++) {
        if (!(inside >> j & 1u))
            continue;
        copse_wide one = sum[j];
        for (uint d = 0; d < depth; d++)
            one += source[from[j] + d] *
                   *(global const copse_wide_any *)(filter + (size_t)d * width);
        sum[j] = one;
    }
}

/* One channel of one pixel, for the channels that fill no vector. */
static inline float single(global const float *restrict source, size_t from,
                           global const float *restrict filter, uint depth, uint width) {
    float sum = 0.0f;
    for (uint d = 0; d < depth; d++)
        sum += source[from + d] * filter[(size_t)d * width];
    return sum;
}

/* y[n,p,q,f] = act(sum_{r,s,c} x[n,h,w,c] filter[r,s,c,f] + bias[f]); items: images * p * ceil(q / PIXELS) * ceil(f / COPSE_VEC) */
kernel void conv2d_direct_f32(global const float *restrict x,
                              global const float *restrict filter,
                              global const float *restrict bias, global float *restrict y,
                              const copse_window g, ulong images, uint has_bias, uint act) {
    uint blocks = (g.f + COPSE_VEC - 1) / COPSE_VEC;
    uint strips = (g.q + PIXELS - 1) / PIXELS;
    COPSE_FOR(i, images * g.p * strips * blocks) {
        uint f0 = (uint)(i % blocks) * COPSE_VEC;
        size_t rest = i / blocks;
        uint q0 = (uint)(rest % strips) * PIXELS;
        rest /= strips;
        uint p = (uint)(rest % g.p);
        size_t image = rest / g.p;
        size_t out = ((image * g.p + p) * g.q + q0) * g.f + f0;
        if (f0 + COPSE_VEC > g.f) {
            for (uint j = 0; j < min((uint)PIXELS, g.q - q0); j++)
                for (uint f = f0; f < g.f; f++) {
                    float sum = has_bias ? bias[f] : 0.0f;
                    for (uint r = 0; r < g.r; r++) {
                        uint h = copse_tap(p, g.stride_h, r, g.dilation_h, g.pad_top);
                        for (uint s = 0; h < g.h && s < g.s; s++) {
                            uint w = copse_tap(q0 + j, g.stride_w, s, g.dilation_w,
                                               g.pad_left);
                            if (w < g.w)
                                sum += single(
                                    x, ((image * g.h + h) * g.w + w) * g.c,
                                    filter + (size_t)(r * g.s + s) * g.c * g.f + f, g.c,
                                    g.f);
                        }
                    }
                    y[out + (size_t)j * g.f + f - f0] = copse_act_1(sum, act);
                }
            continue;
        }
        copse_wide sum[PIXELS];
        copse_wide start = (copse_wide)(0.0f);
        if (has_bias)
            start = *(global const copse_wide_any *)(bias + f0);
        for (uint j = 0; j < PIXELS; j++)
            sum[j] = start;
        for (uint r = 0; r < g.r; r++) {
            uint h = copse_tap(p, g.stride_h, r, g.dilation_h, g.pad_top);
            if (h >= g.h)
                continue;
            for (uint s = 0; s < g.s; s++) {
                size_t from[PIXELS];
                uint inside = 0;
                for (uint j = 0; j < PIXELS; j++) {
                    uint w =
                        copse_tap(q0 + j, g.stride_w, s, g.dilation_w, g.pad_left);
                    from[j] = ((image * g.h + h) * g.w + w) * g.c;
                    inside |= (q0 + j < g.q && w < g.w ? 1u : 0u) << j;
                }
                accumulate(sum, x, from, inside,
                           filter + (size_t)(r * g.s + s) * g.c * g.f + f0, g.c, g.f);
            }
        }
        for (uint j = 0; j < min((uint)PIXELS, g.q - q0); j++)
            *(global copse_wide_any *)(y + out + (size_t)j * g.f) =
                copse_act_v(sum[j], act);
    }
}

/* turned[r,s,f,c] = filter[r,s,c,f]; items: taps * c * f */
kernel void conv2d_turn_filter_f32(global const float *restrict filter,
                                   global float *restrict turned, uint taps, uint c,
                                   uint f) {
    COPSE_FOR(i, (size_t)taps * c * f) {
        size_t tap = i / ((size_t)c * f), in = i % ((size_t)c * f);
        size_t to_f = in / c, to_c = in % c;
        turned[i] = filter[(tap * c + to_c) * f + to_f];
    }
}

/* dx[n,h,w,c] = sum_{r,s,f} dy[n,p,q,f] turned[r,s,f,c]; items: images * h * ceil(w / PIXELS) * ceil(c / COPSE_VEC) */
kernel void conv2d_grad_input_direct_f32(global const float *restrict dy,
                                         global const float *restrict turned,
                                         global float *restrict dx, const copse_window g,
                                         ulong images) {
    uint blocks = (g.c + COPSE_VEC - 1) / COPSE_VEC;
    uint strips = (g.w + PIXELS - 1) / PIXELS;
    COPSE_FOR(i, images * g.h * strips * blocks) {
        uint c0 = (uint)(i % blocks) * COPSE_VEC;
        size_t rest = i / blocks;
        uint w0 = (uint)(rest % strips) * PIXELS;
        rest /= strips;
        uint h = (uint)(rest % g.h);
        size_t image = rest / g.h;
        size_t out = ((image * g.h + h) * g.w + w0) * g.c + c0;
        if (c0 + COPSE_VEC > g.c) {
            for (uint j = 0; j < min((uint)PIXELS, g.w - w0); j++)
                for (uint c = c0; c < g.c; c++) {
                    float sum = 0.0f;
                    for (uint r = 0; r < g.r; r++) {
                        uint p = copse_untap(h, g.stride_h, r, g.dilation_h, g.pad_top);
                        for (uint s = 0; p < g.p && s < g.s; s++) {
                            uint q = copse_untap(w0 + j, g.stride_w, s, g.dilation_w,
                                                 g.pad_left);
                            if (q < g.q)
                                sum += single(
                                    dy, ((image * g.p + p) * g.q + q) * g.f,
                                    turned + (size_t)(r * g.s + s) * g.c * g.f + c, g.f,
                                    g.c);
                        }
                    }
                    dx[out + (size_t)j * g.c + c - c0] = sum;
                }
            continue;
        }
        copse_wide sum[PIXELS];
        for (uint j = 0; j < PIXELS; j++)
            sum[j] = (copse_wide)(0.0f);
        for (uint r = 0; r < g.r; r++) {
            uint p = copse_untap(h, g.stride_h, r, g.dilation_h, g.pad_top);
            if (p >= g.p)
                continue;
            for (uint s = 0; s < g.s; s++) {
                size_t from[PIXELS];
                uint inside = 0;
                for (uint j = 0; j < PIXELS; j++) {
                    uint q =
                        copse_untap(w0 + j, g.stride_w, s, g.dilation_w, g.pad_left);
                    from[j] = ((image * g.p + p) * g.q + q) * g.f;
                    inside |= (w0 + j < g.w && q < g.q ? 1u : 0u) << j;
                }
                accumulate(sum, dy, from, inside,
                           turned + (size_t)(r * g.s + s) * g.c * g.f + c0, g.f, g.c);
            }
        }
        for (uint j = 0; j < min((uint)PIXELS, g.w - w0); j++)
            *(global copse_wide_any *)(dx + out + (size_t)j * g.c) = sum[j];
    }
}

/* partial[part][r,s,c,f] = sum over the part's map rows of x dy. A part is a share of the images * p rows; an item is
 * CHANNELS c x COPSE_VEC f of one tap and part; items: parts * taps * ceil(c / CHANNELS) * ceil(f / COPSE_VEC). */
#define CHANNELS 6
kernel void conv2d_grad_filter_direct_f32(global const float *restrict x,
                                          global const float *restrict dy,
                                          global float *restrict partial,
                                          const copse_window g, ulong images, uint parts) {
    uint f_blocks = (g.f + COPSE_VEC - 1) / COPSE_VEC;
    uint c_blocks = (g.c + CHANNELS - 1) / CHANNELS;
    ulong rows = images * g.p;
    COPSE_FOR(i, (size_t)parts * g.r * g.s * c_blocks * f_blocks) {
        uint f0 = (uint)(i % f_blocks) * COPSE_VEC;
        size_t rest = i / f_blocks;
        uint c0 = (uint)(rest % c_blocks) * CHANNELS;
        rest /= c_blocks;
        uint s = (uint)(rest % g.s);
        rest /= g.s;
        uint r = (uint)(rest % g.r);
        ulong part = rest / g.r;
        ulong begin = rows / parts * part + min(rows % parts, part);
        ulong end = rows / parts * (part + 1) + min(rows % parts, part + 1);
        bool whole = f0 + COPSE_VEC <= g.f;
        uint lanes = whole ? COPSE_VEC : g.f - f0;
        uint channels = min((uint)CHANNELS, g.c - c0);
        size_t at[CHANNELS];
        copse_wide sum[CHANNELS];
        for (uint k = 0; k < CHANNELS; k++) {
            at[k] = min(c0 + k, g.c - 1);
            sum[k] = (copse_wide)(0.0f);
        }
        for (ulong row = begin; row < end; row++) {
            ulong image = row / g.p;
            uint h = copse_tap((uint)(row % g.p), g.stride_h, r, g.dilation_h, g.pad_top);
            if (h >= g.h)
                continue;
            global const float *line = x + (image * g.h + h) * g.w * g.c;
            global const float *slope = dy + row * g.q * g.f + f0;
            for (uint q = 0; q < g.q; q++, slope += g.f) {
                uint w = copse_tap(q, g.stride_w, s, g.dilation_w, g.pad_left);
                if (w >= g.w)
                    continue;
                copse_wide v = (copse_wide)(0.0f);
                if (whole)
                    v = *(global const copse_wide_any *)slope;
                else
                    for (uint k = 0; k < lanes; k++)
                        ((float *)&v)[k] = slope[k];
                global const float *pixel = line + (size_t)w * g.c;
#pragma unroll
                for (uint k = 0; k < CHANNELS; k++)
                    sum[k] += pixel[at[k]] * v;
            }
        }
        global float *to =
            partial + (((part * g.r + r) * g.s + s) * g.c + c0) * g.f + f0;
        for (uint k = 0; k < channels; k++) {
            if (whole)
                *(global copse_wide_any *)(to + (size_t)k * g.f) = sum[k];
            else
                for (uint l = 0; l < lanes; l++)
                    to[(size_t)k * g.f + l] = ((float *)&sum[k])[l];
        }
    }
}
