/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/json.h"
#include "io/safetensors.h"

/* Such files go past the page cache. */
enum { UNCACHED_BYTES = 4 << 20 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "elements are written as they lie in memory");

typedef struct placed {
    const copse__safetensor *tensor;
    size_t bytes, index;
} placed;

/* By falling element size, then as given; qsort is not stable by itself. */
static int compare_placed(const void *a, const void *b) {
    const placed *x = a, *y = b;
    size_t x_size = copse_dtype_bytes(x->tensor->dtype);
    size_t y_size = copse_dtype_bytes(y->tensor->dtype);
    if (x_size != y_size)
        return x_size > y_size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static copse_status check_names(const char *path, const copse__safetensor *tensors,
                                size_t count, copse_error *err) {
    const char **names;
    copse_status status = copse__calloc(&names, count, sizeof *names, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        names[i] = tensors[i].name;
    if (count > 0)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 0; i < count && status == COPSE_OK; i++)
        if (strcmp(names[i], "__metadata__") == 0 ||
            (i > 0 && strcmp(names[i], names[i - 1]) == 0))
            status = copse__fail(err, COPSE_INVALID, 0, path,
                                 "two tensors cannot both be called '%.100s'", names[i]);
    free(names);
    return status;
}

static copse_status place_tensors(const char *path, const copse__safetensor *tensors,
                                  size_t count, placed *out, copse_error *err) {
    for (size_t i = 0; i < count; i++) {
        size_t bytes = copse_dtype_bytes(tensors[i].dtype);
        bool fits = bytes > 0 && tensors[i].rank <= COPSE_MAX_RANK;
        for (size_t d = 0; d < tensors[i].rank && fits; d++)
            fits = copse__mul_size(bytes, tensors[i].shape[d], &bytes);
        if (!fits)
            return copse__fail(err, COPSE_INVALID, 0, path,
                               "the tensor '%.100s' has an impossible type or shape",
                               tensors[i].name);
        out[i] = (placed){&tensors[i], bytes, i};
    }
    if (count > 0)
        qsort(out, count, sizeof *out, compare_placed);
    return COPSE_OK;
}

static void add_notes(copse__text *header, const copse__safetensors_note *notes,
                      size_t count) {
    copse__text_add(header, "\"__metadata__\":{");
    for (size_t i = 0; i < count; i++) {
        copse__text_add(header, "%s", i > 0 ? "," : "");
        copse__json_text(header, notes[i].key);
        copse__text_add(header, ":");
        copse__json_text(header, notes[i].value);
    }
    copse__text_add(header, "}");
}

static void add_tensor(copse__text *header, const placed *at, uint64_t begin) {
    char dtype[8] = {0};
    const char *name = copse_dtype_name(at->tensor->dtype);
    for (size_t i = 0; name[i] && i + 1 < sizeof dtype; i++)
        dtype[i] = (char)toupper((unsigned char)name[i]);
    copse__json_text(header, at->tensor->name);
    copse__text_add(header, ":{\"dtype\":\"%s\",\"shape\":[", dtype);
    for (size_t d = 0; d < at->tensor->rank; d++)
        copse__text_add(header, "%s%zu", d > 0 ? "," : "", at->tensor->shape[d]);
    copse__text_add(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                    begin + at->bytes);
}

static uint64_t total_bytes(const placed *order, size_t count) {
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += order[i].bytes;
    return total;
}

static void make_header(copse__text *header, const placed *order, size_t count,
                        const copse__safetensors_note *notes, size_t note_count) {
    uint64_t at = 0;
    const char *joint = "";
    copse__text_add_bytes(header, "\0\0\0\0\0\0\0\0", 8); /* the length, later */
    copse__text_add(header, "{");
    if (note_count > 0) {
        add_notes(header, notes, note_count);
        joint = ",";
    }
    for (size_t i = 0; i < count; i++) {
        copse__text_add(header, "%s", joint);
        add_tensor(header, &order[i], at);
        at += order[i].bytes;
        joint = ",";
    }
    copse__text_add(header, "}");
    while (header->length % 8 != 0 && !header->failed)
        copse__text_add(header, " ");
    if (!header->failed) {
        uint64_t length = header->length - 8;
        memcpy(header->data, &length, 8);
    }
}

copse_status copse__safetensors_write(const char *path, const copse__safetensor *tensors,
                                      size_t count, const copse__safetensors_note *notes,
                                      size_t note_count, copse_error *err) {
    placed *order = NULL;
    copse__text header = {0};
    copse__atomic_file *file = NULL;
    copse_status status;
    COPSE__TRY(check_names(path, tensors, count, err), out);
    COPSE__TRY(copse__calloc(&order, count, sizeof *order, err), out);
    COPSE__TRY(place_tensors(path, tensors, count, order, err), out);
    make_header(&header, order, count, notes, note_count);
    COPSE__TRY(copse__text_check(&header, err), out);
    COPSE__TRY(copse__atomic_open(&file, path, err), out);
    if (total_bytes(order, count) >= UNCACHED_BYTES)
        COPSE__TRY(copse__atomic_uncached(file, err), out);
    COPSE__TRY(copse__atomic_write(file, header.data, header.length, err), out);
    for (size_t i = 0; i < count; i++)
        COPSE__TRY(copse__atomic_write(file, order[i].tensor->data, order[i].bytes, err),
                   out);
    status = copse__atomic_commit(file, err);
    file = NULL;
out:
    copse__atomic_abort(file);
    copse__text_free(&header);
    free(order);
    return status;
}
