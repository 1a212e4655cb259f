/* SPDX-License-Identifier: Apache-2.0 */
#include "spread.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

spread spread_of(const double *values, size_t count, size_t stride) {
    double sorted[SPREAD_MOST];
    for (size_t i = 0; i < count; i++)
        sorted[i] = values[i * stride];
    qsort(sorted, count, sizeof *sorted, by_value);
    double middle =
        count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    return (spread){middle, sorted[0], sorted[count - 1]};
}

void spread_add(copse__text *out, const char *name, spread s, double unit, int digits) {
    copse__text_add(out, ",\"%s\":{\"median\":%.*f,\"min\":%.*f,\"max\":%.*f}", name,
                    digits, s.median * unit, digits, s.least * unit, digits,
                    s.most * unit);
}
