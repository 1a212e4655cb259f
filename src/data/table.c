/* SPDX-License-Identifier: Apache-2.0 */
#include "data/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/convert.h"

void copse__array_free(copse__array *array) {
    free(array->data);
    *array = (copse__array){0};
}

copse_status copse__array_size(copse__array *array, uint64_t most, const char *path,
                               copse_error *err) {
    size_t bytes = copse_dtype_bytes(array->dtype);
    bool fits = true;
    for (size_t i = 0; fits && i < array->rank; i++)
        fits = copse__mul_size(bytes, array->shape[i], &bytes);
    if (!fits || bytes > most)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "its header announces more data than the file can hold (at "
                           "most %" PRIu64 " bytes); fetch the file again",
                           most);
    array->bytes = bytes;
    return COPSE_OK;
}

/* ---- The dataset ----------------------------------------------------------------------
 */

static copse_status table_read(copse_dataset *set, size_t index, copse__scratch *scratch,
                               void *features, void *labels, copse_error *err) {
    const copse__table *table = set->state;
    (void)scratch;
    if (table->arrival) {
        copse_status status = copse__arrival_wait(table->arrival, err);
        if (status != COPSE_OK)
            return status;
    }
    memcpy(features, table->features + index * set->feature_bytes, set->feature_bytes);
    if (labels)
        memcpy(labels, table->labels + index * set->label_bytes, set->label_bytes);
    return COPSE_OK;
}

static copse_status table_arrive(copse_dataset *set, copse_error *err) {
    const copse__table *table = set->state;
    return table->arrival ? copse__arrival_wait(table->arrival, err) : COPSE_OK;
}

static void table_locate(const copse_dataset *set, size_t index, char *buffer,
                         size_t bytes) {
    const copse__table *table = set->state;
    size_t at = table->files.count;
    while (at > 1 && table->first[at - 1] > index)
        at--;
    if (at == 0)
        snprintf(buffer, bytes, "%s, sample %zu", set->name, index);
    else
        snprintf(buffer, bytes, "%s, sample %zu", table->files.items[at - 1],
                 index - table->first[at - 1]);
}

static void table_close(copse_dataset *set) {
    copse__table *table = set->state;
    if (!table)
        return;
    copse__arrival_free(table->arrival); /* before what it writes to */
    free(table->features);
    free(table->labels);
    free(table->first);
    copse__paths_free(&table->files);
    free(table);
}

static const copse__dataset_ops table_ops = {.read = table_read,
                                             .arrive = table_arrive,
                                             .locate = table_locate,
                                             .close = table_close};

copse_status copse__table_new(copse_dataset **out, const char *name, copse_error *err) {
    copse_status status = copse__dataset_new(out, &table_ops, name, err);
    if (status != COPSE_OK)
        return status;
    copse__table *table;
    status = copse__calloc(&table, 1, sizeof *table, err);
    if (status != COPSE_OK) {
        copse_dataset_close(*out);
        *out = NULL;
        return status;
    }
    (*out)->state = table;
    (*out)->resident = true;
    return COPSE_OK;
}

copse_status copse__table_add_file(copse__table *table, const char *path, size_t first,
                                   copse_error *err) {
    copse_status status = copse__grow(&table->first, &table->first_capacity,
                                      table->files.count + 1, sizeof *table->first, err);
    if (status != COPSE_OK)
        return status;
    table->first[table->files.count] = first;
    return copse__paths_add(&table->files, path, err);
}

/* ---- Joining arrays -------------------------------------------------------------------
 */

static copse_status check_alike(const copse__array *a, const copse__array *b,
                                const char *path, copse_error *err) {
    bool alike = a->dtype == b->dtype && a->rank == b->rank;
    for (size_t i = 1; alike && i < a->rank; i++)
        alike = a->shape[i] == b->shape[i];
    if (alike)
        return COPSE_OK;
    return copse__fail(err, COPSE_FORMAT, 0, path,
                       "its element type or sample shape differs from the set's first "
                       "file; use files of one kind");
}

/* Appends arrays[1..] to arrays[0]. */
static copse_status join(copse__array *arrays, size_t n, const copse__paths *paths,
                         copse_error *err) {
    copse__array *all = &arrays[0];
    for (size_t i = 1; i < n; i++) {
        copse_status status = check_alike(all, &arrays[i], paths->items[i], err);
        if (status != COPSE_OK)
            return status;
        size_t bytes;
        if (!copse__add_size(all->bytes, arrays[i].bytes, &bytes))
            return copse__fail_nomem(err, UINT64_MAX);
        if (bytes == 0)
            continue;
        unsigned char *grown = realloc(all->data, bytes);
        if (!grown)
            return copse__fail_nomem(err, bytes);
        memcpy(grown + all->bytes, arrays[i].data, arrays[i].bytes);
        all->data = grown;
        all->bytes = bytes;
        all->shape[0] += arrays[i].shape[0];
        copse__array_free(&arrays[i]);
    }
    return COPSE_OK;
}

/* Labels become 32-bit: what losses read. */
static copse_status narrow_labels(copse__array *labels, const char *path,
                                  copse_error *err) {
    copse_dtype to = copse__label_dtype(labels->dtype);
    if (labels->dtype == to)
        return COPSE_OK;
    size_t elements = labels->bytes / copse_dtype_bytes(labels->dtype), bytes, bad;
    unsigned char *made;
    if (!copse__mul_size(elements, 4, &bytes))
        return copse__fail_nomem(err, UINT64_MAX);
    copse_status status = copse__calloc(&made, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    if (!copse__convert(to, made, labels->dtype, labels->data, elements, &bad)) {
        free(made);
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "label element %zu does not fit 32 bits", bad);
    }
    free(labels->data);
    labels->data = made;
    labels->bytes = bytes;
    labels->dtype = to;
    return COPSE_OK;
}

static copse_data_spec spec_of(const copse__array *array) {
    copse_data_spec spec = {.dtype = array->dtype, .rank = array->rank - 1};
    for (size_t i = 1; i < array->rank; i++)
        spec.shape[i - 1] = array->shape[i];
    return spec;
}

/* The files that labels come from: their own, or those of the features. */
static const copse__paths *label_files(const copse__found_files *files) {
    return files->label_paths.count ? &files->label_paths : &files->paths;
}

static copse_status check_counts(const copse__array *arrays, const copse__array *labels,
                                 const copse__found_files *files, copse_error *err) {
    const copse__paths *from = label_files(files);
    if (from->count != files->paths.count)
        return copse__fail(err, COPSE_CONFIG, 0, files->label_paths.items[0],
                           "there are %zu files of features and %zu of labels; name as "
                           "many of each",
                           files->paths.count, files->label_paths.count);
    for (size_t i = 0; i < files->paths.count; i++)
        if (arrays[i].shape[0] != labels[i].shape[0])
            return copse__fail(err, COPSE_FORMAT, 0, from->items[i],
                               "it has %zu labels, but '%s' has %zu samples; use files "
                               "that belong together",
                               labels[i].shape[0], files->paths.items[i],
                               arrays[i].shape[0]);
    return COPSE_OK;
}

copse_status copse__table_fill(copse_dataset *set, copse__array *arrays,
                               copse__array *label_arrays,
                               const copse__found_files *files, copse_error *err) {
    copse__table *table = set->state;
    size_t n = files->paths.count;
    copse_status status = COPSE_OK;
    if (label_arrays)
        COPSE__TRY(check_counts(arrays, label_arrays, files, err), out);
    size_t first = 0;
    for (size_t i = 0; i < n; i++) {
        COPSE__TRY(copse__table_add_file(table, files->paths.items[i], first, err), out);
        first += arrays[i].shape[0];
    }
    if (first == 0) {
        status = copse__fail(err, COPSE_FORMAT, 0, files->paths.items[0],
                             "there is no sample in it; check the path");
        goto out;
    }
    COPSE__TRY(join(arrays, n, &files->paths, err), out);
    copse_data_spec features = spec_of(&arrays[0]), labels = {0};
    if (label_arrays) {
        COPSE__TRY(join(label_arrays, n, label_files(files), err), out);
        COPSE__TRY(narrow_labels(&label_arrays[0], label_files(files)->items[0], err),
                   out);
        labels = spec_of(&label_arrays[0]);
        table->labels = label_arrays[0].data;
        label_arrays[0].data = NULL;
    }
    table->features = arrays[0].data;
    arrays[0].data = NULL;
    set->count = arrays[0].shape[0];
    status = copse__dataset_set_specs(set, &features, label_arrays ? &labels : NULL, err);
out:
    return status;
}
