/* SPDX-License-Identifier: Apache-2.0
 *
 * Writers of one sample after the other: TFRecord, CSV, image folders. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "data/convert.h"
#include "data/image.h"
#include "data/save.h"
#include "io/bytes.h"
#include "io/output.h"
#include "io/proto/example.pb-c.h"
#include "io/tfrecord.h"

static bool is_image(const copse_data_spec *spec) {
    return spec->dtype == COPSE_U8 && spec->rank == 3 &&
           (spec->shape[2] == 1 || spec->shape[2] == 3 || spec->shape[2] == 4);
}

static void output_abort(copse__saving *s) {
    copse__output_abort(s->state);
    s->state = NULL;
}

static copse_status output_commit(copse__saving *s, copse_error *err) {
    copse__output *out = s->state;
    s->state = NULL;
    return copse__output_commit(out, err);
}

static copse_status output_begin(copse__saving *s, copse_error *err) {
    copse__output *out;
    copse_status status = copse__output_open(&out, s->target->path,
                                             copse__is_gzip_name(s->target->path), err);
    s->state = status == COPSE_OK ? out : NULL;
    return status;
}

/* ---- TFRecord ------------------------------------------------------------------------- */

/* Floats as a float_list, 8-bit images as PNG, anything else as its bytes. */
typedef struct value {
    Copse__Example__Feature feature;
    Copse__Example__FloatList floats;
    Copse__Example__Int64List integers;
    Copse__Example__BytesList bytes;
    ProtobufCBinaryData data;
    int64_t *numbers;   /* owned */
    unsigned char *png; /* owned */
} value;

static copse_status set_integers(value *v, const void *data, size_t count,
                                 copse_error *err) {
    copse_status status = copse__calloc(&v->numbers, count, sizeof *v->numbers, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        int32_t number;
        memcpy(&number, (const unsigned char *)data + 4 * i, 4);
        v->numbers[i] = number;
    }
    copse__example__int64_list__init(&v->integers);
    v->integers.n_value = count;
    v->integers.value = v->numbers;
    v->feature.kind_case = COPSE__EXAMPLE__FEATURE__KIND_INT64_LIST;
    v->feature.int64_list = &v->integers;
    return COPSE_OK;
}

static copse_status set_value(value *v, const copse_data_spec *spec, const void *data,
                              bool label, copse_error *err) {
    size_t count = copse_data_spec_elements(spec);
    *v = (value){0};
    copse__example__feature__init(&v->feature);
    if (spec->dtype == COPSE_F32) {
        copse__example__float_list__init(&v->floats);
        v->floats.n_value = count;
        v->floats.value = (float *)(uintptr_t)data;
        v->feature.kind_case = COPSE__EXAMPLE__FEATURE__KIND_FLOAT_LIST;
        v->feature.float_list = &v->floats;
        return COPSE_OK;
    }
    if (label || spec->dtype == COPSE_I32)
        return set_integers(v, data, count, err);
    copse__example__bytes_list__init(&v->bytes);
    v->bytes.n_value = 1;
    v->bytes.value = &v->data;
    v->feature.kind_case = COPSE__EXAMPLE__FEATURE__KIND_BYTES_LIST;
    v->feature.bytes_list = &v->bytes;
    if (is_image(spec)) {
        copse_status status =
            copse__png_encode(&v->png, &v->data.len, data, spec->shape[0], spec->shape[1],
                              spec->shape[2], err);
        v->data.data = v->png;
        return status;
    }
    v->data.len = copse_data_spec_bytes(spec);
    v->data.data = (unsigned char *)(uintptr_t)data;
    return COPSE_OK;
}

static void free_value(value *v) {
    free(v->numbers);
    free(v->png);
}

static copse_status put_record(copse__output *out, const Copse__Example__Example *example,
                               copse_error *err) {
    size_t bytes = copse__example__example__get_packed_size(example);
    unsigned char *data, head[COPSE__RECORD_HEAD], tail[COPSE__RECORD_TAIL];
    copse_status status = copse__calloc(&data, bytes, 1, err);
    if (status != COPSE_OK)
        return status;
    copse__example__example__pack(example, data);
    copse__tfrecord_frame(head, tail, data, bytes);
    status = copse__output_write(out, head, sizeof head, err);
    if (status == COPSE_OK)
        status = copse__output_write(out, data, bytes, err);
    if (status == COPSE_OK)
        status = copse__output_write(out, tail, sizeof tail, err);
    free(data);
    return status;
}

static copse_status tfrecord_put(copse__saving *s, size_t index, const void *features,
                                 const void *labels, copse_error *err) {
    (void)index;
    value values[2];
    Copse__Example__Entry entries[2], *list[2] = {&entries[0], &entries[1]};
    Copse__Example__Features all;
    Copse__Example__Example example;
    copse__example__features__init(&all);
    copse__example__example__init(&example);
    bool image = is_image(&s->set->features);
    const char *name = s->target->feature_name ? s->target->feature_name
                       : image                 ? "image"
                                               : "x";
    const char *label = s->target->label_name ? s->target->label_name : "label";
    copse_status status = set_value(&values[0], &s->set->features, features, false, err);
    size_t count = 1;
    if (status == COPSE_OK && labels) {
        status = set_value(&values[1], &s->set->labels, labels, true, err);
        count = 2;
    }
    for (size_t i = 0; i < count; i++) {
        copse__example__entry__init(&entries[i]);
        entries[i].key = (char *)(uintptr_t)(i ? label : name);
        entries[i].value = &values[i].feature;
    }
    all.n_feature = count;
    all.feature = list;
    example.features = &all;
    if (status == COPSE_OK)
        status = put_record(s->state, &example, err);
    for (size_t i = 0; i < count; i++)
        free_value(&values[i]);
    return status;
}

const copse__save_ops copse__save_tfrecord = {output_begin, tfrecord_put, output_commit,
                                              output_abort};

/* ---- CSV ------------------------------------------------------------------------------ */

static void add_number(copse__text *row, copse_dtype dtype, const unsigned char *at) {
    char number[32];
    float real;
    double wide;
    int64_t i64;
    uint64_t u64;
    switch (dtype) {
    case COPSE_F32:
        memcpy(&real, at, 4);
        copse__text_add(row, "%s", copse__format_float(number, sizeof number, real));
        break;
    case COPSE_I64:
        memcpy(&i64, at, 8);
        copse__text_add(row, "%" PRId64, i64);
        break;
    case COPSE_U64:
        memcpy(&u64, at, 8);
        copse__text_add(row, "%" PRIu64, u64);
        break;
    default: /* exact in a double */
        wide = copse__get_number(dtype, at);
        copse__text_add(row, "%s", copse__format_double(number, sizeof number, wide));
    }
}

static void add_name(copse__text *row, const char *name) {
    if (!strpbrk(name, ",\"\r\n")) {
        copse__text_add(row, "%s", name);
        return;
    }
    copse__text_add(row, "\"");
    for (; *name; name++)
        copse__text_add(row, *name == '"' ? "\"\"" : "%c", *name);
    copse__text_add(row, "\"");
}

static copse_status put_row(copse__saving *s, copse__text *row, copse_error *err) {
    copse__text_add(row, "\n");
    copse_status status = copse__text_check(row, err);
    if (status == COPSE_OK)
        status = copse__output_write(s->state, row->data, row->length, err);
    copse__text_free(row);
    return status;
}

static copse_status csv_begin(copse__saving *s, copse_error *err) {
    copse__text row = {0};
    if (s->set->label_bytes && s->set->labels.rank != 0)
        return copse__save_refuse(s, "a row has one label", err);
    copse_status status = output_begin(s, err);
    if (status != COPSE_OK)
        return status;
    const char *name = s->target->feature_name ? s->target->feature_name : "x";
    size_t n = copse_data_spec_elements(&s->set->features);
    for (size_t i = 0; i < n; i++)
        copse__text_add(&row, "%s%s%zu", i ? "," : "", name, i);
    if (s->set->label_bytes)
        copse__text_add(&row, ",%s",
                        s->target->label_name ? s->target->label_name : "label");
    return put_row(s, &row, err);
}

static copse_status csv_put(copse__saving *s, size_t index, const void *features,
                            const void *labels, copse_error *err) {
    (void)index;
    copse__text row = {0};
    const copse_dataset *set = s->set;
    size_t element = copse_dtype_bytes(set->features.dtype);
    size_t n = set->feature_bytes / element;
    for (size_t i = 0; i < n; i++) {
        copse__text_add(&row, "%s", i ? "," : "");
        add_number(&row, set->features.dtype,
                   (const unsigned char *)features + i * element);
    }
    int32_t class = -1;
    if (labels && set->labels.dtype == COPSE_I32)
        memcpy(&class, labels, 4);
    const char *name =
        class >= 0 ? copse_dataset_get_class_name(set, (size_t) class) : NULL;
    copse__text_add(&row, "%s", labels ? "," : "");
    if (labels && name)
        add_name(&row, name);
    else if (labels)
        add_number(&row, set->labels.dtype, labels);
    return put_row(s, &row, err);
}

const copse__save_ops copse__save_csv = {csv_begin, csv_put, output_commit, output_abort};

/* ---- Folder of images ----------------------------------------------------------------- */

typedef struct tree {
    char *temporary;
} tree;

static copse_status remove_tree(const char *path, copse_error *err) {
    copse__paths names;
    copse_status status = copse__paths_list(&names, path, err);
    for (size_t i = 0; i < names.count && status == COPSE_OK; i++) {
        char *below;
        struct stat info;
        status = copse__path_join(&below, path, names.items[i], err);
        if (status != COPSE_OK)
            break;
        if (lstat(below, &info) == 0 && S_ISDIR(info.st_mode))
            status = remove_tree(below, err);
        else
            unlink(below);
        free(below);
    }
    copse__paths_free(&names);
    rmdir(path);
    return status;
}

static void folder_abort(copse__saving *s) {
    tree *t = s->state;
    if (!t)
        return;
    if (t->temporary)
        (void)!remove_tree(t->temporary, NULL);
    free(t->temporary);
    free(t);
    s->state = NULL;
}

/* Without waiting for the disk: the folder is renamed when all of it is there. */
static copse_status put_file(const char *path, const void *data, size_t bytes,
                             copse_error *err) {
    FILE *file = fopen(path, "wxb");
    bool ok = file && fwrite(data, 1, bytes, file) == bytes;
    int code = errno;
    if (file && fclose(file) != 0 && ok) {
        ok = false;
        code = errno;
    }
    if (ok)
        return COPSE_OK;
    return copse__fail(err, COPSE_IO, code, path, "cannot write it: %s", strerror(code));
}

/* The name of a sample's class, or "" where there are no labels. */
static copse_status class_folder(const copse__saving *s, const void *labels, char *out,
                                 size_t bytes, copse_error *err) {
    int32_t class;
    out[0] = '\0';
    if (!labels)
        return COPSE_OK;
    memcpy(&class, labels, 4);
    const char *name =
        class >= 0 ? copse_dataset_get_class_name(s->set, (size_t) class) : NULL;
    int n = name ? snprintf(out, bytes, "%s", name) : snprintf(out, bytes, "%05d", class);
    if (n <= 0 || (size_t)n >= bytes || strchr(out, '/') || out[0] == '.')
        return copse__fail(err, COPSE_UNSUPPORTED, 0, s->target->path,
                           "class '%s' cannot be a folder's name", out);
    return COPSE_OK;
}

static copse_status folder_begin(copse__saving *s, copse_error *err) {
    const copse_dataset *set = s->set;
    if (!is_image(&set->features) ||
        (set->label_bytes && (set->labels.dtype != COPSE_I32 || set->labels.rank != 0)))
        return copse__save_refuse(s, "they are 8-bit images with at most a class", err);
    if (copse__file_exists(s->target->path))
        return copse__fail(err, COPSE_IO, EEXIST, s->target->path,
                           "it exists; remove it or name another folder");
    tree *t;
    copse_status status = copse__calloc(&t, 1, sizeof *t, err);
    if (status != COPSE_OK)
        return status;
    s->state = t;
    copse__text name = {0};
    size_t length = strlen(s->target->path);
    while (length > 1 && s->target->path[length - 1] == '/')
        length--;
    copse__text_add_bytes(&name, s->target->path, length);
    copse__text_add(&name, ".tmp-%ld", (long)getpid());
    status = copse__text_check(&name, err);
    if (status == COPSE_OK && mkdir(name.data, 0777) != 0)
        status = copse__fail(err, COPSE_IO, errno, s->target->path, "cannot make it: %s",
                             strerror(errno));
    if (status == COPSE_OK)
        t->temporary = name.data;
    else
        copse__text_free(&name);
    return status;
}

static copse_status folder_put(copse__saving *s, size_t index, const void *features,
                               const void *labels, copse_error *err) {
    tree *t = s->state;
    char class[256];
    copse__text path = {0};
    const copse_data_spec *spec = &s->set->features;
    copse_status status = class_folder(s, labels, class, sizeof class, err);
    if (status != COPSE_OK)
        return status;
    copse__text_add(&path, "%s/%s", t->temporary, class);
    status = copse__text_check(&path, err);
    if (status == COPSE_OK)
        status = copse__make_folders(path.data, err);
    copse__text_add(&path, "%s%06zu.png", class[0] ? "/" : "", index);
    if (status == COPSE_OK)
        status = copse__text_check(&path, err);
    unsigned char *png = NULL;
    size_t bytes;
    if (status == COPSE_OK)
        status = copse__png_encode(&png, &bytes, features, spec->shape[0], spec->shape[1],
                                   spec->shape[2], err);
    if (status == COPSE_OK)
        status = put_file(path.data, png, bytes, err);
    free(png);
    copse__text_free(&path);
    return status;
}

static copse_status folder_commit(copse__saving *s, copse_error *err) {
    tree *t = s->state;
    copse_status status = COPSE_OK;
    if (rename(t->temporary, s->target->path) != 0) {
        status = copse__fail(err, COPSE_IO, errno, s->target->path,
                             "cannot finish it: %s", strerror(errno));
    } else {
        free(t->temporary);
        t->temporary = NULL;
    }
    folder_abort(s);
    return status;
}

const copse__save_ops copse__save_folder = {folder_begin, folder_put, folder_commit,
                                            folder_abort};
