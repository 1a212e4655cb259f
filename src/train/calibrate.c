/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* Shards by measured speed. Before the first step all replicas run forward and backward passes on zeros,
 * all at once, because devices that are CPUs share cores; of two sizes, because a pass has a fixed part; then
 * updates. What follows is checked at the shards that come of it, as other sizes may run other kernels.
 * Nothing is random and nothing of it stays: weights are still zero then. */

#define PHASE_NS UINT64_C(200000000)    /* of each of the two sizes */
#define OVERRUN_NS UINT64_C(2000000000) /* in which the others wait for a slow one */
#define LONG_PASS_NS 1e9
#define MOST_SAMPLES 64
#define UPDATES 3
#define WORTH_IT                                                                         \
    1.03 /* what a step must be longer by than with the shards that a check asks for */
#define ALIKE 1.2 /* equal models whose times differ by less are equally fast */

/* On the heap, where it stays if a driver does not come back. */
typedef struct trial {
    copse__trainer *trainer;
    size_t divisor; /* of the replica's micro-batch */
    uint64_t until_ns;
    atomic_size_t measuring; /* replicas that have not measured enough yet */
    struct {
        bool takes_part;
        double
            seconds; /* the lower quartile, which other load disturbs less than the median */
    } ranks[];
} trial;

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t trial_rows(const copse__trainer *t, size_t rank, size_t divisor) {
    return copse__max_size(t->replicas[rank].sizes.train_rows / divisor, 1);
}

/* Of a device whose passes are long only some rows are run. *rest_s: what the others would take. */
static size_t bounded_rows(const copse__trainer *t, size_t rank, size_t rows,
                           double *rest_s) {
    const copse__replica *r = &t->replicas[rank];
    double pass =
        (double)r->pass_ns - (double)(trial_rows(t, rank, 1) - rows) * r->row_ns;
    size_t bounded = rows;
    if (pass > LONG_PASS_NS && r->row_ns > 0)
        bounded = copse__max_size(
            (size_t)fmax(0, (double)rows - (pass - LONG_PASS_NS) / r->row_ns), 1);
    *rest_s = (double)(rows - bounded) * r->row_ns * 1e-9;
    return bounded;
}

/* Runs until it has measured enough and all others have: a device that stopped early would leave its
 * cores to the others. */
static copse_status trial_one(size_t rank, void *user, copse_error *err) {
    trial *all = user;
    copse__trainer *t = all->trainer;
    if (!all->ranks[rank].takes_part)
        return COPSE_OK;
    double samples[MOST_SAMPLES];
    double rest_s;
    size_t count = 0,
           rows = bounded_rows(t, rank, trial_rows(t, rank, all->divisor), &rest_s);
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
        all->ranks[rank].seconds = samples[count / 4] + rest_s;
    }
    return status;
}

/* Before the first step a device that fails ends all; later it is given up. */
static copse_status run_all(copse__trainer *t, copse__work_fn *fn, void *user,
                            copse_error *err) {
    return t->grouping == 0 ? copse__workers_run(t->workers, fn, user, NULL, err)
                            : copse__trainer_ask_all(t, fn, user, err);
}

/* Runs fn with a trial; seconds by rank. */
static copse_status measure_by(copse__trainer *t, copse__work_fn *fn, const bool *who,
                               size_t divisor, double *seconds, copse_error *err) {
    trial *all;
    size_t count = t->replica_count;
    copse_status status =
        copse__calloc(&all, 1, sizeof *all + count * sizeof all->ranks[0], err);
    if (status != COPSE_OK)
        return status;
    all->trainer = t;
    all->divisor = divisor;
    all->until_ns = copse__now_ns() + PHASE_NS;
    for (size_t r = 0; r < count; r++) {
        all->ranks[r].takes_part = who[r];
        all->measuring += who[r];
    }
    status = run_all(t, fn, all, err);
    for (size_t r = 0; r < count && status == COPSE_OK; r++)
        seconds[r] = all->ranks[r].seconds;
    copse__trainer_free_shared(t, all);
    return status;
}

static copse_status measure(copse__trainer *t, const bool *who, size_t divisor,
                            double *seconds, copse_error *err) {
    return measure_by(t, trial_one, who, divisor, seconds, err);
}

/* Leaves weights and slots zero. */
static copse_status update_one(size_t rank, void *user, copse_error *err) {
    trial *all = user;
    copse__replica *r = &all->trainer->replicas[rank];
    copse_status status = COPSE_OK;
    double *least = &all->ranks[rank].seconds;
    if (!all->ranks[rank].takes_part)
        return COPSE_OK;
    for (size_t i = 0; i < UPDATES && status == COPSE_OK; i++) {
        uint64_t start = copse__now_ns();
        status = copse__replica_update_trial(r, err);
        double seconds = (double)(copse__now_ns() - start) * 1e-9;
        if (status == COPSE_OK && (i == 0 || seconds < *least))
            *least = seconds;
        if (seconds * 1e9 > LONG_PASS_NS)
            break;
    }
    return status == COPSE_OK ? copse__store_clear(r->store, err) : status;
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

/* Whether two times are of devices of one model with as many rows, give or take one, and differ by no more
 * than noise. */
static bool alike(const copse__trainer *t, size_t a, size_t b, const double *seconds) {
    size_t rows = t->shards[a], other = t->shards[b];
    return same_model(&t->choices[a], &t->choices[b]) && rows <= other + 1 &&
           other <= rows + 1 && seconds[a] <= seconds[b] * ALIKE &&
           seconds[b] <= seconds[a] * ALIKE;
}

/* Those count as equal, so that their shards are the same in every run. */
static void level_out(const copse__trainer *t, const bool *who, double *seconds) {
    for (size_t r = 0; r < t->replica_count; r++) {
        double sum = 0;
        size_t count = 0;
        bool first = who[r];
        for (size_t o = 0; o < t->replica_count && first; o++)
            if (who[o] && alike(t, r, o, seconds)) {
                first &= o >= r;
                sum += seconds[o];
                count++;
            }
        if (!first)
            continue;
        for (size_t o = t->replica_count; o-- > r;)
            if (who[o] && alike(t, r, o, seconds))
                seconds[o] = sum / (double)count;
    }
}

/* Rows that a replica's device has memory for, by its plan. 0: no limit is near. */
static size_t room_for(const copse__trainer *t, size_t rank) {
    size_t rows = copse__replica_room(&t->replicas[rank]);
    return rows >= t->batch ? 0 : copse__max_size(rows, 1);
}

typedef struct timing {
    double *small, *full,
        *update; /* by rank: seconds of a quarter of a micro-batch, of one, of the update */
} timing;

static void timing_free(timing *times) {
    free(times->small);
    free(times->full);
    free(times->update);
}

static copse_status timing_new(timing *times, size_t count, copse_error *err) {
    copse_status status;
    *times = (timing){0};
    COPSE__TRY(copse__calloc(&times->small, count, sizeof(double), err), out);
    COPSE__TRY(copse__calloc(&times->full, count, sizeof(double), err), out);
    COPSE__TRY(copse__calloc(&times->update, count, sizeof(double), err), out);
out:
    return status;
}

static void set_speeds(copse__trainer *t, const bool *who, timing *times,
                       copse__speed *speeds) {
    level_out(t, who, times->small);
    level_out(t, who, times->full);
    level_out(t, who, times->update);
    for (size_t r = 0; r < t->replica_count; r++) {
        copse__speed *speed = &speeds[r];
        double rows = (double)trial_rows(t, r, 1);
        *speed = (copse__speed){0};
        if (!who[r])
            continue;
        if (t->micro_shard > 0) { /* a share is so many passes of one size */
            speed->row_s = times->full[r] / rows;
        } else {
            *speed = fit_line((double)trial_rows(t, r, 4), times->small[r], rows,
                              times->full[r]);
            speed->fixed_s *= (double)t->config->train.accumulate;
            speed->most_rows = t->config->train.accumulate > 1 ? 0 : room_for(t, r);
        }
        speed->update_s = times->update[r];
        speed->fixed_s += speed->update_s;
        copse__log(COPSE_LOG_INFO,
                   "%s: %.3g ms (%.3g of them the update) and %.3g ms a sample",
                   t->choices[r].label, speed->fixed_s * 1e3, speed->update_s * 1e3,
                   speed->row_s * 1e3);
    }
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

/* Of those that are not lost. cost NULL: who is in stays in, as far as a share is worth anything. */
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

copse_status copse__speeds_measure(copse__trainer *t, const bool *who,
                                   const bool *updates, copse__speed *speeds,
                                   copse_error *err) {
    copse_status status;
    timing times;
    COPSE__TRY(timing_new(&times, t->replica_count, err), out);
    COPSE__TRY(measure(t, who, 4, times.small, err), out);
    COPSE__TRY(measure(t, who, 1, times.full, err), out);
    COPSE__TRY(measure_by(t, update_one, updates, 1, times.update, err), out);
    set_speeds(t, who, &times, speeds);
out:
    timing_free(&times);
    return status;
}

copse_status copse__calibrate(copse__trainer *t, copse_error *err) {
    copse_status status;
    bool *who = NULL;
    copse__trainer_tell(t, "measuring the devices");
    COPSE__TRY(copse__calloc(&who, t->replica_count, sizeof *who, err), out);
    COPSE__TRY(copse__calloc(&t->speeds, t->replica_count, sizeof *t->speeds, err), out);
    memset(who, true, t->replica_count);
    COPSE__TRY(copse__speeds_measure(t, who, who, t->speeds, err), out);
    COPSE__TRY(plan(t, copse__reduce_cost, err), out);
    say_who_rests(t);
out:
    free(who);
    return status;
}

/* The line through what the passes over its shard took and what they take for an equal share, where it was measured
 * first; where these are close together or contradict each other, the line so far, so much steeper. */
static copse__speed corrected(const copse__trainer *t, size_t rank, double passes) {
    const copse__speed *old = &t->speeds[rank];
    double fixed = old->fixed_s - old->update_s, rows = (double)t->shards[rank];
    double first = (double)copse__max_size(t->batch / t->replica_count, 1);
    double then = fixed + first * old->row_s,
           factor = passes / (fixed + rows * old->row_s);
    copse__speed now = {.fixed_s = fixed * factor, .row_s = old->row_s * factor};
    if (rows * 1.25 < first && passes < then && passes * first > then * rows)
        now = fit_line(rows, passes, first, then);
    else if (first * 1.25 < rows)
        now = fit_line(first, then, rows, passes);
    now.update_s = old->update_s;
    now.fixed_s += old->update_s;
    now.most_rows = old->most_rows;
    return now;
}

/* *gain: how many times longer the longest step is than with the shares. */
static copse_status correct(copse__trainer *t, const bool *in, const double *seconds,
                            double *shares, double *gain, copse_error *err) {
    double now = 0, then;
    for (size_t r = 0; r < t->replica_count; r++) {
        double passes = seconds[r] * (double)t->config->train.accumulate;
        if (!in[r])
            continue;
        now = passes + t->speeds[r].update_s > now ? passes + t->speeds[r].update_s : now;
        t->speeds[r] = corrected(t, r, passes);
    }
    copse_status status = copse__speeds_share(t->speeds, t->replica_count, in, t->batch,
                                              shares, &then, err);
    *gain = then > 0 ? now / then : 0;
    return status;
}

copse_status copse__calibrate_again(copse__trainer *t, bool *changed, copse_error *err) {
    copse_status status;
    bool *in = NULL;
    double *seconds = NULL, *shares = NULL, gain;
    size_t *before = NULL, n = t->replica_count, count = 0;
    *changed = false;
    if (t->micro_shard > 0)
        return COPSE_OK;
    COPSE__TRY(copse__calloc(&in, n, sizeof *in, err), out);
    COPSE__TRY(copse__calloc(&seconds, n, sizeof *seconds, err), out);
    COPSE__TRY(copse__calloc(&shares, n, sizeof *shares, err), out);
    COPSE__TRY(copse__calloc(&before, n, sizeof *before, err), out);
    memcpy(before, t->shards, n * sizeof *before);
    for (size_t r = 0; r < n; r++)
        count += in[r] = t->shards[r] > 0;
    if (count < 2)
        goto out;
    COPSE__TRY(measure(t, in, 1, seconds, err), out);
    level_out(t, in, seconds);
    COPSE__TRY(correct(t, in, seconds, shares, &gain, err), out);
    if (gain <= WORTH_IT)
        goto out;
    COPSE__TRY(copse__shards_set(t, shares, err), out);
    for (size_t r = 0; r < n; r++) {
        *changed |= t->shards[r] != before[r];
        copse__log(COPSE_LOG_INFO, "%s: %.3g ms for %zu samples, so it gets %zu",
                   t->choices[r].label, seconds[r] * 1e3, before[r], t->shards[r]);
    }
out:
    free(in);
    free(seconds);
    free(shares);
    free(before);
    return status;
}
