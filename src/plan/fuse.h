/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_FUSE_H
#define COPSE_PLAN_FUSE_H

#include "graph/graph.h"

/* Rewrites a graph so that fewer nodes pass over memory, without changing a value:
 *  - an ACTIVATION that alone reads what a DENSE or CONV2D computes becomes that node's epilogue;
 *    in a training graph only where its gradient needs the activation's output alone (not gelu).
 * Nodes that became part of another are removed. Returns how many. */
size_t copse__fuse(copse__graph *graph);

#endif
