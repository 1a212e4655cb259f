/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

enum { PIPE_PATIENCE_MS = 10000 };

/* Whether there is something to be read, or the end: true at once of a file. */
static bool comes_more(int fd) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int ready = poll(&wait, 1, PIPE_PATIENCE_MS);
    return ready > 0 || (ready < 0 && errno == EINTR);
}

copse_status copse__file_read(char **out, size_t *out_bytes, const char *path,
                              size_t limit_bytes, copse_error *err) {
    *out = NULL;
    *out_bytes = 0;
    copse_status status = COPSE_OK;
    char *data = NULL;
    size_t used = 0, capacity = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                           strerror(errno));
    for (;;) {
        if (!comes_more(fd)) {
            status = copse__fail(err, COPSE_IO, EAGAIN, path,
                                 "it is a pipe into which nobody has written for %d s",
                                 PIPE_PATIENCE_MS / 1000);
            goto out;
        }
        COPSE__TRY(copse__grow(&data, &capacity, used + 65536 + 1, 1, err), out);
        ssize_t got = read(fd, data + used, capacity - used - 1);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got < 0) {
            status = copse__fail(err, COPSE_IO, errno, path, "cannot read it: %s",
                                 strerror(errno));
            goto out;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > limit_bytes) {
            status =
                copse__fail(err, COPSE_FORMAT, 0, path,
                            "it is larger than the %zu bytes allowed here", limit_bytes);
            goto out;
        }
    }
    data[used] = '\0';
    *out = data;
    *out_bytes = used;
    data = NULL;
out:
    free(data);
    close(fd);
    return status;
}

struct copse__atomic_file {
    char *path;
    char *temporary;
    int fd;
    char *block; /* uncached: what is not written yet; NULL: all is */
    size_t used;
};

/* Uncached writes: memory, places and lengths must be multiples of a sector, of at most 4096 bytes. */
enum { SECTOR = 4096, BLOCK_BYTES = 1 << 20 };

static void atomic_free(copse__atomic_file *file) {
    if (file->fd >= 0)
        close(file->fd);
    free(file->block);
    free(file->path);
    free(file->temporary);
    free(file);
}

copse_status copse__atomic_open(copse__atomic_file **out, const char *path,
                                copse_error *err) {
    static atomic_uint counter;
    *out = NULL;
    copse__atomic_file *file;
    copse_status status = copse__calloc(&file, 1, sizeof *file, err);
    if (status != COPSE_OK)
        return status;
    file->fd = -1;
    struct stat before;
    bool exists = stat(path, &before) == 0;
    if (exists && !S_ISREG(before.st_mode)) {
        status = copse__fail(err, COPSE_IO, EINVAL, path,
                             "it is no regular file and would be replaced; name another");
        goto fail;
    }
    /* What a link points to is replaced, not the link. */
    file->path = exists ? realpath(path, NULL) : NULL;
    if (!file->path)
        COPSE__TRY(copse__strdup(&file->path, path, err), fail);
    path = file->path;
    size_t capacity = strlen(path) + 64;
    COPSE__TRY(copse__calloc(&file->temporary, capacity, 1, err), fail);
    snprintf(file->temporary, capacity, "%s.tmp-%ld-%u", path, (long)getpid(),
             atomic_fetch_add(&counter, 1));
    file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        status = copse__fail(err, COPSE_IO, errno, path,
                             "cannot write it: %s; choose a folder that can be written",
                             strerror(errno));
        goto fail;
    }
    if (exists)
        (void)fchmod(file->fd, before.st_mode & 07777);
    *out = file;
    return COPSE_OK;
fail:
    atomic_free(file);
    return status;
}

/* Whether the file was written past the page cache until now. */
static bool end_uncached(int fd) {
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static copse_status write_all(copse__atomic_file *file, const char *from, size_t bytes,
                              copse_error *err) {
    while (bytes > 0) {
        ssize_t put = write(file->fd, from, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        /* Another size of sectors, or the rest of a write that was cut short. */
        if (put < 0 && errno == EINVAL && end_uncached(file->fd))
            continue;
        if (put <= 0)
            return copse__fail(err, COPSE_IO, errno, file->path, "cannot write it: %s",
                               strerror(put < 0 ? errno : ENOSPC));
        from += put;
        bytes -= (size_t)put;
    }
    return COPSE_OK;
}

copse_status copse__atomic_uncached(copse__atomic_file *file, copse_error *err) {
    int flags = fcntl(file->fd, F_GETFL);
    if (flags < 0 || fcntl(file->fd, F_SETFL, flags | O_DIRECT) != 0)
        return COPSE_OK;
    void *block;
    if (posix_memalign(&block, SECTOR, BLOCK_BYTES) != 0)
        return copse__fail_nomem(err, BLOCK_BYTES);
    file->block = block;
    return COPSE_OK;
}

copse_status copse__atomic_write(copse__atomic_file *file, const void *data, size_t bytes,
                                 copse_error *err) {
    const char *from = data;
    if (!file->block)
        return write_all(file, from, bytes, err);
    while (bytes > 0) {
        size_t part = copse__min_size(bytes, BLOCK_BYTES - file->used);
        memcpy(file->block + file->used, from, part);
        file->used += part;
        from += part;
        bytes -= part;
        if (file->used < BLOCK_BYTES)
            continue;
        file->used = 0;
        copse_status status = write_all(file, file->block, BLOCK_BYTES, err);
        if (status != COPSE_OK)
            return status;
    }
    return COPSE_OK;
}

int copse__atomic_fd(copse__atomic_file *file) {
    return file->fd;
}

copse_status copse__sync_entry(const char *path, copse_error *err) {
    char *folder;
    copse_status status = copse__path_folder(&folder, path, err);
    if (status != COPSE_OK)
        return status;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a folder (EINVAL): then there is nothing to wait for.
     */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        status = copse__fail(err, COPSE_IO, errno, folder, "cannot sync the folder: %s",
                             strerror(errno));
    if (fd >= 0)
        close(fd);
    free(folder);
    return status;
}

copse_status copse__atomic_commit(copse__atomic_file *file, copse_error *err) {
    copse_status status = COPSE_OK;
    if (file->used > 0) { /* the rest is no whole sector */
        (void)end_uncached(file->fd);
        status = write_all(file, file->block, file->used, err);
        if (status != COPSE_OK) {
            copse__atomic_abort(file);
            return status;
        }
    }
    int fd = file->fd;
    file->fd = -1;
    bool synced = fsync(fd) == 0;
    int sync_errno = errno;
    bool closed = close(fd) == 0;
    int code = synced ? errno : sync_errno;
    if (!synced || !closed || (code = 0, rename(file->temporary, file->path) != 0)) {
        if (code == 0)
            code = errno;
        status = copse__fail(err, COPSE_IO, code, file->path, "cannot finish it: %s",
                             strerror(code));
        unlink(file->temporary);
    } else {
        status = copse__sync_entry(file->path, err);
    }
    atomic_free(file);
    return status;
}

void copse__atomic_abort(copse__atomic_file *file) {
    if (!file)
        return;
    unlink(file->temporary);
    atomic_free(file);
}

copse_status copse__file_write_atomic(const char *path, const void *data, size_t bytes,
                                      copse_error *err) {
    copse__atomic_file *file;
    copse_status status = copse__atomic_open(&file, path, err);
    if (status != COPSE_OK)
        return status;
    status = copse__atomic_write(file, data, bytes, err);
    if (status != COPSE_OK) {
        copse__atomic_abort(file);
        return status;
    }
    return copse__atomic_commit(file, err);
}

copse_status copse__make_folders(const char *path, copse_error *err) {
    char *work;
    copse_status status = copse__strdup(&work, path, err);
    if (status != COPSE_OK)
        return status;
    for (char *at = work + (work[0] == '/');; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        struct stat info;
        bool made = work[0] && mkdir(work, 0777) == 0;
        if (work[0] && !made &&
            !(errno == EEXIST && stat(work, &info) == 0 && S_ISDIR(info.st_mode)))
            status = copse__fail(err, COPSE_IO, errno, work,
                                 "cannot make the folder: %s; choose another with --out",
                                 strerror(errno));
        else if (made)
            status = copse__sync_entry(work, err);
        if (status != COPSE_OK)
            break;
        *at = kept;
        if (!kept)
            break;
    }
    free(work);
    return status;
}

bool copse__file_exists(const char *path) {
    return access(path, F_OK) == 0;
}

copse_status copse__path_join(char **out, const char *folder, const char *name,
                              copse_error *err) {
    if (!folder || !folder[0] || name[0] == '/')
        return copse__strdup(out, name, err);
    size_t capacity = strlen(folder) + strlen(name) + 2;
    copse_status status = copse__calloc(out, capacity, 1, err);
    if (status == COPSE_OK)
        snprintf(*out, capacity, "%s%s%s", folder,
                 folder[strlen(folder) - 1] == '/' ? "" : "/", name);
    return status;
}

copse_status copse__path_folder(char **out, const char *path, copse_error *err) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return copse__strdup(out, ".", err);
    if (slash == path)
        return copse__strdup(out, "/", err);
    copse_status status = copse__calloc(out, (size_t)(slash - path) + 1, 1, err);
    if (status == COPSE_OK)
        memcpy(*out, path, (size_t)(slash - path));
    return status;
}

copse_status copse__cache_folder(char **out, copse_error *err) {
    *out = NULL;
    const char *own = getenv("COPSE_CACHE");
    if (own)
        return own[0] ? copse__strdup(out, own, err) : COPSE_OK;
    const char *xdg = getenv("XDG_CACHE_HOME");
    if (xdg && xdg[0] == '/')
        return copse__path_join(out, xdg, "copse", err);
    const char *home = getenv("HOME");
    if (home && home[0] == '/')
        return copse__path_join(out, home, ".cache/copse", err);
    return COPSE_OK;
}
