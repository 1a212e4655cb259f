/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_HOST_CONV_H
#define COPSE_BACKEND_HOST_CONV_H

#include "backend/host/host.h"

/* The loops of convolutions and pooling, on given memory: what several operations share. */

/* y[N,P,Q,F] from x[N,H,W,C]; bias may be NULL; the node's act is applied. */
void copse__host_convolve(const copse__host_call *call, const copse__host_geometry *g,
                          const float *x, const float *filter, const float *bias,
                          float *y);

/* dx from dy; turned: room for the filter with its last two dimensions exchanged. */
void copse__host_convolve_back(const copse__host_call *call,
                               const copse__host_geometry *g, const float *dy,
                               const float *filter, float *turned, float *dx);

/* The filter's gradient. */
void copse__host_correlate(const copse__host_call *call, const copse__host_geometry *g,
                           const float *x, const float *dy, float *dw);

/* index (may be NULL) is of this type. */
void copse__host_pool(const copse__host_call *call, const copse__host_geometry *g,
                      const float *x, float *y, void *index, copse_dtype index_type);
void copse__host_unpool(const copse__host_call *call, const copse__host_geometry *g,
                        const float *dy, void *index, copse_dtype index_type, float *dx);

/* to[columns] = sum of from[rows][columns] over the rows. */
void copse__host_sum_rows(const copse__host_call *call, const float *from, size_t rows,
                          size_t columns, float *to);

/* Bytes that CONV2D_MAX_POOL* want for the map that is not pooled, and more. */
size_t copse__host_conv_pool_workspace(const copse__graph *graph,
                                       const copse__node *node);

#endif
