/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLTOPO_TABLE_H
#define CLTOPO_TABLE_H

#include "cltopo.h"

enum { TABLE_COLUMNS = 20 };

/* Rows of named cells, written as aligned text, CSV (RFC 4180), JSON or JSON lines. */
typedef struct table {
    size_t columns;
    const char *names[TABLE_COLUMNS]; /* keys in JSON and CSV */
    const char *heads[TABLE_COLUMNS]; /* headings in text; NULL: not shown there */
    json_t *rows;                     /* an array of arrays */
    bool failed;
} table;

/* names and heads end with NULL names; texts are borrowed. */
void table_begin(table *t, const char *const pairs[][2]);
/* A new row; the cells are added left to right, each taking its value. */
void table_row(table *t);
void table_add(table *t, json_t *value);
void table_text(table *t, const char *text); /* "" is null */
void table_int(table *t, long long value);   /* negative is null */
void table_format(table *t, const char *format, ...) COPSE_PRINTF(2, 3);

/* Writes it in the session's format and frees it; JSON is one list under `key`. DOT and SVG
 * are refused. Returns an exit code. */
int table_write(table *t, session *s, const char *key);
void table_free(table *t);

/* A JSON value as text with sorted keys and a newline. */
bool add_json(copse__text *out, json_t *value, bool indent);

#endif
