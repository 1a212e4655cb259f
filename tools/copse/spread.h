/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_SPREAD_H
#define TOOLS_COPSE_SPREAD_H

#include <stddef.h>

#include "base/text.h"

/* What a bench says of the rounds that it measured. */
typedef struct spread {
    double median, least, most;
} spread;

#define SPREAD_MOST 1000

/* Of every stride-th of `count * stride` values; count is 1 to SPREAD_MOST. */
spread spread_of(const double *values, size_t count, size_t stride);

/* ,"name":{"median":…,"min":…,"max":…}, each times `unit`. */
void spread_add(copse__text *out, const char *name, spread s, double unit, int digits);

#endif
