/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/opencl/packed.h"
#include "backend/tuned.h"
#include "base/mem.h"

/* The packed kernels' sizes as parameters, and what they could be instead. */

/* Floats of local memory that a convolution's blocks and tables take at most: by cl/conv_packed.clh, and pooled by
 * cl/conv_pool_packed.cl, where tiles wait until they are whole windows. */
static size_t conv_floats(const copse__packed_sizes *s) {
    size_t tables = 2 * (s->pixels + s->mr) + 2 * COPSE__PACKED_TAPS;
    size_t pooled = s->pixels + s->mr + s->pixels / 4 + 4 * s->mr * s->vw * s->nv;
    return s->slab + copse__max_size(s->panels, copse__max_size(tables, pooled));
}

/* Whether the kernels can be built so and find room. A panel holds a block of two by two pixels and one more. */
static bool can_be(const copse__packed_sizes *s, size_t local_bytes) {
    size_t floats = local_bytes / sizeof(float) / 16 * 15, nr = s->vw * s->nv;
    if ((s->vw != 4 && s->vw != 8 && s->vw != 16) || s->nv < 1 || s->nv > 4 ||
        s->mr < 1 || s->mr > 16)
        return false;
    if (s->kc < 32 || s->kc > 4096 || s->kc % 4 || s->mc < s->mr || s->mc > 4096 ||
        s->mc % s->mr || s->nc < nr || s->nc > 8192 || s->nc % nr)
        return false;
    if (s->slab < 2048 || s->slab > floats || s->pixels < 16 || s->pixels > 8192 ||
        s->panels < 5 * nr || s->panels > floats || conv_floats(s) > floats)
        return false;
    if (s->parts > 64 || s->tile_m % s->mr || s->tile_m > 1 << 20 || s->tile_n % nr ||
        s->tile_n > 1 << 20)
        return false;
    return copse__gemm_local_floats(s) <= floats;
}

bool copse__packed_sizes_set(copse__packed_sizes *sizes, const char *parameters,
                             size_t local_bytes) {
    static const char *const names[] = {"vw",     "nv",    "mr",     "kc",
                                        "mc",     "nc",    "slab",   "pixels",
                                        "panels", "parts", "tile_m", "tile_n"};
    copse__packed_sizes s = *sizes;
    size_t *const of[] = {&s.vw,   &s.nv,     &s.mr,     &s.kc,    &s.mc,     &s.nc,
                          &s.slab, &s.pixels, &s.panels, &s.parts, &s.tile_m, &s.tile_n};
    size_t values[COPSE__COUNT(names)];
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        values[i] = *of[i];
    if (!copse__parameters_read(parameters, names, values, COPSE__COUNT(names)))
        return false;
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        *of[i] = values[i];
    if (!can_be(&s, local_bytes))
        return false;
    *sizes = s;
    return true;
}

const char *copse__packed_parameters(const copse__packed_sizes *s, bool gemm,
                                     char *buffer, size_t capacity) {
    size_t used =
        (size_t)snprintf(buffer, capacity, "vw=%zu nv=%zu mr=%zu kc=%zu mc=%zu nc=%zu",
                         s->vw, s->nv, s->mr, s->kc, s->mc, s->nc);
    if (!gemm)
        used += (size_t)snprintf(buffer + used, capacity - used,
                                 " slab=%zu pixels=%zu panels=%zu", s->slab, s->pixels,
                                 s->panels);
    if (s->parts > 0)
        used += (size_t)snprintf(buffer + used, capacity - used, " parts=%zu", s->parts);
    if (s->tile_m > 0)
        snprintf(buffer + used, capacity - used, " tile_m=%zu tile_n=%zu", s->tile_m,
                 s->tile_n);
    return buffer;
}

/* Register tiles: vectors in a row, rows. 16 registers hold the first ones, 32 all. */
static const struct {
    size_t nv, mr;
} tiles[] = {{2, 6}, {3, 4}, {2, 5}, {1, 12}, {1, 8}, {2, 4}, {2, 8}, {3, 8}, {2, 12}};

/* Blocks keep about their size when the tile changes. */
static copse__packed_sizes with_tile(const copse__packed_sizes *s, size_t nv, size_t mr) {
    copse__packed_sizes made = *s;
    made.nv = nv;
    made.mr = mr;
    made.mc = copse__max_size(1, s->mc / mr) * mr;
    made.nc = copse__max_size(1, s->nc / (s->vw * nv)) * s->vw * nv;
    made.tile_m = made.tile_n = 0;
    return made;
}

/* A length times up/down, as whole steps; at least one. */
static size_t scaled(size_t length, size_t up, size_t down, size_t step) {
    return copse__max_size(1, length * up / down / step) * step;
}

static bool neighbour(copse__packed_sizes *out, const copse__packed_sizes *s,
                      size_t number, bool gemm) {
    static const size_t scales[][2] = {{2, 1}, {1, 2}, {3, 2}, {3, 4}};
    size_t tile_count = COPSE__COUNT(tiles), scale_count = COPSE__COUNT(scales);
    if (number < tile_count) {
        *out = with_tile(s, tiles[number].nv, tiles[number].mr);
        return true;
    }
    number -= tile_count;
    size_t what = number / scale_count, up = scales[number % scale_count][0];
    size_t down = scales[number % scale_count][1];
    *out = *s;
    switch (what) {
    case 0:
        out->kc = scaled(s->kc, up, down, 32);
        return true;
    case 1:
        if (gemm)
            out->nc = scaled(s->nc, up, down, s->vw * s->nv);
        else
            out->pixels = scaled(s->pixels, up, down, 16);
        return true;
    case 2:
        if (gemm)
            out->mc = scaled(s->mc, up, down, s->mr);
        else
            out->slab = scaled(s->slab, up, down, 256);
        return true;
    case 3:
        out->panels = scaled(s->panels, up, down, 256);
        return !gemm;
    default:
        return false;
    }
}

bool copse__packed_neighbour(copse__packed_sizes *out, const copse__packed_sizes *sizes,
                             size_t number, bool gemm, size_t local_bytes) {
    /* Those that cannot be, or are these sizes themselves, do not count. */
    for (size_t i = 0, found = 0; neighbour(out, sizes, i, gemm); i++) {
        bool same = out->nv == sizes->nv && out->mr == sizes->mr &&
                    out->kc == sizes->kc && out->mc == sizes->mc &&
                    out->nc == sizes->nc && out->slab == sizes->slab &&
                    out->pixels == sizes->pixels && out->panels == sizes->panels;
        if (!same && can_be(out, local_bytes) && found++ == number)
            return true;
    }
    return false;
}

bool copse__gemm_cut_neighbour(copse__packed_sizes *out, const copse__packed_sizes *s,
                               size_t number, size_t m, size_t n, size_t k,
                               size_t units) {
    static const size_t parts[] = {1, 2, 4, 8};
    *out = *s;
    if (m == 0 || n == 0)
        return false;
    size_t planned = copse__gemm_parts(s, m, n, k, units), found = 0;
    for (size_t i = 0; i < COPSE__COUNT(parts); i++) {
        out->parts = parts[i];
        if (parts[i] != planned && k / parts[i] >= 64 && found++ == number)
            return true;
    }
    out->parts = s->parts;
    copse__gemm_cut now = copse__gemm_cut_at(s, m, n, k, units, planned);
    for (size_t across = 1; across <= 16; across *= 2)
        for (size_t down = 1; down <= 32; down *= 2) {
            size_t groups = across * down * planned;
            out->tile_m = copse__round_up((m + down - 1) / down, s->mr);
            out->tile_n = copse__round_up((n + across - 1) / across, s->vw * s->nv);
            if (groups < units || groups > 16 * units || (down - 1) * out->tile_m >= m ||
                (across - 1) * out->tile_n >= n)
                continue;
            if ((out->tile_m != now.tile_m || out->tile_n != now.tile_n) &&
                found++ == number)
                return true;
        }
    return false;
}
