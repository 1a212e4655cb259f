/* SPDX-License-Identifier: Apache-2.0
 *
 * A name for what a dataset holds, so that a cache of it is used for nothing else. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "data/dataset.h"

/* Lengths stand before texts, so that no two lists look alike. */
static void add_text(copse__text *key, const char *text) {
    copse__text_add(key, "%zu:%s;", text ? strlen(text) : 0, text ? text : "-");
}

static void add_field(copse__text *key, const copse_data_field *field) {
    copse__text_add(key, "%d,%d,%zu", (int)field->encoding, (int)field->dtype,
                    field->rank);
    for (size_t i = 0; i < field->rank && i < COPSE_MAX_RANK; i++)
        copse__text_add(key, ",%zu", field->shape[i]);
    copse__text_add(key, ";");
}

static copse_status add_file(copse__text *key, const char *path, copse_error *err) {
    struct stat info;
    if (stat(path, &info) != 0)
        return copse__fail(err, COPSE_IO, errno, path, "cannot look at it: %s",
                           strerror(errno));
    add_text(key, path);
    copse__text_add(key, "%lld,%lld.%ld;", (long long)info.st_size,
                    (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    return COPSE_OK;
}

static void add_options(copse__text *key, const copse_data_source *s) {
    copse__text_add(key, "copse cache 1;%s;", copse_data_format_name(s->format));
    add_text(key, s->feature_name);
    add_text(key, s->label_name);
    add_field(key, &s->feature);
    add_field(key, &s->label);
    copse__text_add(key, "%zu;", s->column_count);
    for (size_t i = 0; i < s->column_count; i++)
        add_text(key, s->columns[i]);
    copse__text_add(key, "%d,%d,%zu,%zu,%d,%zu,%llu;", s->without_header, s->delimiter,
                    s->sequence_length, s->stride, s->by_bytes, s->count,
                    (unsigned long long)s->seed);
    copse__text_add(key, "%zu,%zu,%zu,%d,%d;", s->image.height, s->image.width,
                    s->image.channels, (int)s->image.resize, s->image.sixteen_bits);
    copse__text_add(key, "%zu;", s->class_count);
    for (size_t i = 0; s->class_names && i < s->class_count; i++)
        add_text(key, s->class_names[i]);
    copse__text_add(key, "%d,%d;", s->coarse_labels, s->skip_errors);
}

copse_status copse__dataset_set_key(copse_dataset *set, const copse_data_source *source,
                                    const copse__found_files *files, copse_error *err) {
    copse__text key = {0};
    copse_status status = COPSE_OK;
    add_options(&key, source);
    for (size_t i = 0; i < files->paths.count && status == COPSE_OK; i++)
        status = add_file(&key, files->paths.items[i], err);
    for (size_t i = 0; i < files->label_paths.count && status == COPSE_OK; i++)
        status = add_file(&key, files->label_paths.items[i], err);
    const char *path;
    for (size_t i = 0; set->ops->file && status == COPSE_OK; i++) {
        path = set->ops->file(set, i);
        if (!path)
            break;
        status = add_file(&key, path, err);
    }
    if (status == COPSE_OK)
        status = copse__text_check(&key, err);
    if (status == COPSE_OK) {
        set->key = copse__hash128_of(key.data, key.length);
        set->has_key = true;
    }
    copse__text_free(&key);
    return status;
}
