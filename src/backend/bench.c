/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/bench.h"

#include <philox.clh>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/mem.h"

static void fill(float *to, size_t count, uint32_t stream) {
    for (size_t i = 0; i < count; i++) {
        copse_philox4 counter = {
            {(uint32_t)(i / 4), (uint32_t)((uint64_t)i / 4 >> 32), stream, 0}};
        copse_philox4 draw = copse_philox(counter, 1, 0);
        to[i] = 2 * copse_philox_unit(draw.v[i % 4]) - 1;
    }
}

static copse_status set_input(copse__node_run *run, const copse__node_spec *spec,
                              size_t input, copse_error *err) {
    size_t count = copse__node_operand_elements(&spec->in[input], NULL);
    float *values = NULL;
    copse_status status = copse__calloc(&values, count ? count : 1, sizeof *values, err);
    if (status != COPSE_OK)
        return status;
    fill(values, count, (uint32_t)input);
    status = copse__node_run_set(run, input, values, count, err);
    free(values);
    return status;
}

/* Planned sizes of the moment. */
static copse__extents planned(const copse__node_spec *spec) {
    copse__extents extents = {{0}};
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        for (size_t d = 0; d < spec->in[i].rank; d++)
            if (spec->in[i].present && spec->in[i].dim[d].symbol != COPSE__FIXED)
                extents.of[spec->in[i].dim[d].symbol] = spec->in[i].dim[d].size;
    return extents;
}

copse_status copse__bench_node(copse__bench *out, copse__device *device,
                               const copse__node_spec *spec, double seconds,
                               copse_error *err) {
    copse__extents extents = planned(spec);
    copse_scalars scalars = {0};
    copse__node_run *run;
    *out = (copse__bench){0};
    copse_status status = copse__node_run_new(&run, device, spec, err);
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++)
        if (spec->in[i].present)
            status = set_input(run, spec, i, err);
    if (status == COPSE_OK)
        status = copse__node_run_go(run, &extents, &scalars, err);
    if (status == COPSE_OK)
        status = copse__node_run_time(&out->time, run, &extents, seconds, err);
    if (status == COPSE_OK) {
        snprintf(out->provider, sizeof out->provider, "%s",
                 copse__node_run_provider(run));
        out->flops = copse__node_run_flops(run, &extents);
    }
    copse__node_run_free(run);
    return status;
}

static copse__node_operand operand(bool batched, size_t rank, const size_t *sizes) {
    copse__node_operand made = {.present = true, .dtype = COPSE_F32, .rank = rank};
    for (size_t i = 0; i < rank; i++)
        made.dim[i] =
            (copse__dim){sizes[i], batched && i == 0 ? COPSE__BATCH : COPSE__FIXED};
    return made;
}

bool copse__bench_gemm_spec(copse__node_spec *out, const char *form, size_t m, size_t n,
                            size_t k) {
    copse__node_operand a = operand(true, 2, (const size_t[]){m, k});
    copse__node_operand c = operand(true, 2, (const size_t[]){m, n});
    memset(out, 0, sizeof *out);
    if (strcmp(form, "nn") == 0) {
        out->op = COPSE__OP_DENSE;
        out->in[0] = a;
        out->in[1] = operand(false, 2, (const size_t[]){k, n});
    } else if (strcmp(form, "nt") == 0) {
        out->op = COPSE__OP_DENSE_GRAD_INPUT;
        out->in[0] = a;
        out->in[1] = operand(false, 2, (const size_t[]){n, k});
    } else if (strcmp(form, "tn") == 0) {
        out->op = COPSE__OP_DENSE_GRAD_WEIGHT;
        out->in[0] = operand(true, 2, (const size_t[]){k, m});
        out->in[1] = operand(true, 2, (const size_t[]){k, n});
        c = operand(false, 2, (const size_t[]){m, n});
    } else
        return false;
    out->out[0] = c;
    return true;
}

/* Output pixels on one axis and the padding before the first; 0: none. */
static size_t axis(const copse__bench_conv *z, size_t size, size_t *pad) {
    size_t extent = (z->kernel - 1) * z->dilation + 1;
    *pad = 0;
    if (!z->same)
        return size < extent ? 0 : (size - extent) / z->stride + 1;
    size_t pixels = (size + z->stride - 1) / z->stride;
    size_t reach = (pixels - 1) * z->stride + extent;
    *pad = reach > size ? (reach - size) / 2 : 0;
    return pixels;
}

bool copse__bench_conv_spec(copse__node_spec *out, copse__op pass,
                            const copse__bench_conv *z) {
    memset(out, 0, sizeof *out);
    if (!z->images || !z->h || !z->w || !z->c || !z->f || !z->kernel || !z->stride ||
        !z->dilation)
        return false;
    size_t pad_top, pad_left, p = axis(z, z->h, &pad_top), q = axis(z, z->w, &pad_left);
    if (p == 0 || q == 0)
        return false;
    copse__node_operand x =
        operand(true, 4, (const size_t[]){z->images, z->h, z->w, z->c});
    copse__node_operand y = operand(true, 4, (const size_t[]){z->images, p, q, z->f});
    copse__node_operand w =
        operand(false, 4, (const size_t[]){z->kernel, z->kernel, z->c, z->f});
    out->op = pass;
    out->attrs.window = (copse__window){z->kernel,   z->kernel,   z->stride, z->stride,
                                        z->dilation, z->dilation, pad_top,   pad_left};
    if (pass == COPSE__OP_CONV2D) {
        out->in[0] = x;
        out->in[1] = w;
        out->in[2] = operand(false, 1, (const size_t[]){z->f});
        out->out[0] = y;
        out->attrs.act = COPSE__ACT_RELU;
    } else if (pass == COPSE__OP_CONV2D_GRAD_INPUT) {
        out->in[0] = y;
        out->in[1] = w;
        out->out[0] = x;
    } else if (pass == COPSE__OP_CONV2D_GRAD_FILTER) {
        out->in[0] = x;
        out->in[1] = y;
        out->out[0] = w;
    } else
        return false;
    return true;
}
