/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_INPUT_H
#define COPSE_IO_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A file read from its start to its end, decompressed on the way. */
typedef struct copse__input copse__input;

typedef enum copse__packing {
    COPSE__PACKING_AUTO, /* gzip where the file starts with gzip's two bytes, else plain
                          */
    COPSE__PACKING_PLAIN,
    COPSE__PACKING_GZIP, /* any number of members */
    COPSE__PACKING_ZLIB
} copse__packing;

copse_status copse__input_open(copse__input **out, const char *path,
                               copse__packing packing, copse_error *err);

/* A part of a file that holds data by itself, as a zip archive's member does: raw_bytes bytes from
 * raw_offset on, stored as they are or as raw deflate. name stands for it in messages. */
copse_status copse__input_open_part(copse__input **out, const char *path,
                                    const char *name, uint64_t raw_offset,
                                    uint64_t raw_bytes, bool deflated, copse_error *err);

/* From here on, the CRC-32 (zlib's) of the data is kept. */
void copse__input_sum(copse__input *input);
uint32_t copse__input_crc32(const copse__input *input);

/* Up to bytes of (decompressed) data; *got is less at the end of the file only.
 * COPSE_FORMAT where the compressed data is cut short or damaged (checksums are
 * verified). */
copse_status copse__input_read(copse__input *input, void *out, size_t bytes, size_t *got,
                               copse_error *err);

/* Exactly bytes, or COPSE_FORMAT saying that the file ends within `what`. */
copse_status copse__input_read_all(copse__input *input, void *out, size_t bytes,
                                   const char *what, copse_error *err);

/* COPSE_FORMAT where anything follows. */
copse_status copse__input_expect_end(copse__input *input, const char *what,
                                     copse_error *err);

/* Bytes of decompressed data handed out so far. */
uint64_t copse__input_offset(const copse__input *input);

/* Whether the data is compressed. */
bool copse__input_packed(const copse__input *input);

/* The most bytes of data that the whole file can hold: its size, or what deflate can make
 * of it at best. What a header announces beyond this is false. UINT64_MAX where it is not
 * a regular file. */
uint64_t copse__input_most(const copse__input *input);

const char *copse__input_path(const copse__input *input);

/* NULL is allowed. */
void copse__input_close(copse__input *input);

#endif
