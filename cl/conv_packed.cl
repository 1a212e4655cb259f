/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions as implicit matrix products, on devices whose work-group of one item is one core. A group copies
 * the source rows that a block of target pixels needs into local memory, with the padding as zeros (the
 * slab), and multiplies straight from there: row i of a register tile is a pixel, so its A is slab[offset of the
 * pixel + offset of the tap + channel], and no patch is ever written out. Layouts are NHWC and HWIO. Must equal the
 * host's conv2d, conv2d_grad_input and conv2d_grad_filter within the tolerance of a float sum.
 */
#include "conv_shape.clh"
#include "packed.clh"

#ifndef COPSE_SLAB
#define COPSE_SLAB 32768 /* floats of source in local memory */
#endif
#ifndef COPSE_PIXELS
#define COPSE_PIXELS 1024 /* target pixels of a block */
#endif
#ifndef COPSE_PANELS
#define COPSE_PANELS 16384 /* floats of packed dy in local memory (filter's gradient) */
#endif
#define COPSE_TAPS 256 /* kernel_h * kernel_w, at most */

COPSE_PACK_B(global, __global)
COPSE_PACK_B(local, __local)

/* The taps of one axis that belong to phase `at`, in the order of rising offsets. */
typedef struct axis {
    int count, first, offset, stride; /* tap t: index first + t * stride, */
    int rise;                         /* its offset: offset + t * rise */
} axis;

INLINE axis axis_of(int at, int phase, int kernel_size, int dilation, int pad,
                    int backward) {
    axis x = {kernel_size, 0, -pad, 1, dilation};
    if (!backward)
        return x;
    x.count = 0;
    int last = -1, before = -1;
    for (int r = 0; r < kernel_size; r++)
        if ((at + pad - r * dilation) % phase == 0) {
            before = last;
            last = r;
            x.count++;
        }
    x.first = last;
    x.stride = before < 0 ? -1 : before - last;
    x.offset = (at + pad - last * dilation) / phase; /* whole: no rounding */
    x.rise = before < 0 ? 1 : (last - before) * dilation / phase;
    return x;
}

/* Position of tap index s among all taps when they are sorted by phase, then by rising offset. */
INLINE int slot_of(int s, copse_conv_shape g) {
    if (!g.backward)
        return s;
    int slot = 0;
    for (int b = 0; b < g.phase_w; b++) {
        axis x = axis_of(b, g.phase_w, g.kernel_w, g.dilation_w, g.pad_left, 1);
        for (int t = 0; t < x.count; t++, slot++)
            if (x.first + t * x.stride == s)
                return slot;
    }
    return slot;
}

/* w[R,S,C,F] into panels [panel][slab's channels][r][slot of s][channel][NR], K = R * S * (source's channels)
 * rows a panel; for the input's gradient source channels are F and target channels C.
 * Launch: groups of one item, (R * S, ceil(source_c / channels)). */
__kernel ONE_ITEM void conv_pack_f32(copse_conv_shape g, __global const float *restrict w,
                                     __global float *restrict packed) {
    int tap = (int)get_group_id(0), r = tap / g.kernel_w, s = tap % g.kernel_w;
    int c0 = (int)get_group_id(1) * g.channels;
    int channels = min(g.channels, g.source_c - c0), taps = g.kernel_h * g.kernel_w;
    ulong pitch = (ulong)taps * g.source_c * NR;
    ulong row = (ulong)c0 * taps + (ulong)(r * g.kernel_w + slot_of(s, g)) * channels;
    ulong tap_at = (ulong)tap * g.source_c * g.target_c;
    if (g.backward)
        pack_b_columns_global(packed + row * NR, pitch, w + tap_at + c0, g.source_c,
                              g.target_c, channels);
    else
        pack_b_rows_global(packed + row * NR, pitch, w + tap_at + (ulong)c0 * g.target_c,
                           g.target_c, g.target_c, channels);
}

/* A block: images [n0, n0 + images) x rows [i0, i0 + rows) x columns [j0, j0 + columns) of one phase's target
 * pixels; and where its slab begins in the source. */
typedef struct block {
    int n0, i0, j0, images, rows, columns;
    int top, left, height, width;
} block;

INLINE int ceil_div(int a, int b) {
    return (a + b - 1) / b;
}

INLINE int block_count(copse_conv_shape g, int rows, int columns) {
    return ceil_div(g.images, g.block_images) * ceil_div(rows, g.block_rows) *
           ceil_div(columns, g.block_columns);
}

INLINE block block_at(copse_conv_shape g, int index, int rows, int columns, axis y,
                      axis x) {
    block b;
    int across = ceil_div(columns, g.block_columns), down = ceil_div(rows, g.block_rows);
    b.j0 = index % across * g.block_columns;
    b.i0 = index / across % down * g.block_rows;
    b.n0 = index / across / down * g.block_images;
    b.images = min(g.block_images, g.images - b.n0);
    b.rows = min(g.block_rows, rows - b.i0);
    b.columns = min(g.block_columns, columns - b.j0);
    b.top = b.i0 * g.step_h + y.offset;
    b.left = b.j0 * g.step_w + x.offset;
    b.height = (b.rows - 1) * g.step_h + max(0, y.count - 1) * y.rise + 1;
    b.width = (b.columns - 1) * g.step_w + max(0, x.count - 1) * x.rise + 1;
    return b;
}

/* slab[image][height][width][pitch] from source[.., c0 .. c0 + channels), zeros outside the image. */
INLINE void fill_slab(__local float *restrict slab, __global const float *restrict source,
                      copse_conv_shape g, block b, int c0, int channels, int pitch) {
    int x0 = clamp(b.left, 0, g.source_w), x1 = clamp(b.left + b.width, x0, g.source_w);
    for (int n = 0; n < b.images; n++)
        for (int h = 0; h < b.height; h++) {
            __local float *to = slab + (n * b.height + h) * b.width * pitch;
            int sy = b.top + h;
            if (sy < 0 || sy >= g.source_h || x0 >= x1) {
                zero_run(to, b.width * pitch);
                continue;
            }
            __global const float *from =
                source +
                (((ulong)(b.n0 + n) * g.source_h + sy) * g.source_w + x0) * g.source_c +
                c0;
            zero_run(to, (x0 - b.left) * pitch);
            to += (x0 - b.left) * pitch;
            if (pitch == g.source_c)
                copy_run(to, from, (x1 - x0) * channels);
            else
                for (int x = 0; x < x1 - x0; x++)
                    copy_run(to + x * pitch, from + (ulong)x * g.source_c, channels);
            zero_run(to + (x1 - x0) * pitch, (b.left + b.width - x1) * pitch);
        }
}

/* target = act(gather(source) * packed + bias). Launch: groups of one item, (ceil(blocks / group_blocks),
 * phases, ceil(panels / group_panels)), blocks of the largest phase. */
__kernel ONE_ITEM void conv_packed_f32(copse_conv_shape g,
                                       __global const float *restrict source,
                                       __global const float *restrict packed,
                                       __global const float *restrict bias,
                                       __global float *restrict target, int act,
                                       int has_bias) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    __local int pixel_slab[COPSE_PIXELS + MR], pixel_target[COPSE_PIXELS + MR];
    __local int segment_slab[COPSE_TAPS], segment_row[COPSE_TAPS];
    int a = (int)get_group_id(1) / g.phase_w, b0 = (int)get_group_id(1) % g.phase_w;
    axis y = axis_of(a, g.phase_h, g.kernel_h, g.dilation_h, g.pad_top, g.backward);
    axis x = axis_of(b0, g.phase_w, g.kernel_w, g.dilation_w, g.pad_left, g.backward);
    int rows = ceil_div(max(0, g.target_h - a), g.phase_h);
    int columns = ceil_div(max(0, g.target_w - b0), g.phase_w);
    int taps = g.kernel_h * g.kernel_w;
    ulong panel_pitch = (ulong)taps * g.source_c * NR;
    int panels = ceil_div(g.target_c, NR), panel0 = (int)get_group_id(2) * g.group_panels;
    int panel1 = min(panels, panel0 + g.group_panels);
    int index = (int)get_group_id(0) * g.group_blocks;
    int end = min(index + g.group_blocks, block_count(g, rows, columns));
    int slot0 = x.count ? slot_of(x.first, g) : 0;
    int images_of = -1, rows_of = -1, columns_of = -1, pixels = 0;

    for (; index < end; index++) {
        block b = block_at(g, index, rows, columns, y, x);
        if (b.images != images_of || b.rows != rows_of || b.columns != columns_of) {
            images_of = b.images, rows_of = b.rows, columns_of = b.columns, pixels = 0;
            for (int n = 0; n < b.images; n++)
                for (int i = 0; i < b.rows; i++)
                    for (int j = 0; j < b.columns; j++, pixels++) {
                        pixel_slab[pixels] =
                            (n * b.height + i * g.step_h) * b.width + j * g.step_w;
                        pixel_target[pixels] =
                            (n * g.target_h + i * g.phase_h) * g.target_w + j * g.phase_w;
                    }
            for (int i = 0; i < MR; i++) { /* an edge tile repeats the last pixel */
                pixel_slab[pixels + i] = pixel_slab[pixels - 1];
                pixel_target[pixels + i] = pixel_target[pixels - 1];
            }
        }
        __global float *out =
            target + (((ulong)b.n0 * g.target_h + b.i0 * g.phase_h + a) * g.target_w +
                      b.j0 * g.phase_w + b0) *
                         g.target_c;
        for (int c0 = 0; c0 < g.source_c; c0 += g.channels) {
            int channels = min(g.channels, g.source_c - c0);
            /* Neighbouring taps of a row are one run of the slab and of the packed rows. */
            int merged = x.rise == 1 && x.count * channels <= KC ? max(1, x.count) : 1;
            int runs = x.count / merged, segments = y.count * runs;
            int length = merged * channels, pass = max(1, KC / length);
            for (int s = 0; s < segments; s++) {
                int ty = s / runs, tx = s % runs;
                segment_slab[s] = (ty * y.rise * b.width + tx * x.rise) * channels;
                segment_row[s] =
                    c0 * taps +
                    ((y.first + ty * y.stride) * g.kernel_w + slot0 + tx) * channels;
            }
            fill_slab(slab, source, g, b, c0, channels, channels);
            int s0 = 0;
            do {
                int s1 = min(segments, s0 + pass);
                int first = c0 == 0 && s0 == 0;
                int last = c0 + channels >= g.source_c && s1 == segments;
                for (int p = panel0; p < panel1; p++) {
                    __global const float *panel = packed + p * panel_pitch;
                    for (int t = 0; t < pixels; t += MR) {
                        vec c[MR][NV];
                        size_t at[MR];
                        __local const float *from[MR];
                        __global float *to = out + p * NR;
                        UNROLL for (int i = 0; i < MR; i++) {
                            at[i] = (size_t)pixel_target[t + i] * g.target_c;
                            from[i] = slab + pixel_slab[t + i] * channels;
                        }
                        tile_zero(c);
                        for (int s = s0; s < s1; s++) {
                            int slab_at = segment_slab[s];
                            __global const float *bp = panel + (size_t)segment_row[s] * NR;
                            UNROLL_4 for (int k = 0; k < length; k++)
                                COPSE_TILE_STEP(c, from[i][slab_at + k], __global,
                                                bp + k * NR)
                        }
                        tile_out(c, to, at, pixels - t, g.target_c - p * NR, first, last,
                                 has_bias ? bias + p * NR : 0, act);
                    }
                }
                s0 = s1;
            } while (s0 < segments);
        }
    }
}

/* dw[R,S,C,F] = sum over dy's pixels of patch(x) * dy; source is x, target dy. Launch: groups of one item,
 * (splits, ceil(C / channels), ceil(panels / group_panels)): split z sums its group_blocks blocks into
 * part[z][R,S,C,F]; packed_sum_f32 adds the splits in their order. A split without blocks writes zeros. */
__kernel ONE_ITEM void conv_packed_grad_filter_f32(copse_conv_shape g,
                                                   __global const float *restrict source,
                                                   __global const float *restrict dy,
                                                   __global float *restrict part) {
    __local float slab[COPSE_SLAB] __attribute__((aligned(64)));
    __local float panels[COPSE_PANELS] __attribute__((aligned(64)));
    int c0 = (int)get_group_id(1) * g.channels, channels = min(g.channels, g.source_c - c0);
    axis y = axis_of(0, 1, g.kernel_h, g.dilation_h, g.pad_top, 0);
    axis x = axis_of(0, 1, g.kernel_w, g.dilation_w, g.pad_left, 0);
    int taps = g.kernel_h * g.kernel_w, f0 = (int)get_group_id(2) * g.group_panels * NR;
    int f1 = min(g.target_c, f0 + g.group_panels * NR);
    int index = (int)get_group_id(0) * g.group_blocks;
    int end = min(index + g.group_blocks, block_count(g, g.target_h, g.target_w));
    /* Pixels a power of two apart would share few cache sets. */
    int pitch = channels % 32 ? channels : channels + 16;
    int first = 1, step = g.step_w * pitch;
    part += (ulong)get_group_id(0) * taps * g.source_c * g.target_c;

    do {
        block b = {0};
        if (index < end)
            b = block_at(g, index, g.target_h, g.target_w, y, x);
        int lines = b.images * b.rows, pixels = lines * b.columns;
        if (pixels)
            fill_slab(slab, source, g, b, c0, channels, pitch);
        int panel_floats = (max(1, pixels) + 1) * NR; /* +1: no power of two */
        int at_once = max(1, COPSE_PANELS / panel_floats) * NR;
        for (int f = f0; f < f1; f += at_once) {
            int fs = min(at_once, f1 - f);
            for (int l = 0; l < lines; l++) {
                ulong pixel = ((ulong)(b.n0 + l / b.rows) * g.target_h + b.i0 + l % b.rows) *
                                  g.target_w +
                              b.j0;
                pack_b_rows_local(panels + l * b.columns * NR, panel_floats,
                                  dy + pixel * g.target_c + f, g.target_c, fs, b.columns);
            }
            for (int p = 0; p < fs; p += NR)
                for (int k = 0; k < taps * channels; k += MR) {
                    vec c[MR][NV];
                    size_t at[MR];
                    __local const float *from[MR];
                    int tap = k / channels, channel = k % channels;
                    UNROLL for (int i = 0; i < MR; i++) {
                        int ty = tap / g.kernel_w, tx = tap % g.kernel_w;
                        from[i] = slab +
                                  (ty * y.rise * b.width + tx * x.rise) * pitch +
                                  channel;
                        at[i] = ((size_t)tap * g.source_c + channel) * g.target_c;
                        if (k + i + 1 < taps * channels && ++channel == channels)
                            channel = 0, tap++;
                    }
                    __global float *to = part + (size_t)c0 * g.target_c + f + p;
                    UNROLL for (int i = 0; i < MR; i++) PREFETCH(to + at[i]);
                    tile_zero(c);
                    __local const float *bp = panels + p / NR * panel_floats;
                    for (int l = 0; l < lines; l++) {
                        int slab_at = ((l / b.rows) * b.height + l % b.rows * g.step_h) *
                                      b.width * pitch;
                        UNROLL_4 for (int j = 0; j < b.columns; j++)
                            COPSE_TILE_STEP(c, from[i][slab_at + j * step], __local,
                                            bp + j * NR)
                        bp += b.columns * NR;
                    }
                    tile_out(c, to, at, taps * channels - k, fs - p, first, 1, 0, 0);
                }
        }
        first = 0;
    } while (++index < end);
}

#include "packed_sum.clh"
