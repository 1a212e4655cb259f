/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/opencl/internal.h"
#include "base/file.h"
#include "base/hash.h"

/* A cache entry: this header, the key's text, the binary. A truncated or changed binary may
 * kill the process inside the driver, so all is checked before the driver sees a byte. Made
 * and read on one machine only: its byte order is the machine's. */
typedef struct entry_header {
    char magic[8];
    uint32_t version;
    uint32_t key_bytes;
    uint64_t binary_bytes;
    uint64_t binary_hash[2]; /* XXH3-128: low, high */
} entry_header;

static const char magic[8] = {'c', 'o', 'p', 's', 'e', 'B', 'I', 'N'};
#define ENTRY_VERSION 1u
#define MOST_ENTRY_BYTES ((size_t)256 << 20)

static copse_status entry_path(char **out, const char *folder, const char *key,
                               const char *ending, copse_error *err) {
    char name[48] = "", hex[33];
    copse__hash128 hash = copse__hash128_of(key, strlen(key));
    snprintf(name, sizeof name, "%s.%s", copse__hash128_hex(hex, hash), ending);
    return copse__path_join(out, folder, name, err);
}

/* Opens it only where it is a plain file of this user. */
static int open_own(const char *path, size_t *bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return -1;
    struct stat file;
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
        (file.st_mode & S_IWOTH) == 0 && file.st_size > 0 &&
        (uint64_t)file.st_size <= MOST_ENTRY_BYTES) {
        *bytes = (size_t)file.st_size;
        return fd;
    }
    copse__log(COPSE_LOG_WARN, "%s: ignored: not a plain file of this user", path);
    close(fd);
    return -1;
}

static bool read_all(int fd, unsigned char *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(fd, data + done, bytes - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

/* Where the binary begins, or 0 where the entry is not whole or not of this key. */
static size_t check_entry(const unsigned char *data, size_t bytes, const char *key) {
    entry_header head;
    if (bytes < sizeof head)
        return 0;
    memcpy(&head, data, sizeof head);
    size_t key_bytes = strlen(key);
    size_t rest = bytes - sizeof head;
    if (memcmp(head.magic, magic, sizeof magic) != 0 || head.version != ENTRY_VERSION ||
        head.key_bytes != key_bytes || rest < key_bytes ||
        memcmp(data + sizeof head, key, key_bytes) != 0 ||
        head.binary_bytes != rest - key_bytes || head.binary_bytes == 0)
        return 0;
    copse__hash128 hash =
        copse__hash128_of(data + sizeof head + key_bytes, (size_t)head.binary_bytes);
    if (hash.low != head.binary_hash[0] || hash.high != head.binary_hash[1])
        return 0;
    return sizeof head + key_bytes;
}

void copse__cl_binary_load(unsigned char **out, size_t *out_bytes, const char *folder,
                           const char *key) {
    *out = NULL;
    *out_bytes = 0;
    char *path = NULL;
    unsigned char *data = NULL;
    size_t bytes = 0;
    if (entry_path(&path, folder, key, "clbin", NULL) != COPSE_OK)
        return;
    int fd = open_own(path, &bytes);
    if (fd < 0)
        goto out;
    data = malloc(bytes);
    size_t begin = 0;
    if (data && read_all(fd, data, bytes))
        begin = check_entry(data, bytes, key);
    if (begin == 0) {
        copse__log(COPSE_LOG_WARN, "%s: damaged; the kernel is built anew", path);
        goto out;
    }
    *out_bytes = bytes - begin;
    memmove(data, data + begin, *out_bytes);
    *out = data;
    data = NULL;
out:
    if (fd >= 0)
        close(fd);
    free(data);
    free(path);
}

void copse__cl_binary_store(const char *folder, const char *key,
                            const unsigned char *binary, size_t bytes) {
    char *path = NULL;
    copse__atomic_file *file = NULL;
    copse_error error = {0};
    copse__hash128 hash = copse__hash128_of(binary, bytes);
    entry_header head = {.version = ENTRY_VERSION,
                         .key_bytes = (uint32_t)strlen(key),
                         .binary_bytes = bytes,
                         .binary_hash = {hash.low, hash.high}};
    memcpy(head.magic, magic, sizeof magic);
    copse_status status = copse__make_folders(folder, &error);
    COPSE__TRY(status, out);
    COPSE__TRY(entry_path(&path, folder, key, "clbin", &error), out);
    COPSE__TRY(copse__atomic_open(&file, path, &error), out);
    (void)fchmod(copse__atomic_fd(file), 0600);
    COPSE__TRY(copse__atomic_write(file, &head, sizeof head, &error), out);
    COPSE__TRY(copse__atomic_write(file, key, strlen(key), &error), out);
    COPSE__TRY(copse__atomic_write(file, binary, bytes, &error), out);
    status = copse__atomic_commit(file, &error);
    file = NULL;
out:
    copse__atomic_abort(file);
    if (status != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "a compiled kernel is not kept: %s: %s", error.place,
                   error.text);
    free(path);
}

bool copse__cl_note_exists(const char *folder, const char *key) {
    char *path = NULL;
    if (entry_path(&path, folder, key, "note", NULL) != COPSE_OK)
        return false;
    bool exists = copse__file_exists(path);
    free(path);
    return exists;
}

void copse__cl_note_make(const char *folder, const char *key) {
    char *path = NULL;
    copse_error error = {0};
    copse_status status = copse__make_folders(folder, &error);
    if (status == COPSE_OK)
        status = entry_path(&path, folder, key, "note", &error);
    if (status == COPSE_OK)
        status = copse__file_write_atomic(path, key, strlen(key), &error);
    if (status != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "a note is not kept: %s: %s", error.place, error.text);
    free(path);
}
