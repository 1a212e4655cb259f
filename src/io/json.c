/* SPDX-License-Identifier: Apache-2.0 */
#include "io/json.h"

#include <stdint.h>
#include <string.h>

/* Bytes of the UTF-8 character at p, which is NUL-terminated; 0 where it is none. */
static size_t utf8_bytes(const unsigned char *p) {
    if (p[0] < 0x80)
        return 1;
    size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool outside = (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF4 && p[1] > 0x8F);
    return overlong || outside ? 0 : length;
}

void copse__json_text(copse__text *out, const char *text) {
    copse__text_add_bytes(out, "\"", 1);
    for (const char *at = text; *at;) {
        unsigned char c = (unsigned char)*at;
        size_t length = utf8_bytes((const unsigned char *)at);
        if (c == '"' || c == '\\')
            copse__text_add(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            copse__text_add(out, "\\u%04x", (unsigned)c);
        else if (length == 0)
            copse__text_add_bytes(out, "\xEF\xBF\xBD", 3);
        else
            copse__text_add_bytes(out, at, length);
        at += length > 0 ? length : 1;
    }
    copse__text_add_bytes(out, "\"", 1);
}
