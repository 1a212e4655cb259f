/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of 3 x 3 with stride 1 by Winograd's algorithm (winograd.clh), on devices whose work-group of one item is one
 * core. A group transforms a block of tiles into local memory, and multiplies point by point: a matrix product over channels
 * for each point, with the register tile of packed.clh. Nothing that is transformed passes through global memory but
 * filters. Channels of both sides are multiples of VW. Must equal the host's conv2d, conv2d_grad_input and
 * conv2d_grad_filter within the tolerance of a float sum; a value that is not finite reaches all outputs of its tiles.
 *
 * Tiles are numbered image by image, row by row, over the target; block b is the tiles from b * block_columns on. The
 * input's gradient is the convolution of dy by the filter turned by half a circle.
 */
#include "conv_shape.clh"
#include "winograd.clh"

#ifndef COPSE_SLAB
#define COPSE_SLAB 32768 /* floats of transformed source in local memory */
#endif
#ifndef COPSE_PANELS
#define COPSE_PANELS 16384 /* floats of sums, or of transformed dy */
#endif

typedef struct tiling {
    int down, across, all; /* tiles of an image, and of all */
    int top, left;         /* where the source of tile (0, 0) begins: -top, -left */
} tiling;

typedef struct tile {
    int image, row, column; /* of its first target pixel */
} tile;

INLINE tiling tiling_of(copse_conv_shape g) {
    tiling t;
    t.down = (g.target_h + OUTS - 1) / OUTS;
    t.across = (g.target_w + OUTS - 1) / OUTS;
    t.all = g.images * t.down * t.across;
    t.top = g.backward ? 2 - g.pad_top : g.pad_top;
    t.left = g.backward ? 2 - g.pad_left : g.pad_left;
    return t;
}

INLINE tile tile_at(tiling t, int index) {
    tile at = {index / t.across / t.down, index / t.across % t.down * OUTS,
               index % t.across * OUTS};
    return at;
}

/* points[point][tile][pitch] of `tiles` tiles from tile0 on, of channels [c0, c0 + channels) of the source. */
INLINE void fill_points(__local float *restrict points,
                        __global const float *restrict source, copse_conv_shape g,
                        tiling all, int tile0, int tiles, int c0, int channels,
                        int pitch) {
    int line = g.source_w * g.source_c;
    for (int t = 0; t < tiles; t++) {
        tile at = tile_at(all, tile0 + t);
        int y = at.row - all.top, x = at.column - all.left;
        bool inside =
            y >= 0 && x >= 0 && y + SIDE <= g.source_h && x + SIDE <= g.source_w;
        __global const float *from = source + (ulong)at.image * g.source_h * line + c0;
        __local float *to = points + t * pitch;
        int rows[SIDE], columns[SIDE]; /* of pixels that are there; negative: none is */
        UNROLL for (int i = 0; i < SIDE; i++) {
            rows[i] = y + i >= 0 && y + i < g.source_h ? (y + i) * line : -1;
            columns[i] = x + i >= 0 && x + i < g.source_w ? (x + i) * g.source_c : -1;
        }
        for (int c = 0; c < channels; c += VW) {
            vec v[SIDE][SIDE];
            if (inside)
                UNROLL for (int i = 0; i < SIDE; i++)
                    UNROLL for (int j = 0; j < SIDE; j++) v[i][j] =
                        LOAD(__global, from + y * line + x * g.source_c + i * line +
                                           j * g.source_c + c);
            else
                UNROLL for (int i = 0; i < SIDE; i++)
                    UNROLL for (int j = 0; j < SIDE; j++) {
                    vec there =
                        LOAD(__global, from + max(0, rows[i]) + max(0, columns[j]) + c);
                    v[i][j] = (rows[i] | columns[j]) < 0 ? (vec)(0) : there;
                }
            pixels_to_points(v);
            UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++)
                STORE(__local, to + (i * SIDE + j) * tiles * pitch + c, v[i][j]);
        }
    }
}

/* One tile's VW channels to the target, bias and activation included. */
INLINE void put_tile(__global float *restrict target, copse_conv_shape g, tile at, int f,
                     vec y[OUTS][OUTS], vec bias, int act) {
    int line = g.target_w * g.target_c;
    vec low = act == COPSE_ACT_RELU ? (vec)(0) : (vec)(-INFINITY);
    __global float *to = target + ((ulong)at.image * g.target_h + at.row) * line +
                         at.column * g.target_c + f;
    UNROLL for (int i = 0; i < OUTS; i++) UNROLL for (int j = 0; j < OUTS; j++) {
        vec v = y[i][j] + bias;
        v = v <= low ? low : v; /* a NaN stays */
        if (at.row + i >= g.target_h || at.column + j >= g.target_w)
            continue;
        STORE(__global, to + i * line + j * g.target_c, v);
        if (act > COPSE_ACT_RELU)
            for (int k = 0; k < VW; k++)
                to[i * line + j * g.target_c + k] =
                    copse_act_1(to[i * line + j * g.target_c + k], (uint)act);
    }
}

/* target = act(convolution + bias). Launch: groups of one item, (ceil(blocks / group_blocks), 1,
 * ceil(panels / group_panels)). */
__kernel ONE_ITEM void conv_winograd_f32(copse_conv_shape g,
                                         __global const float *restrict source,
                                         __global const float *restrict packed,
                                         __global const float *restrict bias,
                                         __global float *restrict target, int act,
                                         int has_bias) {
    __local float points[COPSE_SLAB] __attribute__((aligned(64)));
    __local float sums[COPSE_PANELS] __attribute__((aligned(64)));
    tiling all = tiling_of(g);
    int pitch = COPSE_CONV_PITCH(g.source_c), panels = (g.target_c + NR - 1) / NR;
    int panel0 = (int)get_group_id(2) * g.group_panels;
    int panel1 = min(panels, panel0 + g.group_panels);
    int tile0 = (int)get_group_id(0) * g.group_blocks * g.block_columns;
    int end = min(all.all, tile0 + g.group_blocks * g.block_columns);
    for (; tile0 < end; tile0 += g.block_columns) {
        int tiles = min(g.block_columns, end - tile0);
        fill_points(points, source, g, all, tile0, tiles, 0, g.source_c, pitch);
        for (int p = panel0; p < panel1; p++) {
            __global const float *bp = packed + (ulong)p * POINTS * g.source_c * NR;
            for (int point = 0; point < POINTS; point++, bp += g.source_c * NR)
                for (int t = 0; t < tiles; t += MR) {
                    vec c[MR][NV];
                    __local const float *from[MR];
                    __local float *to = sums + (point * tiles + t) * NR;
                    UNROLL for (int i = 0; i < MR; i++) from[i] =
                        points + (point * tiles + min(t + i, tiles - 1)) * pitch;
                    tile_zero(c);
                    UNROLL_4 for (int k = 0; k < g.source_c; k++)
                        COPSE_TILE_STEP(c, from[i][k], __global, bp + k * NR)
                            UNROLL for (int i = 0; i < MR; i++) if (t + i < tiles)
                                UNROLL for (int j = 0; j < NV; j++)
                                    STORE(__local, to + i * NR + j * VW, c[i][j]);
                }
            for (int t = 0; t < tiles; t++) {
                tile at = tile_at(all, tile0 + t);
                for (int f = p * NR; f < min(g.target_c, (p + 1) * NR); f += VW) {
                    vec m[SIDE][SIDE], y[OUTS][OUTS], b = 0;
                    __local const float *from = sums + t * NR + f - p * NR;
                    if (has_bias)
                        b = LOAD(__global, bias + f);
                    UNROLL for (int i = 0; i < SIDE; i++)
                        UNROLL for (int j = 0; j < SIDE; j++) m[i][j] =
                            LOAD(__local, from + (i * SIDE + j) * tiles * NR);
                    points_to_outputs(y, m);
                    put_tile(target, g, at, f, y, b, act);
                }
            }
        }
    }
}

/* panels[point][tile][NR] of dy's tiles, channels [f, f + NR); zeros beyond the map and its channels. */
INLINE void fill_panels(__local float *restrict panels, __global const float *restrict dy,
                        copse_conv_shape g, tiling all, int tile0, int tiles, int f) {
    int line = g.target_w * g.target_c;
    for (int t = 0; t < tiles; t++) {
        tile at = tile_at(all, tile0 + t);
        __global const float *from = dy + ((ulong)at.image * g.target_h + at.row) * line +
                                     at.column * g.target_c + f;
        UNROLL for (int v = 0; v < NV; v++) {
            vec y[OUTS][OUTS], m[SIDE][SIDE];
            UNROLL for (int i = 0; i < OUTS; i++) UNROLL for (int j = 0; j < OUTS; j++) {
                y[i][j] = 0;
                if (at.row + i < g.target_h && at.column + j < g.target_w &&
                    f + v * VW < g.target_c)
                    y[i][j] = LOAD(__global, from + i * line + j * g.target_c + v * VW);
            }
            outputs_to_points(m, y);
            UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++)
                STORE(__local, panels + ((i * SIDE + j) * tiles + t) * NR + v * VW,
                      m[i][j]);
        }
    }
}

/* part[z][point][C][F] = sum over the tiles of split z of points(x) * points(dy); source is x, target dy. Launch: groups of
 * one item, (splits, ceil(C / channels), ceil(panels / group_panels)); a split without tiles writes zeros. */
__kernel ONE_ITEM void
conv_winograd_grad_filter_f32(copse_conv_shape g, __global const float *restrict source,
                              __global const float *restrict dy,
                              __global float *restrict part) {
    __local float points[COPSE_SLAB] __attribute__((aligned(64)));
    __local float panels[COPSE_PANELS] __attribute__((aligned(64)));
    tiling all = tiling_of(g);
    int c0 = (int)get_group_id(1) * g.channels,
        channels = min(g.channels, g.source_c - c0);
    int f0 = (int)get_group_id(2) * g.group_panels * NR;
    int pitch = COPSE_CONV_PITCH(g.channels);
    int f1 = min(g.target_c, f0 + g.group_panels * NR), first = 1;
    int tile0 = (int)get_group_id(0) * g.group_blocks * g.block_columns;
    int end = min(all.all, tile0 + g.group_blocks * g.block_columns);
    part += ((ulong)get_group_id(0) * POINTS * g.source_c + c0) * g.target_c;
    do {
        int tiles = max(0, min(g.block_columns, end - tile0));
        fill_points(points, source, g, all, tile0, tiles, c0, channels, pitch);
        for (int f = f0; f < f1; f += NR) {
            fill_panels(panels, dy, g, all, tile0, tiles, f);
            for (int point = 0; point < POINTS; point++) {
                __local const float *bp = panels + point * tiles * NR;
                __global float *to = part + (ulong)point * g.source_c * g.target_c + f;
                for (int k = 0; k < channels; k += MR) {
                    vec c[MR][NV];
                    size_t at[MR];
                    __local const float *from[MR];
                    UNROLL for (int i = 0; i < MR; i++) {
                        int row = min(k + i, channels - 1);
                        from[i] = points + point * tiles * pitch + row;
                        at[i] = (size_t)row * g.target_c;
                        PREFETCH(to + at[i]);
                    }
                    tile_zero(c);
                    UNROLL_4 for (int t = 0; t < tiles; t++) COPSE_TILE_STEP(
                        c, from[i][t * pitch], __local, bp + t * NR)
                        tile_out(c, to, at, channels - k, g.target_c - f, first, 1, 0, 0);
                }
            }
        }
        first = 0;
        tile0 += g.block_columns;
    } while (tile0 < end);
}

/* dw[3,3,C,F] from part[parts][point][C][F], whose parts are added in their order. Launch: groups of one item, each
 * `channels` channels C. */
__kernel ONE_ITEM void conv_winograd_filter_f32(copse_conv_shape g, uint parts,
                                                uint channels,
                                                __global const float *restrict part,
                                                __global float *restrict dw) {
    ulong matrix = (ulong)g.source_c * g.target_c;
    ulong at = (ulong)get_group_id(0) * channels * g.target_c;
    ulong end = min(matrix, at + (ulong)channels * g.target_c);
    for (; at < end; at += VW) {
        vec m[SIDE][SIDE], w[3][3];
        UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++) {
            __global const float *from = part + (i * SIDE + j) * matrix + at;
            m[i][j] = LOAD(__global, from);
            for (uint z = 1; z < parts; z++)
                m[i][j] += LOAD(__global, from + z * POINTS * matrix);
        }
        points_to_filter(w, m);
        UNROLL for (int r = 0; r < 3; r++) UNROLL for (int s = 0; s < 3; s++)
            STORE(__global, dw + (r * 3 + s) * matrix + at, w[r][s]);
    }
}

/* w[3,3,C,F] into panels [panel][point][source channel][NR]; for the input's gradient, turned, source channels are F and
 * target channels C. Launch: groups of one item, (source_c / VW, panels). */
__kernel ONE_ITEM void conv_winograd_pack_f32(copse_conv_shape g,
                                              __global const float *restrict w,
                                              __global float *restrict packed) {
    int k0 = (int)get_group_id(0) * VW, n0 = (int)get_group_id(1) * NR;
    ulong matrix = (ulong)g.source_c * g.target_c;
    packed += ((ulong)get_group_id(1) * POINTS * g.source_c + k0) * NR;
    for (int v = 0; v < NV; v++) {
        int n = n0 + v * VW;
        bool there = n < g.target_c;
        vec taps[9][VW]; /* [k]: VW target channels of source channel k0 + k */
        for (int tap = 0; tap < 9; tap++) {
            __global const float *from = w + (g.backward ? 8 - tap : tap) * matrix;
            vec r[VW];
            UNROLL for (int k = 0; k < VW; k++) {
                r[k] = 0;
                if (there)
                    r[k] = LOAD(__global,
                                from + (g.backward ? (ulong)(n + k) * g.source_c + k0
                                                   : (ulong)(k0 + k) * g.target_c + n));
            }
            if (g.backward)
                transpose(r);
            UNROLL for (int k = 0; k < VW; k++) taps[tap][k] = r[k];
        }
        for (int k = 0; k < VW; k++) {
            vec f[3][3], m[SIDE][SIDE];
            UNROLL for (int r = 0; r < 3; r++) UNROLL for (int s = 0; s < 3; s++)
                f[r][s] = taps[r * 3 + s][k];
            filter_to_points(m, f);
            UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int j = 0; j < SIDE; j++)
                STORE(__global,
                      packed + ((ulong)(i * SIDE + j) * g.source_c + k) * NR + v * VW,
                      m[i][j]);
        }
    }
}
