/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_OP_RUN_H
#define TESTS_SUPPORT_OP_RUN_H

#include "backend/node_run.h"
#include "support/check.h"

/* Runs single operations in tests; fails the test where one fails. */

/* A tensor's shape: FIXED(COPSE_F32, 3, 4) or, with the first dimension the batch,
 * BATCHED(COPSE_F32, 8, 4). */
copse__node_operand operand_of(copse_dtype dtype, bool batched, size_t rank,
                               const size_t *dims);
#define DIMS_(...)                                                                       \
    (size_t[]) {                                                                         \
        __VA_ARGS__                                                                      \
    }
#define FIXED(dtype, ...)                                                                \
    operand_of((dtype), false, sizeof(DIMS_(__VA_ARGS__)) / sizeof(size_t),              \
               DIMS_(__VA_ARGS__))
#define BATCHED(dtype, ...)                                                              \
    operand_of((dtype), true, sizeof(DIMS_(__VA_ARGS__)) / sizeof(size_t),               \
               DIMS_(__VA_ARGS__))

/* The host, as part 0 of `parts`: of two parts on a two-core machine each has one thread. */
copse__device *open_host(uint32_t parts);

/* Sets every input from in[] (sizes at the extents), runs, reads every output into out[]
 * (NULL: not wanted). batch becomes COPSE__BATCH. scalars may be NULL: zeros. Returns the
 * status of the first call that failed. */
copse_status run_op(copse__device *device, const copse__node_spec *spec, size_t batch,
                    const copse_scalars *scalars, const void *const in[],
                    void *const out[], copse_error *err);

/* Uniform in [low, high), a pure function of seed. */
void fill_uniform(float *to, size_t count, uint64_t seed, float low, float high);

/* Largest difference over the largest wanted magnitude; infinite where a NaN is met. */
double worst_error(const float *got, const double *want, size_t count);

/* to[i] = d sum_j cotangent[j] y_j(x) / d x_i by central differences of a function in
 * double; x is left as it was. y has y_count elements. */
typedef void double_function(const void *context, double *y);
void central_differences(double *to, double *x, size_t x_count, const double *cotangent,
                         size_t y_count, double_function *function, const void *context);

/* malloc'ed copies between precisions. */
double *to_double(const float *from, size_t count);
void *checked_malloc(size_t bytes);

#endif
