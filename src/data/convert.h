/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_CONVERT_H
#define COPSE_DATA_CONVERT_H

#include <copse/types.h>
#include <stdbool.h>
#include <stddef.h>

/* What labels of a type are delivered as: COPSE_I32 for integers, COPSE_F32 for floating
 * ones. */
copse_dtype copse__label_dtype(copse_dtype dtype);

/* Converts count elements from one type to COPSE_I32 or COPSE_F32. Integers are exact or
 * refused: false, and *bad is the first element that does not fit (a fraction or a NaN
 * where i32 is asked for, too). Floating point rounds to nearest. The buffers do not
 * overlap. */
bool copse__convert(copse_dtype to, void *out, copse_dtype from, const void *in,
                    size_t count, size_t *bad);

/* One element as a double (64-bit integers lose their last bits beyond 2^53). */
double copse__get_number(copse_dtype dtype, const void *element);

/* Reverses the bytes of each of count elements. */
void copse__swap_bytes(void *data, size_t element_bytes, size_t count);

#endif
