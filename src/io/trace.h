/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_TRACE_H
#define COPSE_IO_TRACE_H

#include <stdint.h>

#include "base/error.h"

/* A time line in the Chrome trace format, which https://ui.perfetto.dev and chrome://tracing show:
 * one row a track (a device's queue, a host thread). Thread-safe. Times are copse__now_ns(). Every
 * function that takes a trace allows NULL: no trace. */
typedef struct copse__trace copse__trace;

/* Writes into path while it goes on. */
copse_status copse__trace_open(copse__trace **out, const char *path, copse_error *err);

/* Gives a track its name, and its place among the others: they are sorted by number. */
void copse__trace_name(copse__trace *trace, uint32_t track, const char *name);

/* Something that lasted. */
void copse__trace_span(copse__trace *trace, uint32_t track, const char *name,
                       uint64_t begin_ns, uint64_t end_ns);
/* A value over time, drawn as a row of its own. */
void copse__trace_counter(copse__trace *trace, const char *name, uint64_t at_ns,
                          double value);

/* Completes the file and frees, whatever the outcome. The first error of all writes is told here;
 * what was written until then is kept. */
copse_status copse__trace_close(copse__trace *trace, copse_error *err);

#endif
