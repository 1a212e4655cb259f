/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "comm/sum.h"
#include "train/trainer_private.h"

/* The sum over micro-shards where several devices computed them: each gives its maximal subtrees, and
 * the host adds those along the tree. Every thread adds a slice of the elements; how they are cut does
 * not change a bit. */

#define SLICE_ALIGNMENT 1024 /* elements */

typedef struct combining {
    copse__trainer *trainer;
    copse__sum_plan plan;
    copse__sum_isa isa;
    const void *sources[COPSE__SUM_MAX_PARTS];
    void *targets[COPSE__SUM_MAX_PARTS];
    size_t target_count, elements;
    copse__sum_found *found; /* by rank */
} combining;

static void *part_memory(copse__replica *r, size_t part) {
    return copse__backend_of(r->device)->buffer_host(r->parts[part]);
}

/* Parts in the order of the tree's leaves, which is that of ranks. */
static copse_status collect(combining *c, size_t leaves, copse_error *err) {
    copse__trainer *t = c->trainer;
    copse__tree_range ranges[COPSE__SUM_MAX_PARTS];
    size_t count = 0;
    for (size_t r = 0; r < t->replica_count; r++) {
        copse__replica *replica = &t->replicas[r];
        if (!copse__takes_part(t, r))
            continue;
        if (count + replica->part_count > COPSE__SUM_MAX_PARTS)
            return copse__fail(err, COPSE_UNSUPPORTED, 0, t->config->path,
                               "micro-shards of %zu make more than %d sums; use a larger "
                               "train.micro_shard",
                               t->micro_shard, COPSE__SUM_MAX_PARTS);
        for (size_t p = 0; p < replica->part_count; p++) {
            ranges[count] = replica->part_ranges[p];
            c->sources[count++] = part_memory(replica, p);
        }
        c->targets[c->target_count++] = part_memory(replica, 0);
    }
    return copse__sum_plan_make(&c->plan, leaves, ranges, count, err);
}

static copse_status sum_one(size_t rank, void *user, copse_error *err) {
    (void)err;
    combining *c = user;
    copse__trainer *t = c->trainer;
    size_t before = 0, active = copse__trainer_active(t);
    for (size_t r = 0; r < rank; r++)
        before += copse__takes_part(t, r);
    size_t slice = copse__round_up(c->elements / active + 1, SLICE_ALIGNMENT);
    size_t first = copse__min_size(before * slice, c->elements);
    size_t count = copse__min_size(slice, c->elements - first);
    const void *sources[COPSE__SUM_MAX_PARTS];
    void *targets[COPSE__SUM_MAX_PARTS];
    for (size_t i = 0; i < c->plan.part_count; i++)
        sources[i] = (const float *)c->sources[i] + first;
    for (size_t i = 0; i < c->target_count; i++)
        targets[i] = (float *)c->targets[i] + first;
    if (count > 0)
        copse__sum_run(&c->plan, c->isa, COPSE_F32, sources, targets, c->target_count,
                       count, false, &c->found[rank]);
    return COPSE_OK;
}

copse_status copse__combine(copse__trainer *t, size_t leaves, uint64_t *nonfinite,
                            copse_error *err) {
    copse_status status;
    combining c = {.trainer = t,
                   .isa = copse__sum_isa_best(),
                   .elements = copse__layout_bytes(t->layout) / sizeof(float)};
    *nonfinite = 0;
    COPSE__TRY(copse__calloc(&c.found, t->replica_count, sizeof *c.found, err), out);
    COPSE__TRY(collect(&c, leaves, err), out);
    copse__workers_set_patience(t->workers, 0); /* no device is asked for anything */
    status = copse__workers_run(t->workers, sum_one, &c, NULL, err);
    copse__workers_set_patience(t->workers, t->stall_ns);
    if (status != COPSE_OK)
        goto out;
    for (size_t r = 0; r < t->replica_count; r++)
        *nonfinite += c.found[r].nonfinite;
out:
    free(c.found);
    return status;
}
