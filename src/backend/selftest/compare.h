/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_SELFTEST_COMPARE_H
#define COPSE_BACKEND_SELFTEST_COMPARE_H

#include "backend/selftest/cases.h"
#include "backend/tolerance.h"

/* The worst of the compared elements so far. error: in parts of what is allowed. Start
 * from {0}. */
typedef struct copse__worst {
    double error;
    char text[160]; /* what is wrong, where error is above 1 */
} copse__worst;

/* Compares `elements` of a device's output with the host's. */
void copse__compare(copse__worst *worst, const copse__case *made, size_t output,
                    const void *got, const void *want, size_t elements);

/* float32 results against wanted ones, within a tolerance; used by tests of whole models
 * too. `what` names them in worst->text. */
void copse__compare_floats(copse__worst *worst, const char *what, const float *got,
                           const float *want, size_t elements,
                           copse__tolerance tolerance);

#endif
