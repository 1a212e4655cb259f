/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/packed.h"

#include <stdio.h>

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t ceil_div(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

static size_t round_up(size_t a, size_t b) {
    return ceil_div(a, b) * b;
}

size_t copse__gemm_local_floats(const copse__packed_sizes *s) {
    size_t a = most(s->mc * (s->kc + 16), s->mc / s->mr * (s->kc * s->mr + 16) + 16);
    return a + s->nc / (s->vw * s->nv) * (s->kc * s->vw * s->nv + 16);
}

bool copse__packed_sizes_default(copse__packed_sizes *out, size_t width,
                                 size_t local_bytes) {
    copse__packed_sizes s = {.vw = 4, .nv = 2, .mr = 6};
    if (width >= 16)
        s.vw = 16, s.mr = 8;
    else if (width >= 8)
        s.vw = 8;
    /* Room for tables of pixels and taps, and for what the driver itself keeps there. */
    size_t floats = local_bytes / sizeof(float) / 16 * 15;
    s.kc = 256;
    s.mc = s.mr == 6 ? 96 : 128;
    s.nc = 256;
    while (copse__gemm_local_floats(&s) > floats && s.nc > 2 * s.vw * s.nv)
        s.nc /= 2;
    while (copse__gemm_local_floats(&s) > floats && s.kc > 64)
        s.kc /= 2;
    while (copse__gemm_local_floats(&s) > floats && s.mc > 2 * s.mr)
        s.mc = s.mc / 2 / s.mr * s.mr;
    s.pixels = least(1024, floats / 16);
    s.slab = least(32768, floats / 2);
    s.panels = least(16384, floats / 4);
    *out = s;
    return copse__gemm_local_floats(&s) <= floats && s.slab >= 2048;
}

const char *copse__packed_options(const copse__packed_sizes *s, char *buffer,
                                  size_t capacity) {
    snprintf(buffer, capacity,
             "-DCOPSE_VW=%zu -DCOPSE_NV=%zu -DCOPSE_MR=%zu -DCOPSE_KC=%zu -DCOPSE_MC=%zu "
             "-DCOPSE_NC=%zu -DCOPSE_SLAB=%zu -DCOPSE_PIXELS=%zu -DCOPSE_PANELS=%zu",
             s->vw, s->nv, s->mr, s->kc, s->mc, s->nc, s->slab, s->pixels, s->panels);
    return buffer;
}

size_t copse__gemm_parts(const copse__packed_sizes *s, size_t m, size_t n, size_t k,
                         size_t units) {
    if (s->parts > 0)
        return most(1, least(s->parts, k / 64));
    size_t wanted = most(8, 2 * units), tiles = ceil_div(m, 128) * ceil_div(n, 128);
    if (tiles >= wanted)
        return 1;
    /* Adding the parts costs traffic of their size: each must be a long sum. */
    return most(1, least(wanted / tiles, k / 512));
}

/* Rows of A and of C lie in pages of their own: more than this and the second-level TLB
 * is too small for a pass over them. */
#define MOST_ROWS 1024

/* Estimated cycles until the slowest unit is done, with this cut. */
static double gemm_cycles(const copse__packed_sizes *s, size_t tm, size_t tn, size_t tk,
                          size_t groups, size_t units) {
    double tiles = (double)(ceil_div(tm, s->mr) * ceil_div(tn, s->vw * s->nv));
    double sums = tiles * (double)(s->mr * s->nv) / 2 * (double)tk;
    double packs = (double)tk * (double)(tm * ceil_div(tn, s->nc) + tn) * 0.6;
    double out = (double)(tm * tn) * (double)ceil_div(tk, s->kc) * 0.25;
    return (double)ceil_div(groups, units) * (sums + packs + out + 1000);
}

copse__gemm_cut copse__gemm_cut_at(const copse__packed_sizes *s, size_t m, size_t n,
                                   size_t k, size_t units, size_t max_parts) {
    copse__gemm_cut cut = {.tile_k = most(1, ceil_div(k, most(1, max_parts)))};
    size_t parts = most(1, ceil_div(k, cut.tile_k)), nr = s->vw * s->nv;
    double best = -1;
    if (s->tile_m > 0 && s->tile_n > 0) {
        cut.tile_m = s->tile_m;
        cut.tile_n = s->tile_n;
        best = 0;
    }
    for (size_t across = 1; best != 0 && across <= 64 && (across - 1) * nr < n;
         across++) {
        size_t tn = round_up(ceil_div(n, across), nr);
        for (size_t down = 1; down <= 256 && (down - 1) * s->mr < m; down++) {
            size_t tm = round_up(ceil_div(m, down), s->mr);
            if (tm > MOST_ROWS + s->mr && down < 256)
                continue;
            size_t groups = ceil_div(n, tn) * ceil_div(m, tm) * parts;
            if (groups > 8 * units && best >= 0)
                break;
            double cycles = gemm_cycles(s, tm, tn, cut.tile_k, groups, units);
            /* A few groups more than units even out a busy machine. */
            if (groups < 4 * units)
                cycles *= 1.0 + 0.004 * (double)(4 * units - groups) / (double)units;
            if (best < 0 || cycles < best) {
                best = cycles;
                cut.tile_m = tm;
                cut.tile_n = tn;
            }
        }
    }
    cut.groups[0] = ceil_div(n, cut.tile_n);
    cut.groups[1] = ceil_div(m, cut.tile_m);
    cut.groups[2] = parts;
    return cut;
}

/* Pixels of source that `count` target pixels and their taps reach over, on one axis. */
static size_t reach(size_t count, size_t step, size_t kernel, size_t dilation,
                    size_t phase) {
    size_t span = (kernel - 1) * dilation / phase;
    return (count - 1) * step + span + 1;
}

typedef struct grid {
    size_t rows, columns; /* target pixels of the largest phase */
    size_t step_h, step_w, phase_h, phase_w;
    bool pitched; /* pixels of the slab lie as the filter's gradient lays them */
    size_t fold;  /* rows and columns of a block are multiples of it */
} grid;

static size_t slab_floats(const copse__conv_size *z, const grid *g, size_t images,
                          size_t rows, size_t columns, size_t channels) {
    if (g->pitched)
        channels = COPSE_CONV_PITCH(channels);
    return images * reach(rows, g->step_h, z->kernel_h, z->dilation_h, g->phase_h) *
           reach(columns, g->step_w, z->kernel_w, z->dilation_w, g->phase_w) * channels;
}

/* The largest block of pixels whose slab of `channels` fits. false: not even one pixel. */
static bool cut_block(copse_conv_shape *shape, const copse__conv_size *z, const grid *g,
                      size_t slab, size_t pixels, size_t channels) {
    size_t fold = g->fold, rows = fold, images = 1;
    size_t columns = least(g->columns, most(fold, pixels / fold / fold * fold));
    while (columns > fold && slab_floats(z, g, 1, rows, columns, channels) > slab)
        columns = round_up(ceil_div(columns, 2), fold);
    if (slab_floats(z, g, 1, rows, columns, channels) > slab)
        return false;
    /* even pieces */
    columns = round_up(ceil_div(g->columns, ceil_div(g->columns, columns)), fold);
    while (rows < g->rows && (rows + fold) * columns <= pixels &&
           slab_floats(z, g, 1, rows + fold, columns, channels) <= slab)
        rows += fold;
    rows = round_up(ceil_div(g->rows, ceil_div(g->rows, rows)), fold);
    if (rows == g->rows && columns == g->columns)
        while (images < z->images && (images + 1) * rows * columns <= pixels &&
               slab_floats(z, g, images + 1, rows, columns, channels) <= slab)
            images++;
    shape->block_images = (int32_t)images;
    shape->block_rows = (int32_t)rows;
    shape->block_columns = (int32_t)columns;
    shape->channels = (int32_t)channels;
    return true;
}

static size_t block_pixels(const copse_conv_shape *shape) {
    return (size_t)shape->block_images * (size_t)shape->block_rows *
           (size_t)shape->block_columns;
}

/* Fewer channels in a slab give larger blocks of pixels: enough to use a panel of packed
 * weights while it is in the first-level cache, or all pixels there are. */
static bool cut_channels(copse_conv_shape *shape, const copse__conv_size *z,
                         const grid *g, size_t slab, size_t pixels, size_t channels_all,
                         size_t channels_most, size_t multiple) {
    size_t enough = least(96, z->images * g->rows * g->columns);
    size_t pieces = ceil_div(channels_all, channels_most);
    bool found = false;
    for (; pieces <= channels_all; pieces++) {
        size_t channels = ceil_div(channels_all, pieces);
        if (pieces > 1)
            channels = round_up(channels, multiple);
        if (found && channels < 16)
            break;
        if (cut_block(shape, z, g, slab, pixels, channels)) {
            found = true;
            if (block_pixels(shape) >= enough)
                break;
        }
    }
    return found;
}

static bool fits_int(const copse__conv_size *z, size_t images) {
    size_t most_int = INT32_MAX / 4,
           sizes[] = {z->h,          z->w,          z->c,        z->p,        z->q,
                      z->f,          z->kernel_h,   z->kernel_w, z->stride_h, z->stride_w,
                      z->dilation_h, z->dilation_w, z->pad_top,  z->pad_left, images};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] > most_int)
            return false;
    if (z->kernel_h * z->kernel_w > COPSE__PACKED_TAPS ||
        z->kernel_h * z->dilation_h > most_int || z->kernel_w * z->dilation_w > most_int)
        return false;
    /* Pixel numbers of one block of images, and rows of packed weights. */
    return z->h * z->w <= most_int / 1024 && z->p * z->q <= most_int / 1024 &&
           z->kernel_h * z->kernel_w * most(z->c, z->f) <= most_int / 64;
}

size_t copse__conv_parts(const copse__conv_size *z, size_t units) {
    size_t k = z->kernel_h * z->kernel_w * z->c, wanted = most(8, 2 * units);
    size_t pixels = z->images * z->p * z->q;
    /* Parts of a large filter cost more to write and add than they gain. */
    size_t worth = most(1, pixels / 512);
    size_t tiles = ceil_div(k, 288) * ceil_div(z->f, 64);
    return tiles >= 4 * wanted ? 1 : least(worth, wanted);
}

static copse_conv_shape base_shape(const copse__conv_size *z, copse__conv_pass pass,
                                   grid *g) {
    bool backward = pass == COPSE__CONV_GRAD_INPUT;
    copse_conv_shape s = {
        .images = (int32_t)z->images,
        .source_h = (int32_t)(backward ? z->p : z->h),
        .source_w = (int32_t)(backward ? z->q : z->w),
        .source_c = (int32_t)(backward ? z->f : z->c),
        .target_h = (int32_t)(backward ? z->h : z->p),
        .target_w = (int32_t)(backward ? z->w : z->q),
        .target_c = (int32_t)(backward ? z->c : z->f),
        .kernel_h = (int32_t)z->kernel_h,
        .kernel_w = (int32_t)z->kernel_w,
        .dilation_h = (int32_t)z->dilation_h,
        .dilation_w = (int32_t)z->dilation_w,
        .pad_top = (int32_t)z->pad_top,
        .pad_left = (int32_t)z->pad_left,
        .step_h = (int32_t)(backward ? 1 : z->stride_h),
        .step_w = (int32_t)(backward ? 1 : z->stride_w),
        .phase_h = (int32_t)(backward ? z->stride_h : 1),
        .phase_w = (int32_t)(backward ? z->stride_w : 1),
        .backward = backward,
    };
    *g = (grid){ceil_div((size_t)s.target_h, (size_t)s.phase_h),
                ceil_div((size_t)s.target_w, (size_t)s.phase_w),
                (size_t)s.step_h,
                (size_t)s.step_w,
                (size_t)s.phase_h,
                (size_t)s.phase_w,
                pass == COPSE__CONV_GRAD_FILTER,
                z->pooled && !backward ? 2 : 1};
    return s;
}

bool copse__conv_cut_at(copse__conv_cut *out, const copse__packed_sizes *sizes,
                        copse__conv_pass pass, const copse__conv_size *z, size_t units,
                        size_t max_parts) {
    copse__conv_cut cut = {0};
    grid g;
    if (!fits_int(z, z->images) || !z->h || !z->w || !z->c || !z->p || !z->q || !z->f)
        return false;
    if (z->pooled && (z->p % 2 || z->q % 2))
        return false;
    cut.shape = base_shape(z, pass, &g);
    copse_conv_shape *s = &cut.shape;
    size_t source_c = (size_t)s->source_c, nr = sizes->vw * sizes->nv;
    size_t pixels = sizes->pixels;
    if (pass == COPSE__CONV_GRAD_FILTER)
        pixels = least(sizes->kc, sizes->panels / nr - 1); /* a panel of dy: level 1 */
    /* A pooled map has no place where sums over some channels could wait for the others. */
    if (z->pooled && pass == COPSE__CONV_FORWARD) {
        if (!cut_block(s, z, &g, sizes->slab, pixels, source_c))
            return false;
    } else if (!cut_channels(s, z, &g, sizes->slab, pixels, source_c, sizes->kc,
                             pass == COPSE__CONV_GRAD_FILTER ? sizes->mr : 1))
        return false;
    size_t blocks = ceil_div(z->images, (size_t)s->block_images) *
                    ceil_div(g.rows, (size_t)s->block_rows) *
                    ceil_div(g.columns, (size_t)s->block_columns);
    size_t slabs = ceil_div(source_c, (size_t)s->channels);
    size_t panels = ceil_div((size_t)s->target_c, nr), wanted = 4 * most(2, units);
    if (pass == COPSE__CONV_GRAD_FILTER) {
        size_t parts = most(1, least(max_parts, blocks));
        s->group_blocks = (int32_t)most(1, ceil_div(blocks, parts));
        cut.parts = most(1, ceil_div(blocks, (size_t)s->group_blocks));
        size_t pieces = least(panels, ceil_div(wanted, cut.parts * slabs));
        s->group_panels = (int32_t)ceil_div(panels, pieces);
        cut.groups[0] = cut.parts;
        cut.groups[1] = slabs;
    } else {
        size_t phases = g.phase_h * g.phase_w;
        s->group_blocks = (int32_t)most(1, ceil_div(blocks * phases, 4 * wanted));
        cut.groups[0] = ceil_div(blocks, (size_t)s->group_blocks);
        cut.groups[1] = phases;
        size_t pieces =
            cut.groups[0] ? least(panels, ceil_div(wanted, cut.groups[0] * phases)) : 1;
        s->group_panels = (int32_t)ceil_div(panels, pieces);
        cut.packed_floats = z->kernel_h * z->kernel_w * source_c * panels * nr;
        cut.pack_groups[0] = z->kernel_h * z->kernel_w;
        cut.pack_groups[1] = slabs;
    }
    cut.groups[2] = ceil_div(panels, (size_t)s->group_panels);
    *out = cut;
    return true;
}

/* Source channels in a slab of the filter's gradient: their rows of the tile share the panel of dy. */
#define WINOGRAD_CHANNELS 96

bool copse__winograd_cut_at(copse__conv_cut *out, const copse__packed_sizes *sizes,
                            copse__conv_pass pass, const copse__conv_size *z,
                            size_t outputs, size_t units, size_t max_parts) {
    copse__conv_cut cut = {0};
    grid g;
    size_t points = (outputs + 2) * (outputs + 2), nr = sizes->vw * sizes->nv;
    if (!fits_int(z, z->images) || z->kernel_h != 3 || z->kernel_w != 3 ||
        z->stride_h != 1 || z->stride_w != 1 || z->dilation_h != 1 ||
        z->dilation_w != 1 || z->c % sizes->vw || z->f % sizes->vw || z->pooled ||
        !z->c || !z->f)
        return false;
    cut.shape = base_shape(z, pass, &g);
    copse_conv_shape *s = &cut.shape;
    size_t source_c = (size_t)s->source_c, channels = source_c;
    size_t panels = ceil_div((size_t)s->target_c, nr), wanted = 4 * most(2, units);
    size_t tiles = z->images * ceil_div((size_t)s->target_h, outputs) *
                   ceil_div((size_t)s->target_w, outputs);
    if (most(z->h * z->w * z->c, z->p * z->q * z->f) > INT32_MAX / 4 ||
        tiles > INT32_MAX / 4)
        return false;
    bool filter = pass == COPSE__CONV_GRAD_FILTER;
    if (filter)
        channels = round_up(ceil_div(source_c, ceil_div(source_c, WINOGRAD_CHANNELS)),
                            sizes->vw);
    size_t a_tile = points * COPSE_CONV_PITCH(channels),
           multiple = filter ? 1 : sizes->mr;
    size_t block = least(sizes->slab, COPSE__WINOGRAD_SLAB) / a_tile;
    if (block < 2 * sizes->mr) /* deep filters are read too often by smaller blocks */
        block = sizes->slab / a_tile;
    block = least(block, sizes->panels / (points * nr));
    if (block < multiple)
        return false;
    block = block / multiple * multiple;
    block = round_up(ceil_div(tiles, most(1, ceil_div(tiles, block))), multiple);
    s->block_columns = (int32_t)most(1, block);
    s->channels = (int32_t)channels;
    size_t blocks = ceil_div(tiles, (size_t)s->block_columns);
    size_t slabs = ceil_div(source_c, channels), pieces;
    if (filter) {
        cut.parts = most(1, least(max_parts, ceil_div(blocks, 4)));
        s->group_blocks = (int32_t)most(1, ceil_div(blocks, cut.parts));
        cut.parts = most(1, ceil_div(blocks, (size_t)s->group_blocks));
        pieces = least(panels, ceil_div(wanted, cut.parts * slabs));
        cut.groups[0] = cut.parts;
        cut.groups[1] = slabs;
    } else {
        s->group_blocks = (int32_t)most(1, ceil_div(blocks, 4 * wanted));
        cut.groups[0] = ceil_div(blocks, (size_t)s->group_blocks);
        cut.groups[1] = 1;
        pieces = cut.groups[0] ? least(panels, ceil_div(wanted, cut.groups[0])) : 1;
        cut.packed_floats = points * source_c * panels * nr;
        cut.pack_groups[0] = source_c / sizes->vw;
        cut.pack_groups[1] = panels;
    }
    s->group_panels = (int32_t)ceil_div(panels, pieces);
    cut.groups[2] = ceil_div(panels, (size_t)s->group_panels);
    *out = cut;
    return true;
}
