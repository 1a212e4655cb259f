/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling over NHWC images; copse_window gives the sizes (f = c). An item is one place x LANES neighbouring channels;
 * launch: one dimension, COPSE_FOR. Reference: src/backend/host/pool.c.
 */
#include "common.clh"
#include "window.clh"

#ifdef COPSE_CHUNKED
#define LANES COPSE_VEC
#else
#define LANES 1
#endif

/* A window's first largest value beats all others; a NaN beats any number, and padding has no value. */
#define BEATS(x, best) (!((x) <= (best)) && !isnan(best))

/* Walks over the places (row, column) of images of height x width and their blocks of channels from c0 on; `image` is
 * theirs. Where chunked, an item is a strip of a row with all its channels: items: images * height * ceil(width / STRIP).
 * Else it is one channel of one place: items: images * height * width * c. */
#ifdef COPSE_CHUNKED
#define STRIP 32
#define FOR_PLACES(height, width)                                                        \
    uint strips = ((width) + STRIP - 1) / STRIP;                                         \
    COPSE_FOR(i, images * (height) * strips)                                             \
    for (uint column = (uint)(i % strips) * STRIP,                                       \
              stop = min((width), column + STRIP), row = (uint)(i / strips % (height));  \
         column < stop; column++)                                                        \
        for (uint c0 = 0; c0 < g.c; c0 += LANES)
#define PLACE(height, width) size_t image = i / ((ulong)strips * (height));
#else
#define FOR_PLACES(height, width) COPSE_FOR(i, images * (height) * (width) * g.c)
#define PLACE(height, width)                                                             \
    uint c0 = (uint)(i % g.c);                                                           \
    size_t rest_ = i / g.c;                                                              \
    uint column = (uint)(rest_ % (width));                                               \
    rest_ /= (width);                                                                    \
    uint row = (uint)(rest_ % (height));                                                 \
    size_t image = rest_ / (height);
#endif

#define CHANNELS(c) for (uint c = c0; c < min(c0 + LANES, g.c); c++)

#define MAX_POOL(name, INDEX, CONVERT_WIDE)                                              \
    kernel void name(global const float *restrict x, global float *restrict y,           \
                     global INDEX *restrict index, const copse_window g, ulong images,   \
                     uint has_index) {                                                   \
        FOR_PLACES(g.p, g.q) {                                                 \
            PLACE(g.p, g.q)                                                              \
            size_t out = ((image * g.p + row) * g.q + column) * g.c;                     \
            MAX_POOL_WIDE(INDEX, CONVERT_WIDE)                                           \
            CHANNELS(c) {                                                                \
                float best = -INFINITY;                                                  \
                int place = -1;                                                          \
                for (uint r = 0; r < g.r; r++) {                                         \
                    uint h = copse_tap(row, g.stride_h, r, g.dilation_h, g.pad_top);     \
                    for (uint s = 0; h < g.h && s < g.s; s++) {                          \
                        uint w =                                                         \
                            copse_tap(column, g.stride_w, s, g.dilation_w, g.pad_left);  \
                        if (w >= g.w)                                                    \
                            continue;                                                    \
                        float v = x[((image * g.h + h) * g.w + w) * g.c + c];            \
                        if (place < 0 || BEATS(v, best)) {                               \
                            best = v;                                                    \
                            place = (int)(r * g.s + s);                                  \
                        }                                                                \
                    }                                                                    \
                }                                                                        \
                y[out + c] = best;                                                       \
                if (has_index)                                                           \
                    index[out + c] = (INDEX)place;                                       \
            }                                                                            \
        }                                                                                \
    }

#ifdef COPSE_CHUNKED
#define MAX_POOL_WIDE(INDEX, CONVERT_WIDE)                                               \
    if (c0 + LANES <= g.c) {                                                             \
        copse_wide best = (copse_wide)(-INFINITY);                                       \
        COPSE_WIDE_INT place = (COPSE_WIDE_INT)(-1);                                     \
        for (uint r = 0; r < g.r; r++) {                                                 \
            uint h = copse_tap(row, g.stride_h, r, g.dilation_h, g.pad_top);             \
            for (uint s = 0; h < g.h && s < g.s; s++) {                                  \
                uint w = copse_tap(column, g.stride_w, s, g.dilation_w, g.pad_left);     \
                if (w >= g.w)                                                            \
                    continue;                                                            \
                copse_wide v =                                                           \
                    *(global const copse_wide_any *)(x + ((image * g.h + h) * g.w + w) * \
                                                             g.c +                       \
                                                     c0);                                \
                COPSE_WIDE_INT wins = (place < 0) | (~(v <= best) & (best == best));     \
                best = wins ? v : best;                                                  \
                place = wins ? (COPSE_WIDE_INT)((int)(r * g.s + s)) : place;             \
            }                                                                            \
        }                                                                                \
        *(global copse_wide_any *)(y + out + c0) = best;                                 \
        if (has_index)                                                                   \
            vstore16(CONVERT_WIDE(place), 0, index + out + c0);                          \
        continue;                                                                        \
    }
#else
#define MAX_POOL_WIDE(INDEX, CONVERT_WIDE)
#endif

/* y[n,p,q,c] and index[n,p,q,c] = r*S+s of the place */
MAX_POOL(max_pool2d_u8_f32, uchar, convert_uchar16)
MAX_POOL(max_pool2d_i32_f32, int, convert_int16)

/* dx[n,h,w,c] = sum, over the windows in order of p, then q, of dy where index names this place */
#define MAX_POOL_GRAD(name, INDEX)                                                       \
    kernel void name(global const float *restrict dy, global const INDEX *restrict index,\
                     global float *restrict dx, const copse_window g, ulong images) {    \
        FOR_PLACES(g.h, g.w) {                                                 \
            PLACE(g.h, g.w)                                                              \
            size_t out = ((image * g.h + row) * g.w + column) * g.c;                     \
            MAX_POOL_GRAD_WIDE                                                           \
            CHANNELS(c) {                                                                \
                float sum = 0.0f;                                                        \
                for (uint r = g.r; r-- > 0;) {                                           \
                    uint p = copse_untap(row, g.stride_h, r, g.dilation_h, g.pad_top);   \
                    for (uint s = g.s; p < g.p && s-- > 0;) {                            \
                        uint q = copse_untap(column, g.stride_w, s, g.dilation_w,        \
                                             g.pad_left);                                \
                        if (q >= g.q)                                                    \
                            continue;                                                    \
                        size_t at = ((image * g.p + p) * g.q + q) * g.c + c;             \
                        if ((uint)index[at] == r * g.s + s)                              \
                            sum += dy[at];                                               \
                    }                                                                    \
                }                                                                        \
                dx[out + c] = sum;                                                       \
            }                                                                            \
        }                                                                                \
    }

#ifdef COPSE_CHUNKED
#define MAX_POOL_GRAD_WIDE                                                               \
    if (c0 + LANES <= g.c) {                                                             \
        copse_wide sum = (copse_wide)(0.0f);                                             \
        for (uint r = g.r; r-- > 0;) {                                                   \
            uint p = copse_untap(row, g.stride_h, r, g.dilation_h, g.pad_top);           \
            for (uint s = g.s; p < g.p && s-- > 0;) {                                    \
                uint q =                                                                 \
                    copse_untap(column, g.stride_w, s, g.dilation_w, g.pad_left);        \
                if (q >= g.q)                                                            \
                    continue;                                                            \
                size_t at = ((image * g.p + p) * g.q + q) * g.c + c0;                    \
                COPSE_WIDE_INT here = convert_int16(vload16(0, index + at));             \
                copse_wide v = *(global const copse_wide_any *)(dy + at);                \
                sum += here == (int)(r * g.s + s) ? v : (copse_wide)(0.0f);              \
            }                                                                            \
        }                                                                                \
        *(global copse_wide_any *)(dx + out + c0) = sum;                                 \
        continue;                                                                        \
    }
#else
#define MAX_POOL_GRAD_WIDE
#endif

MAX_POOL_GRAD(max_pool2d_grad_u8_f32, uchar)
MAX_POOL_GRAD(max_pool2d_grad_i32_f32, int)

/* The same where windows tile the image (stride = kernel, no padding, no dilation): each window is read once. Walks over
 * the tiles, ceil(h / r) x ceil(w / s) of them, of which those at the lower and right edge may belong to no window. */
#define MAX_POOL_GRAD_TILES(name, INDEX)                                                 \
    kernel void name(global const float *restrict dy, global const INDEX *restrict index,\
                     global float *restrict dx, const copse_window g, ulong images) {    \
        uint high = (g.h + g.r - 1) / g.r, wide = (g.w + g.s - 1) / g.s;                 \
        FOR_PLACES(high, wide) {                                                         \
            PLACE(high, wide)                                                            \
            bool is_window = row < g.p && column < g.q;                                  \
            size_t at = is_window ? ((image * g.p + row) * g.q + column) * g.c : 0;      \
            uint r_end = min(g.r, g.h - row * g.r), s_end = min(g.s, g.w - column * g.s);\
            size_t out = ((image * g.h + row * g.r) * g.w + column * g.s) * g.c;         \
            TILES_WIDE                                                                   \
            CHANNELS(c) {                                                                \
                int place = is_window ? (int)index[at + c] : -1;                         \
                float slope = is_window ? dy[at + c] : 0.0f;                             \
                for (uint r = 0; r < r_end; r++)                                         \
                    for (uint s = 0; s < s_end; s++)                                     \
                        dx[out + ((size_t)r * g.w + s) * g.c + c] =                      \
                            place == (int)(r * g.s + s) ? slope : 0.0f;                  \
            }                                                                            \
        }                                                                                \
    }

#ifdef COPSE_CHUNKED
#define TILES_WIDE                                                                       \
    if (c0 + LANES <= g.c) {                                                             \
        COPSE_WIDE_INT place = (COPSE_WIDE_INT)(-1);                                     \
        copse_wide slope = (copse_wide)(0.0f);                                           \
        if (is_window) {                                                                 \
            place = convert_int16(vload16(0, index + at + c0));                          \
            slope = *(global const copse_wide_any *)(dy + at + c0);                      \
        }                                                                                \
        for (uint r = 0; r < r_end; r++)                                                 \
            for (uint s = 0; s < s_end; s++)                                             \
                *(global copse_wide_any *)(dx + out + ((size_t)r * g.w + s) * g.c +      \
                                           c0) =                                         \
                    place == (int)(r * g.s + s) ? slope : (copse_wide)(0.0f);            \
        continue;                                                                        \
    }
#else
#define TILES_WIDE
#endif

MAX_POOL_GRAD_TILES(max_pool2d_grad_tiles_u8_f32, uchar)
MAX_POOL_GRAD_TILES(max_pool2d_grad_tiles_i32_f32, int)

/* How many taps of a window lie inside, along one side. */
static inline uint taps_inside(uint at, uint stride, uint taps, uint dilation, uint pad,
                               uint size) {
    uint count = 0;
    for (uint t = 0; t < taps; t++)
        count += copse_tap(at, stride, t, dilation, pad) < size ? 1u : 0u;
    return count;
}

/* y = mean over the places inside the image */
kernel void avg_pool2d_f32(global const float *restrict x, global float *restrict y,
                           const copse_window g, ulong images) {
    FOR_PLACES(g.p, g.q) {
        PLACE(g.p, g.q)
        size_t out = ((image * g.p + row) * g.q + column) * g.c;
        uint inside =
            taps_inside(row, g.stride_h, g.r, g.dilation_h, g.pad_top, g.h) *
            taps_inside(column, g.stride_w, g.s, g.dilation_w, g.pad_left, g.w);
        CHANNELS(c) {
            float sum = 0.0f;
            for (uint r = 0; r < g.r; r++) {
                uint h = copse_tap(row, g.stride_h, r, g.dilation_h, g.pad_top);
                for (uint s = 0; h < g.h && s < g.s; s++) {
                    uint w = copse_tap(column, g.stride_w, s, g.dilation_w, g.pad_left);
                    if (w < g.w)
                        sum += x[((image * g.h + h) * g.w + w) * g.c + c];
                }
            }
            y[out + c] = sum / (float)inside;
        }
    }
}

/* dx = sum over the windows that hold the place, in order of p, then q, of dy / places inside */
kernel void avg_pool2d_grad_f32(global const float *restrict dy, global float *restrict dx,
                                const copse_window g, ulong images) {
    FOR_PLACES(g.h, g.w) {
        PLACE(g.h, g.w)
        size_t out = ((image * g.h + row) * g.w + column) * g.c;
        CHANNELS(c) {
            dx[out + c] = 0.0f;
        }
        for (uint r = g.r; r-- > 0;) {
            uint p = copse_untap(row, g.stride_h, r, g.dilation_h, g.pad_top);
            for (uint s = g.s; p < g.p && s-- > 0;) {
                uint q = copse_untap(column, g.stride_w, s, g.dilation_w, g.pad_left);
                if (q >= g.q)
                    continue;
                float inside = (float)(taps_inside(p, g.stride_h, g.r, g.dilation_h,
                                                   g.pad_top, g.h) *
                                       taps_inside(q, g.stride_w, g.s, g.dilation_w,
                                                   g.pad_left, g.w));
                size_t at = ((image * g.p + p) * g.q + q) * g.c;
                CHANNELS(c) {
                    dx[out + c] += dy[at + c] / inside;
                }
            }
        }
    }
}

/* y[n,c] = mean over h, w of x[n,h,w,c], places = h * w. The channels that fill no vector are items of their own:
 * items: images * (channels / LANES + channels % LANES) */
kernel void global_avg_pool_f32(global const float *restrict x, global float *restrict y,
                                ulong images, uint places, uint channels) {
    uint whole = channels / LANES, blocks = whole + channels % LANES;
    COPSE_FOR(i, images * blocks) {
        size_t image = i / blocks;
        uint block = (uint)(i % blocks);
        global const float *from = x + image * places * channels;
#ifdef COPSE_CHUNKED
        if (block < whole) {
            copse_wide sum = (copse_wide)(0.0f);
            from += block * LANES;
            for (uint at = 0; at < places; at++, from += channels)
                sum += *(global const copse_wide_any *)from;
            *(global copse_wide_any *)(y + image * channels + block * LANES) =
                sum / (float)places;
            continue;
        }
#endif
        uint c = block < whole ? block : whole * LANES + (block - whole);
        float sum = 0.0f;
        for (uint at = 0; at < places; at++)
            sum += from[(size_t)at * channels + c];
        y[image * channels + c] = sum / (float)places;
    }
}

/* dx[n,h,w,c] = dy[n,c] / places; items: images * places * ceil(channels / LANES) */
kernel void global_avg_pool_grad_f32(global const float *restrict dy,
                                     global float *restrict dx, ulong images, uint places,
                                     uint channels) {
    uint blocks = (channels + LANES - 1) / LANES;
    COPSE_FOR(i, images * places * blocks) {
        size_t place = i / blocks, image = place / places;
        uint c0 = (uint)(i % blocks) * LANES;
        for (uint c = c0; c < min(c0 + LANES, channels); c++)
            dx[place * channels + c] = dy[image * channels + c] / (float)places;
    }
}
