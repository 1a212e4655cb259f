/* SPDX-License-Identifier: Apache-2.0 */
#include "io/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/json.h"

struct copse__trace {
    pthread_mutex_t lock;
    char *path;
    FILE *file;
    uint64_t start_ns; /* times are printed from here, so that no digit is lost */
    copse__text line;
    int code; /* errno of the first failed write; 0: none */
};

copse_status copse__trace_open(copse__trace **out, const char *path, copse_error *err) {
    *out = NULL;
    copse__trace *trace;
    copse_status status = copse__calloc(&trace, 1, sizeof *trace, err);
    if (status != COPSE_OK)
        return status;
    pthread_mutex_init(&trace->lock, NULL);
    trace->start_ns = copse__now_ns();
    COPSE__TRY(copse__strdup(&trace->path, path, err), fail);
    trace->file = fopen(path, "we");
    if (!trace->file) {
        status = copse__fail(err, COPSE_IO, errno, path, "cannot write it: %s",
                             strerror(errno));
        goto fail;
    }
    if (fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
              "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":"
              "\"copse\"}}",
              trace->file) < 0)
        trace->code = errno ? errno : EIO;
    *out = trace;
    return COPSE_OK;
fail:
    copse__trace_close(trace, NULL);
    return status;
}

/* Between the first half of an event, in trace->line, and its end: the lock is held. */
static void begin_event(copse__trace *trace, const char *phase, uint32_t track) {
    pthread_mutex_lock(&trace->lock);
    trace->line.length = 0;
    copse__text_add(&trace->line,
                    ",\n{\"ph\":\"%s\",\"pid\":1,\"tid\":%" PRIu32 ",\"name\":", phase,
                    track);
}

static void end_event(copse__trace *trace) {
    copse__text_add(&trace->line, "}");
    if (trace->line.failed)
        trace->code = trace->code ? trace->code : ENOMEM;
    else if (trace->code == 0 && fwrite(trace->line.data, 1, trace->line.length,
                                        trace->file) != trace->line.length)
        trace->code = errno ? errno : EIO;
    pthread_mutex_unlock(&trace->lock);
}

/* Microseconds with three decimals: exact nanoseconds. */
static void add_time(copse__trace *trace, const char *key, uint64_t ns) {
    copse__text_add(&trace->line, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000,
                    ns % 1000);
}

static uint64_t since_start(const copse__trace *trace, uint64_t at_ns) {
    return at_ns > trace->start_ns ? at_ns - trace->start_ns : 0;
}

void copse__trace_name(copse__trace *trace, uint32_t track, const char *name) {
    if (!trace)
        return;
    begin_event(trace, "M", track);
    copse__text_add(&trace->line, "\"thread_name\",\"args\":{\"name\":");
    copse__json_text(&trace->line, name);
    copse__text_add(&trace->line, "}");
    end_event(trace);
    begin_event(trace, "M", track);
    copse__text_add(&trace->line,
                    "\"thread_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}", track);
    end_event(trace);
}

void copse__trace_span(copse__trace *trace, uint32_t track, const char *name,
                       uint64_t begin_ns, uint64_t end_ns) {
    if (!trace)
        return;
    begin_event(trace, "X", track);
    copse__json_text(&trace->line, name);
    add_time(trace, "ts", since_start(trace, begin_ns));
    add_time(trace, "dur", end_ns > begin_ns ? end_ns - begin_ns : 0);
    end_event(trace);
}

void copse__trace_counter(copse__trace *trace, const char *name, uint64_t at_ns,
                          double value) {
    char number[32];
    if (!trace)
        return;
    begin_event(trace, "C", 0);
    copse__json_text(&trace->line, name);
    add_time(trace, "ts", since_start(trace, at_ns));
    copse__text_add(&trace->line, ",\"args\":{\"value\":%s}",
                    copse__format_double(number, sizeof number, value));
    end_event(trace);
}

copse_status copse__trace_close(copse__trace *trace, copse_error *err) {
    copse_status status = COPSE_OK;
    if (!trace)
        return COPSE_OK;
    if (trace->file) {
        if (fputs("\n]}\n", trace->file) < 0 && trace->code == 0)
            trace->code = errno ? errno : EIO;
        if (fclose(trace->file) != 0 && trace->code == 0)
            trace->code = errno;
        if (trace->code != 0)
            status =
                copse__fail(err, COPSE_IO, trace->code, trace->path,
                            "cannot write all of the trace: %s", strerror(trace->code));
    }
    pthread_mutex_destroy(&trace->lock);
    copse__text_free(&trace->line);
    free(trace->path);
    free(trace);
    return status;
}
