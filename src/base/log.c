/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The library's only mutable global. */
static struct {
    pthread_mutex_t lock;
    copse_log_fn *fn;
    copse_log_level most;
    void *user;
} sink = {.lock = PTHREAD_MUTEX_INITIALIZER};

void copse_log_set(copse_log_fn *fn, copse_log_level most, void *user) {
    pthread_mutex_lock(&sink.lock);
    sink.fn = fn;
    sink.most = most;
    sink.user = user;
    pthread_mutex_unlock(&sink.lock);
}

static void send_line(copse_log_level level, const char *line) {
    pthread_mutex_lock(&sink.lock);
    if (sink.fn && level <= sink.most)
        sink.fn(level, line, sink.user);
    pthread_mutex_unlock(&sink.lock);
}

bool copse__log_wanted(copse_log_level level) {
    pthread_mutex_lock(&sink.lock);
    bool wanted = sink.fn && level <= sink.most;
    pthread_mutex_unlock(&sink.lock);
    return wanted;
}

void copse__log(copse_log_level level, const char *format, ...) {
    if (!copse__log_wanted(level))
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    send_line(level, line);
}

void copse__log_lines(copse_log_level level, const char *text) {
    while (*text) {
        size_t length = strcspn(text, "\n");
        char line[1024];
        snprintf(line, sizeof line, "%.*s", (int)(length < 1000 ? length : 1000), text);
        if (length > 0)
            send_line(level, line);
        text += length + (text[length] == '\n');
    }
}
