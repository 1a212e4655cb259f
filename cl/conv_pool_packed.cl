/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions whose map is pooled by 2 x 2 at once, and their gradients, by cl/conv_packed.clh. The map is never
 * written: neither forward, nor as the gradient in it, three quarters of which are zeros. Sizes in g are those of the
 * map; pooling sees all of it, so that its height and width are even, and so are those of a block. Must equal the
 * host's conv2d_max_pool, …_grad_input and …_grad_filter within the tolerance of a float sum.
 */
#include "conv_packed.clh"

/* Tiles are kept until they hold whole windows of four pixels. */
#if COPSE_MR % 4 == 0
#define FOLD MR
#else
#define FOLD (2 * MR)
#endif

/* Rows of the tile with bias and activation, to[MR][NR]. */
INLINE void keep_tile(vec c[MR][NV], __local float *to, int columns,
                      __global const float *restrict bias, int act) {
    vec z[NV];
    UNROLL for (int j = 0; j < NV; j++) z[j] = 0;
    if (bias && columns >= NR)
        UNROLL for (int j = 0; j < NV; j++) z[j] = LOAD(__global, bias + j * VW);
    vec floor = act == COPSE_ACT_RELU && columns >= NR ? (vec)(0) : (vec)(-INFINITY);
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++) {
        vec v = c[i][j] + z[j];
        STORE(__local, to + i * NR + j * VW, v <= floor ? floor : v); /* a NaN stays */
    }
    if (columns >= NR && act <= COPSE_ACT_RELU)
        return;
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < min(columns, NR); j++) {
            float v = to[i * NR + j];
            if (bias && columns < NR)
                v += bias[j];
            to[i * NR + j] = copse_act_1(v, (uint)act);
        }
}

/* The first largest of the four rows from[4][NR], a NaN being larger than any number, to y[0..columns), and
 * which it was to index (may be null). */
INLINE void fold_window(__local const float *from, int columns, __global float *restrict y,
                        __global uchar *restrict index) {
    if (columns >= NR) {
        UNROLL for (int j = 0; j < NV; j++) {
            vec best = LOAD(__local, from + j * VW);
            vec_int place = 0;
            UNROLL for (int i = 1; i < 4; i++) {
                vec v = LOAD(__local, from + i * NR + j * VW);
                vec_int wins = ~(v <= best) & (best == best);
                best = wins ? v : best;
                place = wins ? (vec_int)(i) : place;
            }
            STORE(__global, y + j * VW, best);
            if (index)
                COPSE_JOIN(vstore, COPSE_VW)
                (COPSE_JOIN(convert_uchar, COPSE_VW)(place), j, index);
        }
        return;
    }
    for (int j = 0; j < columns; j++) {
        float best = from[j];
        int place = 0;
        for (int i = 1; i < 4; i++) {
            float v = from[i * NR + j];
            if (!(v <= best) && !isnan(best)) {
                best = v;
                place = i;
            }
        }
        y[j] = best;
        if (index)
            index[j] = (uchar)place;
    }
}

/* pooled = max_pool(act(gather(source) * packed + bias)), index: the maxima's places. g.channels is all of source_c.
 * Launch: groups of one item, (ceil(blocks / group_blocks), 1, ceil(panels / group_panels)). */
__kernel ONE_ITEM void conv_pool_packed_f32(copse_conv_shape g,
                                            __global const float *restrict source,
                                            __global const float *restrict packed,
                                            __global const float *restrict bias,
                                            __global float *restrict pooled,
                                            __global uchar *restrict index, int act,
                                            int has_bias, int has_index) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    __local float fold[FOLD * NR] __attribute__((aligned(64)));
    __local int pixel_slab[COPSE_PIXELS + MR], window_target[COPSE_PIXELS / 4];
    axis y = axis_of(0, 1, g.kernel_h, g.dilation_h, g.pad_top, 0);
    axis x = axis_of(0, 1, g.kernel_w, g.dilation_w, g.pad_left, 0);
    int taps = g.kernel_h * g.kernel_w, channels = g.source_c;
    ulong panel_pitch = (ulong)taps * channels * NR;
    int panels = ceil_div(g.target_c, NR), panel0 = (int)get_group_id(2) * g.group_panels;
    int panel1 = min(panels, panel0 + g.group_panels);
    int at = (int)get_group_id(0) * g.group_blocks;
    int end = min(at + g.group_blocks, block_count(g, g.target_h, g.target_w));
    /* Neighbouring taps of a row are one run of the slab and of the packed rows. */
    int merged = x.rise == 1 ? x.count : 1, runs = x.count / merged;
    int segments = y.count * runs, length = merged * channels;
    int images_of = -1, rows_of = -1, columns_of = -1, pixels = 0;

    for (; at < end; at++) {
        block b = block_at(g, at, g.target_h, g.target_w, y, x);
        if (b.images != images_of || b.rows != rows_of || b.columns != columns_of) {
            images_of = b.images, rows_of = b.rows, columns_of = b.columns, pixels = 0;
            for (int n = 0; n < b.images; n++)
                for (int i = 0; i < b.rows; i += 2)
                    for (int j = 0; j < b.columns; j += 2) {
                        window_target[pixels / 4] =
                            (n * (g.target_h / 2) + i / 2) * (g.target_w / 2) + j / 2;
                        for (int p = 0; p < 4; p++, pixels++)
                            pixel_slab[pixels] =
                                ((n * b.height + (i + p / 2) * g.step_h) * b.width +
                                 (j + p % 2) * g.step_w) *
                                channels;
                    }
            for (int i = 0; i < MR; i++) /* an edge tile repeats the last pixel */
                pixel_slab[pixels + i] = pixel_slab[pixels - 1];
        }
        ulong first = ((ulong)b.n0 * (g.target_h / 2) + b.i0 / 2) * (g.target_w / 2) +
                      b.j0 / 2;
        fill_slab(slab, source, 0, g, b, 0, channels, channels, 0);
        for (int p = panel0; p < panel1; p++) {
            __global const float *panel = packed + p * panel_pitch;
            int columns = g.target_c - p * NR;
            for (int t = 0; t < pixels; t += MR) {
                vec c[MR][NV];
                __local const float *from[MR];
                UNROLL for (int i = 0; i < MR; i++) from[i] = slab + pixel_slab[t + i];
                tile_zero(c);
                __global const float *bp = panel;
                for (int s = 0; s < segments; s++, bp += length * NR) {
                    int slab_at =
                        (s / runs * y.rise * b.width + s % runs * x.rise) * channels;
                    UNROLL_4 for (int k = 0; k < length; k++)
                        COPSE_TILE_STEP(c, from[i][slab_at + k], __global, bp + k * NR)
                }
                keep_tile(c, fold + t % FOLD * NR, columns, has_bias ? bias + p * NR : 0,
                          act);
                if ((t + MR) % FOLD != 0 && t + MR < pixels)
                    continue;
                int w0 = t / FOLD * FOLD / 4, w1 = min(pixels / 4, w0 + FOLD / 4);
                for (int w = w0; w < w1; w++) {
                    ulong to = (first + window_target[w]) * g.target_c + p * NR;
                    fold_window(fold + (w - w0) * 4 * NR, columns, pooled + to,
                                has_index ? index + to : 0);
                }
            }
        }
    }
}

/* target = the gradient in the convolution's input; source and index are pooled. Launch: as conv_packed_f32. */
__kernel ONE_ITEM void conv_pool_packed_grad_input_f32(
    copse_conv_shape g, __global const float *restrict source,
    __global const uchar *restrict index, __global const float *restrict packed,
    __global float *restrict target) {
    COPSE_TABLES(t);
    convolve(g, t, source, index, 1, packed, 0, target, COPSE_ACT_NONE, 0);
}

/* part[z][R,S,C,F] and, where has_sums, sums[z][F] of dy. Launch: as conv_packed_grad_filter_f32; packed_sum_f32 adds
 * the splits in their order. */
__kernel ONE_ITEM void conv_pool_packed_grad_filter_f32(
    copse_conv_shape g, __global const float *restrict source,
    __global const float *restrict dy, __global const uchar *restrict index,
    __global float *restrict part, __global float *restrict sums, int has_sums) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    __local float panels[COPSE_PANELS] __attribute__((aligned(64)));
    correlate(g, slab, panels, source, dy, index, 1, part, has_sums ? sums : 0);
}

#include "packed_sum.clh"
