/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* Shards by measured speed. Before the first step all replicas run forward and backward passes on zeros,
 * all at once, because devices that are CPUs share cores; of two sizes, because a pass has a fixed part.
 * Nothing is random and nothing of it stays: weights are still zero then. */

#define PHASE_NS UINT64_C(200000000)    /* of each of the two sizes */
#define OVERRUN_NS UINT64_C(2000000000) /* in which the others wait for a slow one */
#define MOST_SAMPLES 64
#define COST_STEPS 4
#define ALIKE 1.2 /* equal models whose times differ by less are equally fast */

typedef struct trial {
    copse__trainer *trainer;
    size_t divisor; /* of the replica's micro-batch */
    uint64_t until_ns;
    atomic_size_t measuring; /* replicas that have not measured enough yet */
    double *seconds;         /* by rank: the median */
} trial;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t trial_rows(const copse__trainer *t, size_t rank, size_t divisor) {
    return copse__max_size(t->replicas[rank].sizes.train_rows / divisor, 1);
}

/* Runs until it has measured enough and all others have: a device that stopped early would leave its
 * cores to the others. */
static copse_status trial_one(size_t rank, void *user, copse_error *err) {
    trial *all = user;
    copse__trainer *t = all->trainer;
    double samples[MOST_SAMPLES];
    size_t count = 0, rows = trial_rows(t, rank, all->divisor);
    bool enough = false;
    copse_status status = COPSE_OK;
    t->replicas[rank].stage = "while it was measured";
    for (;;) {
        uint64_t start = copse__now_ns();
        status = copse__replica_trial(&t->replicas[rank], rows, err);
        uint64_t now = copse__now_ns();
        if (status != COPSE_OK)
            break;
        if (count < MOST_SAMPLES)
            samples[count++] = (double)(now - start) * 1e-9;
        bool slow = now - start > PHASE_NS;
        if (!enough && now >= all->until_ns && (count >= 3 || slow)) {
            enough = true;
            atomic_fetch_sub(&all->measuring, 1);
        }
        if (enough &&
            (atomic_load(&all->measuring) == 0 || now >= all->until_ns + OVERRUN_NS))
            break;
    }
    if (!enough)
        atomic_fetch_sub(&all->measuring, 1);
    if (count > 0) {
        qsort(samples, count, sizeof *samples, compare_doubles);
        all->seconds[rank] = samples[count / 2];
    }
    return status;
}

static copse_status measure(copse__trainer *t, size_t divisor, double *seconds,
                            copse_error *err) {
    trial all = {.trainer = t,
                 .divisor = divisor,
                 .until_ns = copse__now_ns() + PHASE_NS,
                 .measuring = t->replica_count,
                 .seconds = seconds};
    return copse__workers_run(t->workers, trial_one, &all, NULL, err);
}

/* A line through two measured points that never falls. */
static copse__speed fit_line(double small_rows, double small_s, double rows, double s) {
    copse__speed speed = {.row_s = s / rows};
    double slope = rows > small_rows ? (s - small_s) / (rows - small_rows) : 0;
    if (slope > 0 && slope * rows < s)
        speed = (copse__speed){.fixed_s = s - slope * rows, .row_s = slope};
    return speed;
}

static bool same_model(const copse__device_choice *a, const copse__device_choice *b) {
    return strcmp(a->name, b->name) == 0 && strcmp(a->driver, b->driver) == 0 &&
           strcmp(a->platform_name, b->platform_name) == 0 &&
           a->part_count == b->part_count;
}

/* Devices of one model whose times differ by no more than noise count as equal, so that their shards
 * are the same in every run. */
static void level_out(const copse__trainer *t, double *seconds) {
    for (size_t r = 0; r < t->replica_count; r++) {
        double sum = 0;
        size_t count = 0;
        bool first = true;
        for (size_t o = 0; o < t->replica_count; o++) {
            if (!same_model(&t->choices[r], &t->choices[o]) ||
                seconds[o] > seconds[r] * ALIKE || seconds[r] > seconds[o] * ALIKE)
                continue;
            first &= o >= r;
            sum += seconds[o];
            count++;
        }
        for (size_t o = r; first && o < t->replica_count; o++)
            if (same_model(&t->choices[r], &t->choices[o]) &&
                seconds[o] <= seconds[r] * ALIKE && seconds[r] <= seconds[o] * ALIKE &&
                o != r)
                seconds[o] = sum / (double)count;
        if (first)
            seconds[r] = sum / (double)count;
    }
}

/* Rows that a replica's device has memory for, by its plan. 0: no limit is near. */
static size_t room_for(const copse__trainer *t, size_t rank) {
    size_t rows = copse__replica_room(&t->replicas[rank]);
    return rows >= t->batch ? 0 : copse__max_size(rows, 1);
}

static copse_status set_speeds(copse__trainer *t, double *small, double *full,
                               copse_error *err) {
    copse_status status =
        copse__calloc(&t->speeds, t->replica_count, sizeof *t->speeds, err);
    if (status != COPSE_OK)
        return status;
    level_out(t, small);
    level_out(t, full);
    for (size_t r = 0; r < t->replica_count; r++) {
        copse__speed *speed = &t->speeds[r];
        double rows = (double)trial_rows(t, r, 1);
        if (t->micro_shard > 0) { /* a share is so many passes of one size */
            *speed = (copse__speed){.row_s = full[r] / rows};
            continue;
        }
        *speed = fit_line((double)trial_rows(t, r, 4), small[r], rows, full[r]);
        speed->fixed_s *= (double)t->config->train.accumulate;
        speed->most_rows = t->config->train.accumulate > 1 ? 0 : room_for(t, r);
        copse__log(COPSE_LOG_INFO, "%s: %.3g ms and %.3g ms a sample",
                   t->choices[r].label, speed->fixed_s * 1e3, speed->row_s * 1e3);
    }
    return COPSE_OK;
}

/* ---- What a replica's part in the all-reduce costs -------------------------------------- */

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

static copse_status cost_of(void *user, const bool *in, double *seconds,
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

/* ---- Shards ---------------------------------------------------------------------------- */

static void say_who_rests(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (t->shards[r] == 0 && !atomic_load(&t->replicas[r].lost))
            copse__log(COPSE_LOG_WARN,
                       "%s gets no samples: with %.3g ms a step and %.3g ms a sample it "
                       "would cost more time than it saves (--devices '%.*s*W' makes "
                       "it work)",
                       t->choices[r].label, t->speeds[r].fixed_s * 1e3,
                       t->speeds[r].row_s * 1e3,
                       /* as a selector names it: "0:0/2" of "0:0/2#1" */
                       (int)strcspn(t->choices[r].label, "#@"), t->choices[r].label);
}

/* cost NULL: who is in stays in, as far as a share is worth anything. */
static copse_status plan(copse__trainer *t, copse__speeds_cost_fn *cost,
                         copse_error *err) {
    copse_status status;
    bool *in = NULL;
    double *shares = NULL;
    COPSE__TRY(copse__calloc(&in, t->replica_count, sizeof *in, err), out);
    COPSE__TRY(copse__calloc(&shares, t->replica_count, sizeof *shares, err), out);
    for (size_t r = 0; r < t->replica_count; r++)
        in[r] = !atomic_load(&t->replicas[r].lost);
    COPSE__TRY(copse__speeds_plan(t->speeds, t->replica_count, t->batch, cost, t, in,
                                  shares, err),
               out);
    COPSE__TRY(copse__shards_set(t, shares, err), out);
    t->shards_are = "measured";
out:
    free(in);
    free(shares);
    return status;
}

copse_status copse__shards_by_speed(copse__trainer *t, copse_error *err) {
    return plan(t, NULL, err);
}

copse_status copse__calibrate(copse__trainer *t, copse_error *err) {
    copse_status status;
    double *small = NULL, *full = NULL;
    copse__trainer_tell(t, "measuring the devices");
    COPSE__TRY(copse__calloc(&small, t->replica_count, sizeof *small, err), out);
    COPSE__TRY(copse__calloc(&full, t->replica_count, sizeof *full, err), out);
    COPSE__TRY(measure(t, 4, small, err), out);
    COPSE__TRY(measure(t, 1, full, err), out);
    COPSE__TRY(set_speeds(t, small, full, err), out);
    COPSE__TRY(plan(t, cost_of, err), out);
    say_who_rests(t);
out:
    free(small);
    free(full);
    return status;
}
