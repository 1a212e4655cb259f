/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_SELFTEST_H
#define COPSE_BACKEND_SELFTEST_H

#include "backend/backend.h"

/* Every operation of a device against the host reference, from one table of cases that the
 * tests and `copse selftest` share: sizes 1, odd, prime and around tiles, and more than one
 * launch may cover; the batch full, partial, 1 and 0; operands with guards around them,
 * outputs, workspace and everything beyond the batch NaN before each run. A NaN is never
 * near a number. Updates, hashes, pooling indices, dropout's choice and sums of two must
 * have equal bits; the rest must be within src/backend/tolerance.h. */

typedef enum copse__selftest_level {
    COPSE__SELFTEST_QUICK, /* each operation once or twice: before a run */
    COPSE__SELFTEST_SMALL, /* for slow devices and interpreters */
    COPSE__SELFTEST_FULL
} copse__selftest_level;

typedef struct copse__selftest_options {
    copse__selftest_level level;
    uint64_t seed;   /* of the operands' values */
    const bool *ops; /* [COPSE__OP_COUNT]: which operations; NULL: all */
} copse__selftest_options;

/* Texts are valid during the call only. */
typedef struct copse__selftest_result {
    copse__op op;
    const char *name;     /* "dense 9x17x33 bias relu" */
    const char *provider; /* what ran; "" where nothing did */
    /* COPSE_OK; COPSE_UNSUPPORTED: the device cannot run this node, text says why;
     * COPSE_KERNEL: wrong numbers or writes outside; else what failed. */
    copse_status status;
    double error; /* worst difference, in parts of what is allowed: up to 1 passes;
                           infinite for a NaN or a wrong bit */
    size_t batch; /* of the run that was worst */
    uint64_t seed;
    const char *text; /* of a result that is not OK: one sentence, else "" */
} copse__selftest_result;

typedef void copse__selftest_fn(const copse__selftest_result *result, void *user);

/* Runs all cases, calling fn (may be NULL) after each, from this thread. device's compute
 * queue must be idle. COPSE_KERNEL where a case was wrong (err names the first; the others
 * ran too). Stops at the first failure of another kind, as the device may be lost then. */
COPSE_CHECKED copse_status copse__selftest_run(copse__device *device,
                                               const copse__selftest_options *options,
                                               copse__selftest_fn *fn, void *user,
                                               copse_error *err);

#endif
