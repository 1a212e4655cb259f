/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image.h"

#include <math.h>
#include <string.h>

bool copse__image_is_known(const unsigned char *data, size_t bytes) {
    return (bytes >= 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0) ||
           (bytes >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0);
}

copse_status copse__image_room(copse__image *image, const char *place,
                               copse__scratch *scratch, copse_error *err) {
    size_t bytes = image->channels * image->sample_bytes;
    if (!copse__mul_size(bytes, image->width, &bytes) ||
        !copse__mul_size(bytes, image->height, &bytes) || bytes > COPSE__IMAGE_MOST)
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "its %zu x %zu pixels are more than the %zu MiB that an image "
                           "may take; scale it down",
                           image->width, image->height, COPSE__IMAGE_MOST >> 20);
    copse_status status =
        copse__grow(&scratch->pixels, &scratch->pixel_capacity, bytes, 1, err);
    image->pixels = scratch->pixels;
    return status;
}

static void widen(copse__image *image) {
    size_t samples = image->height * image->width * image->channels;
    for (size_t i = samples; i-- > 0;) {
        uint16_t wide = (uint16_t)(image->pixels[i] * 257u);
        memcpy(image->pixels + 2 * i, &wide, 2);
    }
    image->sample_bytes = 2;
}

copse_status copse__image_decode(copse__image *out, const unsigned char *data,
                                 size_t bytes, size_t channels, bool sixteen_bits,
                                 const char *place, copse__scratch *scratch,
                                 copse_error *err) {
    if (bytes == 0)
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "the file is empty; replace or remove it");
    if (!copse__image_is_known(data, bytes))
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "it is neither a PNG nor a JPEG; convert or remove it");
    if (data[0] == 0x89)
        return copse__png_decode(out, data, bytes, channels, sixteen_bits, place, scratch,
                                 err);
    copse_status status =
        copse__jpeg_decode(out, data, bytes, channels, place, scratch, err);
    if (status != COPSE_OK || !sixteen_bits)
        return status;
    size_t size = out->height * out->width * channels * 2;
    status = copse__grow(&scratch->pixels, &scratch->pixel_capacity, size, 1, err);
    out->pixels = scratch->pixels;
    if (status == COPSE_OK)
        widen(out);
    return status;
}

/* ---- Resizing ------------------------------------------------------------------------- */

/* The source samples that make up one output sample, of one axis. */
typedef struct span {
    size_t first, count;
    float *weights;
} span;

typedef struct axis {
    span *spans;
    float *weights;
} axis;

static void axis_free(axis *a) {
    free(a->spans);
    free(a->weights);
}

/* Triangle of radius max(scale, 1) around each output sample's centre. */
static copse_status axis_make(axis *a, size_t out, size_t in, double start, double length,
                              copse_error *err) {
    double scale = length / (double)out, radius = scale > 1 ? scale : 1;
    size_t most = (size_t)ceil(radius) * 2 + 1, cells;
    *a = (axis){0};
    if (!copse__mul_size(most, out, &cells))
        return copse__fail_nomem(err, UINT64_MAX);
    copse_status status = copse__calloc(&a->spans, out, sizeof *a->spans, err);
    if (status == COPSE_OK)
        status = copse__calloc(&a->weights, cells, sizeof *a->weights, err);
    for (size_t i = 0; i < out && status == COPSE_OK; i++) {
        double centre = start + ((double)i + 0.5) * scale, sum = 0;
        double low = floor(centre - radius + 0.5), high = floor(centre + radius + 0.5);
        size_t first = low > 0 ? (size_t)low : 0;
        size_t last = high < (double)in ? (size_t)high : in;
        span *s = &a->spans[i];
        *s = (span){first, last - first, a->weights + i * most};
        for (size_t k = 0; k < s->count; k++) {
            double far = fabs(((double)(first + k) - centre + 0.5) / radius);
            double weight = far < 1 ? 1 - far : 0;
            s->weights[k] = (float)weight;
            sum += weight;
        }
        for (size_t k = 0; k < s->count; k++)
            s->weights[k] = (float)((double)s->weights[k] / sum);
    }
    return status;
}

static float get(const unsigned char *samples, size_t at, size_t sample_bytes) {
    uint16_t wide;
    if (sample_bytes == 1)
        return (float)samples[at];
    memcpy(&wide, samples + 2 * at, 2);
    return (float)wide;
}

static void put(unsigned char *samples, size_t at, size_t sample_bytes, float value) {
    float most = sample_bytes == 1 ? 255.0f : 65535.0f;
    value = floorf(value + 0.5f);
    value = value < 0 ? 0 : value > most ? most : value;
    uint16_t wide = (uint16_t)value;
    if (sample_bytes == 1)
        samples[at] = (unsigned char)wide;
    else
        memcpy(samples + 2 * at, &wide, 2);
}

/* One image row, scaled horizontally, as floats. */
static void scale_row(float *out, size_t out_width, const copse__image *image, size_t y,
                      const axis *across) {
    size_t c = image->channels;
    for (size_t x = 0; x < out_width; x++) {
        const span *s = &across->spans[x];
        for (size_t k = 0; k < c; k++) {
            float sum = 0;
            for (size_t i = 0; i < s->count; i++)
                sum += s->weights[i] * get(image->pixels,
                                           (y * image->width + s->first + i) * c + k,
                                           image->sample_bytes);
            out[x * c + k] = sum;
        }
    }
}

copse_status copse__image_resize(void *out, size_t out_height, size_t out_width,
                                 const copse__image *image, copse__image_box part,
                                 copse_error *err) {
    axis across = {0}, down = {0};
    float *rows = NULL;
    size_t row = out_width * image->channels, from, cells;
    copse_status status =
        axis_make(&across, out_width, image->width, part.left, part.width, err);
    if (status == COPSE_OK)
        status = axis_make(&down, out_height, image->height, part.top, part.height, err);
    if (status != COPSE_OK)
        goto out;
    from = down.spans[0].first;
    size_t last = down.spans[out_height - 1].first + down.spans[out_height - 1].count;
    if (!copse__mul_size(last - from, row, &cells)) {
        status = copse__fail_nomem(err, UINT64_MAX);
        goto out;
    }
    COPSE__TRY(copse__calloc(&rows, cells, sizeof *rows, err), out);
    for (size_t y = from; y < last; y++)
        scale_row(rows + (y - from) * row, out_width, image, y, &across);
    for (size_t y = 0; y < out_height; y++) {
        const span *s = &down.spans[y];
        for (size_t x = 0; x < row; x++) {
            float sum = 0;
            for (size_t i = 0; i < s->count; i++)
                sum += s->weights[i] * rows[(s->first + i - from) * row + x];
            put(out, y * row + x, image->sample_bytes, sum);
        }
    }
out:
    axis_free(&across);
    axis_free(&down);
    free(rows);
    return status;
}

/* ---- As the options say --------------------------------------------------------------- */

static size_t channels_of(const copse_image_options *options) {
    return options->channels ? options->channels : 3;
}

copse_status copse__image_spec(copse_data_spec *out, const copse_image_options *options,
                               const unsigned char *data, size_t bytes, const char *place,
                               copse__scratch *scratch, copse_error *err) {
    size_t c = channels_of(options);
    if ((c != 1 && c != 3 && c != 4) || !options->height != !options->width)
        return copse__fail(
            err, COPSE_CONFIG, 0, place,
            "images have 1, 3 or 4 channels, and both a height and a width "
            "or neither");
    *out = (copse_data_spec){.dtype = options->sixteen_bits ? COPSE_U16 : COPSE_U8,
                             .rank = 3,
                             .shape = {options->height, options->width, c}};
    if (options->height)
        return COPSE_OK;
    copse__image image;
    copse_status status = copse__image_decode(&image, data, bytes, c,
                                              options->sixteen_bits, place, scratch, err);
    if (status != COPSE_OK)
        return status;
    out->shape[0] = image.height;
    out->shape[1] = image.width;
    return COPSE_OK;
}

/* The middle part with the target's aspect ratio. */
static copse__image_box cropped(const copse__image *image, double height, double width) {
    double h = (double)image->height, w = (double)image->width;
    copse__image_box box = {0, 0, h, w};
    if (w * height > h * width) {
        box.width = h * width / height;
        box.left = (w - box.width) / 2;
    } else {
        box.height = w * height / width;
        box.top = (h - box.height) / 2;
    }
    return box;
}

copse_status copse__image_read(void *out, const copse_data_spec *spec,
                               const copse_image_options *options,
                               const unsigned char *data, size_t bytes, const char *place,
                               copse__scratch *scratch, copse_error *err) {
    copse__image image;
    size_t height = spec->shape[0], width = spec->shape[1];
    copse_status status = copse__image_decode(&image, data, bytes, spec->shape[2],
                                              options->sixteen_bits, place, scratch, err);
    if (status != COPSE_OK)
        return status;
    if (image.height == height && image.width == width) {
        memcpy(out, image.pixels, height * width * image.channels * image.sample_bytes);
        return COPSE_OK;
    }
    if (options->height == 0)
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "its size is %zu x %zu, but the first image's is %zu x %zu; "
                           "scale all with image: {height, width}",
                           image.height, image.width, height, width);
    copse__image_box part = {0, 0, (double)image.height, (double)image.width};
    if (options->resize == COPSE_RESIZE_CROP)
        part = cropped(&image, (double)height, (double)width);
    return copse__image_resize(out, height, width, &image, part, err);
}
