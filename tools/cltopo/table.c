/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void table_begin(table *t, const char *const pairs[][2]) {
    *t = (table){.rows = json_array()};
    for (size_t i = 0; pairs[i][0] && i < TABLE_COLUMNS; i++) {
        t->names[i] = pairs[i][0];
        t->heads[i] = pairs[i][1];
        t->columns++;
    }
    t->failed = !t->rows;
}

void table_row(table *t) {
    if (json_array_append_new(t->rows, json_array()) != 0)
        t->failed = true;
}

void table_add(table *t, json_t *value) {
    json_t *row = json_array_get(t->rows, json_array_size(t->rows) - 1);
    if (json_array_append_new(row, value) != 0)
        t->failed = true;
}

void table_text(table *t, const char *text) {
    table_add(t, text[0] ? json_string(text) : json_null());
}

void table_int(table *t, long long value) {
    table_add(t, value < 0 ? json_null() : json_integer(value));
}

void table_format(table *t, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table_text(t, text);
}

bool add_json(copse__text *out, json_t *value, bool indent) {
    size_t flags = JSON_SORT_KEYS | JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY;
    char *text = value
                     ? json_dumps(value, flags | (indent ? JSON_INDENT(2) : JSON_COMPACT))
                     : NULL;
    if (text)
        copse__text_add(out, "%s\n", text);
    bool good = text != NULL;
    free(text);
    return good;
}

/* A cell as people read it: "-" where it is not known. */
static void cell_text(const json_t *value, char *out, size_t capacity, bool csv) {
    const char *unknown = csv ? "" : "-";
    if (json_is_string(value))
        copse__put(out, capacity, "%s", json_string_value(value));
    else if (json_is_integer(value))
        copse__put(out, capacity, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        copse__put(out, capacity, csv ? "%.12g" : "%.4g", json_real_value(value));
    else if (json_is_boolean(value))
        copse__put(out, capacity, "%s",
                   csv ? (json_is_true(value) ? "true" : "false")
                       : (json_is_true(value) ? "yes" : "no"));
    else
        copse__put(out, capacity, "%s", unknown);
}

static size_t width_of(const char *text) {
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

static void write_text(const table *t, copse__text *out) {
    size_t width[TABLE_COLUMNS] = {0}, last = 0, i;
    json_t *row;
    char cell[1024];
    for (size_t c = 0; c < t->columns; c++) {
        if (!t->heads[c])
            continue;
        last = c;
        width[c] = width_of(t->heads[c]);
        json_array_foreach(t->rows, i, row) {
            cell_text(json_array_get(row, c), cell, sizeof cell, false);
            width[c] = copse__max_size(width[c], width_of(cell));
        }
    }
    for (size_t r = 0; r <= json_array_size(t->rows); r++) {
        for (size_t c = 0; c < t->columns; c++) {
            if (!t->heads[c])
                continue;
            if (r == 0)
                copse__put(cell, sizeof cell, "%s", t->heads[c]);
            else
                cell_text(json_array_get(json_array_get(t->rows, r - 1), c), cell,
                          sizeof cell, false);
            copse__text_add(out, "%s", cell);
            if (c < last)
                copse__text_add(out, "%*s", (int)(width[c] - width_of(cell)) + 2, "");
        }
        copse__text_add(out, "\n");
    }
}

static void csv_cell(copse__text *out, const char *cell) {
    if (!strpbrk(cell, ",\"\r\n")) {
        copse__text_add(out, "%s", cell);
        return;
    }
    copse__text_add(out, "\"");
    for (; *cell; cell++)
        copse__text_add(out, *cell == '"' ? "\"\"" : "%c", *cell);
    copse__text_add(out, "\"");
}

static void write_csv(const table *t, copse__text *out) {
    size_t i;
    json_t *row;
    char cell[1024];
    for (size_t c = 0; c < t->columns; c++) {
        copse__text_add(out, c ? "," : "");
        csv_cell(out, t->names[c]);
    }
    copse__text_add(out, "\r\n");
    json_array_foreach(t->rows, i, row) {
        for (size_t c = 0; c < t->columns; c++) {
            copse__text_add(out, c ? "," : "");
            cell_text(json_array_get(row, c), cell, sizeof cell, true);
            csv_cell(out, cell);
        }
        copse__text_add(out, "\r\n");
    }
}

static json_t *row_object(const table *t, json_t *row) {
    json_t *made = json_object();
    for (size_t c = 0; made && c < t->columns; c++)
        if (json_object_set(made, t->names[c], json_array_get(row, c)) != 0) {
            json_decref(made);
            return NULL;
        }
    return made;
}

static bool write_json(const table *t, copse__text *out, const char *key, bool lines) {
    json_t *list = json_array(), *root = json_object(), *row;
    size_t i;
    bool good = list && root;
    json_array_foreach(t->rows, i, row) {
        json_t *object = row_object(t, row);
        if (lines)
            good = good && add_json(out, object, false);
        else
            good = good && json_array_append(list, object) == 0;
        json_decref(object);
    }
    if (!lines)
        good = good && json_object_set(root, key, list) == 0 &&
               json_object_set_new(root, "schema", json_string("cltopo/1")) == 0 &&
               add_json(out, root, true);
    json_decref(list);
    json_decref(root);
    return good;
}

void table_free(table *t) {
    json_decref(t->rows);
    t->rows = NULL;
}

int table_write(table *t, session *s, const char *key) {
    bool good = !t->failed;
    int code = EXIT_OK;
    switch (s->options->format) {
    case FORMAT_TEXT:
        write_text(t, &s->out);
        break;
    case FORMAT_CSV:
        write_csv(t, &s->out);
        break;
    case FORMAT_JSON:
    case FORMAT_JSONL:
        good = good && write_json(t, &s->out, key, s->options->format == FORMAT_JSONL);
        break;
    case FORMAT_DOT:
    case FORMAT_SVG:
        code = refuse_format(s);
        break;
    }
    table_free(t);
    if (!good) {
        complain_text("the host has no memory for the table");
        return EXIT_RUN_FAILED;
    }
    return code;
}
