/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_BENCH_H
#define COPSE_BACKEND_BENCH_H

#include "backend/node_run.h"

/* Speed of single operations on a device. Blocking; the device must be idle. */

typedef struct copse__bench {
    char provider[32];
    double flops; /* of one run */
    copse__node_time time;
} copse__bench;

/* Random operands in [-1, 1) from a fixed seed, one run that is checked for writes outside its
 * outputs, then about `seconds` of measuring at the planned sizes. */
COPSE_CHECKED copse_status copse__bench_node(copse__bench *out, copse__device *device,
                                             const copse__node_spec *spec, double seconds,
                                             copse_error *err);

/* The dense operation that makes an [m,n] of an [m,k] and a [k,n]; form: "nn" (y = x w), "nt" (the
 * second is stored [n,k]: dx = dy wT), "tn" (the first is stored [k,m]: dw = xT dy). false:
 * no such form. */
bool copse__bench_gemm_spec(copse__node_spec *out, const char *form, size_t m, size_t n,
                            size_t k);

typedef struct copse__bench_conv {
    size_t images, h, w, c, f, kernel, stride, dilation;
    bool same; /* padding; else valid */
} copse__bench_conv;

/* One pass of a convolution: COPSE__OP_CONV2D (with bias and relu), …_GRAD_INPUT or …_GRAD_FILTER.
 * false: nothing is left of the image, or no such pass. */
bool copse__bench_conv_spec(copse__node_spec *out, copse__op pass,
                            const copse__bench_conv *conv);

#endif
