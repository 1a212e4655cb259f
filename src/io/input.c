/* SPDX-License-Identifier: Apache-2.0 */
#include "io/input.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"

#define BUFFER_BYTES ((size_t)256 << 10)

/* Deflate codes at most 258 bytes in 2 bits (RFC 1951). */
#define DEFLATE_BEST_RATIO 1032u

struct copse__input {
    char *path;
    int fd;
    bool packed;
    bool stream_done; /* between two gzip members, or after the zlib stream */
    bool ended;
    bool gzip;
    z_stream zip;
    bool zip_live;
    uint64_t file_bytes; /* UINT64_MAX: not known */
    uint64_t offset;
    unsigned char
        *buffer; /* raw bytes of the file: buffer[start..end) are not used yet */
    size_t start, end;
    uint64_t raw_offset; /* file offset of buffer[end] */
    uint64_t raw_left;   /* bytes of the part after that; UINT64_MAX: to the file's end */
    bool summing;
    uLong crc;
};

static copse_status refill(copse__input *input, copse_error *err) {
    input->start = input->end = 0;
    size_t want = BUFFER_BYTES;
    if (input->raw_left < want)
        want = (size_t)input->raw_left;
    for (;;) {
        ssize_t got = read(input->fd, input->buffer, want);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return copse__fail(err, COPSE_IO, errno, input->path,
                               "cannot read it at byte %" PRIu64 ": %s",
                               input->raw_offset, strerror(errno));
        input->end = (size_t)got;
        input->raw_offset += (uint64_t)got;
        if (input->raw_left != UINT64_MAX)
            input->raw_left -= (uint64_t)got;
        return COPSE_OK;
    }
}

static copse_status start_unpacking(copse__input *input, copse__packing packing,
                                    copse_error *err) {
    if (packing == COPSE__PACKING_AUTO)
        packing = input->end >= 2 && input->buffer[0] == 0x1f && input->buffer[1] == 0x8b
                      ? COPSE__PACKING_GZIP
                      : COPSE__PACKING_PLAIN;
    if (packing == COPSE__PACKING_PLAIN)
        return COPSE_OK;
    input->packed = true;
    input->gzip = packing == COPSE__PACKING_GZIP;
    if (inflateInit2(&input->zip, input->gzip ? 15 + 16 : 15) != Z_OK)
        return copse__fail_nomem(err, sizeof input->zip);
    input->zip_live = true;
    return COPSE_OK;
}

static copse_status open_file(copse__input **out, const char *path, const char *name,
                              copse_error *err) {
    copse__input *input;
    copse_status status = copse__calloc(out, 1, sizeof *input, err);
    if (status != COPSE_OK)
        return status;
    input = *out;
    input->fd = -1;
    input->raw_left = UINT64_MAX;
    COPSE__TRY(copse__strdup(&input->path, name, err), out);
    COPSE__TRY(copse__calloc(&input->buffer, BUFFER_BYTES, 1, err), out);
    input->fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (input->fd < 0 || fstat(input->fd, &info) != 0) {
        status = copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                             strerror(errno));
        goto out;
    }
    if (S_ISDIR(info.st_mode)) {
        status =
            copse__fail(err, COPSE_IO, EISDIR, path, "it is a folder; name a file in it");
        goto out;
    }
    input->file_bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : UINT64_MAX;
out:
    return status;
}

copse_status copse__input_open(copse__input **out, const char *path,
                               copse__packing packing, copse_error *err) {
    *out = NULL;
    copse__input *input = NULL;
    copse_status status = open_file(&input, path, path, err);
    if (status == COPSE_OK)
        status = refill(input, err);
    if (status == COPSE_OK)
        status = start_unpacking(input, packing, err);
    if (status == COPSE_OK)
        *out = input;
    else
        copse__input_close(input);
    return status;
}

static copse_status start_part(copse__input *input, uint64_t raw_offset,
                               uint64_t raw_bytes, bool deflated, copse_error *err) {
    if (raw_offset > INT64_MAX ||
        lseek(input->fd, (off_t)raw_offset, SEEK_SET) != (off_t)raw_offset)
        return copse__fail(err, COPSE_IO, errno, input->path,
                           "cannot go to byte %" PRIu64 ": %s", raw_offset,
                           strerror(errno));
    input->raw_offset = raw_offset;
    input->raw_left = input->file_bytes = raw_bytes;
    copse_status status = refill(input, err);
    if (status != COPSE_OK || !deflated)
        return status;
    input->packed = true;
    if (inflateInit2(&input->zip, -15) != Z_OK)
        return copse__fail_nomem(err, sizeof input->zip);
    input->zip_live = true;
    return COPSE_OK;
}

copse_status copse__input_open_part(copse__input **out, const char *path,
                                    const char *name, uint64_t raw_offset,
                                    uint64_t raw_bytes, bool deflated, copse_error *err) {
    *out = NULL;
    copse__input *input = NULL;
    copse_status status = open_file(&input, path, name, err);
    if (status == COPSE_OK)
        status = start_part(input, raw_offset, raw_bytes, deflated, err);
    if (status == COPSE_OK)
        *out = input;
    else
        copse__input_close(input);
    return status;
}

void copse__input_sum(copse__input *input) {
    input->summing = true;
    input->crc = crc32(0, NULL, 0);
}

uint32_t copse__input_crc32(const copse__input *input) {
    return (uint32_t)input->crc;
}

static copse_status read_plain(copse__input *input, unsigned char *out, size_t bytes,
                               size_t *got, copse_error *err) {
    while (*got < bytes) {
        if (input->start == input->end) {
            copse_status status = refill(input, err);
            if (status != COPSE_OK)
                return status;
            if (input->end == 0)
                return COPSE_OK;
        }
        size_t take = copse__min_size(bytes - *got, input->end - input->start);
        memcpy(out + *got, input->buffer + input->start, take);
        input->start += take;
        *got += take;
    }
    return COPSE_OK;
}

static copse_status damaged(const copse__input *input, copse_error *err) {
    uint64_t at = input->raw_offset - (input->end - input->start);
    return copse__fail(err, COPSE_FORMAT, 0, input->path,
                       "the compressed data is damaged near byte %" PRIu64
                       " (%s); fetch the file again",
                       at, input->zip.msg ? input->zip.msg : "wrong checksum");
}

/* Where a compressed stream has ended: the next gzip member, or the end of the file. */
static copse_status next_member(copse__input *input, copse_error *err) {
    if (input->start == input->end) {
        copse_status status = refill(input, err);
        if (status != COPSE_OK)
            return status;
    }
    if (input->start == input->end) {
        input->ended = true;
        return COPSE_OK;
    }
    if (!input->gzip)
        return copse__fail(err, COPSE_FORMAT, 0, input->path,
                           "bytes follow the compressed data at byte %" PRIu64
                           "; fetch the file again",
                           input->raw_offset - (input->end - input->start));
    inflateReset(&input->zip);
    input->stream_done = false;
    return COPSE_OK;
}

static copse_status read_packed(copse__input *input, unsigned char *out, size_t bytes,
                                size_t *got, copse_error *err) {
    while (*got < bytes && !input->ended) {
        if (input->stream_done) {
            copse_status status = next_member(input, err);
            if (status != COPSE_OK)
                return status;
            continue;
        }
        if (input->start == input->end) {
            copse_status status = refill(input, err);
            if (status != COPSE_OK)
                return status;
            if (input->end == 0)
                return copse__fail(err, COPSE_FORMAT, 0, input->path,
                                   "the compressed data ends too early, at byte %" PRIu64
                                   "; fetch the file again",
                                   input->raw_offset);
        }
        size_t want = copse__min_size(bytes - *got, (size_t)1 << 30);
        input->zip.next_in = input->buffer + input->start;
        input->zip.avail_in = (uInt)(input->end - input->start);
        input->zip.next_out = out + *got;
        input->zip.avail_out = (uInt)want;
        int code = inflate(&input->zip, Z_NO_FLUSH);
        input->start = input->end - input->zip.avail_in;
        *got += want - input->zip.avail_out;
        if (code == Z_STREAM_END)
            input->stream_done = true;
        else if (code == Z_MEM_ERROR)
            return copse__fail_nomem(err, 64 << 10);
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return damaged(input, err);
    }
    return COPSE_OK;
}

copse_status copse__input_read(copse__input *input, void *out, size_t bytes, size_t *got,
                               copse_error *err) {
    *got = 0;
    copse_status status = input->packed ? read_packed(input, out, bytes, got, err)
                                        : read_plain(input, out, bytes, got, err);
    input->offset += *got;
    if (input->summing)
        input->crc = crc32_z(input->crc, out, *got);
    return status;
}

copse_status copse__input_read_all(copse__input *input, void *out, size_t bytes,
                                   const char *what, copse_error *err) {
    size_t got;
    uint64_t from = input->offset;
    copse_status status = copse__input_read(input, out, bytes, &got, err);
    if (status != COPSE_OK || got == bytes)
        return status;
    return copse__fail(err, COPSE_FORMAT, 0, input->path,
                       "it ends within %s: %zu bytes at byte %" PRIu64
                       " where %zu should follow; fetch the file again",
                       what, got, from, bytes);
}

copse_status copse__input_expect_end(copse__input *input, const char *what,
                                     copse_error *err) {
    unsigned char byte;
    size_t got;
    uint64_t from = input->offset;
    copse_status status = copse__input_read(input, &byte, 1, &got, err);
    if (status != COPSE_OK || got == 0)
        return status;
    return copse__fail(err, COPSE_FORMAT, 0, input->path,
                       "bytes follow %s at byte %" PRIu64
                       "; the file is not what its header says",
                       what, from);
}

uint64_t copse__input_offset(const copse__input *input) {
    return input->offset;
}

bool copse__input_packed(const copse__input *input) {
    return input->packed;
}

uint64_t copse__input_most(const copse__input *input) {
    uint64_t most = input->file_bytes;
    if (input->packed && __builtin_mul_overflow(most, DEFLATE_BEST_RATIO, &most))
        return UINT64_MAX;
    return most;
}

const char *copse__input_path(const copse__input *input) {
    return input->path;
}

void copse__input_close(copse__input *input) {
    if (!input)
        return;
    if (input->zip_live)
        inflateEnd(&input->zip);
    if (input->fd >= 0)
        close(input->fd);
    free(input->buffer);
    free(input->path);
    free(input);
}
