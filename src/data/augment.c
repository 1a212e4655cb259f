/* SPDX-License-Identifier: Apache-2.0 */
#include "data/augment.h"

#include <math.h>
#include <string.h>

#include "data/shuffle.h"

static const char *const names[] = {
#define AUGMENT_NAME(code, name) name,
    COPSE_AUGMENT_MAP(AUGMENT_NAME)
#undef AUGMENT_NAME
};

const char *copse_augment_name(copse_augment_kind kind) {
    return (size_t)kind < COPSE__COUNT(names) ? names[kind] : NULL;
}

/* ---- Random numbers ------------------------------------------------------------------- */

static copse_philox4 draw(const copse__augment_key *key) {
    return copse__draw128(key->seed, key->epoch, key->sample,
                          COPSE__DRAW_AUGMENT + key->place);
}

/* Uniform in -1..1. */
static double both_ways(uint32_t bits) {
    return ((double)bits + 0.5) * 0x1p-31 - 1.0;
}

static size_t below(uint32_t bits, size_t bound) {
    return (size_t)copse__bounded((uint64_t)bits << 32, bound);
}

/* ---- Pixels --------------------------------------------------------------------------- */

typedef struct image {
    size_t height, width, channels, element;
    copse_dtype dtype;
} image;

static image image_of(const copse_data_spec *spec) {
    return (image){spec->shape[0], spec->shape[1], spec->shape[2],
                   copse_dtype_bytes(spec->dtype), spec->dtype};
}

static float get(const void *data, copse_dtype dtype, size_t at) {
    if (dtype == COPSE_U8)
        return (float)((const uint8_t *)data)[at];
    if (dtype == COPSE_U16)
        return (float)((const uint16_t *)data)[at];
    return ((const float *)data)[at];
}

static float top_of(copse_dtype dtype) {
    return dtype == COPSE_U8 ? 255.0f : dtype == COPSE_U16 ? 65535.0f : 1.0f;
}

static void put(void *data, copse_dtype dtype, size_t at, float value) {
    if (dtype == COPSE_F32) {
        ((float *)data)[at] = value;
        return;
    }
    float top = top_of(dtype);
    value = floorf(value + 0.5f);
    value = value < 0 ? 0 : value > top ? top : value;
    if (dtype == COPSE_U8)
        ((uint8_t *)data)[at] = (uint8_t)value;
    else
        ((uint16_t *)data)[at] = (uint16_t)value;
}

/* ---- The changes ---------------------------------------------------------------------- */

static void flip(unsigned char *out, const unsigned char *in, image i, bool horizontal) {
    size_t pixel = i.channels * i.element, row = i.width * pixel;
    for (size_t y = 0; y < i.height; y++) {
        if (!horizontal) {
            memcpy(out + y * row, in + (i.height - 1 - y) * row, row);
            continue;
        }
        const unsigned char *from = in + (y + 1) * row;
        for (unsigned char *to = out + y * row, *end = to + row; to < end; to += pixel) {
            from -= pixel;
            memcpy(to, from, pixel);
        }
    }
}

/* The part that starts at (top, left) of the padded image. */
static void crop(unsigned char *out, const unsigned char *in, image i, size_t padding,
                 size_t height, size_t width, size_t top, size_t left) {
    size_t pixel = i.channels * i.element;
    size_t from = left > padding ? left - padding : 0; /* first column of the image */
    size_t skip = left < padding ? copse__min_size(padding - left, width) : 0;
    size_t columns = from < i.width ? copse__min_size(width - skip, i.width - from) : 0;
    for (size_t y = 0; y < height; y++, out += width * pixel) {
        size_t row = top + y;
        if (row < padding || row - padding >= i.height || columns == 0) {
            memset(out, 0, width * pixel);
            continue;
        }
        memset(out, 0, skip * pixel);
        memcpy(out + skip * pixel, in + ((row - padding) * i.width + from) * pixel,
               columns * pixel);
        memset(out + (skip + columns) * pixel, 0, (width - skip - columns) * pixel);
    }
}

/* Reflects an index into 0..n-1: ... 1 0 0 1 2 ... n-1 n-1 n-2 ... */
static size_t reflect(long at, size_t n) {
    long period = 2 * (long)n;
    at %= period;
    at += at < 0 ? period : 0;
    return (size_t)(at < (long)n ? at : period - 1 - at);
}

static void rotate(void *out, const void *in, image i, double turns) {
    const double angle = turns * 6.283185307179586;
    float s = (float)sin(angle), c = (float)cos(angle);
    float cy = (float)(i.height - 1) / 2, cx = (float)(i.width - 1) / 2;
    for (size_t y = 0; y < i.height; y++)
        for (size_t x = 0; x < i.width; x++) {
            float dy = (float)y - cy, dx = (float)x - cx;
            float sy = cy + c * dy - s * dx, sx = cx + s * dy + c * dx;
            float fy = floorf(sy), fx = floorf(sx), wy = sy - fy, wx = sx - fx;
            size_t y0 = reflect((long)fy, i.height), y1 = reflect((long)fy + 1, i.height);
            size_t x0 = reflect((long)fx, i.width), x1 = reflect((long)fx + 1, i.width);
            for (size_t k = 0; k < i.channels; k++) {
                float a = get(in, i.dtype, (y0 * i.width + x0) * i.channels + k);
                float b = get(in, i.dtype, (y0 * i.width + x1) * i.channels + k);
                float d = get(in, i.dtype, (y1 * i.width + x0) * i.channels + k);
                float e = get(in, i.dtype, (y1 * i.width + x1) * i.channels + k);
                float above = a + wx * (b - a), below_ = d + wx * (e - d);
                put(out, i.dtype, (y * i.width + x) * i.channels + k,
                    above + wy * (below_ - above));
            }
        }
}

static void brighten(void *out, const void *in, image i, double by) {
    size_t n = i.height * i.width * i.channels;
    float add = (float)by * top_of(i.dtype);
    for (size_t k = 0; k < n; k++)
        put(out, i.dtype, k, get(in, i.dtype, k) + add);
}

static void contrast(void *out, const void *in, image i, double factor) {
    size_t pixels = i.height * i.width;
    for (size_t k = 0; k < i.channels; k++) {
        double sum = 0;
        for (size_t p = 0; p < pixels; p++)
            sum += (double)get(in, i.dtype, p * i.channels + k);
        float mean = (float)(sum / (double)pixels), scale = (float)factor;
        for (size_t p = 0; p < pixels; p++) {
            size_t at = p * i.channels + k;
            put(out, i.dtype, at, (get(in, i.dtype, at) - mean) * scale + mean);
        }
    }
}

/* The square around (y, x), as far as it lies in the image. */
static void cut_out(unsigned char *out, const unsigned char *in, image i, size_t size,
                    size_t y, size_t x) {
    size_t pixel = i.channels * i.element, half = size / 2;
    size_t top = y > half ? y - half : 0, left = x > half ? x - half : 0;
    size_t bottom = copse__min_size(y + (size - half), i.height);
    size_t right = copse__min_size(x + (size - half), i.width);
    memcpy(out, in, i.height * i.width * pixel);
    for (size_t row = top; row < bottom; row++)
        memset(out + (row * i.width + left) * pixel, 0, (right - left) * pixel);
}

void copse__augment_image(void *out, const void *in, const copse_data_spec *spec,
                          const copse_augment *augment, const copse__augment_key *key) {
    image i = image_of(spec);
    copse_philox4 bits = draw(key);
    size_t height = augment->height ? augment->height : i.height;
    size_t width = augment->width ? augment->width : i.width;
    double both = both_ways(bits.v[0]) * augment->amount;
    double probability = augment->amount > 0 ? augment->amount : 0.5;
    switch (augment->kind) {
    case COPSE_AUGMENT_FLIP_HORIZONTAL:
    case COPSE_AUGMENT_FLIP_VERTICAL:
        if ((double)copse_philox_unit(bits.v[0]) < probability)
            flip(out, in, i, augment->kind == COPSE_AUGMENT_FLIP_HORIZONTAL);
        else
            memcpy(out, in, i.height * i.width * i.channels * i.element);
        break;
    case COPSE_AUGMENT_CROP:
        crop(out, in, i, augment->padding, height, width,
             below(bits.v[0], i.height + 2 * augment->padding - height + 1),
             below(bits.v[1], i.width + 2 * augment->padding - width + 1));
        break;
    case COPSE_AUGMENT_CENTER_CROP:
        crop(out, in, i, augment->padding, height, width,
             (i.height + 2 * augment->padding - height) / 2,
             (i.width + 2 * augment->padding - width) / 2);
        break;
    case COPSE_AUGMENT_ROTATE:
        rotate(out, in, i, both);
        break;
    case COPSE_AUGMENT_BRIGHTNESS:
        brighten(out, in, i, both);
        break;
    case COPSE_AUGMENT_CONTRAST:
        contrast(out, in, i, 1 + both);
        break;
    case COPSE_AUGMENT_CUTOUT:
        cut_out(out, in, i, augment->size, below(bits.v[0], i.height),
                below(bits.v[1], i.width));
        break;
    case COPSE_AUGMENT_MIXUP:
        break;
    }
}

/* ---- Checks --------------------------------------------------------------------------- */

static copse_status refuse(const copse_augment *augment, const char *why,
                           copse_error *err) {
    return copse__fail(err, COPSE_CONFIG, 0, copse_augment_name(augment->kind), "%s",
                       why);
}

static copse_status check_crop(copse_data_spec *out, const copse_augment *augment,
                               const copse_data_spec *in, copse_error *err) {
    size_t most = SIZE_MAX / 4;
    size_t height = augment->height ? augment->height : in->shape[0];
    size_t width = augment->width ? augment->width : in->shape[1];
    if (augment->padding > most || height > in->shape[0] + 2 * augment->padding ||
        width > in->shape[1] + 2 * augment->padding)
        return refuse(augment,
                      "the crop is larger than the padded image; add padding or make it "
                      "smaller",
                      err);
    out->shape[0] = height;
    out->shape[1] = width;
    return COPSE_OK;
}

copse_status copse__augment_spec(copse_data_spec *out, const copse_augment *augment,
                                 const copse_data_spec *in, copse_error *err) {
    *out = *in;
    if (!copse_augment_name(augment->kind))
        return copse__fail(err, COPSE_INVALID, 0, NULL, "there is no augmentation %d",
                           (int)augment->kind);
    bool known =
        in->dtype == COPSE_U8 || in->dtype == COPSE_U16 || in->dtype == COPSE_F32;
    bool mixup = augment->kind == COPSE_AUGMENT_MIXUP;
    if (!known || (in->rank != 3 && !mixup))
        return refuse(augment,
                      "it works on images of u8, u16 or f32 with height, width and "
                      "channels; the features are something else",
                      err);
    bool flips = augment->kind == COPSE_AUGMENT_FLIP_HORIZONTAL ||
                 augment->kind == COPSE_AUGMENT_FLIP_VERTICAL;
    bool unbounded = mixup || augment->kind == COPSE_AUGMENT_ROTATE;
    if (!(augment->amount >= 0) || isinf(augment->amount) ||
        (augment->amount > 1 && !unbounded))
        return refuse(augment, "its amount is not within its range", err);
    if (augment->kind == COPSE_AUGMENT_CROP || augment->kind == COPSE_AUGMENT_CENTER_CROP)
        return check_crop(out, augment, in, err);
    if (augment->kind == COPSE_AUGMENT_CUTOUT) {
        if (augment->size == 0 || augment->size > SIZE_MAX / 4)
            return refuse(augment, "it needs a size of at least 1", err);
    } else if (augment->amount == 0 && !flips) {
        return refuse(augment, "it needs an amount above 0", err);
    }
    return COPSE_OK;
}
