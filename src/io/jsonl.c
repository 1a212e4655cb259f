/* SPDX-License-Identifier: Apache-2.0 */
#include "io/jsonl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "io/json.h"

struct copse__jsonl {
    char *path;
    int fd;
    uint64_t bytes; /* of whole lines */
    copse__text line;
};

static copse_status fail_io(const copse__jsonl *log, int code, const char *what,
                            copse_error *err) {
    return copse__fail(err, COPSE_IO, code, log->path, "cannot %s it: %s", what,
                       strerror(code));
}

static copse_status open_log(copse__jsonl **out, const char *path, int flags,
                             copse_error *err) {
    *out = NULL;
    copse__jsonl *log;
    copse_status status = copse__calloc(&log, 1, sizeof *log, err);
    if (status != COPSE_OK)
        return status;
    log->fd = -1;
    COPSE__TRY(copse__strdup(&log->path, path, err), fail);
    log->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0666);
    if (log->fd < 0) {
        status = fail_io(log, errno, "open", err);
        goto fail;
    }
    *out = log;
    return COPSE_OK;
fail:
    copse__jsonl_close(log);
    return status;
}

copse_status copse__jsonl_create(copse__jsonl **out, const char *path, copse_error *err) {
    return open_log(out, path, O_TRUNC, err);
}

/* Whether a line belongs to a run that has done `step` steps. */
static bool belongs(const char *line, size_t bytes, uint64_t step) {
    json_t *object = json_loadb(line, bytes, 0, NULL);
    const json_t *number = json_object_get(object, "step");
    const char *kind = json_string_value(json_object_get(object, "kind"));
    bool later = json_is_integer(number) && json_integer_value(number) >= 0 &&
                 (uint64_t)json_integer_value(number) > step;
    bool kept = json_is_object(object) && !later && !(kind && strcmp(kind, "end") == 0);
    json_decref(object);
    return kept;
}

static bool ends_a_line(const copse__jsonl *log, uint64_t bytes) {
    char last;
    return bytes > 0 && pread(log->fd, &last, 1, (off_t)(bytes - 1)) == 1 && last == '\n';
}

/* Length of the lines that belong; reads a line at a time. */
static copse_status find_length(copse__jsonl *log, uint64_t step, copse_error *err) {
    char *line = NULL;
    size_t capacity = 0;
    ssize_t got = -1;
    copse_status status = COPSE_OK;
    int copy = dup(log->fd);
    FILE *stream = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (!stream) {
        status = fail_io(log, errno, "read", err);
        if (copy >= 0)
            close(copy);
        return status;
    }
    log->bytes = 0;
    errno = 0;
    while ((got = getline(&line, &capacity, stream)) > 0) {
        if (line[got - 1] != '\n' || !belongs(line, (size_t)got, step))
            break;
        log->bytes += (uint64_t)got;
    }
    if (ferror(stream))
        status = fail_io(log, errno, "read", err);
    free(line);
    fclose(stream);
    return status;
}

copse_status copse__jsonl_resume(copse__jsonl **out, const char *path, uint64_t step,
                                 uint64_t bytes, copse_error *err) {
    copse__jsonl *log;
    copse_status status = open_log(&log, path, 0, err);
    *out = NULL;
    if (status != COPSE_OK)
        return status;
    if (ends_a_line(log, bytes))
        log->bytes = bytes;
    else
        COPSE__TRY(find_length(log, step, err), fail);
    if (ftruncate(log->fd, (off_t)log->bytes) != 0) {
        status = fail_io(log, errno, "shorten", err);
        goto fail;
    }
    *out = log;
    return COPSE_OK;
fail:
    copse__jsonl_close(log);
    return status;
}

void copse__jsonl_close(copse__jsonl *log) {
    if (!log)
        return;
    if (log->fd >= 0)
        close(log->fd);
    copse__text_free(&log->line);
    free(log->path);
    free(log);
}

static void add_key(copse__jsonl *log, const char *key) {
    copse__text_add(&log->line, "%s", log->line.length > 1 ? "," : "");
    copse__json_text(&log->line, key);
    copse__text_add(&log->line, ":");
}

void copse__jsonl_begin(copse__jsonl *log, const char *kind) {
    if (!log)
        return;
    log->line.length = 0;
    log->line.failed = false;
    copse__text_add(&log->line, "{");
    copse__jsonl_text(log, "kind", kind);
}

void copse__jsonl_count(copse__jsonl *log, const char *key, uint64_t value) {
    if (!log)
        return;
    add_key(log, key);
    copse__text_add(&log->line, "%" PRIu64, value);
}

void copse__jsonl_double(copse__jsonl *log, const char *key, double value) {
    char buffer[32];
    copse__jsonl_json(log, key, copse__format_double(buffer, sizeof buffer, value));
}

void copse__jsonl_float(copse__jsonl *log, const char *key, float value) {
    char buffer[32];
    copse__jsonl_json(log, key, copse__format_float(buffer, sizeof buffer, value));
}

void copse__jsonl_bool(copse__jsonl *log, const char *key, bool value) {
    copse__jsonl_json(log, key, value ? "true" : "false");
}

void copse__jsonl_text(copse__jsonl *log, const char *key, const char *value) {
    if (!log)
        return;
    add_key(log, key);
    copse__json_text(&log->line, value);
}

void copse__jsonl_json(copse__jsonl *log, const char *key, const char *json) {
    if (!log)
        return;
    add_key(log, key);
    copse__text_add(&log->line, "%s", json);
}

copse_status copse__jsonl_end(copse__jsonl *log, copse_error *err) {
    if (!log)
        return COPSE_OK;
    copse__text_add(&log->line, "}\n");
    copse_status status = copse__text_check(&log->line, err);
    size_t done = 0;
    while (status == COPSE_OK && done < log->line.length) {
        ssize_t put = write(log->fd, log->line.data + done, log->line.length - done);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            status = fail_io(log, put < 0 ? errno : ENOSPC, "write", err);
        else
            done += (size_t)put;
    }
    if (status == COPSE_OK)
        log->bytes += log->line.length;
    else if (done > 0 && ftruncate(log->fd, (off_t)log->bytes) != 0)
        return fail_io(log, errno, "take a cut line back from", err);
    return status;
}

uint64_t copse__jsonl_bytes(const copse__jsonl *log) {
    return log ? log->bytes : 0;
}

copse_status copse__jsonl_sync(copse__jsonl *log, copse_error *err) {
    /* EINVAL: a pipe or a terminal, which has nothing to sync. */
    if (log && fdatasync(log->fd) != 0 && errno != EINVAL)
        return fail_io(log, errno, "sync", err);
    return COPSE_OK;
}
