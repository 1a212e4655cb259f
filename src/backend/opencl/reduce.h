/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_REDUCE_H
#define COPSE_BACKEND_OPENCL_REDUCE_H

#include "backend/opencl/provider.h"

/* Rows of a part at most, so that a work-item's loops stay bounded. */
#define COPSE__CL_MOST_PART_ROWS 1024

/* Into how many parts a reduction over x's rows is shared: given by the planned size and the
 * kind of device, so that the order of the sum never changes. */
size_t copse__cl_row_parts(const copse__device *device, const copse__tensor *x);

/* Items of such a kernel's first pass (cl/reduce.cl). */
size_t copse__cl_row_items(const copse__device *device, const copse__tensor *x);

/* A provider's `fits`: the columns of input 0 fit the kernels' 32-bit count. */
bool copse__cl_columns_fit(const copse__device *device, const copse__graph *graph,
                           const copse__node *node, const char **reason);

#endif
