/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets of NumPy files: a .npy of features and one of labels, or both in one .npz. */
#include <stdio.h>
#include <string.h>

#include "data/table.h"
#include "io/npy.h"
#include "io/zip.h"

static copse_status read_array(copse__array *array, copse__input *input, size_t *limit,
                               copse_error *err) {
    copse__npy npy;
    const char *path = copse__input_path(input);
    copse_status status = copse__npy_read_header(&npy, input, err);
    if (status != COPSE_OK)
        return status;
    if (npy.rank == 0)
        return copse__fail(
            err, COPSE_FORMAT, 0, path,
            "it holds a single number; the first dimension counts samples");
    status = copse__check_memory(npy.bytes, *limit, path, err);
    if (status == COPSE_OK)
        status = copse__npy_read_data(&array->data, &npy, input, err);
    if (status != COPSE_OK)
        return status;
    *limit -= npy.bytes;
    array->dtype = npy.dtype;
    array->rank = npy.rank;
    memcpy(array->shape, npy.shape, sizeof npy.shape);
    array->bytes = npy.bytes;
    return COPSE_OK;
}

static copse_status read_npy(copse__array *array, const char *path, size_t *limit,
                             copse_error *err) {
    copse__input *input;
    copse_status status = copse__input_open(&input, path, COPSE__PACKING_AUTO, err);
    if (status == COPSE_OK)
        status = read_array(array, input, limit, err);
    copse__input_close(input);
    return status;
}

/* ---- .npz ----------------------------------------------------------------------------- */

static copse_status no_member(const copse__zip *zip, const char *name, const char *key,
                              copse_error *err) {
    char there[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < zip->count && used < sizeof there; i++)
        used +=
            (size_t)snprintf(there + used, sizeof there - used, "%s%.*s", i ? ", " : "",
                             (int)copse__max_size(strlen(zip->entries[i].name), 4) - 4,
                             zip->entries[i].name);
    return copse__fail(err, COPSE_CONFIG, 0, zip->path,
                       "there is no array '%s' in it, but: %s; name one with '%s'", name,
                       there[0] ? there : "none", key);
}

static copse_status read_member(copse__array *array, const copse__zip *zip,
                                const char *name, const char *key, size_t *limit,
                                copse_error *err) {
    char file[512];
    snprintf(file, sizeof file, "%s.npy", name);
    const copse__zip_entry *entry = copse__zip_find(zip, file);
    if (!entry)
        return no_member(zip, name, key, err);
    copse__input *input;
    copse_status status = copse__zip_read(&input, zip, entry, err);
    if (status == COPSE_OK)
        status = read_array(array, input, limit, err);
    if (status == COPSE_OK)
        status = copse__zip_check(input, entry, err);
    copse__input_close(input);
    return status;
}

static copse_status read_npz(copse__array *features, copse__array *labels,
                             const char *path, const copse_data_source *source,
                             size_t *limit, copse_error *err) {
    copse__zip *zip;
    copse_status status = copse__zip_open(&zip, path, err);
    if (status != COPSE_OK)
        return status;
    status = read_member(features, zip, source->feature_name ? source->feature_name : "x",
                         "features", limit, err);
    if (status == COPSE_OK && labels)
        status = read_member(labels, zip, source->label_name ? source->label_name : "y",
                             "label", limit, err);
    copse__zip_close(zip);
    return status;
}

static copse_status is_archive(bool *out, const char *path, copse_error *err) {
    copse__input *input;
    unsigned char magic[2];
    size_t got = 0;
    copse_status status = copse__input_open(&input, path, COPSE__PACKING_PLAIN, err);
    if (status == COPSE_OK)
        status = copse__input_read(input, magic, 2, &got, err);
    *out = got == 2 && memcmp(magic, "PK", 2) == 0;
    copse__input_close(input);
    return status;
}

/* ---- The dataset ---------------------------------------------------------------------- */

static copse_status read_all(copse__array *features, copse__array *labels,
                             const copse_data_source *source,
                             const copse__found_files *files, copse_error *err) {
    size_t limit = copse__memory_limit(source->memory_limit_bytes);
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < files->paths.count && status == COPSE_OK; i++) {
        const char *path = files->paths.items[i];
        bool archive;
        status = is_archive(&archive, path, err);
        if (status != COPSE_OK)
            break;
        bool own_labels = labels && files->label_paths.count == 0;
        if (archive)
            status = read_npz(&features[i], own_labels ? &labels[i] : NULL, path, source,
                              &limit, err);
        else
            status = read_npy(&features[i], path, &limit, err);
        if (status == COPSE_OK && !archive && own_labels)
            status = copse__fail(err, COPSE_CONFIG, 0, path,
                                 "it is a single array, so it has no labels '%s' in it; "
                                 "name a file of labels",
                                 source->label_name);
    }
    for (size_t i = 0; i < files->label_paths.count && status == COPSE_OK; i++)
        status = read_npy(&labels[i], files->label_paths.items[i], &limit, err);
    return status;
}

static void free_arrays(copse__array *arrays, size_t n) {
    for (size_t i = 0; arrays && i < n; i++)
        copse__array_free(&arrays[i]);
    free(arrays);
}

copse_status copse__npy_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err) {
    copse__array *features = NULL, *labels = NULL;
    copse_dataset *set = NULL;
    size_t n = files->paths.count,
           label_slots = copse__max_size(n, files->label_paths.count);
    bool labelled = files->label_paths.count > 0 || source->label_name;
    copse_status status = copse__table_new(&set, files->paths.items[0], err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&features, n, sizeof *features, err), out);
    if (labelled)
        COPSE__TRY(copse__calloc(&labels, label_slots, sizeof *labels, err), out);
    COPSE__TRY(read_all(features, labels, source, files, err), out);
    COPSE__TRY(copse__table_fill(set, features, labels, files, err), out);
    *out = set;
    set = NULL;
out:
    free_arrays(features, n);
    free_arrays(labels, label_slots);
    copse_dataset_close(set);
    return status;
}
