/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static bool reserve(copse__text *text, size_t extra) {
    size_t need;
    if (text->failed)
        return false;
    if (!copse__add_size(text->length, extra, &need) ||
        !copse__add_size(need, 1, &need) ||
        copse__grow(&text->data, &text->capacity, need, 1, NULL) != COPSE_OK)
        text->failed = true;
    return !text->failed;
}

void copse__text_add_bytes(copse__text *text, const char *bytes, size_t count) {
    if (!reserve(text, count))
        return;
    memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void copse__text_add(copse__text *text, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        text->failed = true;
    else if (reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    }
    va_end(again);
}

void copse__text_free(copse__text *text) {
    free(text->data);
    *text = (copse__text){0};
}

copse_status copse__text_check(const copse__text *text, copse_error *err) {
    return text->failed ? copse__fail_nomem(err, text->capacity) : COPSE_OK;
}

const char *copse__format_bytes(char *buffer, size_t capacity, unsigned long long bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < COPSE__COUNT(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, capacity, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
    return buffer;
}

const char *copse__format_count(char *buffer, size_t capacity, unsigned long long count) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%llu", count);
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < capacity; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            buffer[used++] = ',';
        buffer[used++] = digits[i];
    }
    buffer[used] = '\0';
    return buffer;
}

const char *copse__format_double(char *buffer, size_t capacity, double value) {
    if (!isfinite(value)) {
        snprintf(buffer, capacity, "null");
        return buffer;
    }
    if (fabs(value) < 1e15 && value == floor(value)) { /* 10, not 1e+01 */
        snprintf(buffer, capacity, "%.0f", value);
        return buffer;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buffer, capacity, "%.*g", digits, value);
        if (strtod(buffer, NULL) == value)
            break;
    }
    return buffer;
}

const char *copse__format_float(char *buffer, size_t capacity, float value) {
    if (!isfinite(value)) {
        snprintf(buffer, capacity, "null");
        return buffer;
    }
    if (fabsf(value) < 1e7f && value == floorf(value)) {
        snprintf(buffer, capacity, "%.0f", (double)value);
        return buffer;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(buffer, capacity, "%.*g", digits, (double)value);
        if (strtof(buffer, NULL) == value)
            break;
    }
    return buffer;
}
