/* SPDX-License-Identifier: Apache-2.0
 *
 * NumPy's .npy, versions 1 to 3 (numpy/lib/format.py): magic, header length, a Python dictionary,
 * the elements. */
#ifndef COPSE_IO_NPY_H
#define COPSE_IO_NPY_H

#include <copse/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "io/input.h"

enum { COPSE__NPY_MAX_RANK = COPSE_MAX_RANK + 1 }; /* samples, and their dimensions */

typedef struct copse__npy {
    copse_dtype dtype; /* booleans are COPSE_U8 */
    bool swapped;      /* the file's byte order is not this machine's */
    bool fortran;
    size_t rank;
    size_t shape[COPSE__NPY_MAX_RANK];
    size_t bytes; /* of all elements */
} copse__npy;

/* Reads magic and header and checks that the file can hold the elements it announces. */
copse_status copse__npy_read_header(copse__npy *npy, copse__input *input,
                                    copse_error *err);

/* Reads the elements into *out (free() it), row-major and in this machine's byte order, and
 * refuses anything after them. */
copse_status copse__npy_read_data(unsigned char **out, const copse__npy *npy,
                                  copse__input *input, copse_error *err);

/* The file's start for row-major elements in little-endian order, version 1, as NumPy writes it.
 * Check the text at the end as usual. */
void copse__npy_format_header(copse__text *out, copse_dtype dtype, size_t rank,
                              const size_t shape[]);

/* A whole .npy, atomically. */
copse_status copse__npy_save(const char *path, copse_dtype dtype, size_t rank,
                             const size_t shape[], const void *data, copse_error *err);

#endif
