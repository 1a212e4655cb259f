/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest/compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void note(copse__worst *worst, double error, const char *what, size_t at,
                 double got, double want) {
    if (!(error > worst->error))
        return;
    worst->error = error;
    if (error > 1)
        snprintf(worst->text, sizeof worst->text,
                 "%s, element %zu: %.9g, but the host has %.9g", what, at, got, want);
}

static double largest_of(const float *values, size_t elements) {
    double largest = 0;
    for (size_t i = 0; i < elements; i++)
        if (isfinite(values[i]))
            largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

/* A NaN equals a NaN, whatever its payload, and nothing else; infinities only
 * themselves. */
static double error_of(float got, float want, double largest,
                       copse__tolerance tolerance) {
    bool exact =
        tolerance.relative <= 0 && tolerance.of_largest <= 0 && tolerance.absolute <= 0;
    if ((isnan(got) && isnan(want)) || memcmp(&got, &want, sizeof got) == 0)
        return 0;
    double difference = fabs((double)got - (double)want);
    if (exact || !isfinite(want) || !isfinite(difference))
        return INFINITY;
    if (difference <= 0) /* zeros of unlike sign */
        return 0;
    double allowed = tolerance.relative * fabs((double)want) +
                     tolerance.of_largest * largest + tolerance.absolute;
    return allowed > 0 ? difference / allowed : INFINITY;
}

void copse__compare_floats(copse__worst *worst, const char *what, const float *got,
                           const float *want, size_t elements,
                           copse__tolerance tolerance) {
    double largest = largest_of(want, elements);
    for (size_t i = 0; i < elements; i++)
        note(worst, error_of(got[i], want[i], largest, tolerance), what, i,
             (double)got[i], (double)want[i]);
}

static void compare_bits(copse__worst *worst, const char *what, copse_dtype dtype,
                         const void *got, const void *want, size_t elements) {
    size_t bytes = copse_dtype_bytes(dtype);
    const unsigned char *g = got, *w = want;
    if (dtype == COPSE_F32) {
        copse__compare_floats(worst, what, got, want, elements, (copse__tolerance){0});
        return;
    }
    for (size_t i = 0; i < elements; i++) {
        if (memcmp(g + i * bytes, w + i * bytes, bytes) == 0)
            continue;
        uint64_t shown[2] = {0};
        memcpy(&shown[0], g + i * bytes, bytes);
        memcpy(&shown[1], w + i * bytes, bytes);
        note(worst, INFINITY, what, i, (double)shown[0], (double)shown[1]);
    }
}

static void compare_pattern(copse__worst *worst, const char *what, const float *got,
                            const float *want, size_t elements) {
    for (size_t i = 0; i < elements; i++)
        if ((got[i] == 0) != (want[i] == 0))
            note(worst, INFINITY, what, i, (double)got[i], (double)want[i]);
}

static void compare_sums(copse__worst *worst, const char *what, const uint64_t *got,
                         const uint64_t *want, size_t elements) {
    uint64_t sums[2] = {0};
    for (size_t i = 0; i < elements; i++) {
        sums[0] += got[i];
        sums[1] += want[i];
    }
    if (sums[0] == sums[1])
        return;
    worst->error = INFINITY;
    snprintf(worst->text, sizeof worst->text,
             "%s: the sum is %016" PRIx64 ", but the host has %016" PRIx64, what, sums[0],
             sums[1]);
}

void copse__compare(copse__worst *worst, const copse__case *made, size_t output,
                    const void *got, const void *want, size_t elements) {
    copse__tolerance tolerance = copse__tolerance_of(made->spec.op);
    copse_dtype dtype = made->spec.out[output].dtype;
    char what[16];
    snprintf(what, sizeof what, "output %zu", output);
    switch (made->measure[output]) {
    case COPSE__MEASURE_BITS:
        compare_bits(worst, what, dtype, got, want, elements);
        break;
    case COPSE__MEASURE_PATTERN:
        compare_pattern(worst, what, got, want, elements);
        copse__compare_floats(worst, what, got, want, elements, tolerance);
        break;
    case COPSE__MEASURE_SUM:
        compare_sums(worst, what, got, want, elements);
        break;
    case COPSE__MEASURE_TRUTH:
        for (size_t i = 0; i < elements; i++) {
            uint32_t g = ((const uint32_t *)got)[i], w = ((const uint32_t *)want)[i];
            if ((g == 0) != (w == 0))
                note(worst, INFINITY, what, i, g, w);
        }
        break;
    default:
        copse__compare_floats(worst, what, got, want, elements, tolerance);
        break;
    }
}
