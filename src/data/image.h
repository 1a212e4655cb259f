/* SPDX-License-Identifier: Apache-2.0
 *
 * PNG and JPEG files to pixels: height x width x channels, 8 or 16 bits. */
#ifndef COPSE_DATA_IMAGE_H
#define COPSE_DATA_IMAGE_H

#include "data/dataset.h"

/* No decoded image may take more. */
#define COPSE__IMAGE_MOST ((size_t)512 << 20)

typedef struct copse__image {
    size_t height, width, channels;
    size_t sample_bytes;   /* 1 or 2 (host order) */
    unsigned char *pixels; /* in scratch->pixels */
} copse__image;

/* By the first bytes. */
bool copse__image_is_known(const unsigned char *data, size_t bytes);

/* Decodes a whole PNG (any colour type and depth) or JPEG (baseline, progressive; turned upright
 * as its EXIF data says) into scratch->pixels. channels: 1 (grey), 3 or 4. COPSE_FORMAT, with
 * place, where it is damaged, cut short, too large, of another format, or CMYK. */
copse_status copse__image_decode(copse__image *out, const unsigned char *data,
                                 size_t bytes, size_t channels, bool sixteen_bits,
                                 const char *place, copse__scratch *scratch,
                                 copse_error *err);

/* Decoding and resizing as options say, into out: height x width x channels. COPSE_FORMAT where
 * options leave the size open and the image has another than shape. */
copse_status copse__image_read(void *out, const copse_data_spec *spec,
                               const copse_image_options *options,
                               const unsigned char *data, size_t bytes, const char *place,
                               copse__scratch *scratch, copse_error *err);

/* The spec of samples made with these options, given the first image. */
copse_status copse__image_spec(copse_data_spec *out, const copse_image_options *options,
                               const unsigned char *data, size_t bytes, const char *place,
                               copse__scratch *scratch, copse_error *err);

/* Bilinear with antialiasing (a triangle filter as wide as the scale), as Pillow's: the part
 * of the image that starts at (top, left) in pixels and is part_height x part_width large becomes
 * out_height x out_width. */
typedef struct copse__image_box {
    double top, left, height, width;
} copse__image_box;

copse_status copse__image_resize(void *out, size_t out_height, size_t out_width,
                                 const copse__image *image, copse__image_box part,
                                 copse_error *err);

/* 8-bit pixels (1, 3 or 4 channels) as a PNG: in memory (free() it), or a file, atomically. */
copse_status copse__png_encode(unsigned char **out, size_t *out_bytes,
                               const unsigned char *pixels, size_t height, size_t width,
                               size_t channels, copse_error *err);
copse_status copse__png_save(const char *path, const unsigned char *pixels, size_t height,
                             size_t width, size_t channels, copse_error *err);

/* Internal: one per format. */
copse_status copse__png_decode(copse__image *out, const unsigned char *data, size_t bytes,
                               size_t channels, bool sixteen_bits, const char *place,
                               copse__scratch *scratch, copse_error *err);
copse_status copse__jpeg_decode(copse__image *out, const unsigned char *data,
                                size_t bytes, size_t channels, const char *place,
                                copse__scratch *scratch, copse_error *err);

/* Makes room for an image in scratch->pixels, refusing one beyond COPSE__IMAGE_MOST. */
copse_status copse__image_room(copse__image *image, const char *place,
                               copse__scratch *scratch, copse_error *err);

/* The EXIF orientation (1 to 8) in a JPEG APP1 segment's data; 1 where there is none. */
int copse__exif_orientation(const unsigned char *app1, size_t bytes);

#endif
