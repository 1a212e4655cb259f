/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_WINDOW_H
#define COPSE_BACKEND_OPENCL_WINDOW_H

#include <window.clh>

#include "backend/opencl/packed.h"
#include "backend/opencl/provider.h"

/* The geometry of a CONV2D*, MAX_POOL2D* or AVG_POOL2D* node; p and q of CONV2D_MAX_POOL* are those of
 * the pooled map. */
copse_window copse__cl_window(const copse__graph *graph, const copse__node *node);

/* Images of the moment; extents NULL: as planned. */
size_t copse__cl_images(const copse__graph *graph, const copse__node *node,
                        const copse__extents *extents);

/* Which pass of a convolution a node is, pooled or not, and its sizes as the packed kernels count: p and q
 * are always those of the map that is not pooled. */
copse__conv_pass copse__cl_conv_pass(const copse__node *node);
copse__conv_size copse__cl_conv_size(const copse__graph *graph, const copse__node *node,
                                     const copse__extents *extents);

/* Whether all of it fits the 32-bit counts of the kernels. */
bool copse__cl_window_fits(const copse__graph *graph, const copse__node *node,
                           const char **reason);

/* Whether a CONV2D_MAX_POOL* pools by 2 x 2, with places that are bytes. */
bool copse__cl_pools_by_2(const copse__graph *graph, const copse__node *node,
                          const char **reason);

/* Sets a kernel argument to the geometry, by value. */
copse_status copse__cl_arg_window(copse__launch *launch, size_t kernel, unsigned index,
                                  const copse_window *window, copse_error *err);

/* Likewise argument 0 of a packed kernel. */
copse_status copse__cl_arg_conv_shape(copse__launch *launch, size_t kernel,
                                      const copse_conv_shape *shape, copse_error *err);

/* Channels that an item of a kernel with COPSE_VEC lanes takes on this device. */
size_t copse__cl_vector(const copse__device *device);

#endif
