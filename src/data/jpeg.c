/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "data/image.h"

/* A progressive file may hold thousands of scans that each cost a pass over all pixels. */
enum { SCANS_MOST = 200 };

typedef struct decoder {
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct jpeg;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    int damage; /* a warning that means lost pixels; 0: none */
    int orientation;
    copse_status status;
} decoder;

static void on_error(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    jpeg->err->format_message(jpeg, d->message);
    longjmp(d->jump, 1);
}

/* libjpeg paints what is missing grey and warns: for training data that is damage. */
static void on_message(j_common_ptr jpeg, int level) {
    decoder *d = jpeg->client_data;
    int code = jpeg->err->msg_code;
    if (level >= 0 || code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM)
        return;
    if (d->damage == 0)
        jpeg->err->format_message(jpeg, d->message);
    d->damage = code;
}

static void on_progress(j_common_ptr jpeg) {
    decoder *d = jpeg->client_data;
    if (d->jpeg.input_scan_number <= SCANS_MOST)
        return;
    snprintf(d->message, sizeof d->message, "more than %d scans", SCANS_MOST);
    longjmp(d->jump, 1);
}

static void find_orientation(decoder *d) {
    d->orientation = 1;
    for (jpeg_saved_marker_ptr m = d->jpeg.marker_list; m; m = m->next)
        if (m->marker == JPEG_APP0 + 1 && d->orientation == 1)
            d->orientation = copse__exif_orientation(m->data, m->data_length);
}

static copse_status refuse_colour(const decoder *d, const char *place, copse_error *err) {
    return copse__fail(
        err, COPSE_FORMAT, 0, place,
        "it is a %s JPEG, which has no defined colours here; convert it to "
        "RGB or grey",
        d->jpeg.num_components == 4 ? "CMYK" : "two-component");
}

/* Huffman coding spends at least one bit on the mean of each 8 x 8 block, so that a byte makes 512
 * pixels at best. Without this a few bytes cost seconds of painting grey. */
static bool can_hold(const decoder *d, size_t bytes) {
    return (uint64_t)d->jpeg.image_height * d->jpeg.image_width / 512 <= bytes;
}

static void read_rows(decoder *d, copse__image *out, size_t channels) {
    size_t row_bytes = out->width * channels;
    while (d->jpeg.output_scanline < d->jpeg.output_height) {
        JSAMPROW row = out->pixels + d->jpeg.output_scanline * row_bytes;
        jpeg_read_scanlines(&d->jpeg, &row, 1);
    }
    jpeg_finish_decompress(&d->jpeg);
}

/* Everything that can jump; only d, which is the caller's, lives across it. */
static void decode(decoder *d, copse__image *out, const unsigned char *data, size_t bytes,
                   size_t channels, const char *place, copse__scratch *scratch,
                   copse_error *err) {
    if (setjmp(d->jump)) {
        d->status = copse__fail(err, COPSE_FORMAT, 0, place,
                                "the JPEG is damaged (%s); replace the file", d->message);
        return;
    }
    jpeg_create_decompress(&d->jpeg);
    d->jpeg.progress = &d->progress;
    d->jpeg.mem->max_memory_to_use = (long)COPSE__IMAGE_MOST * 2;
    jpeg_mem_src(&d->jpeg, data, (unsigned long)bytes);
    jpeg_save_markers(&d->jpeg, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&d->jpeg, TRUE);
    find_orientation(d);
    if (d->jpeg.num_components != 1 && d->jpeg.num_components != 3) {
        d->status = refuse_colour(d, place, err);
        return;
    }
    if (!can_hold(d, bytes)) {
        d->status = copse__fail(err, COPSE_FORMAT, 0, place,
                                "its header announces %u x %u pixels, more than its %zu "
                                "bytes can hold; replace the file",
                                d->jpeg.image_height, d->jpeg.image_width, bytes);
        return;
    }
    *out = (copse__image){.height = d->jpeg.image_height,
                          .width = d->jpeg.image_width,
                          .channels = channels,
                          .sample_bytes = 1};
    d->status = copse__image_room(out, place, scratch, err);
    if (d->status != COPSE_OK)
        return;
    d->jpeg.out_color_space = channels == 1   ? JCS_GRAYSCALE
                              : channels == 3 ? JCS_RGB
                                              : JCS_EXT_RGBA;
    jpeg_start_decompress(&d->jpeg);
    read_rows(d, out, channels);
    if (d->damage)
        d->status = copse__fail(err, COPSE_FORMAT, 0, place,
                                "the JPEG is damaged (%s); replace the file", d->message);
}

/* ---- Turning -------------------------------------------------------------------------- */

/* Where pixel (y, x) of the upright image is in the stored one; TIFF 6.0, tag 274. */
static size_t stored_at(const copse__image *stored, int orientation, size_t y, size_t x) {
    size_t h = stored->height, w = stored->width;
    switch (orientation) {
    case 2:
        return y * w + (w - 1 - x);
    case 3:
        return (h - 1 - y) * w + (w - 1 - x);
    case 4:
        return (h - 1 - y) * w + x;
    case 5:
        return x * w + y;
    case 6:
        return (h - 1 - x) * w + y;
    case 7:
        return (h - 1 - x) * w + (w - 1 - y);
    case 8:
        return x * w + (w - 1 - y);
    default:
        return y * w + x;
    }
}

static copse_status turn(copse__image *image, int orientation, copse__scratch *scratch,
                         copse_error *err) {
    size_t bytes = image->height * image->width * image->channels;
    unsigned char *turned;
    copse_status status = copse__calloc(&turned, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    copse__image upright = *image;
    if (orientation >= 5) {
        upright.height = image->width;
        upright.width = image->height;
    }
    unsigned char *to = turned;
    for (size_t y = 0; y < upright.height; y++)
        for (size_t x = 0; x < upright.width; x++, to += image->channels)
            memcpy(to,
                   image->pixels + stored_at(image, orientation, y, x) * image->channels,
                   image->channels);
    memcpy(scratch->pixels, turned, bytes);
    free(turned);
    *image = upright;
    return COPSE_OK;
}

copse_status copse__jpeg_decode(copse__image *out, const unsigned char *data,
                                size_t bytes, size_t channels, const char *place,
                                copse__scratch *scratch, copse_error *err) {
    decoder d = {0};
    d.jpeg.err = jpeg_std_error(&d.errors);
    d.errors.error_exit = on_error;
    d.errors.emit_message = on_message;
    d.progress.progress_monitor = on_progress;
    d.jpeg.client_data = &d;
    decode(&d, out, data, bytes, channels, place, scratch, err);
    jpeg_destroy_decompress(&d.jpeg);
    if (d.status == COPSE_OK && d.orientation > 1)
        d.status = turn(out, d.orientation, scratch, err);
    return d.status;
}
