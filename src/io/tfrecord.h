/* SPDX-License-Identifier: Apache-2.0
 *
 * TFRecord framing (tensorflow/core/lib/io/record_writer.h): a record is its length (64 bits), the
 * masked CRC-32C of those 8 bytes, the data, the masked CRC-32C of the data. Little-endian. */
#ifndef COPSE_IO_TFRECORD_H
#define COPSE_IO_TFRECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "io/input.h"

enum { COPSE__RECORD_HEAD = 12, COPSE__RECORD_TAIL = 4 };

/* What stands before and after a record's data. */
void copse__tfrecord_frame(unsigned char head[COPSE__RECORD_HEAD],
                           unsigned char tail[COPSE__RECORD_TAIL], const void *data,
                           size_t bytes);

/* false where the length's checksum is wrong. */
bool copse__tfrecord_head_ok(const unsigned char head[COPSE__RECORD_HEAD],
                             uint64_t *data_bytes);
bool copse__tfrecord_data_ok(const void *data, size_t bytes,
                             const unsigned char tail[COPSE__RECORD_TAIL]);

/* The next record's data into *buffer, which grows (free() it at the end). *end instead at the
 * file's end. COPSE_FORMAT with the offset where a checksum is wrong or the file is cut; then
 * *lost says whether the next record cannot be found either. */
copse_status copse__tfrecord_next(copse__input *input, unsigned char **buffer,
                                  size_t *capacity, size_t *bytes, bool *end, bool *lost,
                                  copse_error *err);

/* How a TFRecord file is packed, by its first bytes. */
copse_status copse__tfrecord_packing(copse__packing *out, const char *path,
                                     copse_error *err);

#endif
