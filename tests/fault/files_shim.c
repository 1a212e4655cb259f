/* SPDX-License-Identifier: Apache-2.0 */
#include "files_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t bytes);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_ftruncate(int fd, off_t length);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);

int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_ftruncate(int fd, off_t length);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);

enum { FDS = 64 };

static unsigned calls, failing_call, piece, unsafe_renames;
static int failing_code;
static bool failing_on;
static struct {
    char path[PATH_MAX];
    bool dirty;
} files[FDS]; /* by descriptor; a path stays after closing */

void shim_fail(unsigned call, int code, bool sticky) {
    calls = 0;
    failing_call = call;
    failing_code = code;
    failing_on = sticky;
}

void shim_short_writes(unsigned bytes) {
    piece = bytes;
}

unsigned shim_calls(void) {
    return calls;
}

unsigned shim_unsafe_renames(void) {
    return unsafe_renames;
}

static bool fails(void) {
    calls++;
    if (failing_call == 0 || calls < failing_call ||
        (calls > failing_call && !failing_on))
        return false;
    errno = failing_code;
    return true;
}

int __wrap_open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    if (fails())
        return -1;
    int fd = __real_open(path, flags, mode);
    if (fd >= 0 && fd < FDS) {
        snprintf(files[fd].path, sizeof files[fd].path, "%s", path);
        files[fd].dirty = false;
    }
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t bytes) {
    if (fails())
        return -1;
    if (fd >= 0 && fd < FDS)
        files[fd].dirty = true;
    return __real_write(fd, data, piece && bytes > piece ? piece : bytes);
}

int __wrap_fsync(int fd) {
    if (fails())
        return -1;
    if (fd >= 0 && fd < FDS)
        files[fd].dirty = false;
    return __real_fsync(fd);
}

int __wrap_fdatasync(int fd) {
    return fails() ? -1 : __real_fdatasync(fd);
}

int __wrap_ftruncate(int fd, off_t length) {
    return fails() ? -1 : __real_ftruncate(fd, length);
}

/* As Linux does, a failing close closes. */
int __wrap_close(int fd) {
    bool failed = fails();
    int code = __real_close(fd);
    if (failed)
        errno = failing_code;
    return failed ? -1 : code;
}

int __wrap_rename(const char *from, const char *to) {
    if (fails())
        return -1;
    for (int fd = 0; fd < FDS; fd++)
        if (files[fd].dirty && strcmp(files[fd].path, from) == 0)
            unsafe_renames++;
    return __real_rename(from, to);
}

int __wrap_unlink(const char *path) {
    return fails() ? -1 : __real_unlink(path);
}
