/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: 8 bytes of header length (little-endian), a JSON header, the tensors' bytes.
 * https://huggingface.co/docs/safetensors */
#ifndef COPSE_IO_SAFETENSORS_H
#define COPSE_IO_SAFETENSORS_H

#include <copse/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A header larger than this is refused (the format allows 100 MB; real ones are far smaller). */
#define COPSE__SAFETENSORS_MAX_HEADER ((size_t)16 << 20)
#define COPSE__SAFETENSORS_MAX_TENSORS 100000

/* ---- Writing ---- */

typedef struct copse__safetensor {
    const char *name;
    copse_dtype dtype;
    size_t rank;
    size_t shape[COPSE_MAX_RANK]; /* row-major */
    const void *data;             /* its elements; may be NULL where there are none */
} copse__safetensor;

typedef struct copse__safetensors_note {
    const char *key, *value; /* of __metadata__ */
} copse__safetensors_note;

/* A whole file, atomically. The elements stand by falling element size, equal sizes in the given
 * order, so that each tensor is aligned. Names must differ. */
copse_status copse__safetensors_write(const char *path, const copse__safetensor *tensors,
                                      size_t count, const copse__safetensors_note *notes,
                                      size_t note_count, copse_error *err);

/* ---- Reading ---- */

typedef struct copse__safetensors_entry {
    const char *name;
    const char *dtype_name; /* "F32", as in the file */
    bool known;             /* dtype is set; false for BF16, BOOL and 8-bit floats */
    copse_dtype dtype;
    size_t rank;
    size_t shape[COPSE_MAX_RANK];
    size_t elements, bytes;
    uint64_t offset; /* from the file's start */
} copse__safetensors_entry;

typedef struct copse__safetensors copse__safetensors;

/* Reads and checks the header; tensors are read one by one when asked for. COPSE_IO where the
 * file cannot be read, COPSE_FORMAT where anything about it is wrong: every byte after the header
 * must belong to exactly one tensor. The file stays open. */
copse_status copse__safetensors_open(copse__safetensors **out, const char *path,
                                     copse_error *err);
void copse__safetensors_close(copse__safetensors *file); /* NULL is allowed */

/* In the order of their bytes. Borrowed. */
size_t copse__safetensors_count(const copse__safetensors *file);
const copse__safetensors_entry *copse__safetensors_get(const copse__safetensors *file,
                                                       size_t index);
/* NULL where there is none of this name. */
const copse__safetensors_entry *copse__safetensors_find(const copse__safetensors *file,
                                                        const char *name);
/* A value of __metadata__; NULL where it is not there. Borrowed. */
const char *copse__safetensors_note_of(const copse__safetensors *file, const char *key);

/* The tensor's entry->bytes bytes, as stored. Thread-safe. */
copse_status copse__safetensors_read(const copse__safetensors *file,
                                     const copse__safetensors_entry *entry, void *out,
                                     copse_error *err);

/* The tensor as float32, from F32, F16, BF16 or F64 (rounded to nearest): out has
 * entry->elements of room. COPSE_UNSUPPORTED for other types. */
copse_status copse__safetensors_read_float(const copse__safetensors *file,
                                           const copse__safetensors_entry *entry,
                                           float *out, copse_error *err);

#endif
