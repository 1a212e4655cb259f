/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/replica_walk.h"
#include "train/trainer_private.h"

/* What a replica's part in the all-reduce costs: it is opened over those in question, and runs a few times. */

#define COST_STEPS 4

/* On the heap, where it stays if a driver does not come back. */
typedef struct costing {
    copse__trainer *trainer;
    copse__allreduce *engine;
    size_t *engine_ranks;
    struct {
        bool takes_part;
        double seconds; /* the shortest step's */
        copse_status status;
        size_t failed; /* whose fault it is, a rank of the engine; SIZE_MAX: its own */
    } ranks[];
} costing;

static copse_status reduce_once(costing *c, size_t rank, uint64_t step,
                                copse_error *err) {
    copse__replica *r = &c->trainer->replicas[rank];
    copse__allreduce_result result;
    for (size_t b = 0; b < r->layout->bucket_count; b++) {
        copse_status status = copse__allreduce_submit(
            c->engine, c->engine_ranks[rank], step, b,
            copse__store_bucket(r->store, COPSE__KIND_GRADIENT, 0, b), NULL, true, err);
        if (status != COPSE_OK)
            return status;
    }
    copse_status status =
        copse__allreduce_wait(c->engine, c->engine_ranks[rank], step, &result, err);
    if (status != COPSE_OK)
        c->ranks[rank].failed = result.failed_rank;
    return status;
}

static copse_status cost_one(size_t rank, void *user, copse_error *err) {
    costing *c = user;
    if (!c->ranks[rank].takes_part)
        return COPSE_OK;
    copse__replica *r = &c->trainer->replicas[rank];
    copse_status status = COPSE_OK;
    double *least = &c->ranks[rank].seconds;
    r->stage = "while its part in the all-reduce was measured";
    for (uint64_t step = 0; step < COST_STEPS && status == COPSE_OK; step++) {
        uint64_t start = copse__now_ns();
        status = reduce_once(c, rank, step, err);
        double seconds = (double)(copse__now_ns() - start) * 1e-9;
        if (status == COPSE_OK)
            status = copse__replica_wanted(r, err);
        else
            (void)!copse__allreduce_drop(c->engine, c->engine_ranks[rank], NULL);
        if (status == COPSE_OK && (step == 0 || seconds < *least))
            *least = seconds;
    }
    c->ranks[rank].status = status;
    return status;
}

/* Who is to blame; SIZE_MAX: nobody known. */
static size_t culprit(const costing *c) {
    const copse__trainer *t = c->trainer;
    for (size_t r = 0; r < t->replica_count; r++)
        if (c->ranks[r].takes_part && copse__workers_is_out(t->workers, r))
            return r;
    for (size_t r = 0; r < t->replica_count; r++) {
        if (!c->ranks[r].takes_part || c->ranks[r].status == COPSE_OK)
            continue;
        if (c->ranks[r].failed == SIZE_MAX)
            return r;
        for (size_t o = 0; o < t->replica_count; o++)
            if (c->ranks[o].takes_part && c->engine_ranks[o] == c->ranks[r].failed)
                return o;
    }
    return SIZE_MAX;
}

/* Before the first step a device that fails ends all; later it is given up. */
static void blame(costing *c, copse_status status, const copse_error *why) {
    size_t who =
        c->trainer->grouping > 0 && copse__is_loss(status) ? culprit(c) : SIZE_MAX;
    if (who != SIZE_MAX)
        copse__trainer_lose(c->trainer, who, status,
                            c->ranks[who].status == COPSE_OK ? why : NULL);
}

copse_status copse__reduce_cost(void *user, const bool *in, double *seconds,
                                copse_error *err) {
    copse__trainer *t = user;
    copse_status status;
    costing *c = NULL;
    size_t count = t->replica_count;
    *seconds = 0;
    if (t->micro_shard > 0 || t->layout->bucket_count == 0)
        return COPSE_OK;
    COPSE__TRY(copse__calloc(&c, 1, sizeof *c + count * sizeof c->ranks[0], err), out);
    c->trainer = t;
    COPSE__TRY(copse__calloc(&c->engine_ranks, count, sizeof *c->engine_ranks, err), out);
    for (size_t r = 0; r < count; r++) {
        c->ranks[r].takes_part = in[r];
        c->ranks[r].failed = SIZE_MAX;
    }
    COPSE__TRY(copse__group_engine(t, in, &c->engine, c->engine_ranks, err), out);
    status = copse__workers_run(t->workers, cost_one, c, NULL, err);
    for (size_t r = 0; r < count && status == COPSE_OK; r++)
        if (c->ranks[r].seconds > *seconds)
            *seconds = c->ranks[r].seconds;
    if (status != COPSE_OK)
        blame(c, status, err);
out:
    if (c)
        copse__group_retire(t, c->engine);
    if (c) {
        copse__trainer_free_shared(t, c->engine_ranks);
        copse__trainer_free_shared(t, c);
    }
    return status;
}
