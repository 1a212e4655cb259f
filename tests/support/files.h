/* SPDX-License-Identifier: Apache-2.0
 *
 * Files for tests: a temporary folder, written and patched files. Everything asserts. */
#ifndef TESTS_SUPPORT_FILES_H
#define TESTS_SUPPORT_FILES_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* A new folder below $TMPDIR or /tmp, removed by remove_folder(). */
static inline char *make_folder(void) {
    const char *base = getenv("TMPDIR");
    static char folder[512];
    snprintf(folder, sizeof folder, "%s/copse test \xC3\xA9 XXXXXX",
             base && base[0] ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    return folder;
}

static inline void remove_folder(const char *folder) {
    char command[1024];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* folder/name in one of a few rotating static buffers. */
static inline const char *in_folder(const char *folder, const char *name) {
    static char paths[8][1024];
    static unsigned next;
    char *path = paths[next++ % 8];
    int length = snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    ck_assert_int_lt(length, (int)sizeof paths[0]);
    return path;
}

/* A new file: ext4 waits for the disk when an old one is truncated and written again. */
static inline void write_file(const char *path, const void *data, size_t bytes) {
    unlink(path);
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static inline void write_gzip(const char *path, const void *data, size_t bytes) {
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

/* The whole file; free() it. */
static inline unsigned char *read_whole(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s is missing", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long end = ftell(file);
    ck_assert_int_ge(end, 0);
    rewind(file);
    unsigned char *data = malloc((size_t)end + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, (size_t)end, file), (size_t)end);
    fclose(file);
    *bytes = (size_t)end;
    return data;
}

#endif
