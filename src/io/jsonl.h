/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_JSONL_H
#define COPSE_IO_JSONL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* A log of JSON objects, one a line. Every line is written by one call as soon as it is complete,
 * so a reader (or a kill) sees whole lines; a line that could not be written whole (full disk) is
 * taken back. Not thread-safe. Every function that takes a log allows NULL: no log. */
typedef struct copse__jsonl copse__jsonl;

/* Starts an empty log; what the file held is lost. */
copse_status copse__jsonl_create(copse__jsonl **out, const char *path, copse_error *err);

/* Continues a log after the checkpoint of optimizer step `step`, at which the log was `bytes` long
 * (0: not known): lines behind it are removed, and so is a cut last line. Where `bytes` does not
 * fall behind a line, the log is kept up to the first line whose "step" is greater than `step`, or
 * of kind "end". A log that does not exist is created. */
copse_status copse__jsonl_resume(copse__jsonl **out, const char *path, uint64_t step,
                                 uint64_t bytes, copse_error *err);

void copse__jsonl_close(copse__jsonl *log);

/* One line: begin with its kind, add keys, end. Numbers are printed so that they read back
 * exactly; NaN and infinities become null. json is JSON text, taken as it is. */
void copse__jsonl_begin(copse__jsonl *log, const char *kind);
void copse__jsonl_count(copse__jsonl *log, const char *key, uint64_t value);
void copse__jsonl_double(copse__jsonl *log, const char *key, double value);
void copse__jsonl_float(copse__jsonl *log, const char *key, float value);
void copse__jsonl_bool(copse__jsonl *log, const char *key, bool value);
void copse__jsonl_text(copse__jsonl *log, const char *key, const char *value);
void copse__jsonl_json(copse__jsonl *log, const char *key, const char *json);
/* Writes it. After a failure the log can go on: only this line is missing. */
copse_status copse__jsonl_end(copse__jsonl *log, copse_error *err);

/* Its length, for a checkpoint to remember; 0 without a log. */
uint64_t copse__jsonl_bytes(const copse__jsonl *log);
/* Makes durable what was written before, which may take as long as the disk takes: also from a thread other than
 * the one that writes. */
copse_status copse__jsonl_sync(copse__jsonl *log, copse_error *err);

#endif
