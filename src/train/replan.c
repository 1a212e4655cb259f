/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "train/trainer_private.h"

/* Shards that follow devices whose speed has drifted (a clock that is throttled, another program beside). Some steps
 * are timed; at the ends of epochs, and nowhere else, the shards are cut anew where that would have made steps much
 * shorter twice in a row. */

#define WORTH_IT 1.2 /* what a step must be longer by than with the other shards */
#define TWICE 2      /* judgements in a row */
#define LEAST_SAMPLES 5

struct copse__drift {
    double
        *samples; /* [rank][COPSE__DRIFT_SAMPLES]: seconds of the passes and the update */
    size_t count; /* the same for all that take part */
    unsigned in_a_row;
};

copse_status copse__drift_new(copse__drift **out, size_t replica_count,
                              copse_error *err) {
    copse_status status = copse__calloc(out, 1, sizeof **out, err);
    if (status == COPSE_OK)
        status = copse__calloc(&(*out)->samples, replica_count * COPSE__DRIFT_SAMPLES,
                               sizeof(double), err);
    if (status != COPSE_OK) {
        copse__drift_free(*out);
        *out = NULL;
    }
    return status;
}

void copse__drift_free(copse__drift *drift) {
    if (drift)
        free(drift->samples);
    free(drift);
}

void copse__drift_forget(copse__drift *drift) {
    if (drift)
        *drift = (copse__drift){.samples = drift->samples};
}

bool copse__drift_wants(const copse__trainer *t, size_t rows, uint64_t index,
                        uint64_t batches) {
    uint64_t stride = batches / COPSE__DRIFT_SAMPLES + 1;
    return t->drift && rows == t->batch && copse__trainer_active(t) > 1 &&
           index % stride == stride / 2;
}

void copse__drift_add(copse__trainer *t) {
    copse__drift *drift = t->drift;
    if (!drift || drift->count == COPSE__DRIFT_SAMPLES)
        return;
    for (size_t r = 0; r < t->replica_count; r++) {
        const copse__step_times *times = copse__trainer_times(t, r);
        if (copse__takes_part(t, r) && !times)
            return;
        drift->samples[r * COPSE__DRIFT_SAMPLES + drift->count] =
            times ? (double)(times->computed_ns - times->uploaded_ns + times->updated_ns -
                             times->summed_ns) *
                        1e-9
                  : 0;
    }
    drift->count++;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *samples, size_t count) {
    qsort(samples, count, sizeof *samples, compare_doubles);
    return samples[count / 2];
}

/* What was measured before, so much faster or slower as the device is now. */
static copse__speed speed_now(const copse__trainer *t, size_t rank, double seconds) {
    double rows = (double)t->shards[rank];
    copse__speed speed = {.row_s = seconds / rows};
    if (t->speeds && t->speeds[rank].row_s > 0) {
        const copse__speed *old = &t->speeds[rank];
        double factor = seconds / (old->fixed_s + rows * old->row_s);
        speed = (copse__speed){.fixed_s = old->fixed_s * factor,
                               .row_s = old->row_s * factor,
                               .update_s = old->update_s * factor,
                               .most_rows = old->most_rows};
    }
    return speed;
}

/* Fills shares; *gain: how many times shorter the longest pass would be with them. */
static copse_status judge(copse__trainer *t, double *shares, double *gain,
                          copse_error *err) {
    copse_status status;
    copse__speed *speeds = NULL;
    bool *in = NULL;
    double now = 0, then = 0;
    COPSE__TRY(copse__calloc(&speeds, t->replica_count, sizeof *speeds, err), out);
    COPSE__TRY(copse__calloc(&in, t->replica_count, sizeof *in, err), out);
    for (size_t r = 0; r < t->replica_count; r++) {
        in[r] = copse__takes_part(t, r) && t->shards[r] > 0;
        if (!in[r])
            continue;
        double seconds =
            median(t->drift->samples + r * COPSE__DRIFT_SAMPLES, t->drift->count);
        speeds[r] = speed_now(t, r, seconds);
        now = seconds > now ? seconds : now;
    }
    COPSE__TRY(
        copse__speeds_share(speeds, t->replica_count, in, t->batch, shares, &then, err),
        out);
    *gain = then > 0 ? now / then : 0;
out:
    free(speeds);
    free(in);
    return status;
}

/* At the end of an epoch: shares where they are to be cut anew. */
static copse_status decide(copse__trainer *t, double *shares, bool *due,
                           copse_error *err) {
    double gain;
    *due = false;
    if (t->drift->count < LEAST_SAMPLES)
        return COPSE_OK; /* short epochs: the next one adds to it */
    copse_status status = judge(t, shares, &gain, err);
    t->drift->count = 0;
    if (status != COPSE_OK)
        return status;
    t->drift->in_a_row = gain > WORTH_IT ? t->drift->in_a_row + 1 : 0;
    *due = t->drift->in_a_row >= TWICE;
    return COPSE_OK;
}

/* ---- What was cut when ------------------------------------------------------------------ */

copse_status copse__cuts_add(copse__cuts *cuts, size_t replica_count, uint64_t step,
                             const size_t *shards, copse_error *err) {
    copse_status status = copse__grow(&cuts->steps, &cuts->step_capacity, cuts->count + 1,
                                      sizeof *cuts->steps, err);
    if (status == COPSE_OK)
        status =
            copse__grow(&cuts->shards, &cuts->capacity, (cuts->count + 1) * replica_count,
                        sizeof *cuts->shards, err);
    if (status != COPSE_OK)
        return status;
    cuts->steps[cuts->count] = step;
    memcpy(cuts->shards + cuts->count * replica_count, shards,
           replica_count * sizeof *shards);
    cuts->count++;
    return COPSE_OK;
}

void copse__cuts_free(copse__cuts *cuts) {
    free(cuts->steps);
    free(cuts->shards);
    *cuts = (copse__cuts){0};
}

/* A resumed run cuts as it was recorded, as far as that goes. */
static const size_t *recorded_cut(const copse__trainer *t, bool *later) {
    const size_t *found = NULL;
    *later = false;
    for (size_t i = 0; i < t->cuts.count; i++) {
        if (t->cuts.steps[i] == t->position.step)
            found = t->cuts.shards + i * t->replica_count;
        *later |= t->cuts.steps[i] > t->position.step;
    }
    return found && memcmp(found, t->shards, t->replica_count * sizeof *found) != 0
               ? found
               : NULL;
}

/* Shards that were set just now are those of the steps to come. */
static copse_status record(copse__trainer *t, const size_t *before, bool *changed,
                           copse_error *err) {
    copse_status status = COPSE_OK;
    copse__drift_forget(t->drift);
    *changed = memcmp(before, t->shards, t->replica_count * sizeof *before) != 0;
    if (*changed && t->cuts.count == 0)
        status = copse__cuts_add(&t->cuts, t->replica_count, 0, before, err);
    if (*changed && status == COPSE_OK)
        status =
            copse__cuts_add(&t->cuts, t->replica_count, t->position.step, t->shards, err);
    return status;
}

copse_status copse__replan(copse__trainer *t, bool *changed, copse_error *err) {
    copse_status status = COPSE_OK;
    double *shares = NULL;
    size_t *before = NULL;
    bool later, due = false;
    *changed = false;
    if (t->regroup_due || t->replica_count < 2)
        return COPSE_OK;
    const size_t *recorded = recorded_cut(t, &later);
    if (recorded) {
        copse__drift_forget(t->drift);
        *changed = true;
        return copse__shards_take(t, recorded, err);
    }
    if (later || !t->drift) {
        copse__drift_forget(t->drift);
        return COPSE_OK;
    }
    COPSE__TRY(copse__calloc(&shares, t->replica_count, sizeof *shares, err), out);
    COPSE__TRY(copse__calloc(&before, t->replica_count, sizeof *before, err), out);
    memcpy(before, t->shards, t->replica_count * sizeof *before);
    COPSE__TRY(copse__resting_ask(t, &due, err), out);
    if (due) {
        COPSE__TRY(record(t, before, changed, err), out);
        goto out;
    }
    if (t->regroup_due || copse__trainer_active(t) < 2)
        goto out;
    COPSE__TRY(decide(t, shares, &due, err), out);
    if (!due)
        goto out;
    COPSE__TRY(copse__shards_set(t, shares, err), out);
    COPSE__TRY(record(t, before, changed, err), out);
out:
    free(shares);
    free(before);
    return status;
}
