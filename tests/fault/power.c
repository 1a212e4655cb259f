/* SPDX-License-Identifier: Apache-2.0 */
#include "power.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES = 256, NAMES = 64 };

/* Numbers of inodes are used again; ours are not. */
typedef struct file {
    ino_t inode;
    bool alive; /* the latest with this inode */
    char *safe; /* its bytes; NULL: none ever were */
    size_t safe_bytes;
} file;

typedef struct entry {
    char name[256];
    int file;
} entry;

typedef struct listing {
    entry entries[NAMES];
    size_t count;
} listing;

static char watched[PATH_MAX];
static ino_t watched_inode;
static file files[FILES];
static size_t file_count;
static listing safe_names;

static void give_up(const char *why) {
    fprintf(stderr, "power: %s\n", why);
    abort();
}

static char *read_all(const char *path, size_t *bytes) {
    FILE *from = fopen(path, "rb");
    long end = from && fseek(from, 0, SEEK_END) == 0 ? ftell(from) : -1;
    char *data = end >= 0 ? malloc((size_t)end + 1) : NULL;
    if (!data)
        give_up("a file cannot be read");
    rewind(from);
    *bytes = fread(data, 1, (size_t)end, from);
    fclose(from);
    return data;
}

static int find_file(ino_t inode) {
    for (size_t i = 0; i < file_count; i++)
        if (files[i].alive && files[i].inode == inode)
            return (int)i;
    if (file_count == FILES)
        give_up("too many files");
    files[file_count] = (file){.inode = inode, .alive = true};
    return (int)file_count++;
}

static void keep_safe(int index, const char *path) {
    free(files[index].safe);
    files[index].safe = read_all(path, &files[index].safe_bytes);
}

/* The regular files in the folder. */
static listing list_names(void) {
    listing list = {.count = 0};
    const struct dirent *at;
    DIR *folder = opendir(watched);
    if (!folder)
        give_up("the folder cannot be read");
    while ((at = readdir(folder)) != NULL) {
        struct stat info;
        if (fstatat(dirfd(folder), at->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        if (list.count == NAMES)
            give_up("too many names");
        entry *made = &list.entries[list.count++];
        snprintf(made->name, sizeof made->name, "%s", at->d_name);
        made->file = find_file(info.st_ino);
    }
    closedir(folder);
    return list;
}

static void forget(void) {
    for (size_t i = 0; i < file_count; i++)
        free(files[i].safe);
    file_count = 0;
    watched[0] = '\0';
}

static void path_of(char out[PATH_MAX], const char *name) {
    if (snprintf(out, PATH_MAX, "%s/%s", watched, name) >= PATH_MAX)
        give_up("a path is too long");
}

void power_watch(const char *folder) {
    char path[PATH_MAX];
    struct stat info;
    forget();
    if (!folder || !folder[0])
        return;
    if (stat(folder, &info) != 0)
        give_up("the folder is not there");
    snprintf(watched, sizeof watched, "%s", folder);
    watched_inode = info.st_ino;
    safe_names = list_names();
    for (size_t i = 0; i < safe_names.count; i++) {
        path_of(path, safe_names.entries[i].name);
        keep_safe(safe_names.entries[i].file, path);
    }
}

void power_created(const char *path) {
    struct stat info;
    size_t length = strlen(watched);
    if (length == 0 || strncmp(path, watched, length) != 0 || stat(path, &info) != 0)
        return;
    for (size_t i = 0; i < file_count; i++)
        files[i].alive &= files[i].inode != info.st_ino;
    find_file(info.st_ino);
}

void power_synced(int fd) {
    char path[PATH_MAX];
    struct stat info;
    if (!watched[0] || fstat(fd, &info) != 0)
        return;
    if (S_ISDIR(info.st_mode) && info.st_ino == watched_inode)
        safe_names = list_names();
    if (!S_ISREG(info.st_mode))
        return;
    listing now = list_names();
    for (size_t i = 0; i < now.count; i++)
        if (files[now.entries[i].file].inode == info.st_ino) {
            path_of(path, now.entries[i].name);
            keep_safe(now.entries[i].file, path);
        }
}

/* ---- The cut --------------------------------------------------------------------------- */

/* Small and the same everywhere. */
static unsigned chance(unsigned *state, unsigned below) {
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % below;
}

/* A name as it is now, with the bytes that it would show. */
typedef struct content {
    char *data;
    size_t bytes;
} content;

static content current_of(const listing *now, int file_index) {
    char path[PATH_MAX];
    for (size_t i = 0; i < now->count; i++)
        if (now->entries[i].file == file_index) {
            path_of(path, now->entries[i].name);
            content made;
            made.data = read_all(path, &made.bytes);
            return made;
        }
    return (content){0}; /* removed: what it had cannot be seen any more */
}

static content rest_of(const listing *now, int index, power_rest rest, unsigned *state) {
    content safe = {files[index].safe, files[index].safe_bytes}, made = {0};
    unsigned what = rest == POWER_MIXED ? chance(state, 4) : 0;
    if (what > 0)
        made = current_of(now, index);
    if (what == 0 || !made.data) {
        made.data = malloc(safe.bytes + 1);
        made.bytes = safe.bytes;
        if (!made.data)
            give_up("no memory");
        if (safe.bytes > 0)
            memcpy(made.data, safe.data, safe.bytes);
    } else if (what == 2 && made.bytes > safe.bytes) { /* a part of it */
        made.bytes = safe.bytes + chance(state, (unsigned)(made.bytes - safe.bytes));
    } else if (what == 3 && made.bytes > safe.bytes) { /* its length, but not its bytes */
        memset(made.data + safe.bytes, 0, made.bytes - safe.bytes);
    }
    return made;
}

static int file_by_name(const listing *list, const char *name) {
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->entries[i].name, name) == 0)
            return list->entries[i].file;
    return -1;
}

static void put(const char *name, content what) {
    char path[PATH_MAX];
    path_of(path, name);
    FILE *to = fopen(path, "wb");
    if (!to || fwrite(what.data, 1, what.bytes, to) != what.bytes || fclose(to) != 0)
        give_up("a file cannot be written");
}

void power_cut(power_rest rest, unsigned seed) {
    char path[PATH_MAX];
    if (!watched[0]) /* the folder itself was not there yet */
        return;
    listing now = list_names(), names = now;
    content *contents = calloc(FILES, sizeof *contents);
    int *chosen = calloc(2 * NAMES, sizeof *chosen);
    if (!contents || !chosen)
        give_up("no memory");
    for (size_t i = 0; i < safe_names.count; i++)
        if (file_by_name(&names, safe_names.entries[i].name) < 0) {
            if (names.count == NAMES)
                give_up("too many names");
            names.entries[names.count++] = safe_names.entries[i];
        }
    for (size_t i = 0; i < file_count; i++)
        contents[i] = rest_of(&now, (int)i, rest, &seed);
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.entries[i].name;
        bool as_now = rest == POWER_EAGER || (rest == POWER_MIXED && chance(&seed, 2));
        chosen[i] = file_by_name(as_now ? &now : &safe_names, name);
    }
    for (size_t i = 0; i < names.count; i++) {
        path_of(path, names.entries[i].name);
        remove(path);
        if (chosen[i] >= 0)
            put(names.entries[i].name, contents[chosen[i]]);
    }
    for (size_t i = 0; i < file_count; i++)
        free(contents[i].data);
    free(contents);
    free(chosen);
    forget();
}
