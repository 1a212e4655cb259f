/* SPDX-License-Identifier: Apache-2.0 */
#include "data/example.h"

#include <stdio.h>
#include <string.h>

#include "data/convert.h"
#include "data/image.h"
#include "io/bytes.h"
#include "io/proto/example.pb-c.h"

typedef Copse__Example__Example example;
typedef Copse__Example__Feature feature;

/* ---- Unpacking ------------------------------------------------------------------------ */

/* protobuf-c takes many small pieces for a record: they come from one block that is dropped at
 * once. It never holds more than a fixed multiple of the record, so a hostile one stays small. */
typedef struct arena {
    struct block {
        struct block *before;
        size_t used, size;
    } * top;
    size_t total, most;
} arena;

static void *arena_alloc(void *data, size_t bytes) {
    arena *a = data;
    bytes = copse__round_up(bytes ? bytes : 1, 16);
    if (!a->top || a->top->size - a->top->used < bytes) {
        size_t size = copse__max_size(bytes + 64, 16384);
        if (size > a->most - a->total)
            return NULL;
        struct block *made = malloc(sizeof *made + 16 + size);
        if (!made)
            return NULL;
        *made = (struct block){a->top, 0, size};
        a->top = made;
        a->total += size;
    }
    unsigned char *base = (unsigned char *)(a->top + 1);
    base += 16 - (uintptr_t)base % 16;
    void *out = base + a->top->used;
    a->top->used += bytes;
    return out;
}

static void arena_free_one(void *data, void *pointer) {
    (void)data;
    (void)pointer;
}

static void arena_drop(arena *a) {
    while (a->top) {
        struct block *before = a->top->before;
        free(a->top);
        a->top = before;
    }
}

typedef struct unpacked {
    arena memory;
    example *example;
} unpacked;

static copse_status unpack(unpacked *out, const unsigned char *record, size_t bytes,
                           const char *place, copse_error *err) {
    *out = (unpacked){.memory = {.most = ((size_t)1 << 20) + bytes * 64}};
    ProtobufCAllocator allocator = {arena_alloc, arena_free_one, &out->memory};
    out->example = copse__example__example__unpack(&allocator, bytes, record);
    if (out->example)
        return COPSE_OK;
    arena_drop(&out->memory);
    return copse__fail(err, COPSE_FORMAT, 0, place,
                       "the record is no tf.train.Example; check the format");
}

static const feature *find(const example *e, const char *name) {
    for (size_t i = 0; e->features && i < e->features->n_feature; i++)
        if (strcmp(e->features->feature[i]->key, name) == 0)
            return e->features->feature[i]->value;
    return NULL;
}

static copse_status missing(const example *e, const char *name, const char *place,
                            copse_error *err) {
    char there[400] = "";
    size_t used = 0;
    for (size_t i = 0; e->features && i < e->features->n_feature; i++)
        if (used < sizeof there)
            used += (size_t)snprintf(there + used, sizeof there - used, "%s%.60s",
                                     i ? ", " : "", e->features->feature[i]->key);
    return copse__fail(err, COPSE_FORMAT, 0, place,
                       "the record has no feature '%s' but: %s; name one of those", name,
                       there[0] ? there : "none");
}

/* ---- One feature to a tensor ---------------------------------------------------------- */

static copse_status wrong(const copse__example_field *field, const char *place,
                          const char *what, copse_error *err) {
    return copse__fail(err, COPSE_FORMAT, 0, place, "feature '%s' %s", field->name, what);
}

static copse_status wrong_count(const copse__example_field *field, size_t got,
                                size_t wanted, const char *what, const char *place,
                                copse_error *err) {
    return copse__fail(
        err, COPSE_FORMAT, 0, place,
        "feature '%s' has %zu %s where its shape asks for %zu; correct the "
        "shape",
        field->name, got, what, wanted);
}

/* The single bytes value of a feature. */
static copse_status get_bytes(const copse__example_field *field, const feature *f,
                              const char *place, ProtobufCBinaryData *out,
                              copse_error *err) {
    *out = (ProtobufCBinaryData){0};
    if (f->kind_case != COPSE__EXAMPLE__FEATURE__KIND_BYTES_LIST ||
        f->bytes_list->n_value != 1)
        return wrong(field, place, "does not hold one piece of bytes", err);
    *out = f->bytes_list->value[0];
    return COPSE_OK;
}

static copse_status put_raw(const copse__example_field *field, const feature *f,
                            const char *place, void *out, copse_error *err) {
    ProtobufCBinaryData got;
    copse_status status = get_bytes(field, f, place, &got, err);
    if (status != COPSE_OK)
        return status;
    size_t elements = copse_data_spec_elements(&field->spec), bad;
    size_t element = copse_dtype_bytes(field->from);
    if (got.len != elements * element)
        return wrong_count(field, got.len, elements * element, "bytes", place, err);
    if (!copse__host_is_little() && element > 1)
        copse__swap_bytes(got.data, element, elements);
    if (field->from == field->spec.dtype) {
        memcpy(out, got.data, got.len);
        return COPSE_OK;
    }
    if (!copse__convert(field->spec.dtype, out, field->from, got.data, elements, &bad))
        return wrong(field, place, "has a value that does not fit its type", err);
    return COPSE_OK;
}

static copse_status put_values(const copse__example_field *field, const feature *f,
                               const char *place, void *out, copse_error *err) {
    size_t elements = copse_data_spec_elements(&field->spec), got = 0, bad;
    const void *values = NULL;
    copse_dtype from = COPSE_F32;
    if (f->kind_case == COPSE__EXAMPLE__FEATURE__KIND_FLOAT_LIST) {
        got = f->float_list->n_value;
        values = f->float_list->value;
    } else if (f->kind_case == COPSE__EXAMPLE__FEATURE__KIND_INT64_LIST) {
        got = f->int64_list->n_value;
        values = f->int64_list->value;
        from = COPSE_I64;
    } else {
        return wrong(field, place, "holds bytes, not numbers", err);
    }
    if (got != elements)
        return wrong_count(field, got, elements, "numbers", place, err);
    if (!copse__convert(field->spec.dtype, out, from, values, elements, &bad))
        return wrong(field, place, "has a number that does not fit its type", err);
    return COPSE_OK;
}

static copse_status put_field(const copse__example_reader *reader,
                              const copse__example_field *field, const example *e,
                              const char *place, copse__scratch *scratch, void *out,
                              copse_error *err) {
    const feature *f = find(e, field->name);
    if (!f)
        return missing(e, field->name, place, err);
    if (field->encoding == COPSE_ENCODING_VALUES)
        return put_values(field, f, place, out, err);
    if (field->encoding == COPSE_ENCODING_RAW)
        return put_raw(field, f, place, out, err);
    ProtobufCBinaryData got;
    copse_status status = get_bytes(field, f, place, &got, err);
    if (status == COPSE_OK)
        status = copse__image_read(out, &field->spec, &reader->image, got.data, got.len,
                                   place, scratch, err);
    return status;
}

copse_status copse__example_read(const copse__example_reader *reader,
                                 const unsigned char *record, size_t bytes,
                                 const char *place, copse__scratch *scratch,
                                 void *features, void *labels, copse_error *err) {
    unpacked u;
    copse_status status = unpack(&u, record, bytes, place, err);
    if (status != COPSE_OK)
        return status;
    status =
        put_field(reader, &reader->features, u.example, place, scratch, features, err);
    if (status == COPSE_OK && labels)
        status =
            put_field(reader, &reader->labels, u.example, place, scratch, labels, err);
    arena_drop(&u.memory);
    return status;
}

/* ---- Settling ------------------------------------------------------------------------- */

static copse_data_encoding guess(const feature *f) {
    if (f->kind_case != COPSE__EXAMPLE__FEATURE__KIND_BYTES_LIST)
        return COPSE_ENCODING_VALUES;
    if (f->bytes_list->n_value == 1 &&
        copse__image_is_known(f->bytes_list->value[0].data, f->bytes_list->value[0].len))
        return COPSE_ENCODING_IMAGE;
    return COPSE_ENCODING_RAW;
}

static const char *default_name(const example *e) {
    static const char *const names[] = {"image", "image/encoded", "image_raw", "x"};
    if (e->features && e->features->n_feature == 1)
        return e->features->feature[0]->key;
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        if (find(e, names[i]))
            return names[i];
    return names[0];
}

static copse_status settle_field(copse__example_reader *reader,
                                 copse__example_field *field, const char *name,
                                 const copse_data_field *wanted, bool label,
                                 const example *e, const char *place,
                                 copse__scratch *scratch, copse_error *err) {
    copse_status status = copse__strdup(&field->name, name, err);
    if (status != COPSE_OK)
        return status;
    const feature *f = find(e, name);
    if (!f)
        return missing(e, name, place, err);
    field->encoding =
        wanted->encoding == COPSE_ENCODING_AUTO ? guess(f) : wanted->encoding;
    field->from = wanted->dtype;
    field->spec = (copse_data_spec){.dtype = wanted->dtype, .rank = wanted->rank};
    memcpy(field->spec.shape, wanted->shape, sizeof wanted->shape);
    if (field->encoding == COPSE_ENCODING_IMAGE) {
        ProtobufCBinaryData got;
        if (label)
            return wrong(field, place, "is an image, which cannot be a label", err);
        status = get_bytes(field, f, place, &got, err);
        if (status != COPSE_OK)
            return status;
        return copse__image_spec(&field->spec, &reader->image, got.data, got.len, place,
                                 scratch, err);
    }
    bool floats = f->kind_case == COPSE__EXAMPLE__FEATURE__KIND_FLOAT_LIST;
    if (label && field->encoding == COPSE_ENCODING_VALUES)
        field->spec.dtype = floats ? COPSE_F32 : COPSE_I32;
    else if (label)
        field->spec.dtype = copse__label_dtype(wanted->dtype);
    else if (field->encoding == COPSE_ENCODING_VALUES && field->spec.dtype != COPSE_I32)
        field->spec.dtype = COPSE_F32;
    return COPSE_OK;
}

copse_status copse__example_settle(copse__example_reader *reader,
                                   const copse_data_source *source,
                                   const unsigned char *record, size_t bytes,
                                   const char *place, copse__scratch *scratch,
                                   copse_error *err) {
    unpacked u;
    *reader = (copse__example_reader){.image = source->image,
                                      .has_labels = source->label_name != NULL};
    copse_status status = unpack(&u, record, bytes, place, err);
    if (status != COPSE_OK)
        return status;
    const char *name =
        source->feature_name ? source->feature_name : default_name(u.example);
    status = settle_field(reader, &reader->features, name, &source->feature, false,
                          u.example, place, scratch, err);
    if (status == COPSE_OK && reader->has_labels)
        status = settle_field(reader, &reader->labels, source->label_name, &source->label,
                              true, u.example, place, scratch, err);
    arena_drop(&u.memory);
    return status;
}

void copse__example_free(copse__example_reader *reader) {
    free(reader->features.name);
    free(reader->labels.name);
    *reader = (copse__example_reader){0};
}
