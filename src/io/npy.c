/* SPDX-License-Identifier: Apache-2.0 */
#include "io/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "io/bytes.h"

#define HEADER_MOST ((size_t)64 << 10)

static const struct {
    const char *code; /* as after the byte order in descr */
    copse_dtype dtype;
} npy_types[] = {
    {"f4", COPSE_F32}, {"f2", COPSE_F16}, {"f8", COPSE_F64}, {"u1", COPSE_U8},
    {"i1", COPSE_I8},  {"u2", COPSE_U16}, {"i2", COPSE_I16}, {"u4", COPSE_U32},
    {"i4", COPSE_I32}, {"u8", COPSE_U64}, {"i8", COPSE_I64}, {"b1", COPSE_U8},
};

/* ---- The dictionary ------------------------------------------------------------------- */

typedef struct parser {
    const char *at, *end;
    const char *path;
    size_t file_at; /* of the text's first byte */
    const char *start;
} parser;

static copse_status bad(const parser *p, const char *what, copse_error *err) {
    return copse__fail(err, COPSE_FORMAT, 0, p->path,
                       "the NPY header is damaged at byte %zu: %s",
                       p->file_at + (size_t)(p->at - p->start), what);
}

static void skip_space(parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t'))
        p->at++;
}

static bool take(parser *p, char c) {
    skip_space(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* A quoted text without escapes, which NumPy never writes; cut to fit out. */
static bool take_text(parser *p, char *out, size_t bytes) {
    skip_space(p);
    if (p->at == p->end || (*p->at != '\'' && *p->at != '"'))
        return false;
    char quote = *p->at++;
    size_t n = 0;
    while (p->at < p->end && *p->at != quote) {
        if (n + 1 < bytes)
            out[n++] = *p->at;
        p->at++;
    }
    out[n] = '\0';
    return take(p, quote);
}

static bool take_word(parser *p, const char *word) {
    skip_space(p);
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool take_size(parser *p, size_t *out) {
    skip_space(p);
    if (p->at == p->end || *p->at < '0' || *p->at > '9')
        return false;
    size_t value = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (!copse__mul_size(value, 10, &value) ||
            !copse__add_size(value, (size_t)(*p->at - '0'), &value))
            return false;
    if (p->at < p->end && *p->at == 'L') /* Python 2 */
        p->at++;
    *out = value;
    return true;
}

static copse_status parse_descr(parser *p, copse__npy *npy, copse_error *err) {
    char text[32];
    if (!take_text(p, text, sizeof text))
        return bad(
            p, "the element type is not a plain one (a record?); save plain arrays", err);
    bool plain = text[0] == '|' || text[0] == '=' || text[0] == '<' || text[0] == '>';
    for (size_t i = 0; plain && i < COPSE__COUNT(npy_types); i++) {
        if (strcmp(text + 1, npy_types[i].code) != 0)
            continue;
        npy->dtype = npy_types[i].dtype;
        npy->swapped = (text[0] == '<' && !copse__host_is_little()) ||
                       (text[0] == '>' && copse__host_is_little());
        return COPSE_OK;
    }
    return copse__fail(err, COPSE_FORMAT, 0, p->path,
                       "its element type '%s' cannot be used; save integers, booleans or "
                       "floats of at most 64 bits",
                       text);
}

static copse_status parse_shape(parser *p, copse__npy *npy, copse_error *err) {
    if (!take(p, '('))
        return bad(p, "the shape is no tuple", err);
    while (!take(p, ')')) {
        size_t size;
        if (!take_size(p, &size))
            return bad(p, "the shape has something else than a size in it", err);
        if (npy->rank == COPSE__NPY_MAX_RANK)
            return copse__fail(err, COPSE_FORMAT, 0, p->path,
                               "it has more than the %d dimensions that can be used",
                               COPSE__NPY_MAX_RANK);
        npy->shape[npy->rank++] = size;
        if (!take(p, ',') && !(p->at < p->end && *p->at == ')'))
            return bad(p, "a comma is missing in the shape", err);
    }
    return COPSE_OK;
}

static copse_status parse_dictionary(parser *p, copse__npy *npy, copse_error *err) {
    bool descr = false, order = false, shape = false;
    if (!take(p, '{'))
        return bad(p, "it does not start with '{'", err);
    while (!take(p, '}')) {
        char key[32];
        if (!take_text(p, key, sizeof key) || !take(p, ':'))
            return bad(p, "a key is missing", err);
        copse_status status = COPSE_OK;
        if (strcmp(key, "descr") == 0 && !descr) {
            descr = true;
            status = parse_descr(p, npy, err);
        } else if (strcmp(key, "fortran_order") == 0 && !order) {
            order = true;
            npy->fortran = take_word(p, "True");
            if (!npy->fortran && !take_word(p, "False"))
                return bad(p, "fortran_order is neither True nor False", err);
        } else if (strcmp(key, "shape") == 0 && !shape) {
            shape = true;
            status = parse_shape(p, npy, err);
        } else {
            return bad(p, "a key is unknown or there twice", err);
        }
        if (status != COPSE_OK)
            return status;
        skip_space(p);
        if (!take(p, ',') && !(p->at < p->end && *p->at == '}'))
            return bad(p, "a comma is missing", err);
    }
    skip_space(p);
    if (!descr || !order || !shape || p->at != p->end)
        return bad(p, "descr, fortran_order or shape is missing, or something follows",
                   err);
    return COPSE_OK;
}

static copse_status set_size(copse__npy *npy, copse__input *input, copse_error *err) {
    size_t bytes = copse_dtype_bytes(npy->dtype);
    bool fits = true;
    for (size_t i = 0; fits && i < npy->rank; i++)
        fits = copse__mul_size(bytes, npy->shape[i], &bytes);
    if (!fits || bytes > copse__input_most(input))
        return copse__fail(err, COPSE_FORMAT, 0, copse__input_path(input),
                           "its header announces more data than the file can hold; fetch "
                           "the file again");
    npy->bytes = bytes;
    return COPSE_OK;
}

copse_status copse__npy_read_header(copse__npy *npy, copse__input *input,
                                    copse_error *err) {
    *npy = (copse__npy){0};
    unsigned char start[12];
    char *text = NULL;
    const char *path = copse__input_path(input);
    copse_status status = copse__input_read_all(input, start, 8, "the NPY header", err);
    if (status != COPSE_OK)
        return status;
    if (memcmp(start, "\x93NUMPY", 6) != 0)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "it is no NPY file: it does not start with \\x93NUMPY; check "
                           "the path");
    if (start[6] < 1 || start[6] > 3 || start[7] != 0)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "its NPY version %u.%u is unknown; 1.0 to 3.0 can be read",
                           start[6], start[7]);
    size_t length_bytes = start[6] == 1 ? 2 : 4;
    status = copse__input_read_all(input, start + 8, length_bytes, "the NPY header", err);
    if (status != COPSE_OK)
        return status;
    size_t bytes = length_bytes == 2 ? copse__le16(start + 8) : copse__le32(start + 8);
    if (bytes > HEADER_MOST)
        return copse__fail(err, COPSE_FORMAT, 0, path,
                           "its header of %zu bytes is longer than any plain array's; "
                           "fetch the file again",
                           bytes);
    COPSE__TRY(copse__calloc(&text, bytes, 1, err), out);
    COPSE__TRY(copse__input_read_all(input, text, bytes, "the NPY header", err), out);
    parser p = {text, text + bytes, path, 8 + length_bytes, text};
    COPSE__TRY(parse_dictionary(&p, npy, err), out);
    COPSE__TRY(set_size(npy, input, err), out);
out:
    free(text);
    return status;
}

/* ---- The elements --------------------------------------------------------------------- */

static void swap_elements(unsigned char *data, size_t element, size_t bytes) {
    for (unsigned char *at = data, *end = data + bytes; at < end; at += element)
        for (size_t low = 0, high = element - 1; low < high; low++, high--) {
            unsigned char kept = at[low];
            at[low] = at[high];
            at[high] = kept;
        }
}

/* Column-major to row-major: walks the output in order with a counter a dimension. */
static void transpose(unsigned char *out, const unsigned char *in,
                      const copse__npy *npy) {
    size_t element = copse_dtype_bytes(npy->dtype), stride[COPSE__NPY_MAX_RANK];
    size_t counter[COPSE__NPY_MAX_RANK] = {0}, step = element;
    for (size_t i = 0; i < npy->rank; i++) {
        stride[i] = step;
        step *= npy->shape[i];
    }
    const unsigned char *from = in;
    for (unsigned char *end = out + npy->bytes; out < end; out += element) {
        memcpy(out, from, element);
        for (size_t i = npy->rank; i-- > 0;) {
            from += stride[i];
            if (++counter[i] < npy->shape[i])
                break;
            from -= stride[i] * npy->shape[i];
            counter[i] = 0;
        }
    }
}

copse_status copse__npy_read_data(unsigned char **out, const copse__npy *npy,
                                  copse__input *input, copse_error *err) {
    *out = NULL;
    unsigned char *data = malloc(npy->bytes ? npy->bytes : 1), *rows = NULL;
    if (!data)
        return copse__fail_nomem(err, npy->bytes);
    copse_status status = COPSE_OK;
    COPSE__TRY(copse__input_read_all(input, data, npy->bytes, "the NPY data", err), out);
    COPSE__TRY(copse__input_expect_end(input, "the NPY data", err), out);
    size_t element = copse_dtype_bytes(npy->dtype);
    if (npy->swapped)
        swap_elements(data, element, npy->bytes);
    if (npy->fortran && npy->rank > 1 && npy->bytes > 0) {
        rows = malloc(npy->bytes);
        if (!rows) {
            status = copse__fail_nomem(err, npy->bytes);
            goto out;
        }
        transpose(rows, data, npy);
        *out = rows;
    } else {
        *out = data;
        data = NULL;
    }
out:
    free(data);
    return status;
}

/* ---- Writing -------------------------------------------------------------------------- */

void copse__npy_format_header(copse__text *out, copse_dtype dtype, size_t rank,
                              const size_t shape[]) {
    const char *code = NULL;
    for (size_t i = 0; !code && i < COPSE__COUNT(npy_types); i++)
        if (npy_types[i].dtype == dtype)
            code = npy_types[i].code;
    copse__text made = {0};
    copse__text_add(&made, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                    copse_dtype_bytes(dtype) == 1 ? '|' : '<', code);
    for (size_t i = 0; i < rank; i++)
        copse__text_add(&made, "%s%zu", i ? ", " : "", shape[i]);
    copse__text_add(&made, rank == 1 ? ",), }" : "), }");
    /* Data starts at a multiple of 64. */
    size_t used = 10 + made.length + 1, padding = copse__round_up(used, 64) - used;
    size_t bytes = made.length + padding + 1;
    const unsigned char start[] = {0x93,
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   (unsigned char)bytes,
                                   (unsigned char)(bytes >> 8)};
    copse__text_add_bytes(out, (const char *)start, sizeof start);
    if (made.failed)
        out->failed = true;
    else
        copse__text_add(out, "%s%*s\n", made.data, (int)padding, "");
    copse__text_free(&made);
}

copse_status copse__npy_save(const char *path, copse_dtype dtype, size_t rank,
                             const size_t shape[], const void *data, copse_error *err) {
    copse__text header = {0};
    copse__atomic_file *file = NULL;
    size_t bytes = copse_dtype_bytes(dtype);
    for (size_t i = 0; i < rank; i++)
        if (!copse__mul_size(bytes, shape[i], &bytes))
            return copse__fail(err, COPSE_INVALID, 0, path, "the array is too large");
    copse__npy_format_header(&header, dtype, rank, shape);
    copse_status status = COPSE_OK;
    COPSE__TRY(copse__text_check(&header, err), out);
    COPSE__TRY(copse__atomic_open(&file, path, err), out);
    COPSE__TRY(copse__atomic_write(file, header.data, header.length, err), out);
    COPSE__TRY(copse__atomic_write(file, data, bytes, err), out);
    status = copse__atomic_commit(file, err);
    file = NULL;
out:
    copse__atomic_abort(file);
    copse__text_free(&header);
    return status;
}
