/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/data.h>
#include <math.h>

#include "base/mem.h"

__extension__ typedef unsigned __int128 wide;

/* Integer weights make the split exact on every machine. Twice, in order of rank, the
 * share's floor and then one row more to the largest remainders. */
static void split(size_t total, size_t n, const uint64_t *weight, uint64_t *rest,
                  size_t *out) {
    wide sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += weight[i];
    size_t left = total;
    for (size_t i = 0; i < n; i++) {
        wide share = (wide)total * weight[i];
        out[i] = (size_t)(share / sum);
        rest[i] = (uint64_t)(share % sum); /* < sum, which split's callers keep < 2^64 */
        left -= out[i];
    }
    /* left < n: each pass hands out one row. */
    while (left > 0) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (rest[i] > rest[best])
                best = i;
        rest[best] = 0;
        out[best]++;
        left--;
    }
}

static copse_status split_checked(size_t total, size_t n, const uint64_t *weight,
                                  size_t *out, copse_error *err) {
    uint64_t *rest;
    copse_status status = copse__calloc(&rest, n, sizeof *rest, err);
    if (status != COPSE_OK)
        return status;
    split(total, n, weight, rest, out);
    free(rest);
    return COPSE_OK;
}

/* Scales weights to 0..2^31, the greatest at the top. */
static copse_status to_integers(uint64_t *integers, size_t n, const double *weights,
                                copse_error *err) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double w = weights ? weights[i] : 1;
        if (!(w >= 0) || isinf(w))
            return copse__fail(err, COPSE_INVALID, 0, NULL,
                               "the weight of replica %zu is %g; give a finite one of at "
                               "least 0",
                               i, w);
        most = w > most ? w : most;
    }
    if (!(most > 0))
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "all weights are 0; give at least one replica work");
    for (size_t i = 0; i < n; i++)
        integers[i] = weights ? (uint64_t)llround(weights[i] / most * 0x1p31) : 1;
    return COPSE_OK;
}

copse_status copse_shard_split(size_t total, size_t n, const double *weights, size_t *out,
                               copse_error *err) {
    if (n == 0 || n > UINT32_MAX)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "cannot split over %zu replicas; give at least one", n);
    uint64_t *integers;
    copse_status status = copse__calloc(&integers, n, sizeof *integers, err);
    if (status == COPSE_OK)
        status = to_integers(integers, n, weights, err);
    if (status == COPSE_OK)
        status = split_checked(total, n, integers, out, err);
    free(integers);
    return status;
}

copse_status copse_shard_split_partial(size_t total, size_t n, const size_t *full,
                                       size_t *out, copse_error *err) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (!copse__add_size(sum, full[i], &sum))
            return copse__fail(err, COPSE_INVALID, 0, NULL, "the shards are too large");
    if (total > sum || (total == 0 && n == 0))
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "%zu rows do not fit the full shards' %zu", total, sum);
    if (sum == 0) {
        for (size_t i = 0; i < n; i++)
            out[i] = 0;
        return COPSE_OK;
    }
    uint64_t *weight;
    copse_status status = copse__calloc(&weight, n, sizeof *weight, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        weight[i] = full[i];
    status = split_checked(total, n, weight, out, err);
    free(weight);
    return status;
}
