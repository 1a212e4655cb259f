/* SPDX-License-Identifier: Apache-2.0 */
#include "io/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "io/bytes.h"
#include "io/zip_layout.h"

#define DIRECTORY_MOST ((uint64_t)64 << 20)

static copse_status damaged(const copse__zip *zip, const char *what, uint64_t at,
                            copse_error *err) {
    return copse__fail(err, COPSE_FORMAT, 0, zip->path,
                       "%s at byte %" PRIu64 "; fetch the file again", what, at);
}

static copse_status read_at(const copse__zip *zip, int fd, void *out, size_t bytes,
                            uint64_t at, copse_error *err) {
    unsigned char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return copse__fail(err, COPSE_IO, errno, zip->path,
                               "cannot read it at byte %" PRIu64 ": %s", at,
                               strerror(errno));
        if (got == 0)
            return damaged(zip, "the archive ends too early", at, err);
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return COPSE_OK;
}

typedef struct directory {
    uint64_t offset, bytes, entries;
} directory;

/* The end record says 0xffff... where zip64's has the number. */
static copse_status read_end64(copse__zip *zip, int fd, uint64_t end_at, directory *found,
                               copse_error *err) {
    unsigned char locator[LOCATOR64_BYTES], end[END64_BYTES];
    if (end_at < LOCATOR64_BYTES)
        return damaged(zip, "there is no zip64 directory", end_at, err);
    copse_status status =
        read_at(zip, fd, locator, sizeof locator, end_at - LOCATOR64_BYTES, err);
    if (status != COPSE_OK)
        return status;
    uint64_t at = copse__le64(locator + 8);
    if (copse__le32(locator) != LOCATOR64_MAGIC || at > zip->file_bytes ||
        zip->file_bytes - at < END64_BYTES)
        return damaged(zip, "the zip64 locator is damaged", end_at - LOCATOR64_BYTES,
                       err);
    status = read_at(zip, fd, end, sizeof end, at, err);
    if (status != COPSE_OK)
        return status;
    if (copse__le32(end) != END64_MAGIC)
        return damaged(zip, "the zip64 end record is damaged", at, err);
    *found =
        (directory){copse__le64(end + 48), copse__le64(end + 40), copse__le64(end + 32)};
    return COPSE_OK;
}

/* The end record is the last thing in the file but for a comment. */
static copse_status find_directory(copse__zip *zip, int fd, directory *found,
                                   copse_error *err) {
    size_t bytes = END_BYTES + COMMENT_MOST;
    if (zip->file_bytes < bytes)
        bytes = (size_t)zip->file_bytes;
    if (bytes < END_BYTES)
        return damaged(zip, "it is too short for a zip archive", zip->file_bytes, err);
    uint64_t from = zip->file_bytes - bytes;
    unsigned char *tail;
    copse_status status = copse__calloc(&tail, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(read_at(zip, fd, tail, bytes, from, err), out);
    size_t at = bytes - END_BYTES;
    while (at > 0 && !(copse__le32(tail + at) == END_MAGIC &&
                       copse__le16(tail + at + 20) == bytes - END_BYTES - at))
        at--;
    const unsigned char *end = tail + at;
    if (copse__le32(end) != END_MAGIC ||
        copse__le16(end + 20) != bytes - END_BYTES - at) {
        status = copse__fail(err, COPSE_FORMAT, 0, zip->path,
                             "it has no zip directory at its end: it is cut short or of "
                             "another format; fetch it again");
        goto out;
    }
    *found =
        (directory){copse__le32(end + 16), copse__le32(end + 12), copse__le16(end + 10)};
    if (found->offset == UINT32_MAX || found->bytes == UINT32_MAX ||
        found->entries == UINT16_MAX)
        status = read_end64(zip, fd, from + at, found, err);
out:
    free(tail);
    return status;
}

/* zip64's numbers stand in an extra field, only those that are 0xffffffff in the entry. */
static bool read_extra64(copse__zip_entry *entry, const unsigned char *extra,
                         size_t bytes) {
    while (bytes >= 4) {
        size_t size = copse__le16(extra + 2);
        if (size > bytes - 4)
            return false;
        if (copse__le16(extra) == 1) {
            const unsigned char *at = extra + 4, *end = at + size;
            uint64_t *fields[] = {&entry->bytes, &entry->packed_bytes,
                                  &entry->header_offset};
            for (size_t i = 0; i < 3; i++) {
                if (*fields[i] != UINT32_MAX)
                    continue;
                if (end - at < 8)
                    return false;
                *fields[i] = copse__le64(at);
                at += 8;
            }
            return true;
        }
        extra += 4 + size;
        bytes -= 4 + size;
    }
    return entry->bytes != UINT32_MAX && entry->packed_bytes != UINT32_MAX &&
           entry->header_offset != UINT32_MAX;
}

static copse_status read_entry(copse__zip *zip, const unsigned char *at, size_t left,
                               size_t *used, uint64_t file_at, copse_error *err) {
    if (left < ENTRY_BYTES || copse__le32(at) != ENTRY_MAGIC)
        return damaged(zip, "the directory is damaged", file_at, err);
    size_t name_bytes = copse__le16(at + 28), extra_bytes = copse__le16(at + 30);
    *used = ENTRY_BYTES + name_bytes + extra_bytes + copse__le16(at + 32);
    if (*used > left)
        return damaged(zip, "the directory is damaged", file_at, err);
    copse__zip_entry entry = {.crc32 = copse__le32(at + 16),
                              .packed_bytes = copse__le32(at + 20),
                              .bytes = copse__le32(at + 24),
                              .header_offset = copse__le32(at + 42)};
    unsigned flags = copse__le16(at + 8), method = copse__le16(at + 10);
    if (flags & 1)
        return damaged(zip, "a member is encrypted", file_at, err);
    if (method != 0 && method != 8)
        return damaged(zip, "a member's compression is neither stored nor deflate",
                       file_at, err);
    entry.deflated = method == 8;
    if (!read_extra64(&entry, at + ENTRY_BYTES + name_bytes, extra_bytes) ||
        entry.header_offset > zip->file_bytes ||
        entry.packed_bytes > zip->file_bytes - entry.header_offset ||
        (!entry.deflated && entry.bytes != entry.packed_bytes))
        return damaged(zip, "a member's size is impossible", file_at, err);
    copse_status status = copse__grow(&zip->entries, &zip->capacity, zip->count + 1,
                                      sizeof *zip->entries, err);
    if (status == COPSE_OK)
        status = copse__calloc(&entry.name, name_bytes + 1, 1, err);
    if (status != COPSE_OK)
        return status;
    memcpy(entry.name, at + ENTRY_BYTES, name_bytes);
    zip->entries[zip->count++] = entry;
    return COPSE_OK;
}

static copse_status read_directory(copse__zip *zip, int fd, copse_error *err) {
    directory found = {0};
    unsigned char *bytes = NULL;
    copse_status status = find_directory(zip, fd, &found, err);
    if (status != COPSE_OK)
        return status;
    if (found.offset > zip->file_bytes || found.bytes > zip->file_bytes - found.offset ||
        found.bytes > DIRECTORY_MOST || found.entries > found.bytes / ENTRY_BYTES)
        return damaged(zip, "the directory's size is impossible", found.offset, err);
    COPSE__TRY(copse__calloc(&bytes, (size_t)found.bytes, 1, err), out);
    COPSE__TRY(read_at(zip, fd, bytes, (size_t)found.bytes, found.offset, err), out);
    size_t at = 0, used = 0;
    for (uint64_t i = 0; i < found.entries; i++, at += used)
        COPSE__TRY(read_entry(zip, bytes + at, (size_t)found.bytes - at, &used,
                              found.offset + at, err),
                   out);
out:
    free(bytes);
    return status;
}

copse_status copse__zip_open(copse__zip **out, const char *path, copse_error *err) {
    *out = NULL;
    copse__zip *zip;
    int fd = -1;
    copse_status status = copse__calloc(&zip, 1, sizeof *zip, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__strdup(&zip->path, path, err), out);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                             strerror(errno));
        goto out;
    }
    zip->file_bytes = (uint64_t)info.st_size;
    COPSE__TRY(read_directory(zip, fd, err), out);
    *out = zip;
    zip = NULL;
out:
    if (fd >= 0)
        close(fd);
    copse__zip_close(zip);
    return status;
}

void copse__zip_close(copse__zip *zip) {
    if (!zip)
        return;
    for (size_t i = 0; i < zip->count; i++)
        free(zip->entries[i].name);
    free(zip->entries);
    free(zip->path);
    free(zip);
}

const copse__zip_entry *copse__zip_find(const copse__zip *zip, const char *name) {
    for (size_t i = 0; i < zip->count; i++)
        if (strcmp(zip->entries[i].name, name) == 0)
            return &zip->entries[i];
    return NULL;
}

copse_status copse__zip_read(copse__input **out, const copse__zip *zip,
                             const copse__zip_entry *entry, copse_error *err) {
    *out = NULL;
    char name[512];
    snprintf(name, sizeof name, "%s:%s", zip->path, entry->name);
    unsigned char local[LOCAL_BYTES];
    copse__input *header;
    copse_status status = copse__input_open_part(
        &header, zip->path, name, entry->header_offset, LOCAL_BYTES, false, err);
    if (status != COPSE_OK)
        return status;
    status = copse__input_read_all(header, local, LOCAL_BYTES, "a member's header", err);
    copse__input_close(header);
    if (status != COPSE_OK)
        return status;
    uint64_t data = entry->header_offset + LOCAL_BYTES + copse__le16(local + 26) +
                    copse__le16(local + 28);
    if (copse__le32(local) != LOCAL_MAGIC || data > zip->file_bytes ||
        entry->packed_bytes > zip->file_bytes - data)
        return damaged(zip, "a member's header is damaged", entry->header_offset, err);
    status = copse__input_open_part(out, zip->path, name, data, entry->packed_bytes,
                                    entry->deflated, err);
    if (status == COPSE_OK)
        copse__input_sum(*out);
    return status;
}

copse_status copse__zip_check(copse__input *input, const copse__zip_entry *entry,
                              copse_error *err) {
    copse_status status = copse__input_expect_end(input, "the member's data", err);
    if (status == COPSE_OK && (copse__input_crc32(input) != entry->crc32 ||
                               copse__input_offset(input) != entry->bytes))
        status = copse__fail(err, COPSE_FORMAT, 0, copse__input_path(input),
                             "its checksum or size is wrong; fetch the file again");
    return status;
}
