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

/* All runs of a case on a device and on the reference; worst starts from {0}. result's op, name and seed are
 * set; its batch becomes that of the worst run. provider: who ran it. */
COPSE_CHECKED copse_status copse__case_run(copse__device *device, copse__device *host,
                                           const copse__case *made,
                                           copse__selftest_result *result,
                                           copse__worst *worst, char provider[static 64],
                                           copse_error *err);

#endif
