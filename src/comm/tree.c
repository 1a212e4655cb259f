/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/tree.h"

size_t copse__tree_split(size_t n) {
    size_t split = 1;
    while (split < n - split)
        split *= 2;
    return split;
}

/* Depth of recursion is ceil(log2 leaves). */
static size_t collect(size_t lo, size_t count, copse__tree_range range,
                      copse__tree_range *out, size_t filled) {
    const size_t end = lo + count, range_end = range.first + range.count;
    if (end <= range.first || range_end <= lo)
        return filled;
    if (range.first <= lo && end <= range_end) {
        out[filled] = (copse__tree_range){lo, count};
        return filled + 1;
    }
    const size_t left = copse__tree_split(count);
    filled = collect(lo, left, range, out, filled);
    return collect(lo + left, count - left, range, out, filled);
}

size_t copse__tree_subtrees(size_t leaves, copse__tree_range range,
                            copse__tree_range *out) {
    if (leaves == 0 || range.count == 0)
        return 0;
    return collect(0, leaves, range, out, 0);
}

size_t copse__tree_subtrees_max(size_t count) {
    size_t levels = 0;
    while (levels < 63 && ((size_t)1 << levels) < count)
        levels++;
    return levels == 0 ? 1 : 2 * levels;
}

typedef struct sum_result {
    double value;
    bool any;
} sum_result;

static sum_result sum_node(size_t count, const double *values, const bool *present) {
    if (count == 1)
        return (sum_result){values[0], present == NULL || present[0]};
    const size_t left = copse__tree_split(count);
    const sum_result a = sum_node(left, values, present);
    const sum_result b =
        sum_node(count - left, values + left, present == NULL ? NULL : present + left);
    if (!a.any)
        return b;
    if (!b.any)
        return a;
    return (sum_result){a.value + b.value, true};
}

double copse__tree_sum(size_t ranks, const double *values, const bool *present) {
    if (ranks == 0)
        return 0.0;
    const sum_result sum = sum_node(ranks, values, present);
    return sum.any ? sum.value : 0.0;
}

typedef struct moments {
    uint64_t count;
    double mean, squares; /* squares: sum of squared distances from the mean */
} moments;

static moments merge_node(size_t first, size_t ranks, const uint64_t *counts,
                          const float *const *stats, size_t channels, size_t channel) {
    if (ranks == 1) {
        if (counts[first] == 0)
            return (moments){0, 0.0, 0.0};
        const double mean = (double)stats[first][channel];
        const double variance = (double)stats[first][channels + channel];
        return (moments){counts[first], mean, variance * (double)counts[first]};
    }
    const size_t left = copse__tree_split(ranks);
    const moments a = merge_node(first, left, counts, stats, channels, channel);
    const moments b =
        merge_node(first + left, ranks - left, counts, stats, channels, channel);
    if (a.count == 0)
        return b;
    if (b.count == 0)
        return a;
    const uint64_t count = a.count + b.count;
    const double share = (double)b.count / (double)count, delta = b.mean - a.mean;
    return (moments){count, a.mean + delta * share,
                     a.squares + b.squares + delta * delta * (double)a.count * share};
}

uint64_t copse__tree_merge_moments(size_t ranks, const uint64_t *counts,
                                   const float *const *stats, size_t channels,
                                   float *merged) {
    uint64_t total = 0;
    for (size_t r = 0; r < ranks; r++)
        total += counts[r];
    for (size_t c = 0; c < channels; c++) {
        moments all = {0, 0.0, 0.0};
        if (total > 0)
            all = merge_node(0, ranks, counts, stats, channels, c);
        merged[c] = (float)all.mean;
        merged[channels + c] =
            total > 0 ? (float)(all.squares / (double)all.count) : 0.0f;
    }
    return total;
}
