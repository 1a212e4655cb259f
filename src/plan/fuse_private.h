/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_FUSE_PRIVATE_H
#define COPSE_PLAN_FUSE_PRIVATE_H

#include "plan/fuse.h"

/* What the files of the fusion pass share: one a pattern. */

typedef struct copse__fuser {
    copse__graph *graph;
    copse__device *device;
    size_t fused;
    copse_error *err;
} copse__fuser;

#define COPSE__NO_NODE SIZE_MAX

/* Whether the node reads these bytes, in whatever shape. */
bool copse__fuse_reads(const copse__graph *graph, const copse__node *node,
                       copse__tensor_id storage);

/* The one node that writes the tensor, or COPSE__NO_NODE; nothing before `first` is looked at. */
size_t copse__fuse_writer(const copse__graph *graph, copse__tensor_id tensor);

/* The only node that reads the tensor, which no view shows and the host does not ask for; else
 * COPSE__NO_NODE. */
size_t copse__fuse_only_reader(const copse__graph *graph, copse__tensor_id tensor);

/* Whether the device runs such a node, with these operands of the graph. */
bool copse__fuse_supported(const copse__fuser *f, const copse__node *node);

/* Notes that what `index` does is done by `by` from now on; copse__fuse_remove takes it out. */
copse_status copse__fuse_absorb(copse__fuser *f, size_t by, size_t index);

/* The nodes behind it move one place down. */
void copse__fuse_remove(copse__fuser *f, size_t index);

/* Patterns. Each looks at one node and sets *changed where it rewrote the graph (then nodes may have
 * moved). */
copse_status copse__fuse_fold(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_epilogue(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_conv_pool(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_norm_grad(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_dense_bias(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_dense_slope(copse__fuser *f, size_t index, bool *changed);
copse_status copse__fuse_elementwise(copse__fuser *f, size_t index, bool *changed);

#endif
