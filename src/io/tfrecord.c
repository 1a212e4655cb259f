/* SPDX-License-Identifier: Apache-2.0 */
#include "io/tfrecord.h"

#include <inttypes.h>

#include "base/hash.h"
#include "base/mem.h"
#include "io/bytes.h"

static uint32_t masked(const void *data, size_t bytes) {
    return copse__crc32c_mask(copse__crc32c(0, data, bytes));
}

void copse__tfrecord_frame(unsigned char head[COPSE__RECORD_HEAD],
                           unsigned char tail[COPSE__RECORD_TAIL], const void *data,
                           size_t bytes) {
    copse__put64(head, bytes);
    copse__put32(head + 8, masked(head, 8));
    copse__put32(tail, masked(data, bytes));
}

bool copse__tfrecord_head_ok(const unsigned char head[COPSE__RECORD_HEAD],
                             uint64_t *data_bytes) {
    *data_bytes = copse__le64(head);
    return copse__le32(head + 8) == masked(head, 8);
}

bool copse__tfrecord_data_ok(const void *data, size_t bytes,
                             const unsigned char tail[COPSE__RECORD_TAIL]) {
    return copse__le32(tail) == masked(data, bytes);
}

/* The data in pieces: a length that lies must not cost memory that the file cannot fill. */
static copse_status read_data(copse__input *input, unsigned char **buffer,
                              size_t *capacity, size_t bytes, copse_error *err) {
    size_t have = 0;
    while (have < bytes) {
        size_t piece = copse__min_size(bytes - have, (size_t)16 << 20);
        copse_status status = copse__grow(buffer, capacity, have + piece, 1, err);
        if (status == COPSE_OK)
            status = copse__input_read_all(input, *buffer + have, piece,
                                           "a record's data", err);
        if (status != COPSE_OK)
            return status;
        have += piece;
    }
    return COPSE_OK;
}

copse_status copse__tfrecord_next(copse__input *input, unsigned char **buffer,
                                  size_t *capacity, size_t *bytes, bool *end, bool *lost,
                                  copse_error *err) {
    unsigned char head[COPSE__RECORD_HEAD], tail[COPSE__RECORD_TAIL];
    uint64_t at = copse__input_offset(input), data_bytes;
    const char *path = copse__input_path(input);
    size_t got;
    *bytes = 0;
    *end = false;
    *lost = true;
    copse_status status = copse__input_read(input, head, sizeof head, &got, err);
    if (status != COPSE_OK)
        return status;
    *end = got == 0;
    if (*end)
        return COPSE_OK;
    if (got < sizeof head)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "it ends within a record's length at byte %" PRIu64
                           "; fetch the file again",
                           at);
    if (!copse__tfrecord_head_ok(head, &data_bytes) ||
        data_bytes > copse__input_most(input))
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "a record's length is damaged at byte %" PRIu64
                           " (wrong checksum); fetch the file again",
                           at);
    status = read_data(input, buffer, capacity, (size_t)data_bytes, err);
    if (status == COPSE_OK)
        status =
            copse__input_read_all(input, tail, sizeof tail, "a record's checksum", err);
    if (status != COPSE_OK)
        return status;
    *lost = false;
    *bytes = (size_t)data_bytes;
    if (!copse__tfrecord_data_ok(*buffer, *bytes, tail))
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "the record at byte %" PRIu64
                           " is damaged (wrong checksum); fetch the file again",
                           at);
    return COPSE_OK;
}

copse_status copse__tfrecord_packing(copse__packing *out, const char *path,
                                     copse_error *err) {
    copse__input *input;
    unsigned char head[COPSE__RECORD_HEAD] = {0};
    size_t got = 0;
    uint64_t bytes;
    copse_status status = copse__input_open(&input, path, COPSE__PACKING_PLAIN, err);
    if (status == COPSE_OK)
        status = copse__input_read(input, head, sizeof head, &got, err);
    copse__input_close(input);
    /* A record's length may look like a compressed file's start, but not with its checksum. */
    bool whole = got == sizeof head && copse__tfrecord_head_ok(head, &bytes);
    *out = COPSE__PACKING_PLAIN;
    if (!whole && got >= 2 && head[0] == 0x1f && head[1] == 0x8b)
        *out = COPSE__PACKING_GZIP;
    else if (!whole && got >= 2 && (head[0] & 15) == 8 &&
             (head[0] * 256 + head[1]) % 31 == 0)
        *out = COPSE__PACKING_ZLIB;
    return status;
}
