/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "train/config_schema.h"

static const void *in(const void *base, size_t offset) {
    return (const char *)base + offset;
}

static bool is_plain_text(const char *text) {
    static const char *const reserved[] = {"null", "Null",  "NULL",  "true", "True",
                                           "TRUE", "false", "False", "FALSE"};
    for (size_t i = 0; i < COPSE__COUNT(reserved); i++)
        if (strcmp(text, reserved[i]) == 0)
            return false;
    const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return strspn(text, letters) > 0 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_-./") == strlen(text);
}

void copse__schema_write_text(copse__text *out, const char *text) {
    if (is_plain_text(text) && strncmp(text, "/", 1) != 0) {
        copse__text_add(out, "%s", text);
        return;
    }
    copse__text_add(out, "\"");
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            copse__text_add(out, "\\%c", *c);
        else if (*c == '\n')
            copse__text_add(out, "\\n");
        else if (*c == '\t')
            copse__text_add(out, "\\t");
        else if (*c == '\r')
            copse__text_add(out, "\\r");
        else if ((unsigned char)*c < 0x20 || *c == 0x7f)
            copse__text_add(out, "\\x%02x", (unsigned)*c);
        else
            copse__text_add_bytes(out, c, 1);
    }
    copse__text_add(out, "\"");
}

static void write_number(copse__text *out, double value) {
    char buffer[32];
    copse__text_add(out, "%s", copse__format_double(buffer, sizeof buffer, value));
}

static unsigned stored_enum(const copse__field *field, const void *base) {
    unsigned value;
    memcpy(&value, in(base, field->offset), sizeof value);
    return value - field->first;
}

void copse__field_write(const copse__field *field, const void *base, copse__text *out) {
    const void *value = in(base, field->offset);
    switch (field->kind) {
    case COPSE__FIELD_BOOL:
        copse__text_add(out, "%s", *(const bool *)value ? "true" : "false");
        break;
    case COPSE__FIELD_COUNT:
        copse__text_add(out, "%llu", (unsigned long long)*(const uint64_t *)value);
        break;
    case COPSE__FIELD_NUMBER:
        write_number(out, *(const double *)value);
        break;
    case COPSE__FIELD_TEXT:
        if (*(char *const *)value)
            copse__schema_write_text(out, *(char *const *)value);
        else
            copse__text_add(out, "null");
        break;
    case COPSE__FIELD_CHOICE:
        copse__text_add(out, "%s", field->words[stored_enum(field, base)]);
        break;
    case COPSE__FIELD_NUMBERS:
        copse__text_add(out, "[");
        for (size_t i = 0; i < *(const size_t *)in(base, field->count_offset); i++) {
            copse__text_add(out, "%s", i > 0 ? ", " : "");
            write_number(out, (*(double *const *)value)[i]);
        }
        copse__text_add(out, "]");
        break;
    case COPSE__FIELD_TEXTS:
        copse__text_add(out, "[");
        for (size_t i = 0; i < *(const size_t *)in(base, field->count_offset); i++) {
            copse__text_add(out, "%s", i > 0 ? ", " : "");
            copse__schema_write_text(out, (*(char **const *)value)[i]);
        }
        copse__text_add(out, "]");
        break;
    case COPSE__FIELD_SECTION:
        copse__section_write(field->section, base, COPSE__WRITE_FLOW, out);
        break;
    case COPSE__FIELD_SWITCH:
        if (*(const bool *)value)
            copse__section_write(field->section, base, COPSE__WRITE_FLOW, out);
        else
            copse__text_add(out, "false");
        break;
    case COPSE__FIELD_VARIANT: {
        const copse__section *variant = &field->variants[stored_enum(field, base)];
        copse__text_add(out, "{%s: ", variant->word);
        copse__section_write(variant, base, COPSE__WRITE_FLOW, out);
        copse__text_add(out, "}");
        break;
    }
    case COPSE__FIELD_CUSTOM:
        field->write(field, base, out);
        break;
    }
}

void copse__section_write(const copse__section *section, const void *base,
                          copse__write_style style, copse__text *out) {
    const char *joint = "";
    bool flow = style == COPSE__WRITE_FLOW;
    copse__text_add(out, "%s", flow ? "{" : "");
    for (const copse__field *field = section->fields; field->key; field++) {
        if ((field->shown && !field->shown(base)) ||
            (style == COPSE__WRITE_STRICT && field->loose))
            continue;
        copse__text_add(out, "%s%s: ", flow ? joint : "  ", field->key);
        copse__field_write(field, base, out);
        copse__text_add(out, "%s", flow ? "" : "\n");
        joint = ", ";
    }
    copse__text_add(out, "%s", flow ? "}" : "");
}
