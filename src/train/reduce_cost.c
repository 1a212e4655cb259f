/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* What a replica's part in the all-reduce costs: it is opened over those in question, and runs a few times. */

#define COST_STEPS 4

typedef struct costing {
    copse__trainer *trainer;
    copse__allreduce *engine;
    const bool *in;
    size_t *engine_ranks;
    double *seconds; /* by rank: the shortest step's */
} costing;

static copse_status reduce_once(const costing *c, size_t rank, uint64_t step,
                                copse_error *err) {
    copse__replica *r = &c->trainer->replicas[rank];
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        copse_status status = copse__allreduce_submit(
            c->engine, c->engine_ranks[rank], step, b,
            copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, b), NULL, true, err);
        if (status != COPSE_OK)
            return status;
    }
    return copse__allreduce_wait(c->engine, c->engine_ranks[rank], step, NULL, err);
}

static copse_status cost_one(size_t rank, void *user, copse_error *err) {
    const costing *c = user;
    if (!c->in[rank])
        return COPSE_OK;
    for (uint64_t step = 0; step < COST_STEPS; step++) {
        uint64_t start = copse__now_ns();
        copse_status status = reduce_once(c, rank, step, err);
        if (status != COPSE_OK) {
            (void)!copse__allreduce_drop(c->engine, c->engine_ranks[rank], NULL);
            return status;
        }
        double seconds = (double)(copse__now_ns() - start) * 1e-9;
        if (step == 0 || seconds < c->seconds[rank])
            c->seconds[rank] = seconds;
    }
    return COPSE_OK;
}

copse_status copse__reduce_cost(void *user, const bool *in, double *seconds,
                                copse_error *err) {
    copse__trainer *t = user;
    copse_status status;
    costing c = {.trainer = t, .in = in};
    *seconds = 0;
    if (t->micro_shard > 0 || t->layout->bucket_count == 0)
        return COPSE_OK;
    COPSE__TRY(
        copse__calloc(&c.engine_ranks, t->replica_count, sizeof *c.engine_ranks, err),
        out);
    COPSE__TRY(copse__calloc(&c.seconds, t->replica_count, sizeof *c.seconds, err), out);
    COPSE__TRY(copse__group_engine(t, in, &c.engine, c.engine_ranks, err), out);
    COPSE__TRY(copse__workers_run(t->workers, cost_one, &c, NULL, err), out);
    for (size_t r = 0; r < t->replica_count; r++)
        if (c.seconds[r] > *seconds)
            *seconds = c.seconds[r];
out:
    copse__allreduce_free(c.engine);
    free(c.engine_ranks);
    free(c.seconds);
    return status;
}
