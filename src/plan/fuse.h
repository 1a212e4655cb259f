/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_FUSE_H
#define COPSE_PLAN_FUSE_H

#include "backend/backend.h"
#include "graph/graph.h"

/* Rewrites a graph so that fewer nodes pass over memory on this device, without changing what it
 * computes beyond the rounding of sums:
 *  - a BN_INFER that alone reads a CONV2D becomes BN_FOLD of the filter and bias, where the filter is at most
 *    half as large as the map: the results differ by the rounding of the scaled weights, about one part in
 *    10 million of the sum of the magnitudes of the terms;
 *  - an ACTIVATION that alone reads what a DENSE or CONV2D computes becomes that node's epilogue;
 *    in a training graph only where its gradient needs the activation's output alone (not gelu);
 *  - a MAX_POOL2D that alone reads a CONV2D (its gradients aside) becomes part of it, and the
 *    convolution's gradients read the pooled gradient: the map between the two is never written.
 *    Where the device runs all of the CONV2D_MAX_POOL nodes that this needs;
 *  - relu behind batch normalisation likewise, and its gradient becomes part of the normalisation's, which
 *    makes anew what relu saw;
 *  - a DENSE's bias gradient is summed beside its weights', and an ACTIVATION_GRAD that alone reads its
 *    input's gradient becomes part of that, where the device says that it runs these;
 *  - chains of ADD, ACTIVATION, DROPOUT and their gradients become one ELEMENTWISE.
 * The order in which gradients are finished stays. A node keeps the names of those that became part
 * of it (copse__node.absorbed). fused (may be NULL): how many nodes are gone. */
copse_status copse__fuse(copse__graph *graph, copse__device *device, size_t *fused,
                         copse_error *err);

#endif
