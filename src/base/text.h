/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_TEXT_H
#define COPSE_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* A growing text. Start from {0}; data is NUL-terminated once anything was added. A
 * failed addition sets `failed` and later ones do nothing, so that a writer checks once,
 * at the end. */
typedef struct copse__text {
    char *data;
    size_t length;
    size_t capacity;
    bool failed;
} copse__text;

void copse__text_add(copse__text *text, const char *format, ...) COPSE_PRINTF(2, 3);
void copse__text_add_bytes(copse__text *text, const char *bytes, size_t count);
void copse__text_free(copse__text *text);

/* COPSE_NOMEM where an addition failed. */
copse_status copse__text_check(const copse__text *text, copse_error *err);

/* "2.6 MiB", "512 B": a size for people, into a buffer of at least 32 bytes. Returns it.
 */
const char *copse__format_bytes(char *buffer, size_t capacity, unsigned long long bytes);

/* "693,962". buffer of at least 32 bytes. Returns it. */
const char *copse__format_count(char *buffer, size_t capacity, unsigned long long count);

/* The shortest decimal that reads back as exactly this double (float: _float); "null"
 * where it is not finite, as JSON has no NaN. buffer of at least 32 bytes. Returns it. */
const char *copse__format_double(char *buffer, size_t capacity, double value);
const char *copse__format_float(char *buffer, size_t capacity, float value);

#endif
