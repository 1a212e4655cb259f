/* SPDX-License-Identifier: Apache-2.0 */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/image.h"
#include "io/bytes.h"

/* ---- Reading -------------------------------------------------------------------------- */

typedef struct source {
    const unsigned char *data;
    size_t bytes, at;
    char message[160];
} source;

static void on_error(png_structp png, png_const_charp message) {
    source *from = png_get_error_ptr(png);
    snprintf(from->message, sizeof from->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep out, size_t bytes) {
    source *from = png_get_io_ptr(png);
    if (bytes > from->bytes - from->at)
        png_error(png, "the file ends too early");
    memcpy(out, from->data + from->at, bytes);
    from->at += bytes;
}

/* Every kind of PNG to `channels` channels of 8 or 16 bits. */
static void set_transforms(png_structp png, png_infop info, size_t channels,
                           bool sixteen_bits) {
    int colour = png_get_color_type(png, info);
    bool alpha =
        (colour & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, info, PNG_INFO_tRNS);
    png_set_expand(png);
    if (sixteen_bits) {
        png_set_expand_16(png);
        if (copse__host_is_little())
            png_set_swap(png);
    } else {
        png_set_scale_16(png);
    }
    if (channels == 4 && !alpha)
        png_set_add_alpha(png, 0xffff, PNG_FILLER_AFTER);
    if (channels != 4 && alpha)
        png_set_strip_alpha(png);
    if (channels >= 3 && !(colour & PNG_COLOR_MASK_COLOR))
        png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

typedef struct decoder {
    png_structp png;
    png_infop info;
    source from;
    png_bytep *rows;
    copse_status status;
} decoder;

/* A header that promises more than deflate can make of the file lies. */
static bool can_hold(const decoder *d, size_t bytes) {
    return bytes / 1032 <= d->from.bytes;
}

/* Everything that can jump; only d, which is the caller's, lives across it. */
static void decode(decoder *d, copse__image *out, size_t channels, bool sixteen_bits,
                   const char *place, copse__scratch *scratch, copse_error *err) {
    if (setjmp(png_jmpbuf(d->png))) {
        d->status =
            copse__fail(err, COPSE_FORMAT, 0, place,
                        "the PNG is damaged (%s); replace the file", d->from.message);
        return;
    }
    png_set_read_fn(d->png, &d->from, read_bytes);
    png_set_user_limits(d->png, 1 << 20, 1 << 20);
    png_set_chunk_malloc_max(d->png, (size_t)8 << 20);
    png_set_chunk_cache_max(d->png, 64);
    png_read_info(d->png, d->info);
    size_t raw_bytes = png_get_rowbytes(d->png, d->info);
    bool colour = png_get_color_type(d->png, d->info) & PNG_COLOR_MASK_COLOR;
    out->channels = channels == 1 && colour ? 3 : channels;
    set_transforms(d->png, d->info, out->channels, sixteen_bits);
    out->height = png_get_image_height(d->png, d->info);
    out->width = png_get_image_width(d->png, d->info);
    out->sample_bytes = sixteen_bits ? 2 : 1;
    if (!copse__mul_size(raw_bytes, out->height, &raw_bytes) || !can_hold(d, raw_bytes))
        png_error(d->png, "it is larger than the file can hold");
    d->status = copse__image_room(out, place, scratch, err);
    if (d->status == COPSE_OK)
        d->status = copse__calloc(&d->rows, out->height, sizeof *d->rows, err);
    if (d->status != COPSE_OK)
        return;
    size_t row_bytes = out->width * out->channels * out->sample_bytes;
    if (png_get_rowbytes(d->png, d->info) != row_bytes)
        png_error(d->png, "its colour type is unknown");
    for (size_t y = 0; y < out->height; y++)
        d->rows[y] = out->pixels + y * row_bytes;
    png_read_image(d->png, d->rows);
    png_read_end(d->png, NULL);
}

/* Rec. 601 luma in Pillow's integers. (libpng's own conversion to grey goes through linear light
 * where the file states a gamma.) */
static void to_grey(copse__image *image) {
    size_t pixels = image->height * image->width;
    for (size_t i = 0; i < pixels; i++) {
        uint32_t sum = 0x8000;
        static const uint32_t parts[3] = {19595, 38470, 7471};
        for (size_t c = 0; c < 3; c++) {
            uint16_t value = image->pixels[3 * i + c];
            if (image->sample_bytes == 2)
                memcpy(&value, image->pixels + (3 * i + c) * 2, 2);
            sum += value * parts[c];
        }
        uint16_t grey = (uint16_t)(sum >> 16);
        if (image->sample_bytes == 2)
            memcpy(image->pixels + 2 * i, &grey, 2);
        else
            image->pixels[i] = (unsigned char)grey;
    }
    image->channels = 1;
}

copse_status copse__png_decode(copse__image *out, const unsigned char *data, size_t bytes,
                               size_t channels, bool sixteen_bits, const char *place,
                               copse__scratch *scratch, copse_error *err) {
    decoder d = {.from = {.data = data, .bytes = bytes}};
    d.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &d.from, on_error, on_warning);
    if (d.png)
        d.info = png_create_info_struct(d.png);
    if (d.info)
        decode(&d, out, channels, sixteen_bits, place, scratch, err);
    else
        d.status = copse__fail_nomem(err, 4096);
    free(d.rows);
    if (d.png)
        png_destroy_read_struct(&d.png, &d.info, NULL);
    if (d.status == COPSE_OK && channels == 1 && out->channels == 3)
        to_grey(out);
    return d.status;
}

/* ---- Writing -------------------------------------------------------------------------- */

typedef struct encoder {
    png_structp png;
    png_infop info;
    source messages;
    unsigned char *data;
    size_t used, capacity;
    copse_status status;
    copse_error *err;
} encoder;

static void write_bytes(png_structp png, png_bytep data, size_t bytes) {
    encoder *e = png_get_io_ptr(png);
    e->status = copse__grow(&e->data, &e->capacity, e->used + bytes, 1, e->err);
    if (e->status != COPSE_OK)
        png_error(png, "no memory");
    memcpy(e->data + e->used, data, bytes);
    e->used += bytes;
}

static void flush_nothing(png_structp png) {
    (void)png;
}

static void encode(encoder *e, const unsigned char *pixels, size_t height, size_t width,
                   size_t channels) {
    static const int colours[] = {[1] = PNG_COLOR_TYPE_GRAY,
                                  [3] = PNG_COLOR_TYPE_RGB,
                                  [4] = PNG_COLOR_TYPE_RGB_ALPHA};
    if (setjmp(png_jmpbuf(e->png))) {
        if (e->status == COPSE_OK)
            e->status = copse__fail(e->err, COPSE_INVALID, 0, NULL,
                                    "the image cannot be a PNG: %s", e->messages.message);
        return;
    }
    png_set_write_fn(e->png, e, write_bytes, flush_nothing);
    png_set_IHDR(e->png, e->info, (png_uint_32)width, (png_uint_32)height, 8,
                 colours[channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(e->png, e->info);
    for (size_t y = 0; y < height; y++)
        png_write_row(e->png, pixels + y * width * channels);
    png_write_end(e->png, NULL);
}

copse_status copse__png_encode(unsigned char **out, size_t *out_bytes,
                               const unsigned char *pixels, size_t height, size_t width,
                               size_t channels, copse_error *err) {
    encoder e = {.err = err};
    *out = NULL;
    e.png =
        png_create_write_struct(PNG_LIBPNG_VER_STRING, &e.messages, on_error, on_warning);
    if (e.png)
        e.info = png_create_info_struct(e.png);
    if (e.info)
        encode(&e, pixels, height, width, channels);
    else
        e.status = copse__fail_nomem(err, 4096);
    if (e.png)
        png_destroy_write_struct(&e.png, &e.info);
    if (e.status == COPSE_OK) {
        *out = e.data;
        *out_bytes = e.used;
    } else {
        free(e.data);
    }
    return e.status;
}

copse_status copse__png_save(const char *path, const unsigned char *pixels, size_t height,
                             size_t width, size_t channels, copse_error *err) {
    unsigned char *png;
    size_t bytes;
    copse_status status =
        copse__png_encode(&png, &bytes, pixels, height, width, channels, err);
    if (status == COPSE_OK)
        status = copse__file_write_atomic(path, png, bytes, err);
    free(png);
    return status;
}
