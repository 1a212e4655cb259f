/* SPDX-License-Identifier: Apache-2.0 */
#include "train/speeds.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"

/* A device is left out for a gain that the measurement can be trusted for. */
#define WORTH_IT 0.98

typedef enum role { ROLE_OUT, ROLE_FULL, ROLE_SHARING } role;

/* The time at which all that share finish together, having `rows` between them. */
static double common_time(const copse__speed *speeds, const role *roles, size_t count,
                          double rows) {
    double work = rows, rate = 0;
    for (size_t i = 0; i < count; i++)
        if (roles[i] == ROLE_SHARING) {
            work += speeds[i].fixed_s / speeds[i].row_s;
            rate += 1 / speeds[i].row_s;
        }
    return rate > 0 ? work / rate : -1;
}

/* Takes out, or fills up, one device whose share cannot be what the common time gives it. */
static bool adjust(const copse__speed *speeds, role *roles, size_t count, double time,
                   double *rows, double *shares) {
    for (size_t i = 0; i < count; i++) {
        if (roles[i] != ROLE_SHARING)
            continue;
        shares[i] = (time - speeds[i].fixed_s) / speeds[i].row_s;
        if (shares[i] < 0.5) {
            roles[i] = ROLE_OUT;
            shares[i] = 0;
            return true;
        }
    }
    for (size_t i = 0; i < count; i++) {
        double most = (double)speeds[i].most_rows;
        if (roles[i] != ROLE_SHARING || most == 0 || shares[i] <= most)
            continue;
        roles[i] = ROLE_FULL;
        shares[i] = most;
        *rows -= most;
        return true;
    }
    return false;
}

copse_status copse__speeds_share(const copse__speed *speeds, size_t count, const bool *in,
                                 size_t batch, double *shares, double *seconds,
                                 copse_error *err) {
    role *roles;
    copse_status status = copse__calloc(&roles, count, sizeof *roles, err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        shares[i] = 0;
        roles[i] = in[i] && speeds[i].row_s > 0 ? ROLE_SHARING : ROLE_OUT;
    }
    double rows = (double)batch, time = 0;
    do {
        time = common_time(speeds, roles, count, rows);
        if (time < 0 && rows >= 0.5) {
            status = copse__fail(err, COPSE_DEVICE_MEMORY, 0, NULL,
                                 "%.0f samples of a batch of %zu fit no device; use a "
                                 "smaller batch, or train.accumulate",
                                 rows, batch);
            break;
        }
    } while (time >= 0 && adjust(speeds, roles, count, time, &rows, shares));
    *seconds = 0;
    for (size_t i = 0; i < count; i++) {
        double one = speeds[i].fixed_s + shares[i] * speeds[i].row_s;
        if (shares[i] > 0 && one > *seconds)
            *seconds = one;
    }
    free(roles);
    return status;
}

static size_t count_in(const bool *in, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += in[i];
    return found;
}

/* The smallest share; of equal ones the last. */
static size_t least_useful(const double *shares, const bool *in, size_t count) {
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < count; i++)
        if (in[i] && (least == SIZE_MAX || shares[i] <= shares[least]))
            least = i;
    return least;
}

typedef struct search {
    const copse__speed *speeds;
    size_t count, batch;
    copse__speeds_cost_fn *cost;
    void *user;
    bool *in, *fewer;
    double *shares, *fewer_shares;
} search;

static copse_status cost_of(const search *s, const bool *in, double *seconds,
                            copse_error *err) {
    *seconds = 0;
    return s->cost && count_in(in, s->count) > 1 ? s->cost(s->user, in, seconds, err)
                                                 : COPSE_OK;
}

/* Tries it without the least useful device. *better: then that is how it is now. */
static copse_status try_fewer(search *s, double *time, double *cost, bool *better,
                              copse_error *err) {
    double fewer_time, fewer_cost = 0;
    *better = false;
    memcpy(s->fewer, s->in, s->count * sizeof *s->in);
    s->fewer[least_useful(s->shares, s->in, s->count)] = false;
    /* Where the others cannot hold the batch, there is no choice. */
    if (copse__speeds_share(s->speeds, s->count, s->fewer, s->batch, s->fewer_shares,
                            &fewer_time, NULL) != COPSE_OK)
        return COPSE_OK;
    if (fewer_time >= WORTH_IT * (*time + *cost))
        return COPSE_OK; /* not even without any cost */
    copse_status status = cost_of(s, s->fewer, &fewer_cost, err);
    if (status != COPSE_OK || fewer_time + fewer_cost >= WORTH_IT * (*time + *cost))
        return status;
    memcpy(s->shares, s->fewer_shares, s->count * sizeof *s->shares);
    for (size_t i = 0; i < s->count; i++)
        s->in[i] = s->shares[i] > 0;
    *time = fewer_time;
    *cost = fewer_cost;
    *better = true;
    return COPSE_OK;
}

copse_status copse__speeds_plan(const copse__speed *speeds, size_t count, size_t batch,
                                copse__speeds_cost_fn *cost, void *user, bool *in,
                                double *shares, copse_error *err) {
    copse_status status;
    search s = {.speeds = speeds,
                .count = count,
                .batch = batch,
                .cost = cost,
                .user = user,
                .in = in,
                .shares = shares};
    double time, spent;
    COPSE__TRY(copse__calloc(&s.fewer, count, sizeof *s.fewer, err), out);
    COPSE__TRY(copse__calloc(&s.fewer_shares, count, sizeof *s.fewer_shares, err), out);
    COPSE__TRY(copse__speeds_share(speeds, count, in, batch, shares, &time, err), out);
    for (size_t i = 0; i < count; i++)
        in[i] = shares[i] > 0;
    COPSE__TRY(cost_of(&s, in, &spent, err), out);
    for (bool better = true; better && count_in(in, count) > 1;)
        COPSE__TRY(try_fewer(&s, &time, &spent, &better, err), out);
out:
    free(s.fewer);
    free(s.fewer_shares);
    return status;
}
