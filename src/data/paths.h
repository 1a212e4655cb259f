/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_PATHS_H
#define COPSE_DATA_PATHS_H

#include <stddef.h>

#include "base/error.h"

/* An owned list of paths. */
typedef struct copse__paths {
    char **items;
    size_t count;
    size_t capacity;
} copse__paths;

/* Every file that patterns name, relative ones below folder: a pattern that is an
 * existing file's path stands for itself, another is a glob whose matches are sorted by
 * bytes. COPSE_IO where a pattern matches nothing. On failure out is empty. */
copse_status copse__paths_find(copse__paths *out, const char *folder,
                               const char *const *patterns, size_t pattern_count,
                               copse_error *err);

/* The visible names in a folder, sorted by bytes. */
copse_status copse__paths_list(copse__paths *names, const char *folder, copse_error *err);

/* Takes a copy. */
copse_status copse__paths_add(copse__paths *paths, const char *path, copse_error *err);

void copse__paths_free(copse__paths *paths);

#endif
