/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAULT_POWER_H
#define TESTS_FAULT_POWER_H

#include <sys/types.h>

/* What is on a disk after the power has gone, of one folder's files: a file's bytes are safe as of its last
 * fsync, the folder's names as of its own. Whatever came later may be there or not, each by itself. The calls
 * that files_shim.c lets through tell it. Not thread-safe. */

/* The folder as it is now is safe; watched from here on. "" or NULL: none is. */
void power_watch(const char *folder);
/* A file was made anew. */
void power_created(const char *path);
/* fsync and fdatasync: of a file, or of the folder itself. */
void power_synced(int fd);

typedef enum power_rest {
    POWER_STRICT, /* only what is safe */
    POWER_EAGER, /* all names, but only the bytes that are safe: renamed without its data */
    POWER_MIXED /* each name and each file's bytes by chance */
} power_rest;

/* Puts the watched folder into the state that is left; nothing is watched any more. */
void power_cut(power_rest rest, unsigned seed);

#endif
