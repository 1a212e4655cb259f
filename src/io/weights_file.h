/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_WEIGHTS_FILE_H
#define COPSE_IO_WEIGHTS_FILE_H

#include <copse/types.h>
#include <stddef.h>

#include "base/error.h"

/* Named arrays of numbers, from a safetensors file or an .npz archive: told apart by the file's
 * first bytes. */
typedef struct copse__weights_file copse__weights_file;

typedef struct copse__weights_item {
    const char *name; /* of an .npz member: without ".npy" */
    size_t rank;
    const size_t *shape; /* row-major */
    size_t elements;
} copse__weights_item;

copse_status copse__weights_open(copse__weights_file **out, const char *path,
                                 copse_error *err);
void copse__weights_close(copse__weights_file *file); /* NULL is allowed */

size_t copse__weights_count(const copse__weights_file *file);
copse__weights_item copse__weights_get(const copse__weights_file *file, size_t index);

/* item's elements as float32, rounded to nearest. COPSE_UNSUPPORTED where they are not of a
 * floating-point type. */
copse_status copse__weights_read(const copse__weights_file *file, size_t index,
                                 float *out, copse_error *err);

#endif
