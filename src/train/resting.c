/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* Devices that rest, because they were too slow when they were measured, are asked again at the ends of epochs 1, 2, 4,
 * 8, …: first for one pass over a few samples, which ends soon however slow they are; only those that make it in the time
 * of a step are measured as before the first step, beside all that work. */

#define FEW 64 /* the part of the batch that the first pass has */

/* On the heap, where it stays if a driver does not come back. */
typedef struct glance {
    copse__trainer *trainer;
    double seconds[]; /* by rank */
} glance;

static size_t few_rows(const copse__trainer *t, size_t rank) {
    size_t most = copse__max_size(t->replicas[rank].sizes.train_rows, 1);
    return copse__min_size(copse__max_size(t->batch / FEW, 1), most);
}

/* Those that work make one of their steps' passes meanwhile. */
static copse_status glance_one(size_t rank, void *user, copse_error *err) {
    glance *g = user;
    copse__replica *r = &g->trainer->replicas[rank];
    size_t pieces = r->resting ? 1 : (size_t)g->trainer->config->train.accumulate;
    size_t rows = r->resting ? few_rows(g->trainer, rank) : r->sizes.train_rows;
    r->stage = "while it was measured";
    uint64_t begun = copse__now_ns();
    copse_status status = copse__replica_trial(r, rows, err);
    g->seconds[rank] = (double)(copse__now_ns() - begun) * (double)pieces * 1e-9;
    return status;
}

static void say_asked(const copse__trainer *t, size_t rank, double seconds, double step) {
    char why[120];
    snprintf(why, sizeof why,
             "it still gets no samples: %zu take it %.3g ms, a step %.3g ms",
             few_rows(t, rank), seconds * 1e3, step * 1e3);
    copse__log(COPSE_LOG_INFO, "%s was measured again: %s", t->choices[rank].label, why);
    copse__trainer_event event = {.what = "measured_again",
                                  .step = t->position.step,
                                  .device = t->choices[rank].label,
                                  .why = why};
    if (t->hooks.on_event)
        t->hooks.on_event(t->hooks.user, &event);
}

typedef struct asking {
    bool *who, *resting; /* those that are measured; those of them that rest */
    bool *updating;      /* those of them whose update is measured */
    double *seconds, *shares;
    copse__speed *speeds;
} asking;

static void asking_free(asking *a) {
    free(a->who);
    free(a->resting);
    free(a->updating);
    free(a->seconds);
    free(a->shares);
    free(a->speeds);
}

static copse_status asking_new(asking *a, size_t count, copse_error *err) {
    copse_status status;
    *a = (asking){0};
    COPSE__TRY(copse__calloc(&a->who, count, sizeof *a->who, err), out);
    COPSE__TRY(copse__calloc(&a->resting, count, sizeof *a->resting, err), out);
    COPSE__TRY(copse__calloc(&a->updating, count, sizeof *a->updating, err), out);
    COPSE__TRY(copse__calloc(&a->seconds, count, sizeof *a->seconds, err), out);
    COPSE__TRY(copse__calloc(&a->shares, count, sizeof *a->shares, err), out);
    COPSE__TRY(copse__calloc(&a->speeds, count, sizeof *a->speeds, err), out);
out:
    return status;
}

/* *any: somebody that rests is worth measuring. */
static copse_status look(copse__trainer *t, asking *a, bool *any, copse_error *err) {
    glance *g;
    double step = 0;
    copse_status status =
        copse__calloc(&g, 1, sizeof *g + t->replica_count * sizeof g->seconds[0], err);
    if (status != COPSE_OK)
        return status;
    g->trainer = t;
    status = copse__trainer_ask_all(t, glance_one, g, err);
    if (status == COPSE_OK)
        memcpy(a->seconds, g->seconds, t->replica_count * sizeof g->seconds[0]);
    copse__trainer_free_shared(t, g);
    if (status != COPSE_OK)
        return status;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r) && a->seconds[r] > step)
            step = a->seconds[r];
    for (size_t r = 0; r < t->replica_count; r++) {
        a->resting[r] &= a->seconds[r] < step;
        a->who[r] = copse__takes_part(t, r) || a->resting[r];
        *any |= a->resting[r];
        if (t->replicas[r].resting && !atomic_load(&t->replicas[r].lost) &&
            !a->resting[r])
            say_asked(t, r, a->seconds[r], step);
    }
    return COPSE_OK;
}

/* Speeds and shards of all, where somebody that rested gets one; else everything stays as it is. */
static copse_status judge(copse__trainer *t, asking *a, bool *changed, copse_error *err) {
    copse_status status;
    /* Where the others' updates are not known, as in a resumed run, nobody's counts. */
    for (size_t r = 0; r < t->replica_count; r++)
        a->updating[r] = t->speeds && a->resting[r];
    COPSE__TRY(copse__speeds_measure(t, a->who, a->updating, a->speeds, err), out);
    for (size_t r = 0; r < t->replica_count && t->speeds; r++) {
        double known = a->resting[r] ? 0 : t->speeds[r].update_s;
        if (!a->who[r]) {
            a->speeds[r] = t->speeds[r]; /* it may be wanted when others are lost */
            continue;
        }
        a->speeds[r].update_s += known;
        a->speeds[r].fixed_s += known;
    }
    COPSE__TRY(copse__speeds_plan(a->speeds, t->replica_count, t->batch,
                                  copse__reduce_cost, t, a->who, a->shares, err),
               out);
    for (size_t r = 0; r < t->replica_count; r++) {
        *changed |= a->resting[r] && a->shares[r] >= 0.5;
        if (a->resting[r] && a->shares[r] < 0.5)
            say_asked(t, r, a->seconds[r], a->seconds[t->lead]);
    }
    if (*changed) {
        copse__speed *old = t->speeds;
        t->speeds = a->speeds;
        a->speeds = old;
        status = copse__shards_set(t, a->shares, err);
    }
out:
    return status;
}

static void set_resting(copse__trainer *t, const bool *who, bool rests) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (who[r])
            copse__workers_rest(t->workers, r, rests);
}

copse_status copse__resting_ask(copse__trainer *t, bool *changed, copse_error *err) {
    copse_status status;
    asking a;
    uint64_t epoch = t->position.epoch;
    bool any = false;
    *changed = false;
    if ((epoch & (epoch - 1)) != 0)
        return COPSE_OK;
    COPSE__TRY(asking_new(&a, t->replica_count, err), out);
    for (size_t r = 0; r < t->replica_count; r++) {
        a.resting[r] = t->replicas[r].resting && !atomic_load(&t->replicas[r].lost);
        any |= a.resting[r];
    }
    if (!any)
        goto out;
    copse__workers_set_patience(t->workers, t->stall_ns * COPSE__BUILD_PATIENCE);
    set_resting(t, a.resting, false);
    any = false;
    status = look(t, &a, &any, err);
    if (status == COPSE_OK && any)
        status = judge(t, &a, changed, err);
    for (size_t r = 0; r < t->replica_count; r++)
        if (t->replicas[r].resting)
            copse__workers_rest(t->workers, r, true);
    copse__workers_set_patience(t->workers, t->stall_ns);
    copse__trainer_set_pace(t);
    if (copse__is_loss(status) && !t->regroup_due)
        copse__log(COPSE_LOG_WARN, "devices that rest go on resting: %s: %s",
                   err ? err->place : "", err ? err->text : "");
    if (copse__is_loss(status))
        status = COPSE_OK; /* the next epoch begins with those who are left */
out:
    asking_free(&a);
    return status;
}
