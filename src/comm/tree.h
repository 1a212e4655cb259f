/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_TREE_H
#define COPSE_COMM_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* The fixed tree over ranks: pure functions, no device, no thread.
 *
 * A node over n >= 2 leaves has as its left child the first split(n) leaves, split(n) being
 * the largest power of two below n, and as its right child the rest: 4 leaves are
 * (0+1)+(2+3), 6 are ((0+1)+(2+3))+(4+5). Its depth is ceil(log2 n), and the node over an
 * aligned range of 2^k leaves is the same for every n. A leaf that is absent contributes
 * nothing: a node with one child that has leaves is that child (a, never a + 0, which
 * would turn -0 into +0); a node without leaves has no value. */

/* n >= 2. */
size_t copse__tree_split(size_t n);

/* A range of leaves, count >= 1. */
typedef struct copse__tree_range {
    size_t first, count;
} copse__tree_range;

/* The maximal subtrees of the tree over `leaves` that lie within [first, first + count), in
 * order: what a device that computed those leaves alone may sum by itself without changing
 * a bit of the whole. out has room for copse__tree_subtrees_max() entries. Returns their
 * number; 0 for an empty range. */
size_t copse__tree_subtrees(size_t leaves, copse__tree_range range,
                            copse__tree_range *out);

/* An upper bound for any range of at most `count` leaves: 2 ceil(log2 count), at least 1. */
size_t copse__tree_subtrees_max(size_t count);

/* Sum of the present values along the tree. present NULL: all. 0.0 where none is. */
double copse__tree_sum(size_t ranks, const double *values, const bool *present);

/* Merges the moments of `ranks` parts of one population, channel by channel, along the
 * tree, in double (Chan, Golub, LeVeque 1979): counts[rank] samples, stats[rank] =
 * float32 [2][channels], mean and biased variance (not read where the count is 0). Writes
 * the same shape to merged (zeros where no rank has a sample; may be one of stats) and
 * returns the number of samples. */
uint64_t copse__tree_merge_moments(size_t ranks, const uint64_t *counts,
                                   const float *const *stats, size_t channels,
                                   float *merged);

#endif
