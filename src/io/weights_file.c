/* SPDX-License-Identifier: Apache-2.0 */
#include "io/weights_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "base/pool.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/zip.h"

typedef struct member {
    const char *name;
    size_t entry; /* of the archive */
    copse__npy header;
    size_t elements;
} member;

struct copse__weights_file {
    char *path;
    copse__safetensors *tensors; /* or */
    copse__zip *archive;
    copse__pool pool;
    member *members; /* of the archive */
    size_t member_count;
};

static copse_status starts_like_zip(const char *path, bool *out, copse_error *err) {
    unsigned char start[4] = {0};
    FILE *file = fopen(path, "rbe");
    *out = false;
    if (!file)
        return copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
                           strerror(errno));
    *out = fread(start, 1, 4, file) == 4 && start[0] == 'P' && start[1] == 'K';
    fclose(file);
    return COPSE_OK;
}

static copse_status read_member(copse__weights_file *file, size_t entry,
                                copse_error *err) {
    const copse__zip_entry *found = &file->archive->entries[entry];
    member *made = &file->members[file->member_count];
    copse__input *input;
    size_t length = strlen(found->name);
    if (length < 5 || strcmp(found->name + length - 4, ".npy") != 0)
        return COPSE_OK; /* something else that lies in the archive */
    char *name;
    copse_status status =
        copse__pool_text(&file->pool, &name, found->name, length - 4, err);
    if (status == COPSE_OK)
        status = copse__zip_read(&input, file->archive, found, err);
    if (status != COPSE_OK)
        return status;
    status = copse__npy_read_header(&made->header, input, err);
    copse__input_close(input);
    if (status != COPSE_OK)
        return status;
    made->name = name;
    made->entry = entry;
    made->elements = made->header.bytes / copse_dtype_bytes(made->header.dtype);
    file->member_count++;
    return COPSE_OK;
}

copse_status copse__weights_open(copse__weights_file **out, const char *path,
                                 copse_error *err) {
    *out = NULL;
    bool zipped;
    copse__weights_file *file;
    copse_status status = copse__calloc(&file, 1, sizeof *file, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__strdup(&file->path, path, err), fail);
    COPSE__TRY(starts_like_zip(path, &zipped, err), fail);
    if (!zipped) {
        COPSE__TRY(copse__safetensors_open(&file->tensors, path, err), fail);
    } else {
        COPSE__TRY(copse__zip_open(&file->archive, path, err), fail);
        COPSE__TRY(copse__calloc(&file->members, file->archive->count,
                                 sizeof *file->members, err),
                   fail);
        for (size_t i = 0; i < file->archive->count; i++)
            COPSE__TRY(read_member(file, i, err), fail);
    }
    *out = file;
    return COPSE_OK;
fail:
    copse__weights_close(file);
    return status;
}

void copse__weights_close(copse__weights_file *file) {
    if (!file)
        return;
    copse__safetensors_close(file->tensors);
    copse__zip_close(file->archive);
    copse__pool_free(&file->pool);
    free(file->members);
    free(file->path);
    free(file);
}

size_t copse__weights_count(const copse__weights_file *file) {
    return file->tensors ? copse__safetensors_count(file->tensors) : file->member_count;
}

copse__weights_item copse__weights_get(const copse__weights_file *file, size_t index) {
    if (file->tensors) {
        const copse__safetensors_entry *entry =
            copse__safetensors_get(file->tensors, index);
        return (copse__weights_item){entry->name, entry->rank, entry->shape,
                                     entry->elements};
    }
    const member *found = &file->members[index];
    return (copse__weights_item){found->name, found->header.rank, found->header.shape,
                                 found->elements};
}

static copse_status read_array(const copse__weights_file *file, const member *from,
                               float *out, copse_error *err) {
    copse_dtype dtype = from->header.dtype;
    if (dtype != COPSE_F32 && dtype != COPSE_F64 && dtype != COPSE_F16)
        return copse__fail(
            err, COPSE_UNSUPPORTED, 0, file->path,
            "the array '%.100s' is of type %s, not of a floating-point one", from->name,
            copse_dtype_name(dtype));
    copse__input *input = NULL;
    unsigned char *data = NULL;
    copse__npy header;
    const copse__zip_entry *entry = &file->archive->entries[from->entry];
    copse_status status;
    COPSE__TRY(copse__zip_read(&input, file->archive, entry, err), out);
    COPSE__TRY(copse__npy_read_header(&header, input, err), out);
    COPSE__TRY(copse__npy_read_data(&data, &header, input, err), out);
    COPSE__TRY(copse__zip_check(input, entry, err), out);
    if (header.dtype != dtype || header.bytes != from->header.bytes) {
        status = copse__fail(err, COPSE_FORMAT, 0, file->path,
                             "it was changed while it was read");
        goto out;
    }
    for (size_t i = 0; i < from->elements; i++) {
        double wide;
        uint16_t half;
        if (dtype == COPSE_F32) {
            memcpy(&out[i], data + i * 4, 4);
        } else if (dtype == COPSE_F64) {
            memcpy(&wide, data + i * 8, 8);
            out[i] = (float)wide;
        } else {
            memcpy(&half, data + i * 2, 2);
            out[i] = copse__half_to_float(half);
        }
    }
out:
    free(data);
    copse__input_close(input);
    return status;
}

copse_status copse__weights_read(const copse__weights_file *file, size_t index,
                                 float *out, copse_error *err) {
    return file->tensors ? copse__safetensors_read_float(
                               file->tensors,
                               copse__safetensors_get(file->tensors, index), out, err)
                         : read_array(file, &file->members[index], out, err);
}
