/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_run.h"

#include <math.h>
#include <philox.clh>
#include <stdio.h>
#include <string.h>

void *checked_malloc(size_t bytes) {
    void *made = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(made);
    return made;
}

copse__node_operand operand_of(copse_dtype dtype, bool batched, size_t rank,
                               const size_t *dims) {
    copse__node_operand made = {.present = true, .dtype = dtype, .rank = rank};
    for (size_t i = 0; i < rank; i++)
        made.dim[i] =
            (copse__dim){dims[i], batched && i == 0 ? COPSE__BATCH : COPSE__FIXED};
    return made;
}

copse__device *open_host(uint32_t parts) {
    copse_error error = {0};
    copse__device *device;
    copse__device_choice choice = {.api = COPSE__API_HOST, .part_count = parts};
    snprintf(choice.label, sizeof choice.label, "host");
    ASSERT_OK(copse__device_open(&device, &choice, NULL, &error));
    return device;
}

copse_status run_op(copse__device *device, const copse__node_spec *spec, size_t batch,
                    const copse_scalars *scalars, const void *const in[],
                    void *const out[], copse_error *err) {
    copse__extents extents = {{0, batch, 0}};
    copse_scalars zeros = {0};
    copse__node_run *run;
    copse_status status = copse__node_run_new(&run, device, spec, err);
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++)
        if (spec->in[i].present)
            status = copse__node_run_set(
                run, i, in[i], copse__node_operand_elements(&spec->in[i], &extents), err);
    if (status == COPSE_OK)
        status = copse__node_run_go(run, &extents, scalars ? scalars : &zeros, err);
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS && status == COPSE_OK; i++)
        if (spec->out[i].present && out[i])
            status = copse__node_run_get(
                run, i, out[i], copse__node_operand_elements(&spec->out[i], &extents),
                err);
    copse__node_run_free(run);
    return status;
}

void fill_uniform(float *to, size_t count, uint64_t seed, float low, float high) {
    for (size_t i = 0; i < count; i++) {
        copse_philox4 counter = {{(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0}};
        copse_philox4 draw =
            copse_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
        to[i] = low + (high - low) * copse_philox_unit(draw.v[i % 4]);
    }
}

double worst_error(const float *got, const double *want, size_t count) {
    double largest = 1e-30, worst = 0;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(want[i]));
    for (size_t i = 0; i < count; i++) {
        double difference = fabs((double)got[i] - want[i]);
        if (isnan(difference))
            return INFINITY;
        worst = fmax(worst, difference / largest);
    }
    return worst;
}

static double projected(const double *cotangent, double *y, size_t y_count,
                        double_function *function, const void *context) {
    double sum = 0;
    function(context, y);
    for (size_t j = 0; j < y_count; j++)
        sum += cotangent[j] * y[j];
    return sum;
}

void central_differences(double *to, double *x, size_t x_count, const double *cotangent,
                         size_t y_count, double_function *function, const void *context) {
    const double step = 1e-5;
    double *y = checked_malloc(y_count * sizeof *y);
    for (size_t i = 0; i < x_count; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double above = projected(cotangent, y, y_count, function, context);
        x[i] = kept - step;
        double below = projected(cotangent, y, y_count, function, context);
        x[i] = kept;
        to[i] = (above - below) / (2 * step);
    }
    free(y);
}

double *to_double(const float *from, size_t count) {
    double *made = checked_malloc(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = (double)from[i];
    return made;
}
