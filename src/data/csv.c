/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of numbers in CSV files, held in memory. */
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/csv_parse.h"
#include "data/table.h"

/* Labels are kept as texts until all are known: only then is it clear what they are. */
typedef struct reader {
    const copse_data_source *source;
    copse_dataset *set;
    copse__table *table;
    locale_t c_locale; /* a point is a point, whatever the program's locale */
    size_t limit;
    size_t *columns; /* of the features */
    size_t column_count;
    size_t label_column, width; /* width: fields in a row */
    size_t feature_capacity;
    copse__paths names; /* of all columns, by the header; none: there is none */
    copse__paths labels;
} reader;

/* ---- Columns -------------------------------------------------------------------------- */

static bool parse_size(const char *text, size_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *out = (size_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

/* By its name in the header (NULL: there is none), else by its number. */
static copse_status find_column(size_t *out, const char *name, const copse__csv_row *row,
                                bool header, const char *path, copse_error *err) {
    for (size_t i = 0; header && i < row->count; i++)
        if (strcmp(row->fields[i], name) == 0) {
            *out = i;
            return COPSE_OK;
        }
    if (parse_size(name, out) && *out < row->count)
        return COPSE_OK;
    char there[400] = "";
    size_t used = 0;
    for (size_t i = 0; header && i < row->count && used < sizeof there; i++)
        used += (size_t)snprintf(there + used, sizeof there - used, "%s%.40s",
                                 i ? ", " : "", row->fields[i]);
    return copse__fail(err, COPSE_CONFIG, 0, path,
                       "there is no column '%s' among its %zu%s%s", name, row->count,
                       header ? ": " : " (numbered from 0)", there);
}

static copse_status choose_columns(reader *r, const copse__csv_row *row, const char *path,
                                   copse_error *err) {
    const copse_data_source *source = r->source;
    bool header = !source->without_header;
    r->width = row->count;
    r->label_column = SIZE_MAX;
    copse_status status = COPSE_OK;
    for (size_t i = 0; header && i < row->count && status == COPSE_OK; i++)
        status = copse__paths_add(&r->names, row->fields[i], err);
    if (source->label_name && status == COPSE_OK)
        status =
            find_column(&r->label_column, source->label_name, row, header, path, err);
    if (status == COPSE_OK)
        status =
            copse__calloc(&r->columns, copse__max_size(row->count, source->column_count),
                          sizeof *r->columns, err);
    for (size_t i = 0; i < source->column_count && status == COPSE_OK; i++)
        status = find_column(&r->columns[r->column_count++], source->columns[i], row,
                             header, path, err);
    for (size_t i = 0; source->column_count == 0 && i < row->count; i++)
        if (i != r->label_column && status == COPSE_OK)
            r->columns[r->column_count++] = i;
    if (status == COPSE_OK && r->column_count == 0)
        status =
            copse__fail(err, COPSE_CONFIG, 0, path, "no column is left for features");
    return status;
}

static copse_status set_specs(reader *r, copse_error *err) {
    copse_data_spec features = {COPSE_F32, 1, {r->column_count}};
    copse_data_field wanted = r->source->feature;
    if (wanted.rank) {
        features.rank = wanted.rank;
        memcpy(features.shape, wanted.shape, sizeof wanted.shape);
    }
    copse_status status = copse__dataset_set_specs(r->set, &features, NULL, err);
    if (status == COPSE_OK && copse_data_spec_elements(&features) != r->column_count)
        status = copse__fail(err, COPSE_CONFIG, 0, r->set->name,
                             "%zu columns do not fill the shape's %zu elements",
                             r->column_count, copse_data_spec_elements(&features));
    return status;
}

/* ---- Rows ----------------------------------------------------------------------------- */

static bool parse_number(const reader *r, const char *text, double *out) {
    char *end;
    while (*text == ' ' || *text == '\t')
        text++;
    *out = strtod_l(text, &end, r->c_locale);
    bool some = end != text;
    while (*end == ' ' || *end == '\t')
        end++;
    return some && *end == '\0';
}

/* Fields count from 1, as people and editors do. */
static copse_status bad_field(const reader *r, const copse__csv_row *row, size_t column,
                              const char *path, const char *wanted, copse_error *err) {
    char place[512], named[80] = "";
    snprintf(place, sizeof place, "%s:%" PRIu64, path, row->line);
    if (column < r->names.count)
        snprintf(named, sizeof named, " ('%.60s')", r->names.items[column]);
    return copse__fail(err, COPSE_FORMAT, 0, place,
                       "field %zu%s is '%.40s' where %s should be; correct the row, "
                       "leave the column out, or skip such rows",
                       column + 1, named, row->fields[column], wanted);
}

static copse_status read_row(reader *r, const copse__csv_row *row, const char *path,
                             copse_error *err) {
    if (row->count != r->width) {
        char place[512];
        snprintf(place, sizeof place, "%s:%" PRIu64, path, row->line);
        return copse__fail(err, COPSE_FORMAT, 0, place,
                           "it has %zu fields where the first row has %zu; correct the "
                           "row or skip such rows",
                           row->count, r->width);
    }
    size_t count = r->set->count, bytes = r->set->feature_bytes;
    copse_status status =
        copse__check_memory((uint64_t)(count + 1) * (bytes + 16), r->limit, path, err);
    if (status == COPSE_OK)
        status = copse__grow(&r->table->features, &r->feature_capacity,
                             (count + 1) * bytes, 1, err);
    float *out = (float *)(void *)(r->table->features + count * bytes);
    for (size_t i = 0; i < r->column_count && status == COPSE_OK; i++) {
        double value;
        const char *text = row->fields[r->columns[i]];
        if (!parse_number(r, text, &value) || !isfinite((float)value))
            return bad_field(r, row, r->columns[i], path, "a finite number", err);
        out[i] = (float)value;
    }
    if (status == COPSE_OK && r->source->label_name) {
        const char *label = row->fields[r->label_column];
        if (!label[0])
            return bad_field(r, row, r->label_column, path, "a label", err);
        status = copse__paths_add(&r->labels, label, err);
    }
    if (status == COPSE_OK)
        r->set->count++;
    return status;
}

static copse_status read_file(reader *r, const char *path, copse_error *err) {
    copse__csv *csv;
    copse__csv_row row;
    bool end = false, first = true;
    copse_status status = copse__csv_new(&csv, path, r->source->delimiter, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__table_add_file(r->table, path, r->set->count, err), out);
    for (;; first = false) {
        copse_error error = {0};
        COPSE__TRY(copse__csv_next(csv, &row, &end, err), out);
        if (end)
            break;
        if (first && !r->columns) {
            COPSE__TRY(choose_columns(r, &row, path, err), out);
            COPSE__TRY(set_specs(r, err), out);
        }
        if (first && !r->source->without_header && row.count == r->width)
            continue;
        status = read_row(r, &row, path, &error);
        if (status == COPSE_FORMAT && r->source->skip_errors) {
            copse__log(COPSE_LOG_WARN, "sample left out: %s: %s", error.place,
                       error.text);
            r->set->left_out++;
            continue;
        }
        if (status != COPSE_OK) {
            if (err)
                *err = error;
            goto out;
        }
    }
out:
    copse__csv_free(csv);
    return status;
}

/* ---- Labels --------------------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The different labels, sorted; borrowed texts. */
static copse_status sorted_names(const char ***out, size_t *count,
                                 const copse__paths *all, copse_error *err) {
    copse_status status = copse__calloc(out, all->count, sizeof **out, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < all->count; i++)
        (*out)[i] = all->items[i];
    qsort(*out, all->count, sizeof **out, by_bytes);
    *count = 0;
    for (size_t i = 0; i < all->count; i++)
        if (*count == 0 || strcmp((*out)[*count - 1], (*out)[i]) != 0)
            (*out)[(*count)++] = (*out)[i];
    return COPSE_OK;
}

static size_t find_class(const char *const *names, size_t count, bool sorted,
                         const char *label) {
    if (sorted) {
        const char *const *found = bsearch(&label, names, count, sizeof *names, by_bytes);
        return found ? (size_t)(found - names) : count;
    }
    size_t class = 0;
    while (class < count && strcmp(names[class], label) != 0)
        class ++;
    return class;
}

static copse_status name_labels(reader *r, const char *const *names, size_t count,
                                bool sorted, int32_t *out, copse_error *err) {
    for (size_t i = 0; i < r->labels.count; i++) {
        size_t class = find_class(names, count, sorted, r->labels.items[i]);
        if (class == count) {
            char where[256];
            r->set->ops->locate(r->set, i, where, sizeof where);
            return copse__fail(err, COPSE_FORMAT, 0, where,
                               "its label '%.60s' is none of the %zu classes",
                               r->labels.items[i], count);
        }
        out[i] = (int32_t) class;
    }
    return copse__dataset_set_classes(r->set, count, names, err);
}

static copse_status text_labels(reader *r, int32_t *out, copse_error *err) {
    const copse_data_source *source = r->source;
    if (source->class_count && source->class_names)
        return name_labels(r, source->class_names, source->class_count, false, out, err);
    const char **names;
    size_t count;
    copse_status status = sorted_names(&names, &count, &r->labels, err);
    if (status == COPSE_OK)
        status = name_labels(r, names, count, true, out, err);
    free(names);
    return status;
}

static copse_status set_labels(reader *r, copse_error *err) {
    bool integers = !(r->source->class_count && r->source->class_names);
    bool numbers = integers;
    for (size_t i = 0; i < r->labels.count && numbers; i++) {
        double value;
        numbers = parse_number(r, r->labels.items[i], &value) && isfinite((float)value);
        integers = integers && numbers && floor(value) == value && fabs(value) < 0x1p31;
    }
    copse_data_spec spec = {.dtype = numbers && !integers ? COPSE_F32 : COPSE_I32};
    copse_status status = copse__calloc(&r->table->labels, r->labels.count, 4, err);
    if (status != COPSE_OK)
        return status;
    if (!numbers)
        status = text_labels(r, (int32_t *)(void *)r->table->labels, err);
    for (size_t i = 0; i < r->labels.count && numbers; i++) {
        double value;
        parse_number(r, r->labels.items[i], &value);
        if (integers)
            ((int32_t *)(void *)r->table->labels)[i] = (int32_t)value;
        else
            ((float *)(void *)r->table->labels)[i] = (float)value;
    }
    copse_data_spec features = r->set->features;
    if (status == COPSE_OK)
        status = copse__dataset_set_specs(r->set, &features, &spec, err);
    return status;
}

copse_status copse__csv_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err) {
    reader r = {.source = source,
                .limit = copse__memory_limit(source->memory_limit_bytes)};
    copse_status status = copse__table_new(&r.set, files->paths.items[0], err);
    if (status != COPSE_OK)
        return status;
    r.table = r.set->state;
    r.c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!r.c_locale) {
        status = copse__fail_nomem(err, 0);
        goto out;
    }
    for (size_t i = 0; i < files->paths.count; i++)
        COPSE__TRY(read_file(&r, files->paths.items[i], err), out);
    if (r.set->count == 0) {
        status = copse__fail(err, COPSE_FORMAT, 0, r.set->name,
                             "there is no row of data in it; check the path");
        goto out;
    }
    if (source->label_name)
        COPSE__TRY(set_labels(&r, err), out);
    *out = r.set;
    r.set = NULL;
out:
    if (r.c_locale)
        freelocale(r.c_locale);
    free(r.columns);
    copse__paths_free(&r.names);
    copse__paths_free(&r.labels);
    copse_dataset_close(r.set);
    return status;
}
