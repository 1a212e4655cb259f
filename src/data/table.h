/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_TABLE_H
#define COPSE_DATA_TABLE_H

#include "data/arrival.h"
#include "data/dataset.h"

/* A whole file's numbers: row-major, host byte order, dimension 0 counts samples. */
typedef struct copse__array {
    copse_dtype dtype;
    size_t rank; /* >= 1 */
    size_t shape[COPSE_MAX_RANK + 1];
    unsigned char *data;
    size_t bytes;
} copse__array;

void copse__array_free(copse__array *array);

/* Computes bytes from dtype and shape; COPSE_FORMAT where that cannot be in a file that
 * holds at most `most` bytes. */
copse_status copse__array_size(copse__array *array, uint64_t most, const char *path,
                               copse_error *err);

/* Samples in memory: count x feature_bytes, count x label_bytes. */
typedef struct copse__table {
    unsigned char *features;
    unsigned char *labels;
    /* Where samples come from: files[i] starts at sample first[i]. */
    copse__paths files;
    size_t *first;
    size_t first_capacity;
    copse__arrival *arrival; /* of features that are still read; NULL: none are */
} copse__table;

/* A set over an empty table, for an opening function to fill. */
copse_status copse__table_new(copse_dataset **out, const char *name, copse_error *err);

/* From sample first on, samples come from path. Called with rising first. */
copse_status copse__table_add_file(copse__table *table, const char *path, size_t first,
                                   copse_error *err);

/* Joins arrays of equal element type and sample shape, one a file, into the set's
 * features and labels (label_arrays NULL: none). Takes the arrays' data. Integer labels
 * become COPSE_I32 and floating ones COPSE_F32; a label that does not fit is refused. */
copse_status copse__table_fill(copse_dataset *set, copse__array *arrays,
                               copse__array *label_arrays,
                               const copse__found_files *files, copse_error *err);

#endif
