/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static const char *const format_names[] = {
#define FORMAT_NAME(code, name) name,
    COPSE_DATA_FORMAT_MAP(FORMAT_NAME)
#undef FORMAT_NAME
};

const char *copse_data_format_name(copse_data_format format) {
    return (size_t)format < COPSE__COUNT(format_names) ? format_names[format] : NULL;
}

bool copse_data_format_find(copse_data_format *out, const char *name) {
    for (size_t i = 0; i < COPSE__COUNT(format_names); i++)
        if (strcmp(format_names[i], name) == 0) {
            *out = (copse_data_format)i;
            return true;
        }
    return false;
}

size_t copse_data_spec_elements(const copse_data_spec *spec) {
    size_t elements = 1;
    for (size_t i = 0; i < spec->rank; i++)
        elements *= spec->shape[i];
    return elements;
}

size_t copse_data_spec_bytes(const copse_data_spec *spec) {
    return copse_data_spec_elements(spec) * copse_dtype_bytes(spec->dtype);
}

void copse__scratch_free(copse__scratch *scratch) {
    free(scratch->file);
    free(scratch->pixels);
    free(scratch->stage[0]);
    free(scratch->stage[1]);
    *scratch = (copse__scratch){0};
}

void copse__raw_free(copse__raw *raw) {
    free(raw->data);
    *raw = (copse__raw){0};
}

copse_status copse__dataset_new(copse_dataset **out, const copse__dataset_ops *ops,
                                const char *name, copse_error *err) {
    copse_dataset *set;
    *out = NULL;
    copse_status status = copse__calloc(&set, 1, sizeof *set, err);
    if (status != COPSE_OK)
        return status;
    set->ops = ops;
    atomic_init(&set->references, 1);
    status = copse__strdup(&set->name, name, err);
    if (status == COPSE_OK)
        *out = set;
    else
        free(set);
    return status;
}

static copse_status checked_bytes(const char *name, const copse_data_spec *spec,
                                  size_t *out, copse_error *err) {
    size_t bytes = copse_dtype_bytes(spec->dtype);
    bool fits = bytes > 0 && spec->rank <= COPSE_MAX_RANK;
    for (size_t i = 0; fits && i < spec->rank; i++)
        fits = spec->shape[i] > 0 && copse__mul_size(bytes, spec->shape[i], &bytes);
    if (!fits)
        return copse__fail(err, COPSE_FORMAT, 0, name,
                           "a sample has no usable shape: at most %d dimensions, none of "
                           "them 0, and a size that fits memory",
                           COPSE_MAX_RANK);
    *out = bytes;
    return COPSE_OK;
}

copse_status copse__dataset_set_specs(copse_dataset *set, const copse_data_spec *features,
                                      const copse_data_spec *labels, copse_error *err) {
    set->features = *features;
    copse_status status = checked_bytes(set->name, features, &set->feature_bytes, err);
    if (status != COPSE_OK || !labels)
        return status;
    set->labels = *labels;
    return checked_bytes(set->name, labels, &set->label_bytes, err);
}

copse_status copse__dataset_set_classes(copse_dataset *set, size_t classes,
                                        const char *const *names, copse_error *err) {
    set->classes = classes;
    if (!names)
        return COPSE_OK;
    copse_status status =
        copse__calloc(&set->class_names, classes, sizeof *set->class_names, err);
    for (size_t i = 0; i < classes && status == COPSE_OK; i++)
        status = copse__strdup(&set->class_names[i], names[i], err);
    return status;
}

copse_dataset *copse__dataset_retain(copse_dataset *set) {
    atomic_fetch_add_explicit(&set->references, 1, memory_order_relaxed);
    return set;
}

void copse_dataset_close(copse_dataset *set) {
    if (!set || atomic_fetch_sub_explicit(&set->references, 1, memory_order_acq_rel) != 1)
        return;
    if (set->ops->close)
        set->ops->close(set);
    for (size_t i = 0; set->class_names && i < set->classes; i++)
        free(set->class_names[i]);
    free(set->class_names);
    free(set->name);
    free(set);
}

size_t copse_dataset_count(const copse_dataset *set) {
    return set->count;
}

const copse_data_spec *copse_dataset_get_features(const copse_dataset *set) {
    return &set->features;
}

const copse_data_spec *copse_dataset_get_labels(const copse_dataset *set) {
    return set->label_bytes ? &set->labels : NULL;
}

size_t copse_dataset_classes(const copse_dataset *set) {
    return set->classes;
}

const char *copse_dataset_get_class_name(const copse_dataset *set, size_t index) {
    return set->class_names && index < set->classes ? set->class_names[index] : NULL;
}

size_t copse_dataset_left_out(const copse_dataset *set) {
    return set->left_out;
}

copse_status copse_dataset_read(copse_dataset *set, size_t index, void *features,
                                void *labels, copse_error *err) {
    if (!set->ops->read)
        return copse__fail(err, COPSE_INVALID, 0, set->name,
                           "it is a stream: read it in order, through a pipeline");
    if (index >= set->count)
        return copse__fail(err, COPSE_INVALID, 0, set->name,
                           "there is no sample %zu; the set has %zu", index, set->count);
    copse__scratch scratch = {0};
    copse_status status = set->ops->read(set, index, &scratch, features,
                                         set->label_bytes ? labels : NULL, err);
    copse__scratch_free(&scratch);
    return status;
}

size_t copse__memory_limit(size_t wanted) {
    if (wanted)
        return wanted;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages <= 0 || page <= 0)
        return SIZE_MAX;
    return (size_t)pages / 4 * 3 * (size_t)page;
}

copse_status copse__check_memory(uint64_t bytes, size_t limit, const char *place,
                                 copse_error *err) {
    if (bytes <= limit)
        return COPSE_OK;
    char need[32], have[32];
    return copse__fail(err, COPSE_NOMEM, 0, place,
                       "it needs %s in memory and the limit is %s; raise memory_limit or "
                       "use a format that is read in pieces (tfrecord, folder)",
                       copse__format_bytes(need, sizeof need, bytes),
                       copse__format_bytes(have, sizeof have, limit));
}

/* ---- Opening --------------------------------------------------------------------------
 */

typedef copse_status open_fn(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err);

static open_fn *const openers[] = {
    [COPSE_DATA_IDX] = copse__idx_open,
    [COPSE_DATA_CIFAR10] = copse__cifar_open,
    [COPSE_DATA_CIFAR100] = copse__cifar_open,
    [COPSE_DATA_NPY] = copse__npy_open,
    [COPSE_DATA_TFRECORD] = copse__tfrecord_open,
    [COPSE_DATA_FOLDER] = copse__folder_open,
    [COPSE_DATA_CSV] = copse__csv_open,
    [COPSE_DATA_TEXT] = copse__text_open,
    [COPSE_DATA_SYNTHETIC] = copse__synthetic_open,
};

copse_status copse__dataset_open_ahead(copse_dataset **out,
                                       const copse_data_source *source,
                                       copse_error *err) {
    *out = NULL;
    const char *name = copse_data_format_name(source->format);
    if (!name)
        return copse__fail(err, COPSE_INVALID, 0, NULL, "there is no data format %d",
                           (int)source->format);
    if (source->path_count == 0 && source->format != COPSE_DATA_SYNTHETIC)
        return copse__fail(err, COPSE_CONFIG, 0, NULL, "%s data needs at least one path",
                           name);
    if (source->class_count && !source->class_names &&
        (source->format == COPSE_DATA_FOLDER || source->format == COPSE_DATA_TEXT))
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "%s data needs the names of its classes, not their number",
                           name);
    copse__found_files files = {.ahead = true};
    copse_status status = copse__paths_find(&files.paths, source->folder, source->paths,
                                            source->path_count, err);
    if (status == COPSE_OK)
        status = copse__paths_find(&files.label_paths, source->folder,
                                   source->label_paths, source->label_path_count, err);
    if (status == COPSE_OK)
        status = openers[source->format](out, source, &files, err);
    if (status == COPSE_OK)
        status = copse__dataset_set_key(*out, source, &files, err);
    if (status != COPSE_OK) {
        copse_dataset_close(*out);
        *out = NULL;
    }
    copse__paths_free(&files.paths);
    copse__paths_free(&files.label_paths);
    return status;
}

copse_status copse__dataset_arrive(copse_dataset *set, copse_error *err) {
    return set && set->ops->arrive ? set->ops->arrive(set, err) : COPSE_OK;
}

copse_status copse_dataset_open(copse_dataset **out, const copse_data_source *source,
                                copse_error *err) {
    copse_status status = copse__dataset_open_ahead(out, source, err);
    if (status == COPSE_OK)
        status = copse__dataset_arrive(*out, err);
    if (status != COPSE_OK) {
        copse_dataset_close(*out);
        *out = NULL;
    }
    return status;
}
