/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_FILE_H
#define COPSE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Reads a whole file of at most limit_bytes into *out, which the caller frees; one NUL
 * follows the data. COPSE_IO where it cannot be read, COPSE_FORMAT where it is larger
 * than the limit. */
copse_status copse__file_read(char **out, size_t *out_bytes, const char *path,
                              size_t limit_bytes, copse_error *err);

/* A file that appears whole or not at all: written under a temporary name in the same
 * folder, then synced, renamed, and the folder synced. A link is followed, an existing
 * file's mode stays, and what is no regular file (a device, a pipe, a folder) is refused. */
typedef struct copse__atomic_file copse__atomic_file;

copse_status copse__atomic_open(copse__atomic_file **out, const char *path,
                                copse_error *err);
copse_status copse__atomic_write(copse__atomic_file *file, const void *data, size_t bytes,
                                 copse_error *err);
/* For large files, before anything is written: the bytes go to the disk without a copy in the page cache (O_DIRECT),
 * whose making costs more processor time than all else of writing. Where the file system does not do that they go as
 * usual, with the same result. Not to be mixed with writing through the descriptor. */
copse_status copse__atomic_uncached(copse__atomic_file *file, copse_error *err);
/* The descriptor, for a library that writes by itself; borrowed. */
int copse__atomic_fd(copse__atomic_file *file);
/* Frees file whatever the outcome; on failure nothing of it is left. */
copse_status copse__atomic_commit(copse__atomic_file *file, copse_error *err);
/* Frees file and removes what was written. NULL is allowed. */
void copse__atomic_abort(copse__atomic_file *file);

/* All of data at once. */
copse_status copse__file_write_atomic(const char *path, const void *data, size_t bytes,
                                      copse_error *err);

/* Waits until path's entry in its folder is on the disk. */
copse_status copse__sync_entry(const char *path, copse_error *err);

/* mkdir -p with mode 0777 & ~umask; new entries are synced. */
copse_status copse__make_folders(const char *path, copse_error *err);

bool copse__file_exists(const char *path);

/* "folder/name", or name itself where it is absolute or folder is "" or NULL. free() it.
 */
copse_status copse__path_join(char **out, const char *folder, const char *name,
                              copse_error *err);

/* The folder part of a path: "." where there is none. free() it. */
copse_status copse__path_folder(char **out, const char *path, copse_error *err);

/* $COPSE_CACHE, else $XDG_CACHE_HOME/copse, else $HOME/.cache/copse; *out is NULL (and
 * the status OK) where none is set. Not created. free() it. */
copse_status copse__cache_folder(char **out, copse_error *err);

#endif
