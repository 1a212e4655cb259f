/* SPDX-License-Identifier: Apache-2.0 */
#include "io/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "elements are read as they lie in memory");

struct copse__safetensors {
    char *path;
    int fd;
    json_t *header; /* owns the names and notes */
    copse__safetensors_entry *entries;
    size_t count;
    size_t *by_name; /* indices of entries, sorted by name */
};

static const struct {
    const char *name;
    size_t bytes;
    bool known;
    copse_dtype dtype;
} types[] = {{"F32", 4, true, COPSE_F32},     {"F16", 2, true, COPSE_F16},
             {"F64", 8, true, COPSE_F64},     {"U8", 1, true, COPSE_U8},
             {"I8", 1, true, COPSE_I8},       {"U16", 2, true, COPSE_U16},
             {"I16", 2, true, COPSE_I16},     {"U32", 4, true, COPSE_U32},
             {"I32", 4, true, COPSE_I32},     {"U64", 8, true, COPSE_U64},
             {"I64", 8, true, COPSE_I64},     {"BF16", 2, false, COPSE_F32},
             {"BOOL", 1, false, COPSE_U8},    {"F8_E5M2", 1, false, COPSE_U8},
             {"F8_E4M3", 1, false, COPSE_U8}, {"C64", 8, false, COPSE_U64}};

static copse_status damaged(const copse__safetensors *file, copse_error *err,
                            const char *what) {
    return copse__fail(err, COPSE_FORMAT, 0, file->path, "%s; take another copy of it",
                       what);
}

static copse_status damaged_tensor(const copse__safetensors *file, const char *name,
                                   copse_error *err, const char *what) {
    return copse__fail(err, COPSE_FORMAT, 0, file->path,
                       "the tensor '%.100s' %s; take another copy of it", name, what);
}

static copse_status read_at(const copse__safetensors *file, void *out, size_t bytes,
                            uint64_t offset, copse_error *err) {
    char *to = out;
    while (bytes > 0) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return copse__fail(err, COPSE_IO, errno, file->path, "cannot read it: %s",
                               strerror(errno));
        if (got == 0)
            return damaged(file, err, "it is shorter than it says");
        to += got;
        offset += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return COPSE_OK;
}

/* Hostile JSON costs far more memory than its text: containers and values are counted first. */
static bool is_modest(const char *text, size_t bytes) {
    size_t containers = 0, values = 0;
    bool quoted = false;
    for (size_t i = 0; i < bytes; i++) {
        if (quoted && text[i] == '\\')
            i++;
        else if (text[i] == '"')
            quoted = !quoted;
        else if (!quoted) {
            containers += text[i] == '{' || text[i] == '[';
            values += text[i] == ',';
        }
    }
    return containers <= 3 * (size_t)COPSE__SAFETENSORS_MAX_TENSORS + 2 &&
           values <= 10 * (size_t)COPSE__SAFETENSORS_MAX_TENSORS;
}

static copse_status load_header(copse__safetensors *file, uint64_t *data_start,
                                uint64_t *file_bytes, copse_error *err) {
    struct stat info;
    uint64_t length;
    char *text = NULL;
    json_error_t detail;
    copse_status status;
    if (fstat(file->fd, &info) != 0)
        return copse__fail(err, COPSE_IO, errno, file->path, "cannot read it: %s",
                           strerror(errno));
    if (!S_ISREG(info.st_mode))
        return copse__fail(err, COPSE_IO, 0, file->path, "it is not a file");
    *file_bytes = (uint64_t)info.st_size;
    if (*file_bytes < 8)
        return damaged(file, err, "it is too short to be a safetensors file");
    COPSE__TRY(read_at(file, &length, 8, 0, err), out);
    if (length > *file_bytes - 8)
        return damaged(file, err, "its header is longer than the file");
    if (length > COPSE__SAFETENSORS_MAX_HEADER)
        return damaged(file, err, "its header is larger than 16 MiB");
    COPSE__TRY(copse__calloc(&text, (size_t)length + 1, 1, err), out);
    COPSE__TRY(read_at(file, text, (size_t)length, 8, err), out);
    *data_start = 8 + length;
    if (length == 0 || text[0] != '{') {
        status = damaged(file, err, "it is not a safetensors file");
    } else if (!is_modest(text, (size_t)length)) {
        status = damaged(file, err, "its header names more than 100000 tensors");
    } else {
        file->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &detail);
        if (!file->header)
            status = copse__fail(err, COPSE_FORMAT, 0, file->path,
                                 "its header is not JSON: %.200s at byte %d; take "
                                 "another copy of it",
                                 detail.text, detail.position + 8);
        else if (!json_is_object(file->header))
            status = damaged(file, err, "its header is not a JSON object");
    }
out:
    free(text);
    return status;
}

/* A JSON integer that is not negative. */
static bool get_size(const json_t *value, uint64_t *out) {
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static copse_status read_dtype(const copse__safetensors *file,
                               copse__safetensors_entry *entry, const json_t *value,
                               size_t *element_bytes, copse_error *err) {
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < COPSE__COUNT(types); i++) {
        if (strcmp(types[i].name, name) != 0)
            continue;
        entry->dtype_name = types[i].name;
        entry->known = types[i].known;
        entry->dtype = types[i].dtype;
        *element_bytes = types[i].bytes;
        return COPSE_OK;
    }
    return copse__fail(err, COPSE_FORMAT, 0, file->path,
                       "the tensor '%.100s' has the unknown type '%.40s'", entry->name,
                       name ? name : "(not text)");
}

static copse_status read_shape(const copse__safetensors *file,
                               copse__safetensors_entry *entry, const json_t *shape,
                               copse_error *err) {
    if (!json_is_array(shape))
        return damaged_tensor(file, entry->name, err, "has no shape");
    entry->rank = json_array_size(shape);
    if (entry->rank > COPSE_MAX_RANK)
        return damaged_tensor(file, entry->name, err, "has more than 6 dimensions");
    entry->elements = 1;
    for (size_t d = 0; d < entry->rank; d++) {
        uint64_t size;
        if (!get_size(json_array_get(shape, d), &size) || size > SIZE_MAX ||
            !copse__mul_size(entry->elements, (size_t)size, &entry->elements))
            return damaged_tensor(file, entry->name, err, "has an impossible shape");
        entry->shape[d] = (size_t)size;
    }
    return COPSE_OK;
}

static copse_status read_entry(const copse__safetensors *file,
                               copse__safetensors_entry *entry, const char *name,
                               const json_t *value, uint64_t data_start,
                               uint64_t data_bytes, copse_error *err) {
    entry->name = name;
    if (!json_is_object(value) || json_object_size(value) != 3)
        return damaged_tensor(file, name, err,
                              "is not described by dtype, shape and data_offsets");
    size_t element_bytes = 0, bytes;
    copse_status status =
        read_dtype(file, entry, json_object_get(value, "dtype"), &element_bytes, err);
    if (status == COPSE_OK)
        status = read_shape(file, entry, json_object_get(value, "shape"), err);
    if (status != COPSE_OK)
        return status;
    const json_t *offsets = json_object_get(value, "data_offsets");
    uint64_t begin, end;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_size(json_array_get(offsets, 0), &begin) ||
        !get_size(json_array_get(offsets, 1), &end) || begin > end || end > data_bytes)
        return damaged_tensor(file, name, err, "lies outside the file");
    if (!copse__mul_size(entry->elements, element_bytes, &bytes) || bytes != end - begin)
        return damaged_tensor(file, name, err,
                              "has a shape and type that do not fit its bytes");
    entry->bytes = bytes;
    entry->offset = data_start + begin;
    return COPSE_OK;
}

static int compare_offsets(const void *a, const void *b) {
    const copse__safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) /* empty ones first, so that ranges join */
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Every byte belongs to exactly one tensor. */
static copse_status check_cover(const copse__safetensors *file, uint64_t data_start,
                                uint64_t file_bytes, copse_error *err) {
    uint64_t at = data_start;
    for (size_t i = 0; i < file->count; i++) {
        const copse__safetensors_entry *entry = &file->entries[i];
        if (entry->offset < at)
            return damaged_tensor(file, entry->name, err, "overlaps another one");
        if (entry->offset > at)
            return damaged_tensor(file, entry->name, err, "has a hole before it");
        at += entry->bytes;
    }
    if (at != file_bytes)
        return damaged(file, err, "bytes at its end belong to no tensor");
    return COPSE_OK;
}

static copse_status check_notes(const copse__safetensors *file, json_t *notes,
                                copse_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(notes))
        return damaged(file, err, "its __metadata__ is not an object");
    json_object_foreach(notes, key, value) {
        if (!json_is_string(value))
            return damaged(file, err, "its __metadata__ holds something else than text");
    }
    return COPSE_OK;
}

static int compare_by_name(const void *a, const void *b, void *entries) {
    const copse__safetensors_entry *all = entries;
    return strcmp(all[*(const size_t *)a].name, all[*(const size_t *)b].name);
}

static copse_status read_entries(copse__safetensors *file, uint64_t data_start,
                                 uint64_t file_bytes, copse_error *err) {
    copse_status status;
    const char *name;
    json_t *value;
    size_t capacity = json_object_size(file->header);
    COPSE__TRY(copse__calloc(&file->entries, capacity, sizeof *file->entries, err), out);
    COPSE__TRY(copse__calloc(&file->by_name, capacity, sizeof *file->by_name, err), out);
    json_object_foreach(file->header, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            COPSE__TRY(check_notes(file, value, err), out);
        else
            COPSE__TRY(read_entry(file, &file->entries[file->count++], name, value,
                                  data_start, file_bytes - data_start, err),
                       out);
    }
    if (file->count > 0)
        qsort(file->entries, file->count, sizeof *file->entries, compare_offsets);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = i;
    if (file->count > 0)
        qsort_r(file->by_name, file->count, sizeof *file->by_name, compare_by_name,
                file->entries);
    status = check_cover(file, data_start, file_bytes, err);
out:
    return status;
}

copse_status copse__safetensors_open(copse__safetensors **out, const char *path,
                                     copse_error *err) {
    *out = NULL;
    copse__safetensors *file;
    copse_status status = copse__calloc(&file, 1, sizeof *file, err);
    if (status != COPSE_OK)
        return status;
    uint64_t data_start = 0, file_bytes = 0;
    file->fd = -1;
    COPSE__TRY(copse__strdup(&file->path, path, err), fail);
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0) {
        status = copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                             strerror(errno));
        goto fail;
    }
    COPSE__TRY(load_header(file, &data_start, &file_bytes, err), fail);
    COPSE__TRY(read_entries(file, data_start, file_bytes, err), fail);
    *out = file;
    return COPSE_OK;
fail:
    copse__safetensors_close(file);
    return status;
}

void copse__safetensors_close(copse__safetensors *file) {
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    json_decref(file->header);
    free(file->entries);
    free(file->by_name);
    free(file->path);
    free(file);
}

size_t copse__safetensors_count(const copse__safetensors *file) {
    return file->count;
}

const copse__safetensors_entry *copse__safetensors_get(const copse__safetensors *file,
                                                       size_t index) {
    return &file->entries[index];
}

const copse__safetensors_entry *copse__safetensors_find(const copse__safetensors *file,
                                                        const char *name) {
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const copse__safetensors_entry *entry = &file->entries[file->by_name[middle]];
        int order = strcmp(name, entry->name);
        if (order == 0)
            return entry;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *copse__safetensors_note_of(const copse__safetensors *file, const char *key) {
    return json_string_value(
        json_object_get(json_object_get(file->header, "__metadata__"), key));
}

copse_status copse__safetensors_read(const copse__safetensors *file,
                                     const copse__safetensors_entry *entry, void *out,
                                     copse_error *err) {
    return read_at(file, out, entry->bytes, entry->offset, err);
}

/* bfloat16 is the upper half of a single. */
static float from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Converts in pieces, so that no second copy of the tensor is needed. */
static copse_status read_wider(const copse__safetensors *file,
                               const copse__safetensors_entry *entry, float *out,
                               copse_error *err) {
    enum { PIECE = 4096 };
    union {
        double wide[PIECE];
        uint16_t half[PIECE];
    } from;
    bool wide = entry->dtype == COPSE_F64;
    bool brain = !entry->known;
    size_t size = wide ? sizeof(double) : sizeof(uint16_t);
    for (size_t at = 0; at < entry->elements; at += PIECE) {
        size_t count = copse__min_size(PIECE, entry->elements - at);
        copse_status status =
            read_at(file, &from, count * size, entry->offset + at * size, err);
        if (status != COPSE_OK)
            return status;
        for (size_t i = 0; i < count; i++)
            out[at + i] = wide    ? (float)from.wide[i]
                          : brain ? from_bfloat16(from.half[i])
                                  : copse__half_to_float(from.half[i]);
    }
    return COPSE_OK;
}

copse_status copse__safetensors_read_float(const copse__safetensors *file,
                                           const copse__safetensors_entry *entry,
                                           float *out, copse_error *err) {
    if (strcmp(entry->dtype_name, "F32") == 0)
        return copse__safetensors_read(file, entry, out, err);
    if (strcmp(entry->dtype_name, "F16") == 0 || strcmp(entry->dtype_name, "F64") == 0 ||
        strcmp(entry->dtype_name, "BF16") == 0)
        return read_wider(file, entry, out, err);
    return copse__fail(err, COPSE_UNSUPPORTED, 0, file->path,
                       "the tensor '%.100s' is of type %s, not of a floating-point one",
                       entry->name, entry->dtype_name);
}
