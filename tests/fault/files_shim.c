/* SPDX-License-Identifier: Apache-2.0 */
#include "files_shim.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "power.h"

/* Where the calls come in, and how they go on. */
#ifdef FILES_PRELOAD
#include <dlfcn.h>
#define OURS(call) call
#define EXPORT __attribute__((visibility("default")))
static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_close)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_rename)(const char *, const char *), (*real_unlink)(const char *);
static int (*real_mkdir)(const char *, mode_t);
#define REAL(call) real_##call
#else
#define OURS(call) __wrap_##call
#define EXPORT
int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t bytes);
int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_ftruncate(int fd, off_t length);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_mkdir(const char *path, mode_t mode);
#define REAL(call) __real_##call

int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t bytes);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_ftruncate(int fd, off_t length);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_mkdir(const char *path, mode_t mode);
#endif

enum { FDS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Calls that come from within ours, or from a signal's handler there, just pass. */
static _Thread_local int depth;
static unsigned calls, failing_call, piece, slow_ms, unsafe_renames, unsynced_folders;
static int failing_code;
static bool failing_on;
static char folder[PATH_MAX]; /* only what lies in it is touched; "": everything */
static struct {
    char path[PATH_MAX];
    bool inside; /* the folder */
    bool dirty;
} files[FDS];                  /* by descriptor; a path stays after closing */
static char made_in[PATH_MAX]; /* whose newest folder's entry is not synced */

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

unsigned shim_unsynced_folders(void) {
    return unsynced_folders;
}

/* ---- As a library for LD_PRELOAD: told by the environment ---- */

#ifdef FILES_PRELOAD
static power_rest cut_rest;
static unsigned cut_seed;
static bool cuts;
static const char *count_file;

static unsigned number_of(const char *name) {
    const char *text = getenv(name);
    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}

/* FILES_FOLDER: an absolute path. FILES_CALL: which call fails, with FILES_CODE (ENOSPC where there is none), and with
 * FILES_STICKY all behind it; or at which the power goes, FILES_CUT: strict, eager or a seed. FILES_PIECE: bytes that a
 * write takes at most. FILES_SLOW: milliseconds more that every sync takes. FILES_COUNT: a file that gets the count of calls in the end. */
__attribute__((constructor)) static void begin(void) {
#define FIND(call) *(void **)(&real_##call) = dlsym(RTLD_NEXT, #call)
    FIND(open);
    FIND(write);
    FIND(fsync);
    FIND(fdatasync);
    FIND(close);
    FIND(ftruncate);
    FIND(rename);
    FIND(unlink);
    FIND(mkdir);
#undef FIND
    const char *in = getenv("FILES_FOLDER"), *cut = getenv("FILES_CUT");
    snprintf(folder, sizeof folder, "%s", in ? in : "/nowhere");
    unsigned code = number_of("FILES_CODE");
    shim_fail(number_of("FILES_CALL"), code ? (int)code : ENOSPC,
              number_of("FILES_STICKY") != 0);
    piece = number_of("FILES_PIECE");
    slow_ms = number_of("FILES_SLOW");
    count_file = getenv("FILES_COUNT");
    cuts = cut != NULL;
    if (cuts && strcmp(cut, "eager") == 0)
        cut_rest = POWER_EAGER;
    else if (cuts && strcmp(cut, "strict") != 0)
        cut_rest = POWER_MIXED;
    cut_seed = number_of("FILES_CUT");
    if (cuts && access(folder, F_OK) == 0)
        power_watch(folder);
}

__attribute__((destructor)) static void end(void) {
    FILE *to =
        count_file && calls > 0 ? fopen(count_file, "w") : NULL; /* not of `timeout` */
    if (!to)
        return;
    fprintf(to, "%u\n", calls);
    fclose(to);
}

static void cut_power(void) {
    power_cut(cut_rest, cut_seed);
    _exit(137);
}
#else
enum { cuts = 0 };
static void cut_power(void) {
}
#endif

/* ---- The calls; the lock is held within ---- */

static void enter(void) {
    if (depth++ == 0)
        pthread_mutex_lock(&lock);
}

static void leave(void) {
    if (--depth == 0)
        pthread_mutex_unlock(&lock);
}

static bool is_inside(const char *path) {
    size_t length = strlen(folder);
    return length == 0 ||
           (strncmp(path, folder, length) == 0 && (!path[length] || path[length] == '/'));
}

static bool fails(void) {
    if (depth > 1)
        return false;
    calls++;
    if (failing_call == 0 || calls < failing_call ||
        (calls > failing_call && !failing_on))
        return false;
    if (cuts)
        cut_power();
    errno = failing_code;
    return true;
}

static bool path_fails(const char *path) {
    return is_inside(path) && fails();
}

static bool fd_fails(int fd) {
    return fd >= 0 && fd < FDS && files[fd].inside && fails();
}

static int open_one(const char *path, int flags, int mode) {
    bool made = (flags & O_CREAT) != 0 && access(path, F_OK) != 0;
    if (path_fails(path))
        return -1;
    int fd = REAL(open)(path, flags, mode);
    if (fd < 0 || fd >= FDS)
        return fd;
    snprintf(files[fd].path, sizeof files[fd].path, "%s", path);
    files[fd].inside = is_inside(path);
    files[fd].dirty = false;
    if (made && files[fd].inside)
        power_created(path);
    return fd;
}

EXPORT int OURS(open)(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    enter();
    int fd = open_one(path, flags, mode);
    leave();
    return fd;
}

EXPORT ssize_t OURS(write)(int fd, const void *data, size_t bytes) {
    enter();
    bool ours = fd >= 0 && fd < FDS && files[fd].inside, failed = ours && fails();
    if (ours && !failed)
        files[fd].dirty = true;
    leave();
    return failed ? -1
                  : REAL(write)(fd, data, ours && piece && bytes > piece ? piece : bytes);
}

/* The disk is slow; whoever does not ask it need not wait. */
static void nap(int fd) {
    enter();
    bool ours = fd >= 0 && fd < FDS && files[fd].inside;
    leave();
    if (ours && slow_ms > 0)
        usleep(slow_ms * 1000);
}

static int sync_one(int fd, int (*sync)(int)) {
    if (fd_fails(fd))
        return -1;
    int code = sync(fd);
    if (code == 0 && fd >= 0 && fd < FDS) {
        files[fd].dirty = false;
        if (files[fd].inside)
            power_synced(fd);
        if (strcmp(files[fd].path, made_in) == 0) {
            made_in[0] = '\0';
            unsynced_folders--;
        }
    }
    return code;
}

EXPORT int OURS(fsync)(int fd) {
    nap(fd);
    enter();
    int code = sync_one(fd, REAL(fsync));
    leave();
    return code;
}

EXPORT int OURS(fdatasync)(int fd) {
    nap(fd);
    enter();
    int code = sync_one(fd, REAL(fdatasync));
    leave();
    return code;
}

EXPORT int OURS(ftruncate)(int fd, off_t length) {
    enter();
    int code = fd_fails(fd) ? -1 : REAL(ftruncate)(fd, length);
    leave();
    return code;
}

/* As Linux does, a failing close closes. */
EXPORT int OURS(close)(int fd) {
    enter();
    bool failed = fd_fails(fd);
    if (fd >= 0 && fd < FDS)
        files[fd].inside = false;
    int code = REAL(close)(fd);
    if (failed)
        errno = failing_code;
    leave();
    return failed ? -1 : code;
}

static int rename_one(const char *from, const char *to) {
    if (path_fails(to))
        return -1;
    for (int fd = 0; fd < FDS; fd++)
        if (files[fd].dirty && strcmp(files[fd].path, from) == 0)
            unsafe_renames++;
    return REAL(rename)(from, to);
}

EXPORT int OURS(rename)(const char *from, const char *to) {
    enter();
    int code = rename_one(from, to);
    leave();
    return code;
}

EXPORT int OURS(unlink)(const char *path) {
    enter();
    int code = path_fails(path) ? -1 : REAL(unlink)(path);
    leave();
    return code;
}

static int make_one(const char *path, mode_t mode) {
    if (path_fails(path))
        return -1;
    int code = REAL(mkdir)(path, mode);
    if (code != 0)
        return code;
    snprintf(made_in, sizeof made_in, "%s", path);
    char *slash = strrchr(made_in, '/');
    snprintf(slash ? slash : made_in, 2, "%s", slash ? "" : ".");
    unsynced_folders++;
    if (cuts && strcmp(path, folder) == 0)
        power_watch(folder);
    return code;
}

EXPORT int OURS(mkdir)(const char *path, mode_t mode) {
    enter();
    int code = make_one(path, mode);
    leave();
    return code;
}
