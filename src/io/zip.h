/* SPDX-License-Identifier: Apache-2.0
 *
 * Zip archives (PKWARE's APPNOTE 6.3): stored and deflated members, zip64. What NumPy's .npz
 * files are. */
#ifndef COPSE_IO_ZIP_H
#define COPSE_IO_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "io/input.h"

typedef struct copse__zip_entry {
    char *name;
    uint32_t crc32;
    uint64_t packed_bytes;
    uint64_t bytes;
    uint64_t header_offset;
    bool deflated;
} copse__zip_entry;

/* The directory of an archive. */
typedef struct copse__zip {
    char *path;
    uint64_t file_bytes;
    copse__zip_entry *entries;
    size_t count;
    size_t capacity;
} copse__zip;

/* Reads the directory. COPSE_FORMAT where it is no archive, or one that cannot be used
 * (encrypted, split over disks, another compression). */
copse_status copse__zip_open(copse__zip **out, const char *path, copse_error *err);
void copse__zip_close(copse__zip *zip); /* NULL is allowed */

/* NULL where there is none of this name. */
const copse__zip_entry *copse__zip_find(const copse__zip *zip, const char *name);

/* The member's data, with its CRC-32 kept: compare at the end with copse__zip_check(). */
copse_status copse__zip_read(copse__input **out, const copse__zip *zip,
                             const copse__zip_entry *entry, copse_error *err);

/* After all of the member was read. */
copse_status copse__zip_check(copse__input *input, const copse__zip_entry *entry,
                              copse_error *err);

/* Writes stored members one after the other into an atomic file. */
typedef struct copse__zip_writer copse__zip_writer;

copse_status copse__zip_writer_open(copse__zip_writer **out, const char *path,
                                    copse_error *err);
/* Starts a member; bytes is its size if that is known to stay below 4 GiB, else UINT64_MAX. */
copse_status copse__zip_writer_begin(copse__zip_writer *writer, const char *name,
                                     uint64_t bytes, copse_error *err);
copse_status copse__zip_writer_write(copse__zip_writer *writer, const void *data,
                                     size_t bytes, copse_error *err);
/* Frees writer whatever the outcome. */
copse_status copse__zip_writer_commit(copse__zip_writer *writer, copse_error *err);
void copse__zip_writer_abort(copse__zip_writer *writer); /* NULL is allowed */

#endif
