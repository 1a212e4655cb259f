/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of comma-separated values (RFC 4180): quoted fields, doubled quotes, line ends within
 * quotes, LF or CRLF, an UTF-8 byte-order mark. */
#ifndef COPSE_DATA_CSV_PARSE_H
#define COPSE_DATA_CSV_PARSE_H

#include "data/dataset.h"
#include "io/input.h"

typedef struct copse__csv copse__csv;

/* One row's fields, NUL-terminated; valid until the next row. */
typedef struct copse__csv_row {
    char **fields;
    size_t count;
    uint64_t line; /* of its first field, from 1 */
} copse__csv_row;

copse_status copse__csv_new(copse__csv **out, const char *path, char delimiter,
                            copse_error *err);
/* *end at the file's end. Empty lines are passed over. COPSE_FORMAT, with path and line, for a
 * quote that is not closed or has something after it, a NUL byte, or a row that is too long. */
copse_status copse__csv_next(copse__csv *csv, copse__csv_row *row, bool *end,
                             copse_error *err);
void copse__csv_free(copse__csv *csv);

#endif
