/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/mem.h"
#include "io/bytes.h"
#include "io/zip.h"
#include "io/zip_layout.h"

struct copse__zip_writer {
    copse__atomic_file *file;
    uint64_t offset;
    copse__zip_entry *entries;
    bool *large; /* has a zip64 field in its local header */
    size_t count, capacity, large_capacity;
};

copse_status copse__zip_writer_open(copse__zip_writer **out, const char *path,
                                    copse_error *err) {
    copse_status status = copse__calloc(out, 1, sizeof **out, err);
    if (status != COPSE_OK)
        return status;
    status = copse__atomic_open(&(*out)->file, path, err);
    if (status != COPSE_OK) {
        free(*out);
        *out = NULL;
    }
    return status;
}

static copse_status put(copse__zip_writer *w, const void *data, size_t bytes,
                        copse_error *err) {
    copse_status status = copse__atomic_write(w->file, data, bytes, err);
    if (status == COPSE_OK)
        w->offset += bytes;
    return status;
}

/* Returns its length: 30, or 50 with zip64's field (the name not included). */
static size_t local_header(unsigned char out[50], const copse__zip_entry *entry,
                           bool large) {
    memset(out, 0, 50);
    size_t name = strlen(entry->name);
    copse__put32(out, LOCAL_MAGIC);
    copse__put16(out + 4, large ? 45 : 20);
    copse__put16(out + 6, 1 << 11);     /* names are UTF-8 */
    copse__put16(out + 12, 1 << 5 | 1); /* 1980-01-01, as NumPy writes */
    copse__put32(out + 14, entry->crc32);
    copse__put32(out + 18, large ? UINT32_MAX : (uint32_t)entry->packed_bytes);
    copse__put32(out + 22, large ? UINT32_MAX : (uint32_t)entry->bytes);
    copse__put16(out + 26, (unsigned)name);
    if (!large)
        return LOCAL_BYTES;
    copse__put16(out + 28, 20);
    copse__put16(out + 30, 1);
    copse__put16(out + 32, 16);
    copse__put64(out + 34, entry->bytes);
    copse__put64(out + 42, entry->packed_bytes);
    return LOCAL_BYTES + 20;
}

static copse_status put_local(copse__zip_writer *w, const copse__zip_entry *entry,
                              bool large, copse_error *err) {
    unsigned char header[50];
    size_t bytes = local_header(header, entry, large);
    copse_status status = put(w, header, LOCAL_BYTES, err);
    if (status == COPSE_OK)
        status = put(w, entry->name, strlen(entry->name), err);
    if (status == COPSE_OK)
        status = put(w, header + LOCAL_BYTES, bytes - LOCAL_BYTES, err);
    return status;
}

copse_status copse__zip_writer_begin(copse__zip_writer *w, const char *name,
                                     uint64_t bytes, copse_error *err) {
    if (strlen(name) > UINT16_MAX)
        return copse__fail(err, COPSE_INVALID, 0, NULL, "a member's name is too long");
    copse_status status =
        copse__grow(&w->entries, &w->capacity, w->count + 1, sizeof *w->entries, err);
    if (status == COPSE_OK)
        status = copse__grow(&w->large, &w->large_capacity, w->count + 1,
                             sizeof *w->large, err);
    copse__zip_entry *entry = NULL;
    if (status == COPSE_OK) {
        entry = &w->entries[w->count];
        *entry = (copse__zip_entry){.header_offset = w->offset};
        status = copse__strdup(&entry->name, name, err);
    }
    if (status != COPSE_OK)
        return status;
    w->large[w->count++] = bytes >= UINT32_MAX;
    return put_local(w, entry, w->large[w->count - 1], err);
}

copse_status copse__zip_writer_write(copse__zip_writer *w, const void *data, size_t bytes,
                                     copse_error *err) {
    copse__zip_entry *entry = &w->entries[w->count - 1];
    entry->crc32 = (uint32_t)crc32_z(entry->crc32, data, bytes);
    entry->bytes += bytes;
    entry->packed_bytes += bytes;
    if (!w->large[w->count - 1] && entry->bytes >= UINT32_MAX)
        return copse__fail(err, COPSE_INTERNAL, 0, entry->name,
                           "a member grew beyond 4 GiB");
    return put(w, data, bytes, err);
}

/* CRC and sizes are known only after the data: they go back into the local header. */
static copse_status patch_local(copse__zip_writer *w, size_t i, copse_error *err) {
    unsigned char header[50];
    const copse__zip_entry *entry = &w->entries[i];
    size_t name = strlen(entry->name), bytes = local_header(header, entry, w->large[i]);
    int fd = copse__atomic_fd(w->file);
    off_t at = (off_t)entry->header_offset;
    if (pwrite(fd, header, LOCAL_BYTES, at) != LOCAL_BYTES ||
        pwrite(fd, header + LOCAL_BYTES, bytes - LOCAL_BYTES,
               at + LOCAL_BYTES + (off_t)name) != (ssize_t)(bytes - LOCAL_BYTES))
        return copse__fail(err, COPSE_IO, errno, entry->name, "cannot write it: %s",
                           strerror(errno));
    return COPSE_OK;
}

/* Every entry gets the zip64 field: one layout for all sizes. */
static copse_status put_entry(copse__zip_writer *w, const copse__zip_entry *entry,
                              copse_error *err) {
    unsigned char at[ENTRY_BYTES] = {0}, extra[28];
    copse__put32(at, ENTRY_MAGIC);
    copse__put16(at + 4, 3 << 8 | 45); /* made on Unix */
    copse__put16(at + 6, 45);
    copse__put16(at + 8, 1 << 11);
    copse__put16(at + 14, 1 << 5 | 1);
    copse__put32(at + 16, entry->crc32);
    copse__put32(at + 20, UINT32_MAX);
    copse__put32(at + 24, UINT32_MAX);
    copse__put16(at + 28, (unsigned)strlen(entry->name));
    copse__put16(at + 30, sizeof extra);
    copse__put32(at + 38, 0644u << 16);
    copse__put32(at + 42, UINT32_MAX);
    copse__put16(extra, 1);
    copse__put16(extra + 2, 24);
    copse__put64(extra + 4, entry->bytes);
    copse__put64(extra + 12, entry->packed_bytes);
    copse__put64(extra + 20, entry->header_offset);
    copse_status status = put(w, at, sizeof at, err);
    if (status == COPSE_OK)
        status = put(w, entry->name, strlen(entry->name), err);
    if (status == COPSE_OK)
        status = put(w, extra, sizeof extra, err);
    return status;
}

static copse_status put_ends(copse__zip_writer *w, uint64_t start, copse_error *err) {
    unsigned char end64[END64_BYTES] = {0}, locator[LOCATOR64_BYTES] = {0},
                  end[END_BYTES] = {0};
    uint64_t end64_at = w->offset;
    copse__put32(end64, END64_MAGIC);
    copse__put64(end64 + 4, END64_BYTES - 12);
    copse__put16(end64 + 12, 3 << 8 | 45);
    copse__put16(end64 + 14, 45);
    copse__put64(end64 + 24, w->count);
    copse__put64(end64 + 32, w->count);
    copse__put64(end64 + 40, end64_at - start);
    copse__put64(end64 + 48, start);
    copse__put32(locator, LOCATOR64_MAGIC);
    copse__put64(locator + 8, end64_at);
    copse__put32(locator + 16, 1);
    copse__put32(end, END_MAGIC);
    copse__put16(end + 8, UINT16_MAX);
    copse__put16(end + 10, UINT16_MAX);
    copse__put32(end + 12, UINT32_MAX);
    copse__put32(end + 16, UINT32_MAX);
    copse_status status = put(w, end64, sizeof end64, err);
    if (status == COPSE_OK)
        status = put(w, locator, sizeof locator, err);
    if (status == COPSE_OK)
        status = put(w, end, sizeof end, err);
    return status;
}

static void writer_free(copse__zip_writer *w) {
    for (size_t i = 0; i < w->count; i++)
        free(w->entries[i].name);
    free(w->entries);
    free(w->large);
    free(w);
}

copse_status copse__zip_writer_commit(copse__zip_writer *w, copse_error *err) {
    uint64_t start = w->offset;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < w->count && status == COPSE_OK; i++)
        status = patch_local(w, i, err);
    for (size_t i = 0; i < w->count && status == COPSE_OK; i++)
        status = put_entry(w, &w->entries[i], err);
    if (status == COPSE_OK)
        status = put_ends(w, start, err);
    if (status == COPSE_OK)
        status = copse__atomic_commit(w->file, err);
    else
        copse__atomic_abort(w->file);
    writer_free(w);
    return status;
}

void copse__zip_writer_abort(copse__zip_writer *w) {
    if (!w)
        return;
    copse__atomic_abort(w->file);
    writer_free(w);
}
