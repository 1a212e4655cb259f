/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    const char *message;
} status_texts[] = {
#define STATUS_TEXT(code, name, message) {name, message},
    COPSE_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
};

#define STATUS_COUNT (sizeof status_texts / sizeof status_texts[0])

const char *copse_status_name(copse_status status) {
    return (size_t)status < STATUS_COUNT ? status_texts[status].name : "unknown";
}

const char *copse_status_message(copse_status status) {
    return (size_t)status < STATUS_COUNT ? status_texts[status].message
                                         : "an unknown status";
}

const char *copse_version(void) {
    return COPSE_VERSION_STRING;
}

/* A cut in the middle of a UTF-8 sequence would make the line undecodable. */
static void cut_partial_utf8(char *text) {
    size_t n = strlen(text);
    size_t lead = n;
    while (lead > 0 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80)
        lead--;
    if (lead == 0)
        return;
    unsigned char c = (unsigned char)text[lead - 1];
    size_t need = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    if (n - (lead - 1) < need)
        text[lead - 1] = '\0';
}

/* An error is one line, whatever names a hostile file put into it. */
static void make_one_line(char *text) {
    for (char *at = text; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = ' ';
}

copse_status copse__fail(copse_error *err, copse_status status, int native,
                         const char *place, const char *format, ...) {
    if (!err)
        return status;
    /* A caller may pass err's own strings on, so build in a copy. */
    copse_error made = {.status = status, .native = native};
    snprintf(made.place, sizeof made.place, "%s", place ? place : "");
    va_list args;
    va_start(args, format);
    vsnprintf(made.text, sizeof made.text, format, args);
    va_end(args);
    cut_partial_utf8(made.place);
    cut_partial_utf8(made.text);
    make_one_line(made.place);
    make_one_line(made.text);
    *err = made;
    return status;
}

copse_status copse__fail_nomem(copse_error *err, uint64_t bytes) {
    return copse__fail(err, COPSE_NOMEM, 0, NULL,
                       "the host could not give %" PRIu64 " bytes of memory", bytes);
}
