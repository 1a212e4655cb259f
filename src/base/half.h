/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_HALF_H
#define COPSE_BASE_HALF_H

#include <stdint.h>

/* IEEE 754 binary16, by its bits. Rounded to nearest even; a NaN stays one. */
uint16_t copse__half_from_float(float value);
/* Exact. */
float copse__half_to_float(uint16_t half);

#endif
