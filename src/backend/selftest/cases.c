/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest/cases.h"

#include <philox.clh>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void copse__case_add(copse__case_sink *sink, copse__case *made, const char *name, ...) {
    if (sink->status != COPSE_OK || (sink->ops && !sink->ops[made->spec.op]))
        return;
    int used =
        snprintf(made->name, sizeof made->name, "%s ", copse__op_name(made->spec.op));
    va_list args;
    va_start(args, name);
    vsnprintf(made->name + used, sizeof made->name - (size_t)used, name, args);
    va_end(args);
    if (made->run_count == 0)
        made->run_count = 1; /* no symbol: the extents do not matter */
    sink->status = sink->visit(made, sink->user, sink->err);
}

copse__node_operand copse__case_operand(copse_dtype dtype, bool batched, size_t rank,
                                        const size_t *dims) {
    copse__node_operand made = {.present = true, .dtype = dtype, .rank = rank};
    for (size_t i = 0; i < rank; i++)
        made.dim[i] =
            (copse__dim){dims[i], batched && i == 0 ? COPSE__BATCH : COPSE__FIXED};
    return made;
}

void copse__case_batches(copse__case *made, size_t planned) {
    const size_t wanted[COPSE__CASE_RUNS] = {planned, planned - planned / 3, 1, 0};
    for (size_t i = 0; i < COPSE__CASE_RUNS; i++) {
        if (i > 0 && wanted[i] >= wanted[i - 1])
            continue;
        made->runs[made->run_count++].of[COPSE__BATCH] = wanted[i];
    }
}

/* A stream of 32-bit numbers: word `at` of operand `input`. */
static uint32_t draw(uint64_t seed, size_t input, size_t at) {
    copse_philox4 counter = {{(uint32_t)(at / 4), (uint32_t)input, 0, 0x73656C66}};
    return copse_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32)).v[at % 4];
}

static void fill_floats(float *to, const copse__fill *fill, size_t input, size_t elements,
                        uint64_t seed) {
    float width = fill->high - fill->low;
    for (size_t i = 0; i < elements; i += 4) {
        copse_philox4 counter = {{(uint32_t)(i / 4), (uint32_t)input, 0, 0x73656C66}};
        copse_philox4 four =
            copse_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
        for (size_t j = i; j < i + 4 && j < elements; j++) {
            float unit = copse_philox_unit(four.v[j % 4]);
            to[j] = fill->low + width * unit;
            if (fill->kind == COPSE__FILL_STEPS)
                to[j] = fill->low + 0.25f * (float)(int)(width * 4 * unit);
            if (fill->special_every && (elements - 1 - j) % fill->special_every == 0)
                to[j] = fill->special;
        }
    }
}

static bool lies_inside(size_t at, size_t stride, size_t tap, size_t dilation, size_t pad,
                        size_t size) {
    size_t padded = at * stride + tap * dilation;
    return padded >= pad && padded - pad < size;
}

/* Walks from a random place to the next one that lies inside the image. */
static size_t index_at(const copse__case *made, size_t input, size_t at, uint64_t seed) {
    const copse__window *win = &made->spec.attrs.window, *pool = &made->spec.attrs.pool;
    if (pool->kernel_h > 0) /* without padding: all lie inside the map */
        return draw(seed, input, at) % (pool->kernel_h * pool->kernel_w);
    const copse__dim *image = made->spec.out[0].dim, *map = made->spec.in[input].dim;
    size_t places = win->kernel_h * win->kernel_w;
    size_t q = at / map[3].size % map[2].size;
    size_t p = at / map[3].size / map[2].size % map[1].size;
    size_t place = draw(seed, input, at) % places;
    for (size_t tried = 0; tried < places; tried++, place = (place + 1) % places)
        if (lies_inside(p, win->stride_h, place / win->kernel_w, win->dilation_h,
                        win->pad_top, image[1].size) &&
            lies_inside(q, win->stride_w, place % win->kernel_w, win->dilation_w,
                        win->pad_left, image[2].size))
            break;
    return place;
}

static void fill_indices(void *to, const copse__case *made, size_t input, size_t elements,
                         uint64_t seed) {
    bool wide = made->spec.in[input].dtype == COPSE_I32;
    for (size_t i = 0; i < elements; i++) {
        size_t place = index_at(made, input, i, seed);
        if (wide)
            ((int32_t *)to)[i] = (int32_t)place;
        else
            ((uint8_t *)to)[i] = (uint8_t)place;
    }
}

void copse__case_fill(void *to, const copse__case *made, size_t input, size_t elements,
                      uint64_t seed) {
    const copse__fill *fill = &made->fill[input];
    unsigned char *bytes = to;
    switch (fill->kind) {
    case COPSE__FILL_LABELS:
        for (size_t i = 0; i < elements; i++)
            ((int32_t *)to)[i] = (int32_t)(draw(seed, input, i) % (uint32_t)fill->high);
        break;
    case COPSE__FILL_BYTES:
        for (size_t i = 0; i < elements * copse_dtype_bytes(made->spec.in[input].dtype);
             i++)
            bytes[i] = (unsigned char)draw(seed, input, i);
        break;
    case COPSE__FILL_HALVES:
        for (size_t i = 0; i < elements; i++) {
            uint16_t half = (uint16_t)draw(seed, input, i);
            ((uint16_t *)to)[i] = (half & 0x7C00) == 0x7C00 ? half & 0x83FF : half;
        }
        break;
    case COPSE__FILL_DOUBLES:
        for (size_t i = 0; i < elements; i++)
            ((double *)to)[i] =
                (double)fill->low + (double)(fill->high - fill->low) *
                                        (double)copse_philox_unit(draw(seed, input, i));
        break;
    case COPSE__FILL_INDEX:
        fill_indices(to, made, input, elements, seed);
        break;
    default:
        fill_floats(to, fill, input, elements, seed);
        break;
    }
}
