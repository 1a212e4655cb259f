/* SPDX-License-Identifier: Apache-2.0
 *
 * Writers of whole arrays: IDX, CIFAR, NPY and NPZ. */
#include <string.h>

#include "base/text.h"
#include "data/convert.h"
#include "data/save.h"
#include "io/bytes.h"
#include "io/npy.h"
#include "io/output.h"
#include "io/zip.h"

/* ---- Two outputs, features and labels ------------------------------------------------- */

typedef struct arrays {
    copse__output *features, *labels;
    copse__zip_writer *zip;
    unsigned char *kept; /* labels, which follow the features in an archive */
    unsigned char *turned;
} arrays;

static void arrays_abort(copse__saving *s) {
    arrays *a = s->state;
    if (!a)
        return;
    copse__output_abort(a->features);
    copse__output_abort(a->labels);
    copse__zip_writer_abort(a->zip);
    free(a->kept);
    free(a->turned);
    free(a);
    s->state = NULL;
}

static copse_status arrays_commit(copse__saving *s, copse_error *err) {
    arrays *a = s->state;
    copse__output *features = a->features, *labels = a->labels;
    a->features = a->labels = NULL;
    copse_status status = copse__output_commit(features, err);
    if (status == COPSE_OK && labels)
        status = copse__output_commit(labels, err);
    else
        copse__output_abort(labels);
    arrays_abort(s);
    return status;
}

static copse_status open_outputs(copse__saving *s, copse_error *err) {
    arrays *a;
    copse_status status = copse__calloc(&a, 1, sizeof *a, err);
    if (status != COPSE_OK)
        return status;
    s->state = a;
    const copse_data_target *t = s->target;
    if (s->set->label_bytes && !t->label_path)
        return copse__fail(err, COPSE_CONFIG, 0, t->path,
                           "%s needs a second file for the labels; name one",
                           copse_data_format_name(t->format));
    status = copse__output_open(&a->features, t->path, copse__is_gzip_name(t->path), err);
    if (status == COPSE_OK && s->set->label_bytes)
        status = copse__output_open(&a->labels, t->label_path,
                                    copse__is_gzip_name(t->label_path), err);
    return status;
}

/* ---- IDX ------------------------------------------------------------------------------ */

static unsigned char idx_code(copse_dtype dtype) {
    switch (dtype) {
    case COPSE_U8:
        return 0x08;
    case COPSE_I8:
        return 0x09;
    case COPSE_I16:
        return 0x0b;
    case COPSE_I32:
        return 0x0c;
    case COPSE_F32:
        return 0x0d;
    case COPSE_F64:
        return 0x0e;
    default:
        return 0;
    }
}

static void put_be32(unsigned char *at, size_t value) {
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(value >> (24 - 8 * i));
}

static copse_status idx_header(copse__saving *s, copse__output *out,
                               const copse_data_spec *spec, unsigned char code,
                               copse_error *err) {
    unsigned char header[8 + 4 * COPSE_MAX_RANK] = {0, 0, code,
                                                    (unsigned char)(spec->rank + 1)};
    put_be32(header + 4, s->count);
    for (size_t i = 0; i < spec->rank; i++)
        put_be32(header + 8 + 4 * i, spec->shape[i]);
    return copse__output_write(out, header, 8 + 4 * spec->rank, err);
}

static bool fits_32(const copse_data_spec *spec) {
    for (size_t i = 0; i < spec->rank; i++)
        if (spec->shape[i] > UINT32_MAX)
            return false;
    return true;
}

/* Grey images lose the channel that reading added. Class labels are bytes, as MNIST's. */
static copse_status idx_begin(copse__saving *s, copse_error *err) {
    copse_data_spec features = s->set->features;
    if (features.rank == 3 && features.shape[2] == 1)
        features.rank = 2;
    if (!idx_code(features.dtype) || s->count > UINT32_MAX || !fits_32(&features))
        return copse__save_refuse(s, "its types are u8, i8, i16, i32, f32 and f64", err);
    copse_status status = open_outputs(s, err);
    arrays *a = s->state;
    if (status == COPSE_OK)
        status = copse__calloc(
            &a->turned, copse__max_size(s->set->feature_bytes, s->set->label_bytes), 1,
            err);
    if (status == COPSE_OK)
        status = idx_header(s, a->features, &features, idx_code(features.dtype), err);
    copse_data_spec labels = s->set->labels;
    bool classes = labels.dtype == COPSE_I32 && labels.rank == 0;
    if (status == COPSE_OK && a->labels)
        status = idx_header(s, a->labels, &labels,
                            classes ? 0x08 : idx_code(labels.dtype), err);
    return status;
}

static copse_status put_big_endian(arrays *a, copse__output *out, copse_dtype dtype,
                                   const void *data, size_t bytes, copse_error *err) {
    size_t element = copse_dtype_bytes(dtype);
    memcpy(a->turned, data, bytes);
    if (copse__host_is_little())
        copse__swap_bytes(a->turned, element, bytes / element);
    return copse__output_write(out, a->turned, bytes, err);
}

static copse_status put_byte_label(copse__saving *s, copse__output *out, size_t index,
                                   const void *labels, int32_t most, copse_error *err) {
    int32_t label;
    memcpy(&label, labels, 4);
    if (label < 0 || label > most)
        return copse__fail(err, COPSE_UNSUPPORTED, 0, s->target->path,
                           "sample %zu has label %d; this format holds 0 to %d", index,
                           label, most);
    unsigned char byte = (unsigned char)label;
    return copse__output_write(out, &byte, 1, err);
}

static copse_status idx_put(copse__saving *s, size_t index, const void *features,
                            const void *labels, copse_error *err) {
    arrays *a = s->state;
    copse_status status = put_big_endian(a, a->features, s->set->features.dtype, features,
                                         s->set->feature_bytes, err);
    if (status != COPSE_OK || !labels)
        return status;
    if (s->set->labels.dtype == COPSE_I32 && s->set->labels.rank == 0)
        return put_byte_label(s, a->labels, index, labels, 255, err);
    return put_big_endian(a, a->labels, s->set->labels.dtype, labels, s->set->label_bytes,
                          err);
}

const copse__save_ops copse__save_idx = {idx_begin, idx_put, arrays_commit, arrays_abort};

/* ---- CIFAR-10 ------------------------------------------------------------------------- */

static copse_status cifar_begin(copse__saving *s, copse_error *err) {
    const copse_data_spec *f = &s->set->features, *l = &s->set->labels;
    if (f->dtype != COPSE_U8 || f->rank != 3 || f->shape[0] != 32 || f->shape[1] != 32 ||
        f->shape[2] != 3 || !s->set->label_bytes || l->dtype != COPSE_I32 || l->rank != 0)
        return copse__save_refuse(s, "they are 32 x 32 RGB images with a class", err);
    arrays *a;
    copse_status status = copse__calloc(&a, 1, sizeof *a, err);
    if (status != COPSE_OK)
        return status;
    s->state = a;
    return copse__output_open(&a->features, s->target->path,
                              copse__is_gzip_name(s->target->path), err);
}

static copse_status cifar_put(copse__saving *s, size_t index, const void *features,
                              const void *labels, copse_error *err) {
    arrays *a = s->state;
    const unsigned char *pixels = features;
    unsigned char planes[3072];
    for (size_t i = 0; i < 1024; i++)
        for (size_t c = 0; c < 3; c++)
            planes[c * 1024 + i] = pixels[3 * i + c];
    copse_status status = put_byte_label(s, a->features, index, labels, 9, err);
    if (status == COPSE_OK)
        status = copse__output_write(a->features, planes, sizeof planes, err);
    return status;
}

const copse__save_ops copse__save_cifar = {cifar_begin, cifar_put, arrays_commit,
                                           arrays_abort};

/* ---- NPY and NPZ ---------------------------------------------------------------------- */

static void npy_header(copse__text *out, const copse__saving *s,
                       const copse_data_spec *spec) {
    size_t shape[COPSE_MAX_RANK + 1] = {s->count};
    memcpy(shape + 1, spec->shape, spec->rank * sizeof *shape);
    copse__npy_format_header(out, spec->dtype, spec->rank + 1, shape);
}

static bool is_npz(const char *path) {
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".npz") == 0;
}

static copse_status begin_member(copse__saving *s, const char *name, const char *usual,
                                 const copse_data_spec *spec, copse_error *err) {
    arrays *a = s->state;
    copse__text member = {0}, header = {0};
    copse__text_add(&member, "%s.npy", name ? name : usual);
    npy_header(&header, s, spec);
    size_t bytes;
    if (!copse__mul_size(s->count, copse_data_spec_bytes(spec), &bytes) ||
        !copse__add_size(bytes, header.length, &bytes))
        bytes = SIZE_MAX;
    copse_status status = copse__text_check(&header, err);
    if (status == COPSE_OK)
        status = copse__text_check(&member, err);
    if (status == COPSE_OK)
        status = copse__zip_writer_begin(a->zip, member.data, bytes, err);
    if (status == COPSE_OK)
        status = copse__zip_writer_write(a->zip, header.data, header.length, err);
    copse__text_free(&member);
    copse__text_free(&header);
    return status;
}

static copse_status npz_begin(copse__saving *s, copse_error *err) {
    arrays *a;
    copse_status status = copse__calloc(&a, 1, sizeof *a, err);
    if (status != COPSE_OK)
        return status;
    s->state = a;
    if (s->set->label_bytes)
        status = copse__calloc(&a->kept, s->count, s->set->label_bytes, err);
    if (status == COPSE_OK)
        status = copse__zip_writer_open(&a->zip, s->target->path, err);
    if (status == COPSE_OK)
        status = begin_member(s, s->target->feature_name, "x", &s->set->features, err);
    return status;
}

static copse_status put_header(const copse__saving *s, copse__output *out,
                               const copse_data_spec *spec, copse_error *err) {
    copse__text header = {0};
    npy_header(&header, s, spec);
    copse_status status = copse__text_check(&header, err);
    if (status == COPSE_OK)
        status = copse__output_write(out, header.data, header.length, err);
    copse__text_free(&header);
    return status;
}

static copse_status npy_begin(copse__saving *s, copse_error *err) {
    if (!copse__host_is_little())
        return copse__save_refuse(s, "this machine's byte order is not supported", err);
    if (is_npz(s->target->path))
        return npz_begin(s, err);
    copse_status status = open_outputs(s, err);
    arrays *a = s->state;
    if (status == COPSE_OK)
        status = put_header(s, a->features, &s->set->features, err);
    if (status == COPSE_OK && a->labels)
        status = put_header(s, a->labels, &s->set->labels, err);
    return status;
}

static copse_status npy_put(copse__saving *s, size_t index, const void *features,
                            const void *labels, copse_error *err) {
    arrays *a = s->state;
    size_t f = s->set->feature_bytes, l = s->set->label_bytes;
    if (a->zip) {
        if (labels)
            memcpy(a->kept + index * l, labels, l);
        return copse__zip_writer_write(a->zip, features, f, err);
    }
    copse_status status = copse__output_write(a->features, features, f, err);
    if (status == COPSE_OK && labels)
        status = copse__output_write(a->labels, labels, l, err);
    return status;
}

static copse_status npy_commit(copse__saving *s, copse_error *err) {
    arrays *a = s->state;
    if (!a->zip)
        return arrays_commit(s, err);
    copse_status status = COPSE_OK;
    if (a->kept) {
        status = begin_member(s, s->target->label_name, "y", &s->set->labels, err);
        if (status == COPSE_OK)
            status = copse__zip_writer_write(a->zip, a->kept,
                                             s->count * s->set->label_bytes, err);
    }
    if (status == COPSE_OK) {
        copse__zip_writer *zip = a->zip;
        a->zip = NULL;
        status = copse__zip_writer_commit(zip, err);
    }
    arrays_abort(s);
    return status;
}

const copse__save_ops copse__save_npy = {npy_begin, npy_put, npy_commit, arrays_abort};
