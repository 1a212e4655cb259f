/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX, the format of MNIST: two zero bytes, a type, the number of dimensions, the
 * dimensions as big-endian 32-bit numbers, the elements big-endian and row-major. */
#include <string.h>

#include "data/convert.h"
#include "data/table.h"
#include "io/bytes.h"
#include "io/input.h"

#define PIECE ((size_t)1 << 20) /* between two looks at whether to go on */

static const struct {
    unsigned char code;
    copse_dtype dtype;
} idx_types[] = {
    {0x08, COPSE_U8},  {0x09, COPSE_I8},  {0x0b, COPSE_I16},
    {0x0c, COPSE_I32}, {0x0d, COPSE_F32}, {0x0e, COPSE_F64},
};

static copse_status parse_magic(copse__array *array, const unsigned char magic[4],
                                const char *path, copse_error *err) {
    for (size_t i = 0; i < COPSE__COUNT(idx_types); i++) {
        if (magic[0] || magic[1] || magic[2] != idx_types[i].code)
            continue;
        array->dtype = idx_types[i].dtype;
        array->rank = magic[3];
        if (array->rank >= 1 && array->rank <= COPSE_MAX_RANK + 1)
            return COPSE_OK;
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "it has %u dimensions at byte 3; 1 to %d can be used",
                           magic[3], COPSE_MAX_RANK + 1);
    }
    return copse__fail(err, COPSE_FORMAT, 0, path,
                       "it is no IDX file: it starts with %02x %02x %02x %02x, not 00 00 "
                       "and a type; check the path",
                       magic[0], magic[1], magic[2], magic[3]);
}

static copse_status read_header(copse__array *array, copse__input *input,
                                copse_error *err) {
    const char *path = copse__input_path(input);
    unsigned char magic[4], dims[(COPSE_MAX_RANK + 1) * 4];
    copse_status status = copse__input_read_all(input, magic, 4, "the IDX header", err);
    if (status == COPSE_OK)
        status = parse_magic(array, magic, path, err);
    if (status == COPSE_OK)
        status =
            copse__input_read_all(input, dims, array->rank * 4, "the IDX header", err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < array->rank; i++) {
        const unsigned char *d = dims + i * 4;
        array->shape[i] =
            (size_t)d[0] << 24 | (size_t)d[1] << 16 | (size_t)d[2] << 8 | d[3];
    }
    return copse__array_size(array, copse__input_most(input), path, err);
}

/* The rest of a file whose header was read. */
typedef struct body {
    copse__input *input;
    unsigned char *data;
    size_t bytes, element_bytes;
} body;

static copse_status open_file(body *out, copse__array *array, const char *path,
                              size_t limit, copse_error *err) {
    copse_status status = copse__input_open(&out->input, path, COPSE__PACKING_AUTO, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(read_header(array, out->input, err), out);
    COPSE__TRY(copse__check_memory(array->bytes, limit, path, err), out);
    array->data = malloc(array->bytes ? array->bytes : 1);
    if (!array->data)
        status = copse__fail_nomem(err, array->bytes);
    out->data = array->data;
    out->bytes = array->bytes;
    out->element_bytes = copse_dtype_bytes(array->dtype);
out:
    if (status != COPSE_OK)
        copse__input_close(out->input);
    return status;
}

/* Closes the file. */
static copse_status read_body(body *rest, const atomic_bool *stop, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t at = 0, take; at < rest->bytes; at += take) {
        take = copse__min_size(rest->bytes - at, PIECE);
        if (stop && atomic_load_explicit(stop, memory_order_relaxed))
            goto out;
        COPSE__TRY(copse__input_read_all(rest->input, rest->data + at, take,
                                         "the IDX data", err),
                   out);
    }
    COPSE__TRY(copse__input_expect_end(rest->input, "the IDX data", err), out);
    if (copse__host_is_little())
        copse__swap_bytes(rest->data, rest->element_bytes,
                          rest->bytes / rest->element_bytes);
out:
    copse__input_close(rest->input);
    rest->input = NULL;
    return status;
}

static copse_status read_file(copse__array *array, const char *path, size_t limit,
                              copse_error *err) {
    body rest = {0};
    copse_status status = open_file(&rest, array, path, limit, err);
    return status == COPSE_OK ? read_body(&rest, NULL, err) : status;
}

static copse_status read_files(copse__array **out, const copse__paths *paths,
                               size_t *limit, copse_error *err) {
    copse_status status = copse__calloc(out, paths->count, sizeof **out, err);
    for (size_t i = 0; i < paths->count && status == COPSE_OK; i++) {
        status = read_file(&(*out)[i], paths->items[i], *limit, err);
        if (status == COPSE_OK)
            *limit -= (*out)[i].bytes;
    }
    return status;
}

static void free_arrays(copse__array *arrays, size_t n) {
    for (size_t i = 0; arrays && i < n; i++)
        copse__array_free(&arrays[i]);
    free(arrays);
}

/* Grey images get the channel that layers expect. */
static void add_channel(copse_dataset *set) {
    if (set->features.rank == 2)
        set->features.shape[set->features.rank++] = 1;
}

/* ---- Behind the opening ---------------------------------------------------------------- */

static copse_status arrive(void *user, const atomic_bool *stop, copse_error *err) {
    body *rest = user;
    copse_status status = read_body(rest, stop, err);
    free(rest);
    return status;
}

/* One file of features, compressed: it takes long to unpack, and what it holds is known from its header. */
static copse_status open_features(copse__array **features, body **later,
                                  const copse__found_files *files, size_t *limit,
                                  copse_error *err) {
    body *rest;
    if (!files->ahead || files->paths.count != 1)
        return read_files(features, &files->paths, limit, err);
    copse_status status = copse__calloc(features, 1, sizeof **features, err);
    if (status == COPSE_OK)
        status = copse__calloc(&rest, 1, sizeof *rest, err);
    if (status != COPSE_OK)
        return status;
    status = open_file(rest, *features, files->paths.items[0], *limit, err);
    if (status == COPSE_OK && !copse__input_packed(rest->input))
        status = read_body(rest, NULL, err);
    else if (status == COPSE_OK)
        *later = rest;
    if (!*later)
        free(rest);
    if (status == COPSE_OK)
        *limit -= (*features)[0].bytes;
    return status;
}

copse_status copse__idx_open(copse_dataset **out, const copse_data_source *source,
                             const copse__found_files *files, copse_error *err) {
    copse__array *features = NULL, *labels = NULL;
    copse_dataset *set = NULL;
    body *later = NULL;
    size_t limit = copse__memory_limit(source->memory_limit_bytes);
    copse_status status = copse__table_new(&set, files->paths.items[0], err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(open_features(&features, &later, files, &limit, err), out);
    if (files->label_paths.count)
        COPSE__TRY(read_files(&labels, &files->label_paths, &limit, err), out);
    COPSE__TRY(copse__table_fill(set, features, labels, files, err), out);
    add_channel(set);
    if (later) {
        copse__table *table = set->state;
        COPSE__TRY(copse__arrival_new(&table->arrival, arrive, later, err), out);
        later = NULL;
    }
    *out = set;
    set = NULL;
out:
    if (later)
        copse__input_close(later->input);
    free(later);
    free_arrays(features, files->paths.count);
    free_arrays(labels, files->label_paths.count);
    copse_dataset_close(set);
    return status;
}
