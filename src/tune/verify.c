/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/selftest/compare.h"
#include "base/mem.h"
#include "tune/tuner.h"

/* Above this the host's plain loops would take more than about a second. */
#define MOST_HOST_FLOPS 3e8

static copse__extents planned_extents(const copse__node_spec *spec) {
    copse__extents extents = {{0}};
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        for (size_t d = 0; d < spec->in[i].rank; d++)
            if (spec->in[i].present && spec->in[i].dim[d].symbol != COPSE__FIXED)
                extents.of[spec->in[i].dim[d].symbol] = spec->in[i].dim[d].size;
    return extents;
}

/* Where a place is an output, sums must be exact: nearly equal ones would be told apart by their last bits. */
void copse__tune_case(copse__case *out, const copse__node_spec *spec) {
    *out = (copse__case){.spec = *spec};
    snprintf(out->name, sizeof out->name, "%s", copse__op_name(spec->op));
    copse__fill steps = {.kind = COPSE__FILL_STEPS, .low = -0.5f, .high = 0.75f};
    copse__fill numbers =
        spec->op == COPSE__OP_CONV2D_MAX_POOL ? steps : copse__case_uniform(-1, 1);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        out->fill[i] = spec->in[i].dtype == COPSE_F32
                           ? numbers
                           : (copse__fill){.kind = COPSE__FILL_INDEX};
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS; i++)
        out->measure[i] = spec->out[i].present && spec->out[i].dtype != COPSE_F32
                              ? COPSE__MEASURE_BITS
                              : COPSE__MEASURE_NEAR;
    out->runs[0] = planned_extents(spec);
    out->run_count = 1;
    size_t batch = out->runs[0].of[COPSE__BATCH];
    if (batch > 1) {
        out->runs[1] = out->runs[0];
        out->runs[1].of[COPSE__BATCH] = batch - 1;
        out->run_count = 2;
    }
}

/* A smaller node of the same kind, for its edges. Only products can be cut at will. */
static bool shrink(copse__node_spec *spec, size_t m, size_t n, size_t k) {
    copse__node_operand *x = &spec->in[0], *w = &spec->in[1], *y = &spec->out[0];
    if (x->rank != 2 || w->rank != 2 || y->rank != 2)
        return false;
    if (spec->op == COPSE__OP_DENSE) {
        x->dim[0].size = y->dim[0].size = m;
        x->dim[1].size = w->dim[0].size = k;
        w->dim[1].size = y->dim[1].size = n;
        if (spec->in[2].present)
            spec->in[2].dim[0].size = n;
    } else if (spec->op == COPSE__OP_DENSE_GRAD_INPUT) {
        x->dim[0].size = y->dim[0].size = m;
        x->dim[1].size = w->dim[1].size = k;
        w->dim[0].size = y->dim[1].size = n;
    } else if (spec->op == COPSE__OP_DENSE_GRAD_WEIGHT) {
        x->dim[0].size = w->dim[0].size = k;
        x->dim[1].size = y->dim[0].size = m;
        w->dim[1].size = y->dim[1].size = n;
    } else
        return false;
    return true;
}

static copse_status check_case(copse__device *device, copse__device *host,
                               const copse__case *made, copse_error *err) {
    copse__selftest_result result = {.op = made->spec.op, .name = made->name, .seed = 7};
    copse__worst worst = {0};
    char provider[64] = "";
    copse_status status =
        copse__case_run(device, host, made, &result, &worst, provider, err);
    if (status == COPSE_OK && !(worst.error <= 1))
        status =
            copse__fail(err, COPSE_KERNEL, 0, copse__device_get(device)->choice.label,
                        "%s, batch %zu: %s", made->name, result.batch, worst.text);
    return status;
}

/* ---- Where the host would take too long ------------------------------------------------- */

static copse_status outputs_of(float **out, copse__device *device,
                               const copse__case *made, size_t run_number,
                               copse_error *err) {
    copse__node_run *run = NULL;
    const copse__extents *extents = &made->runs[run_number];
    void *values = NULL;
    copse_status status;
    size_t elements = copse__node_operand_elements(&made->spec.out[0], extents);
    COPSE__TRY(copse__node_run_new(&run, device, &made->spec, err), out);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++) {
        if (!made->spec.in[i].present)
            continue;
        size_t count = copse__node_operand_elements(&made->spec.in[i], extents);
        free(values);
        COPSE__TRY(copse__calloc(&values, count, sizeof(float), err), out);
        copse__case_fill(values, made, i, count, 7);
        COPSE__TRY(copse__node_run_set(run, i, values, count, err), out);
    }
    COPSE__TRY(copse__node_run_go(run, extents, &made->scalars, err), out);
    COPSE__TRY(copse__calloc(out, elements, sizeof(float), err), out);
    status = copse__node_run_get(run, 0, *out, elements, err);
out:
    free(values);
    copse__node_run_free(run);
    return status;
}

/* With what the device does by itself, whose kernels the self-test has checked. Both may err. */
static copse_status check_large(copse__device *device, const copse__case *made,
                                const copse__tuned *now, size_t now_count,
                                copse_error *err) {
    const copse__backend *backend = copse__backend_of(device);
    copse__tolerance twice = copse__tolerance_of(made->spec.op);
    copse_status status = COPSE_OK;
    twice.relative *= 2;
    twice.of_largest *= 2;
    for (size_t r = 0; r < made->run_count && status == COPSE_OK; r++) {
        float *got = NULL, *want = NULL;
        copse__worst worst = {0};
        status = outputs_of(&got, device, made, r, err);
        if (status == COPSE_OK)
            status = backend->tune(device, NULL, 0, err);
        if (status == COPSE_OK)
            status = outputs_of(&want, device, made, r, err);
        if (status == COPSE_OK)
            status = backend->tune(device, now, now_count, err);
        if (status == COPSE_OK)
            copse__compare_floats(
                &worst, made->name, got, want,
                copse__node_operand_elements(&made->spec.out[0], &made->runs[r]), twice);
        if (status == COPSE_OK && !(worst.error <= 1))
            status =
                copse__fail(err, COPSE_KERNEL, 0, copse__device_get(device)->choice.label,
                            "%s: %s", made->name, worst.text);
        free(got);
        free(want);
    }
    return status;
}

static copse_status flops_of(double *out, copse__device *host, const copse__case *made,
                             copse_error *err) {
    copse__node_run *run;
    copse_status status = copse__node_run_new(&run, host, &made->spec, err);
    if (status == COPSE_OK)
        *out = copse__node_run_flops(run, NULL);
    copse__node_run_free(run);
    return status;
}

/* ---- All of it -------------------------------------------------------------------------- */

copse_status copse__tune_verify_op(copse__device *device, copse__op op, bool thorough,
                                   copse_error *err) {
    bool ops[COPSE__OP_COUNT] = {false};
    ops[op] = true;
    const copse__selftest_options options = {.level = thorough ? COPSE__SELFTEST_FULL
                                                               : COPSE__SELFTEST_SMALL,
                                             .seed = 7,
                                             .ops = ops};
    return copse__selftest_run(device, &options, NULL, NULL, err);
}

copse_status copse__tune_verify(copse__device *device, const copse__tune_subject *subject,
                                const copse__tuned *now, size_t now_count, bool thorough,
                                copse_error *err) {
    static const size_t edges[][3] = {
        {1, 1, 1}, {5, 15, 31}, {7, 17, 33}, {13, 49, 2}, {25, 33, 513}};
    const copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host"};
    copse__device *host;
    copse_status status = copse__device_open(&host, &choice, NULL, err);
    if (status != COPSE_OK)
        return status;
    for (size_t s = 0; s < subject->spec_count; s++) {
        copse__case made;
        for (size_t e = 0; e < COPSE__COUNT(edges) && (thorough || e == 2); e++) {
            copse__node_spec small = subject->specs[s];
            if (!shrink(&small, edges[e][0], edges[e][1], edges[e][2]))
                break;
            copse__tune_case(&made, &small);
            COPSE__TRY(check_case(device, host, &made, err), out);
        }
        copse__tune_case(&made, &subject->specs[s]);
        double flops = 0;
        COPSE__TRY(flops_of(&flops, host, &made, err), out);
        if (flops <= MOST_HOST_FLOPS)
            COPSE__TRY(check_case(device, host, &made, err), out);
        else
            COPSE__TRY(check_large(device, &made, now, now_count, err), out);
    }
out:
    copse__device_close(host);
    return status;
}
