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
#elif COPSE_MR % 2 == 0
#define FOLD (2 * MR)
#else
#define FOLD (4 * MR)
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
                STORE_PLACES(index + j * VW, place);
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

/* The same where sums are short, so that what surrounds them would take as long as they do: the filter's size is compiled in,
 * and a tile is one window, which is folded in registers. Stride and dilation 1, F a multiple of NR, no activation but relu,
 * which may follow the maximum, as it keeps the order. Same launch. */
#ifdef COPSE_TAP_ROWS
#define RUN (COPSE_TAP_COLUMNS * COPSE_TAP_CHANNELS) /* of the slab, and of the packed rows */

/* c[.] = bias + the sums of the window's pixels; x: its first pixel in the slab, whose lines are `line` floats. */
INLINE void window_sums(vec c[4][NV], __local const float *restrict x, int line,
                        __global const float *restrict panel,
                        __global const float *restrict bias) {
    UNROLL for (int j = 0; j < NV; j++) {
        vec z = bias ? LOAD(__global, bias + j * VW) : (vec)(0);
        UNROLL for (int i = 0; i < 4; i++) c[i][j] = z;
    }
    /* Unrolled further, neighbouring pixels would be kept in registers that there are not. */
    _Pragma("unroll 1") for (int r = 0; r < COPSE_TAP_ROWS; r++) {
        _Pragma("unroll 1") for (int s = 0; s < RUN; s += COPSE_TAP_CHANNELS) {
            __local const float *upper = x + r * line + s, *lower = upper + line;
            __global const float *bp = panel + (r * RUN + s) * NR;
            UNROLL for (int k = 0; k < COPSE_TAP_CHANNELS; k++) {
                vec a0 = (vec)(upper[k]), a1 = (vec)(upper[k + COPSE_TAP_CHANNELS]);
                vec a2 = (vec)(lower[k]), a3 = (vec)(lower[k + COPSE_TAP_CHANNELS]);
                UNROLL for (int j = 0; j < NV; j++) {
                    vec b = LOAD(__global, bp + k * NR + j * VW);
                    c[0][j] = COPSE_MULTIPLY_ADD(a0, b, c[0][j]);
                    c[1][j] = COPSE_MULTIPLY_ADD(a1, b, c[1][j]);
                    c[2][j] = COPSE_MULTIPLY_ADD(a2, b, c[2][j]);
                    c[3][j] = COPSE_MULTIPLY_ADD(a3, b, c[3][j]);
                }
            }
        }
    }
}

/* As fold_window, relu behind it: all that it makes 0 are equal, and the first of them counts. */
INLINE void fold_sums(vec c[4][NV], __global float *restrict y,
                      __global uchar *restrict index, int act) {
    vec floor = act == COPSE_ACT_RELU ? (vec)(0) : (vec)(-INFINITY);
    UNROLL for (int j = 0; j < NV; j++) {
        vec best = c[0][j];
        vec_int place = 0;
        UNROLL for (int i = 1; i < 4; i++) {
            vec_int wins = ~(c[i][j] <= best) & (best == best);
            best = wins ? c[i][j] : best;
            place = wins ? (vec_int)(i) : place;
        }
        vec_int low = best <= floor;
        STORE(__global, y + j * VW, low ? floor : best); /* a NaN stays */
        if (index)
            STORE_PLACES(index + j * VW, low ? (vec_int)(0) : place);
    }
}

__kernel ONE_ITEM void conv_pool_window_f32(copse_conv_shape g,
                                            __global const float *restrict source,
                                            __global const float *restrict packed,
                                            __global const float *restrict bias,
                                            __global float *restrict pooled,
                                            __global uchar *restrict index, int act,
                                            int has_bias, int has_index) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    axis y = axis_of(0, 1, COPSE_TAP_ROWS, 1, g.pad_top, 0);
    axis x = axis_of(0, 1, COPSE_TAP_COLUMNS, 1, g.pad_left, 0);
    int panel0 = (int)get_group_id(2) * g.group_panels;
    int panel1 = min(g.target_c / NR, panel0 + g.group_panels);
    int at = (int)get_group_id(0) * g.group_blocks;
    int end = min(at + g.group_blocks, block_count(g, g.target_h, g.target_w));

    for (; at < end; at++) {
        block b = block_at(g, at, g.target_h, g.target_w, y, x);
        int line = b.width * COPSE_TAP_CHANNELS, down = b.rows / 2;
        fill_slab(slab, source, 0, g, b, 0, COPSE_TAP_CHANNELS, COPSE_TAP_CHANNELS, 0);
        for (int p = panel0; p < panel1; p++)
            for (int l = 0; l < b.images * down; l++) {
                int n = l / down, i = l % down;
                ulong row = (ulong)(b.n0 + n) * (g.target_h / 2) + b.i0 / 2 + i;
                ulong to = (row * (g.target_w / 2) + b.j0 / 2) * g.target_c + p * NR;
                __local const float *from = slab + (n * b.height + 2 * i) * line;
                for (int j = 0; j < b.columns / 2; j++) {
                    vec c[4][NV];
                    window_sums(c, from + 2 * j * COPSE_TAP_CHANNELS, line,
                                packed + (ulong)p * COPSE_TAP_ROWS * RUN * NR,
                                has_bias ? bias + p * NR : 0);
                    fold_sums(c, pooled + to, has_index ? index + to : 0, act);
                    to += g.target_c;
                }
            }
    }
}
#endif

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

/* The same for filters of 3 x 3 with stride 1, without the zeros: for one row of the filter and one channel, what any of a
 * window's four pixels meets are eight numbers, four of each of two rows; every filter picks its own out of one vector
 * by the place of its maximum. A quarter of the multiplications of the kernel above, as many permutations. Channels lie
 * apart in the slab: [channel][image][height][width]; F is a multiple of VW. Same launch. */
#if COPSE_VW == 8
#if defined(__clang__) && defined(__AVX2__)
#define PICK(t, i) __builtin_ia32_permvarsf256(t, i)
#else
#define PICK(t, i) shuffle(t, as_uint8(i))
#endif

/* Returns floats from one plane to the next. */
INLINE int fill_planes(__local float *restrict slab, __global const float *restrict source,
                       copse_conv_shape g, block b, int c0, int channels) {
    int x0 = clamp(b.left, 0, g.source_w), x1 = clamp(b.left + b.width, x0, g.source_w);
    int plane = b.images * b.height * b.width;
    for (int n = 0; n < b.images; n++)
        for (int h = 0; h < b.height; h++) {
            int sy = b.top + h;
            bool inside = sy >= 0 && sy < g.source_h && x0 < x1;
            ulong line = ((ulong)(b.n0 + n) * g.source_h + (inside ? sy : 0)) * g.source_w;
            for (int c = 0; c < channels; c++) {
                __local float *to = slab + c * plane + (n * b.height + h) * b.width;
                if (!inside) {
                    zero_run(to, b.width);
                    continue;
                }
                __global const float *from = source + (line + x0) * g.source_c + c0 + c;
                zero_run(to, x0 - b.left);
                for (int x = 0; x < x1 - x0; x++)
                    to[x0 - b.left + x] = from[x * g.source_c];
                zero_run(to + x1 - b.left, b.left + b.width - x1);
            }
        }
    return plane;
}

/* One channel and VW filters over a block's windows: acc[tap] += dy * x, each filter at its own pixel. */
INLINE void add_sparse(vec acc[9], __local const float *plane, copse_conv_shape g, block b,
                       __global const float *restrict dy,
                       __global const uchar *restrict index) {
    for (int l = 0; l < b.images * (b.rows / 2); l++) {
        int n = l / (b.rows / 2), i = l % (b.rows / 2);
        __local const float *x = plane + (n * b.height + 2 * i) * b.width;
        ulong row = (ulong)(b.n0 + n) * (g.target_h / 2) + b.i0 / 2 + i;
        ulong at = (row * (g.target_w / 2) + b.j0 / 2) * g.target_c;
        for (int j = 0; j < b.columns / 2; j++, x += 2, at += g.target_c) {
            vec v = LOAD(__global, dy + at);
            vec_int place = LOAD_PLACES(index + at);
            vec_int pick = (place & 1) + ((place & 2) << 1);
            float4 r[4];
            UNROLL for (int k = 0; k < 4; k++) r[k] = vload4(0, x + k * b.width);
            UNROLL for (int k = 0; k < 3; k++) {
                vec t = (vec)(r[k], r[k + 1]);
                UNROLL for (int s = 0; s < 3; s++)
                    acc[k * 3 + s] =
                        COPSE_MULTIPLY_ADD(v, PICK(t, pick + s), acc[k * 3 + s]);
            }
        }
    }
}

__kernel ONE_ITEM void conv_pool_sparse_grad_filter_f32(
    copse_conv_shape g, __global const float *restrict source,
    __global const float *restrict dy, __global const uchar *restrict index,
    __global float *restrict part, __global float *restrict sums, int has_sums) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    int c0 = (int)get_group_id(1) * g.channels, channels = min(g.channels, g.source_c - c0);
    axis y = axis_of(0, 1, 3, 1, g.pad_top, 0), x = axis_of(0, 1, 3, 1, g.pad_left, 0);
    int f0 = (int)get_group_id(2) * g.group_panels * NR;
    int f1 = min(g.target_c, f0 + g.group_panels * NR), first = 1;
    int at = (int)get_group_id(0) * g.group_blocks;
    int end = min(at + g.group_blocks, block_count(g, g.target_h, g.target_w));
    part += (ulong)get_group_id(0) * 9 * g.source_c * g.target_c;
    sums += get_group_id(0) * g.target_c;
    do {
        block b = {0};
        int plane = 0;
        if (at < end) {
            b = block_at(g, at, g.target_h, g.target_w, y, x);
            plane = fill_planes(slab, source, g, b, c0, channels);
        }
        for (int f = f0; f < f1; f += VW)
            for (int c = 0; c < channels; c++) {
                vec acc[9];
                __global float *to = part + (size_t)(c0 + c) * g.target_c + f;
                size_t tap = (size_t)g.source_c * g.target_c;
                UNROLL for (int k = 0; k < 9; k++) acc[k] =
                    first ? (vec)(0) : LOAD(__global, to + k * tap);
                if (at < end)
                    add_sparse(acc, slab + c * plane, g, b, dy + f, index + f);
                UNROLL for (int k = 0; k < 9; k++) STORE(__global, to + k * tap, acc[k]);
            }
        if (has_sums && c0 == 0)
            add_pooled(sums, dy, g, b, f0, f1 - f0, first);
        first = 0;
    } while (++at < end);
}
#endif

#include "packed_sum.clh"
