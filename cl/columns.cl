/* SPDX-License-Identifier: Apache-2.0
 *
 * Images as the matrix whose product with a filter is a convolution: columns[(n,p,q), (r,s,c)] holds the image element
 * under tap (r, s) of map place (p, q), 0 outside the image. Images [first, first + images) are meant; n counts from
 * first in columns, from 0 in the tensors. Launch: one dimension, COPSE_FOR.
 */
#include "common.clh"
#include "window.clh"

/* items: images * p * q * taps where chunked, else images * p * q * taps * c */
kernel void columns_from_image_f32(global const float *restrict x,
                                   global float *restrict columns, const copse_window g,
                                   ulong first, ulong images) {
    uint taps = g.r * g.s;
#ifdef COPSE_CHUNKED
    uint width = 1;
#else
    uint width = g.c;
#endif
    COPSE_FOR(i, images * g.p * g.q * taps * width) {
        size_t rest = i / width;
        uint c0 = (uint)(i % width);
        uint tap = (uint)(rest % taps);
        rest /= taps;
        uint q = (uint)(rest % g.q);
        rest /= g.q;
        uint p = (uint)(rest % g.p);
        size_t image = first + rest / g.p;
        uint h = copse_tap(p, g.stride_h, tap / g.s, g.dilation_h, g.pad_top);
        uint w = copse_tap(q, g.stride_w, tap % g.s, g.dilation_w, g.pad_left);
        bool inside = h < g.h && w < g.w;
        size_t from = ((image * g.h + (inside ? h : 0)) * g.w + (inside ? w : 0)) * g.c;
        size_t to = i / width * g.c;
        for (uint c = c0; c < g.c; c += width)
            columns[to + c] = inside ? x[from + c] : 0.0f;
    }
}

/* dx[n,h,w,c] = sum over the taps, in order of p, then q, of columns at the places that read it; items: images * h * w where
 * chunked, else images * h * w * c */
kernel void image_from_columns_f32(global const float *restrict columns,
                                   global float *restrict dx, const copse_window g,
                                   ulong first, ulong images) {
    uint taps = g.r * g.s;
#ifdef COPSE_CHUNKED
    uint width = 1;
#else
    uint width = g.c;
#endif
    COPSE_FOR(i, images * g.h * g.w * width) {
        size_t rest = i / width;
        uint c0 = (uint)(i % width);
        uint w = (uint)(rest % g.w);
        rest /= g.w;
        uint h = (uint)(rest % g.h);
        size_t image = rest / g.h;
        global float *to = dx + (((first + image) * g.h + h) * g.w + w) * g.c;
        for (uint c = c0; c < g.c; c += width) {
            float sum = 0.0f;
            for (uint r = g.r; r-- > 0;) {
                uint p = copse_untap(h, g.stride_h, r, g.dilation_h, g.pad_top);
                for (uint s = g.s; p < g.p && s-- > 0;) {
                    uint q = copse_untap(w, g.stride_w, s, g.dilation_w, g.pad_left);
                    if (q < g.q)
                        sum += columns[(((image * g.p + p) * g.q + q) * taps + r * g.s +
                                        s) * g.c + c];
                }
            }
            to[c] = sum;
        }
    }
}
