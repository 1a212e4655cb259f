/* SPDX-License-Identifier: Apache-2.0 */
#include "data/csv_parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { PIECE = 64 << 10 };

#define ROW_MOST ((size_t)64 << 20)

struct copse__csv {
    copse__input *input;
    char delimiter;
    unsigned char *piece;
    size_t at, have;
    uint64_t line;

    char *text; /* the row's fields, each with its NUL */
    size_t text_used, text_capacity;
    size_t *starts;
    size_t start_capacity;
    char **fields;
    size_t field_capacity;
};

copse_status copse__csv_new(copse__csv **out, const char *path, char delimiter,
                            copse_error *err) {
    *out = NULL;
    copse__csv *csv;
    unsigned char mark[3];
    size_t got;
    copse_status status = copse__calloc(&csv, 1, sizeof *csv, err);
    if (status != COPSE_OK)
        return status;
    csv->delimiter = delimiter ? delimiter : ',';
    csv->line = 1;
    COPSE__TRY(copse__calloc(&csv->piece, PIECE, 1, err), fail);
    COPSE__TRY(copse__input_open(&csv->input, path, COPSE__PACKING_AUTO, err), fail);
    COPSE__TRY(copse__input_read(csv->input, mark, 3, &got, err), fail);
    if (got < 3 || memcmp(mark, "\xEF\xBB\xBF", 3) != 0) {
        memcpy(csv->piece, mark, got);
        csv->have = got;
    }
    *out = csv;
    return COPSE_OK;
fail:
    copse__csv_free(csv);
    return status;
}

void copse__csv_free(copse__csv *csv) {
    if (!csv)
        return;
    copse__input_close(csv->input);
    free(csv->piece);
    free(csv->text);
    free(csv->starts);
    free(csv->fields);
    free(csv);
}

static copse_status bad(const copse__csv *csv, const char *what, copse_error *err) {
    char place[512];
    snprintf(place, sizeof place, "%s:%" PRIu64, copse__input_path(csv->input),
             csv->line);
    return copse__fail(err, COPSE_FORMAT, 0, place, "%s", what);
}

enum { END = -1 };

/* The next byte without taking it, or END. */
static copse_status peek(copse__csv *csv, int *byte, copse_error *err) {
    if (csv->at == csv->have) {
        csv->at = 0;
        copse_status status =
            copse__input_read(csv->input, csv->piece, PIECE, &csv->have, err);
        if (status != COPSE_OK) {
            csv->have = 0;
            return status;
        }
    }
    *byte = csv->at == csv->have ? END : csv->piece[csv->at];
    return COPSE_OK;
}

static copse_status put(copse__csv *csv, char c, copse_error *err) {
    if (csv->text_used == ROW_MOST)
        return bad(csv, "a row is longer than 64 MiB; is a quote missing?", err);
    copse_status status =
        copse__grow(&csv->text, &csv->text_capacity, csv->text_used + 1, 1, err);
    if (status == COPSE_OK)
        csv->text[csv->text_used++] = c;
    return status;
}

/* After an opening quote, up to its closing one. */
static copse_status read_quoted(copse__csv *csv, copse_error *err) {
    for (;;) {
        int byte;
        copse_status status = peek(csv, &byte, err);
        if (status != COPSE_OK)
            return status;
        if (byte == END)
            return bad(csv, "a quote is not closed before the file's end", err);
        csv->at++;
        csv->line += byte == '\n';
        if (byte == '"') {
            status = peek(csv, &byte, err);
            if (status != COPSE_OK || byte != '"')
                return status;
            csv->at++;
        }
        if (byte == '\0')
            return bad(csv, "there is a NUL byte; it is no text file", err);
        status = put(csv, (char)byte, err);
        if (status != COPSE_OK)
            return status;
    }
}

static copse_status read_plain(copse__csv *csv, copse_error *err) {
    for (;;) {
        int byte;
        copse_status status = peek(csv, &byte, err);
        if (status != COPSE_OK || byte == END || byte == '\n' || byte == '\r' ||
            byte == csv->delimiter)
            return status;
        if (byte == '\0')
            return bad(csv, "there is a NUL byte; it is no text file", err);
        csv->at++;
        status = put(csv, (char)byte, err);
        if (status != COPSE_OK)
            return status;
    }
}

/* One field and what ends it: *more where a delimiter did. */
static copse_status read_field(copse__csv *csv, size_t field, bool *more,
                               copse_error *err) {
    int byte;
    copse_status status = copse__grow(&csv->starts, &csv->start_capacity, field + 1,
                                      sizeof *csv->starts, err);
    if (status == COPSE_OK)
        status = peek(csv, &byte, err);
    if (status != COPSE_OK)
        return status;
    csv->starts[field] = csv->text_used;
    if (byte == '"') {
        csv->at++;
        status = read_quoted(csv, err);
    } else {
        status = read_plain(csv, err);
    }
    if (status == COPSE_OK)
        status = put(csv, '\0', err);
    if (status == COPSE_OK)
        status = peek(csv, &byte, err);
    if (status != COPSE_OK)
        return status;
    *more = byte == csv->delimiter;
    if (*more) {
        csv->at++;
        return COPSE_OK;
    }
    if (byte == '\r') {
        csv->at++;
        status = peek(csv, &byte, err);
        if (status == COPSE_OK && byte != '\n' && byte != END)
            return bad(csv, "a carriage return stands within a row", err);
    } else if (byte != '\n' && byte != END) {
        return bad(csv, "something stands between a closing quote and the delimiter",
                   err);
    }
    if (status == COPSE_OK && byte == '\n') {
        csv->at++;
        csv->line++;
    }
    return status;
}

copse_status copse__csv_next(copse__csv *csv, copse__csv_row *row, bool *end,
                             copse_error *err) {
    *row = (copse__csv_row){0};
    *end = false;
    size_t fields = 0;
    do {
        int byte;
        bool more = true;
        copse_status status = peek(csv, &byte, err);
        if (status != COPSE_OK)
            return status;
        *end = byte == END;
        if (*end)
            return COPSE_OK;
        csv->text_used = fields = 0;
        row->line = csv->line;
        while (more && status == COPSE_OK)
            status = read_field(csv, fields++, &more, err);
        if (status != COPSE_OK)
            return status;
    } while (fields == 1 && csv->text[0] == '\0');
    copse_status status =
        copse__grow(&csv->fields, &csv->field_capacity, fields, sizeof *csv->fields, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < fields; i++)
        csv->fields[i] = csv->text + csv->starts[i];
    row->fields = csv->fields;
    row->count = fields;
    return COPSE_OK;
}
