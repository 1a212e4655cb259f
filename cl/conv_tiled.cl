/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions whose map is pooled by 2 x 2 at once, and their gradients, on devices whose work-items share local memory: matrix
 * products over tiles in it, whose left side is gathered from the image (or from the pooled gradient and the places of the
 * maxima), so that neither patches nor the map are ever written. NHWC images, HWIO filters; in g, p and q are those of the
 * pooled map. Must equal the host's conv2d_max_pool, …_grad_input and …_grad_filter within the tolerance of a float sum.
 *
 * A group of TILE x TILE items makes SIDE x SIDE elements; each item owns those TILE rows and columns apart.
 */
#include "act.clh"
#include "window.clh"

#ifndef TILE
#define TILE 16
#endif
#define SIDE (4 * TILE)
#define DEPTH TILE
#define GROUP (TILE * TILE)

/* The map's gradient at pixel (p, q) of an image, of filter f. No restrict here: Oclgrind stops at what comes of it. */
static inline float unpooled(global const float *dy, global const uchar *index,
                             const copse_window g, size_t image, uint p, uint q, uint f) {
    size_t at = ((image * g.p + p / 2) * g.q + q / 2) * g.f + f;
    return index[at] == p % 2 * 2 + q % 2 ? dy[at] : 0.0f;
}

/* sum[4][4] over l in [l0, l1); A and B are expressions of row r or column j and l, 0 outside; each is fetched along the direction
 * in which it is stored. */
#define PRODUCT(l0, l1, A_ALONG_L, A, B_ALONG_L, B, EACH_DEPTH)                          \
    for (size_t l2 = (l0); l2 < (l1); l2 += DEPTH) {                                     \
        EACH_DEPTH                                                                       \
        for (uint t = item; t < DEPTH * SIDE; t += GROUP) {                              \
            uint d = A_ALONG_L ? t % DEPTH : t / SIDE;                                   \
            uint r = A_ALONG_L ? t / DEPTH : t % SIDE;                                   \
            size_t l = l2 + d;                                                           \
            left[d][r] = l < (l1) ? (A) : 0.0f;                                          \
            d = B_ALONG_L ? t % DEPTH : t / SIDE;                                        \
            r = B_ALONG_L ? t / DEPTH : t % SIDE;                                        \
            l = l2 + d;                                                                  \
            uint j = j0 + r;                                                             \
            right[d][r] = l < (l1) && j < columns ? (B) : 0.0f;                          \
        }                                                                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        for (uint d = 0; d < DEPTH; d++) {                                               \
            float u[4], v[4];                                                            \
            for (uint k = 0; k < 4; k++) {                                               \
                u[k] = left[d][y0 + k * TILE];                                           \
                v[k] = right[d][x0 + k * TILE];                                          \
            }                                                                            \
            for (uint k = 0; k < 4; k++)                                                 \
                for (uint s = 0; s < 4; s++)                                             \
                    sum[k][s] += u[k] * v[s];                                            \
        }                                                                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
    }

#define BEGIN(n)                                                                         \
    local float left[DEPTH][SIDE + 1], right[DEPTH][SIDE + 1];                           \
    uint x0 = get_local_id(0), y0 = get_local_id(1), item = y0 * TILE + x0;              \
    uint j0 = get_group_id(0) * SIDE, columns = (n);                                     \
    float sum[4][4];                                                                     \
    for (uint k = 0; k < 4; k++)                                                         \
        for (uint s = 0; s < 4; s++)                                                     \
            sum[k][s] = 0.0f;

static inline float image_at(global const float *restrict x, const copse_window g,
                             size_t image, uint h, uint w, uint c) {
    return h < g.h && w < g.w ? x[((image * g.h + h) * g.w + w) * g.c + c] : 0.0f;
}

/* y[windows, f], index: the first largest of each window's four pixels, a NaN being larger than any number. Row k * TILE + t of a
 * tile is place k of its window t, so that an item holds whole windows. Launch: {ceil(f / SIDE), ceil(windows / TILE)} groups. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
conv_tiled_max_pool_f32(global const float *restrict x,
                        global const float *restrict filter,
                        global const float *restrict bias, global float *restrict y,
                        global uchar *restrict index, const copse_window g, ulong windows,
                        uint has_bias, uint has_index, uint act) {
    local uint row_h[SIDE], row_w[SIDE]; /* image place of the first tap */
    local ulong row_image[SIDE];
    BEGIN(g.f)
    ulong w0 = (ulong)get_group_id(1) * TILE;
    for (uint r = item; r < SIDE; r += GROUP) {
        ulong window = min(w0 + r % TILE, windows - 1);
        uint place = r / TILE, p = (uint)(window / g.q % g.p) * 2 + place / 2;
        uint q = (uint)(window % g.q) * 2 + place % 2;
        row_image[r] = window / g.q / g.p;
        row_h[r] = copse_tap(p, g.stride_h, 0, g.dilation_h, g.pad_top);
        row_w[r] = copse_tap(q, g.stride_w, 0, g.dilation_w, g.pad_left);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    PRODUCT(0, (size_t)g.r * g.s * g.c, 1,
            image_at(x, g, row_image[r], row_h[r] + (uint)(l / g.c / g.s) * g.dilation_h,
                     row_w[r] + (uint)(l / g.c % g.s) * g.dilation_w, (uint)(l % g.c)),
            0, filter[l * g.f + j], )
    if (w0 + y0 >= windows)
        return;
    for (uint s = 0; s < 4; s++) {
        uint j = j0 + x0 + s * TILE, place = 0;
        if (j >= columns)
            continue;
        float more = has_bias ? bias[j] : 0.0f;
        float best = copse_act_1(sum[0][s] + more, act);
        for (uint k = 1; k < 4; k++) {
            float v = copse_act_1(sum[k][s] + more, act);
            if (!(v <= best) && !isnan(best)) {
                best = v;
                place = k;
            }
        }
        y[(w0 + y0) * g.f + j] = best;
        if (has_index)
            index[(w0 + y0) * g.f + j] = (uchar)place;
    }
}

static inline float map_at(global const float *dy, global const uchar *index,
                           const copse_window g, size_t image, uint h, uint w, uint tap,
                           uint f) {
    uint p = copse_untap(h, g.stride_h, tap / g.s, g.dilation_h, g.pad_top);
    uint q = copse_untap(w, g.stride_w, tap % g.s, g.dilation_w, g.pad_left);
    return p < 2 * g.p && q < 2 * g.q ? unpooled(dy, index, g, image, p, q, f) : 0.0f;
}

/* dx[pixels, c]. Launch: {ceil(c / SIDE), ceil(pixels / SIDE)} groups. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
conv_tiled_max_pool_grad_input_f32(global const float *restrict dy,
                                   global const uchar *restrict index,
                                   global const float *restrict filter,
                                   global float *restrict dx, const copse_window g,
                                   ulong pixels) {
    local uint row_h[SIDE], row_w[SIDE];
    local ulong row_image[SIDE];
    BEGIN(g.c)
    ulong i0 = (ulong)get_group_id(1) * SIDE;
    for (uint r = item; r < SIDE; r += GROUP) {
        ulong pixel = min(i0 + r, pixels - 1);
        row_image[r] = pixel / g.w / g.h;
        row_h[r] = (uint)(pixel / g.w % g.h);
        row_w[r] = (uint)(pixel % g.w);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    PRODUCT(0, (size_t)g.r * g.s * g.f, 1,
            map_at(dy, index, g, row_image[r], row_h[r], row_w[r], (uint)(l / g.f),
                   (uint)(l % g.f)),
            1, filter[(l / g.f * g.c + j) * g.f + l % g.f], )
    for (uint k = 0; k < 4; k++)
        for (uint s = 0; s < 4; s++) {
            ulong i = i0 + y0 + k * TILE;
            uint j = j0 + x0 + s * TILE;
            if (i < pixels && j < columns)
                dx[i * g.c + j] = sum[k][s];
        }
}

/* partial[part][r,s,c][f] over the part's share of the map's pixels. Launch: {ceil(f / SIDE), ceil(r s c / SIDE), parts} groups. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
conv_tiled_max_pool_grad_filter_f32(global const float *restrict x,
                                    global const float *restrict dy,
                                    global const uchar *restrict index,
                                    global float *restrict partial, const copse_window g,
                                    ulong pixels) {
    local uint row_h[SIDE], row_w[SIDE],
        row_c[SIDE]; /* of taps; row_h: too large where none is */
    local uint at_p[DEPTH], at_q[DEPTH];
    local ulong at_image[DEPTH];
    BEGIN(g.f)
    uint rows = g.r * g.s * g.c, i0 = get_group_id(1) * SIDE;
    ulong parts = get_num_groups(2), part = get_group_id(2);
    ulong begin = pixels / parts * part + min(pixels % parts, part);
    ulong end = pixels / parts * (part + 1) + min(pixels % parts, part + 1);
    for (uint r = item; r < SIDE; r += GROUP) {
        uint i = min(i0 + r, rows - 1);
        row_h[r] = i / g.c / g.s * g.dilation_h;
        row_w[r] = i / g.c % g.s * g.dilation_w;
        row_c[r] = i % g.c;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    PRODUCT(
        begin, end, 0,
        image_at(x, g, at_image[d], at_p[d] * g.stride_h + row_h[r] - g.pad_top,
                 at_q[d] * g.stride_w + row_w[r] - g.pad_left, row_c[r]),
        0, unpooled(dy, index, g, at_image[d], at_p[d], at_q[d], j), if (item < DEPTH) {
            ulong pixel = min((ulong)l2 + item, pixels - 1);
            at_image[item] = pixel / (2 * g.q) / (2 * g.p);
            at_p[item] = (uint)(pixel / (2 * g.q) % (2 * g.p));
            at_q[item] = (uint)(pixel % (2 * g.q));
        } barrier(CLK_LOCAL_MEM_FENCE);)
    for (uint k = 0; k < 4; k++)
        for (uint s = 0; s < 4; s++) {
            uint i = i0 + y0 + k * TILE, j = j0 + x0 + s * TILE;
            if (i < rows && j < columns)
                partial[(part * rows + i) * g.f + j] = sum[k][s];
        }
}
