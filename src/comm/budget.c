/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/budget.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The number after `key` at a line's begin, in bytes ("kB" is understood); SIZE_MAX: none. */
static size_t read_number(const char *path, const char *key) {
    FILE *file = fopen(path, "re");
    size_t found = SIZE_MAX;
    char line[256];
    while (file != NULL && found == SIZE_MAX && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        char *end;
        const unsigned long long value = strtoull(line + strlen(key), &end, 10);
        const unsigned long long unit = strncmp(end, " kB", 3) == 0 ? 1024 : 1;
        if (end != line + strlen(key) && value < SIZE_MAX / unit)
            found = (size_t)(value * unit);
    }
    if (file != NULL)
        fclose(file);
    return found;
}

/* The names of a cgroup version's files. */
typedef struct version {
    const char *mount, *limit, *used, *idle;
} version;

static const version versions[] = {
    {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "},
    {"/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file "},
};

/* What one cgroup leaves. */
static size_t left_in(const char *folder, const version *how) {
    char path[2 * PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, how->limit);
    const size_t limit = read_number(path, "");
    snprintf(path, sizeof path, "%s/%s", folder, how->used);
    size_t used = read_number(path, "");
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const size_t idle = read_number(path, how->idle);
    if (limit == SIZE_MAX || used == SIZE_MAX)
        return SIZE_MAX;
    if (idle != SIZE_MAX)
        used -= copse__min_size(idle, used);
    return limit > used ? limit - used : 0;
}

/* The least that a cgroup and those around it leave. A container sees its own as the mount, so
 * a path that does not exist there is no reason to stop. */
static size_t left_around(const char *root, const version *how, const char *group) {
    char folder[PATH_MAX];
    const int mount = snprintf(folder, sizeof folder, "%s%s", root, how->mount);
    size_t left = left_in(folder, how);
    snprintf(folder, sizeof folder, "%s%s%s", root, how->mount, group);
    for (;;) {
        char *slash = strrchr(folder, '/');
        if (slash == NULL || slash < folder + mount)
            return left;
        left = copse__min_size(left, left_in(folder, how));
        *slash = '\0';
    }
}

size_t copse__free_memory(const char *root) {
    char path[PATH_MAX], line[PATH_MAX];
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    size_t left = read_number(path, "MemAvailable:");
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *kinds = strchr(line, ':'); /* "0::/path", "9:memory:/path" */
        char *group = kinds != NULL ? strchr(kinds + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        if (kinds[1] == '\0')
            left = copse__min_size(left, left_around(root, &versions[0], group));
        else if (strstr(kinds + 1, "memory") != NULL)
            left = copse__min_size(left, left_around(root, &versions[1], group));
    }
    if (file != NULL)
        fclose(file);
    return left;
}
