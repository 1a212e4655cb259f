/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/trainer_private.h"

/* Who computes how much of a batch. */

/* Above so many micro-shards a bound is as good as counting. */
#define MOST_COUNTED 4096

static size_t ceil_div(size_t a, size_t b) {
    return a / b + (a % b != 0);
}

static size_t unit_of(const copse__trainer *t) {
    return t->micro_shard ? t->micro_shard : 1;
}

/* Splits `total` rows by weights in whole units, of which the last may be smaller. */
static copse_status split(const copse__trainer *t, size_t total, const double *weights,
                          size_t *out, copse_error *err) {
    size_t unit = unit_of(t);
    copse_status status =
        copse_shard_split(ceil_div(total, unit), t->replica_count, weights, out, err);
    for (size_t r = 0; r < t->replica_count && status == COPSE_OK; r++) {
        out[r] = out[r] >= ceil_div(total, unit) ? total : out[r] * unit;
        total -= out[r];
    }
    return status;
}

/* Evaluation batches are split as training batches are. */
static copse_status split_evaluation(copse__trainer *t, copse_error *err) {
    double *weights;
    copse_status status = copse__calloc(&weights, t->replica_count, sizeof *weights, err);
    if (status != COPSE_OK)
        return status;
    for (size_t r = 0; r < t->replica_count; r++)
        weights[r] = (double)t->shards[r];
    status = split(t, t->eval_batch, weights, t->eval_shards, err);
    free(weights);
    return status;
}

copse_status copse__shards_set(copse__trainer *t, const double *weights,
                               copse_error *err) {
    copse_status status = split(t, t->batch, weights, t->shards, err);
    return status == COPSE_OK ? split_evaluation(t, err) : status;
}

copse_status copse__shards_take(copse__trainer *t, const size_t *shards,
                                copse_error *err) {
    memcpy(t->shards, shards, t->replica_count * sizeof *shards);
    return split_evaluation(t, err);
}

static bool any_weight(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (t->choices[r].weight > 0)
            return true;
    return false;
}

bool copse__shards_are_free(const copse__trainer *t) {
    return t->training && t->replica_count > 1 && !any_weight(t) &&
           t->config->devices.shards == COPSE__SHARDS_MEASURED;
}

copse_status copse__shards_begin(copse__trainer *t, const size_t *recorded, bool *measure,
                                 copse_error *err) {
    copse_status status;
    size_t n = t->replica_count;
    double *weights = NULL;
    *measure = false;
    COPSE__TRY(copse__calloc(&t->shards, n, sizeof *t->shards, err), out);
    COPSE__TRY(copse__calloc(&t->eval_shards, n, sizeof *t->eval_shards, err), out);
    COPSE__TRY(copse__calloc(&weights, n, sizeof *weights, err), out);
    for (size_t r = 0; r < n; r++)
        weights[r] = t->choices[r].weight > 0 ? t->choices[r].weight : 1;
    t->shards_are = any_weight(t) ? "by weight" : "equal";
    if (recorded) {
        t->shards_are = "as recorded";
        COPSE__TRY(copse__shards_take(t, recorded, err), out);
    } else {
        *measure = copse__shards_are_free(t);
        COPSE__TRY(copse__shards_set(t, weights, err), out);
    }
out:
    free(weights);
    return status;
}

/* Most subtrees that the rank's micro-shards are in any batch, full or not. */
static copse_status most_parts(const copse__trainer *t, size_t rank, size_t *out,
                               copse_error *err) {
    size_t unit = unit_of(t), total = ceil_div(t->batch, unit), n = t->replica_count;
    size_t mine = ceil_div(t->shards[rank], unit);
    *out = copse__tree_subtrees_max(copse__max_size(mine, 1));
    if (total > MOST_COUNTED)
        return COPSE_OK;
    copse_status status;
    size_t *full = NULL, *now = NULL, most = 1;
    copse__tree_range *ranges = NULL;
    COPSE__TRY(copse__calloc(&full, n, sizeof *full, err), out);
    COPSE__TRY(copse__calloc(&now, n, sizeof *now, err), out);
    COPSE__TRY(copse__calloc(&ranges, *out, sizeof *ranges, err), out);
    for (size_t r = 0; r < n; r++)
        full[r] = ceil_div(t->shards[r], unit);
    for (size_t leaves = 1; leaves <= total; leaves++) {
        COPSE__TRY(copse_shard_split_partial(leaves, n, full, now, err), out);
        copse__tree_range range = {.count = now[rank]};
        for (size_t r = 0; r < rank; r++)
            range.first += now[r];
        if (range.count > 0)
            most = copse__max_size(most, copse__tree_subtrees(leaves, range, ranges));
    }
    *out = most;
out:
    free(full);
    free(now);
    free(ranges);
    return status;
}

copse_status copse__shards_sizes(const copse__trainer *t, size_t rank, copse__sizes *out,
                                 copse_error *err) {
    size_t shard = t->shards[rank], eval = t->eval_shards[rank];
    size_t pieces = (size_t)t->config->train.accumulate;
    *out = (copse__sizes){.train_rows = shard, .eval_rows = eval};
    if (t->micro_shard > 0) {
        out->train_rows = copse__min_size(t->micro_shard, t->batch);
        out->eval_rows = copse__min_size(t->micro_shard, t->eval_batch);
        size_t count = ceil_div(shard, t->micro_shard);
        out->levels = copse__max_size(copse__partials_tree_levels(count), 1);
        return t->training ? most_parts(t, rank, &out->parts, err) : COPSE_OK;
    }
    if (pieces > 1) {
        out->train_rows = ceil_div(shard, pieces);
        out->levels = shard > out->train_rows;
    }
    return COPSE_OK;
}
