/* SPDX-License-Identifier: Apache-2.0 */
#include "data/paths.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

copse_status copse__paths_add(copse__paths *paths, const char *path, copse_error *err) {
    copse_status status = copse__grow(&paths->items, &paths->capacity, paths->count + 1,
                                      sizeof *paths->items, err);
    if (status == COPSE_OK)
        status = copse__strdup(&paths->items[paths->count], path, err);
    if (status == COPSE_OK)
        paths->count++;
    return status;
}

void copse__paths_free(copse__paths *paths) {
    for (size_t i = 0; i < paths->count; i++)
        free(paths->items[i]);
    free(paths->items);
    *paths = (copse__paths){0};
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static copse_status add_matches(copse__paths *out, const char *pattern,
                                copse_error *err) {
    if (copse__file_exists(pattern))
        return copse__paths_add(out, pattern, err);
    glob_t found;
    /* glob's own order follows the locale: sort by bytes instead. */
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    if (code == GLOB_NOSPACE)
        return copse__fail_nomem(err, strlen(pattern));
    if (code != 0)
        return copse__fail(err, COPSE_IO, ENOENT, pattern,
                           "there is no such file and nothing matches it as a pattern; "
                           "check the path");
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, by_bytes);
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < found.gl_pathc && status == COPSE_OK; i++)
        status = copse__paths_add(out, found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

copse_status copse__paths_find(copse__paths *out, const char *folder,
                               const char *const *patterns, size_t pattern_count,
                               copse_error *err) {
    *out = (copse__paths){0};
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < pattern_count && status == COPSE_OK; i++) {
        char *pattern;
        status = copse__path_join(&pattern, folder, patterns[i], err);
        if (status != COPSE_OK)
            break;
        status = add_matches(out, pattern, err);
        free(pattern);
    }
    if (status != COPSE_OK)
        copse__paths_free(out);
    return status;
}

copse_status copse__paths_list(copse__paths *names, const char *path, copse_error *err) {
    *names = (copse__paths){0};
    DIR *dir = opendir(path);
    if (!dir)
        return copse__fail(err, COPSE_IO, errno, path, "cannot open the folder: %s",
                           strerror(errno));
    copse_status status = COPSE_OK;
    errno = 0;
    for (struct dirent *e; status == COPSE_OK && (e = readdir(dir));)
        if (e->d_name[0] != '.')
            status = copse__paths_add(names, e->d_name, err);
    if (status == COPSE_OK && errno != 0)
        status = copse__fail(err, COPSE_IO, errno, path, "cannot list the folder: %s",
                             strerror(errno));
    closedir(dir);
    if (status == COPSE_OK && names->count)
        qsort(names->items, names->count, sizeof *names->items, by_bytes);
    if (status != COPSE_OK)
        copse__paths_free(names);
    return status;
}
