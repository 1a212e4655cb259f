/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/tuner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

enum {
    MOST_CHALLENGERS = 96, /* of one look around */
    MOST_LOOKS = 4,        /* around new champions */
    MOST_TRIED = MOST_CHALLENGERS * MOST_LOOKS,
    LEAST_ROUNDS = 3,
    ROUNDS = 9,
    MOST_LAUNCHES = 200
};
#define TURN_US 2000.0
/* A challenger has to be so much faster: less is noise, and a change of bits for nothing. */
#define CLEARLY 0.97
#define HOPELESS 1.15

typedef struct candidate {
    char provider[32], parameters[256];
} candidate;

typedef struct runner {
    candidate what;
    copse__node_run **runs; /* one a spec */
    double *us;             /* of a first launch */
    size_t *launches;       /* that fill a turn */
} runner;

typedef struct session {
    copse__device *device;
    const copse__backend *backend;
    const copse__tune_options *options;
    const copse__tune_subject *subject;
    uint64_t end_ns; /* of the subject's share of the time */
    candidate *tried;
    size_t tried_count;
    candidate *found;
    size_t found_count;
    candidate *right; /* that the self-test's cases agree with, by operation */
    copse__op *right_ops;
    size_t right_count;
    size_t ran, wrong;
    double
        gain; /* the first champion's time in parts of the last one's, from their turns */
} session;

static bool is_over(const session *t) {
    return copse__now_ns() >= t->end_ns ||
           (t->options->stop && t->options->stop(t->options->user));
}

/* ---- Runners ---------------------------------------------------------------------------- */

/* The device follows this candidate for the subject's nodes, and CLBlast's own parameters; what: NULL: all
 * that is known. */
static copse_status follow(session *t, const char *key, const candidate *what,
                           copse__tuned **out, size_t *out_count, copse_error *err) {
    const copse__tune_options *o = t->options;
    copse__tuned *entries;
    size_t count = 0;
    copse_status status =
        copse__calloc(&entries, o->known_count + 1, sizeof *entries, err);
    if (status != COPSE_OK)
        return status;
    if (what)
        entries[count++] = (copse__tuned){key, what->provider, what->parameters};
    for (size_t i = 0; i < o->known_count; i++)
        if (!what || strncmp(o->known[i].key, "clblast ", 8) == 0)
            entries[count++] = o->known[i];
    status = t->backend->tune(t->device, entries, count, err);
    if (status == COPSE_OK && out) {
        *out = entries;
        *out_count = count;
        return COPSE_OK;
    }
    free(entries);
    return status;
}

static void retire(session *t, runner *r) {
    for (size_t i = 0; r->runs && i < t->subject->spec_count; i++)
        copse__node_run_free(r->runs[i]);
    free(r->runs);
    free(r->launches);
    free(r->us);
    *r = (runner){0};
}

static copse_status set_inputs(copse__node_run *run, const copse__case *made,
                               copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__MAX_INPUTS && status == COPSE_OK; i++) {
        void *values;
        if (!made->spec.in[i].present)
            continue;
        size_t count = copse__node_operand_elements(&made->spec.in[i], &made->runs[0]);
        status = copse__calloc(&values, count, sizeof(double), err);
        if (status != COPSE_OK)
            return status;
        copse__case_fill(values, made, i, count, 1);
        status = copse__node_run_set(run, i, values, count, err);
        free(values);
    }
    return status;
}

/* One of the runner's nodes: built, run once with guards looked at, and how many launches make a turn. */
static copse_status ready(session *t, runner *r, size_t s, copse_error *err) {
    copse__case made;
    double us = 0;
    copse_status status;
    copse__tune_case(&made, &t->subject->specs[s]);
    COPSE__TRY(copse__node_run_new(&r->runs[s], t->device, &made.spec, err), out);
    COPSE__TRY(set_inputs(r->runs[s], &made, err), out);
    COPSE__TRY(copse__node_run_go(r->runs[s], &made.runs[0], &made.scalars, err), out);
    COPSE__TRY(copse__node_run_sample(&us, r->runs[s], &made.runs[0], 1, err), out);
    r->us[s] = us;
    double launches = ceil(TURN_US / (us > 1 ? us : 1));
    r->launches[s] = (size_t)fmin(fmax(launches, 1), MOST_LAUNCHES);
out:
    return status;
}

/* *fits: false where the device would run the nodes otherwise, or cannot. what: NULL: the device's choice. */
static copse_status engage(session *t, runner *r, const candidate *what, bool *fits,
                           copse_error *err) {
    size_t count = t->subject->spec_count;
    copse_status status;
    *r = (runner){0};
    *fits = true;
    COPSE__TRY(copse__calloc(&r->runs, count, sizeof(copse__node_run *), err), out);
    COPSE__TRY(copse__calloc(&r->launches, count, sizeof *r->launches, err), out);
    COPSE__TRY(copse__calloc(&r->us, count, sizeof *r->us, err), out);
    COPSE__TRY(follow(t, t->subject->key, what, NULL, NULL, err), out);
    for (size_t s = 0; s < count; s++) {
        COPSE__TRY(ready(t, r, s, err), out);
        const char *provider = copse__node_run_provider(r->runs[s]);
        const char *parameters = copse__node_run_parameters(r->runs[s]);
        if (!what && s == 0) {
            snprintf(r->what.provider, sizeof r->what.provider, "%s", provider);
            snprintf(r->what.parameters, sizeof r->what.parameters, "%s", parameters);
        }
        *fits = *fits && (!what || (strcmp(provider, what->provider) == 0 &&
                                    strcmp(parameters, what->parameters) == 0));
    }
    if (what)
        r->what = *what;
out:
    if (status != COPSE_OK)
        retire(t, r);
    return status;
}

/* ---- Turns ------------------------------------------------------------------------------ */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count) {
    qsort(values, count, sizeof *values, compare_doubles);
    return values[count / 2];
}

static copse_status turn(session *t, runner *r, size_t s, double *us, copse_error *err) {
    copse__case made;
    copse__tune_case(&made, &t->subject->specs[s]);
    return copse__node_run_sample(us, r->runs[s], &made.runs[0], r->launches[s], err);
}

/* The challenger's time in parts of the champion's, of one round over all nodes. */
static copse_status play(session *t, runner *champion, runner *challenger, bool first,
                         double *ratio, copse_error *err) {
    double sum = 0;
    copse_status status = COPSE_OK;
    for (size_t s = 0; s < t->subject->spec_count && status == COPSE_OK; s++) {
        double own = 1, others = 1;
        if (first)
            status = turn(t, challenger, s, &own, err);
        if (status == COPSE_OK)
            status = turn(t, champion, s, &others, err);
        if (status == COPSE_OK && !first)
            status = turn(t, challenger, s, &own, err);
        sum += log(own / others);
    }
    *ratio = exp(sum / (double)t->subject->spec_count);
    return status;
}

/* *ratio: the median. */
static copse_status contest(session *t, runner *champion, runner *challenger, bool *wins,
                            double *ratio, copse_error *err) {
    double ratios[ROUNDS], sorted[ROUNDS];
    size_t rounds = 0, better = 0;
    *wins = false;
    while (rounds < ROUNDS) {
        copse_status status =
            play(t, champion, challenger, rounds % 2 == 0, &ratios[rounds], err);
        if (status != COPSE_OK)
            return status;
        better += ratios[rounds++] < 1;
        memcpy(sorted, ratios, sizeof sorted);
        double middle = median(sorted, rounds);
        if (rounds >= LEAST_ROUNDS &&
            (middle > HOPELESS || (rounds >= 5 && middle > CLEARLY) || sorted[0] > 1.03))
            return COPSE_OK;
        if (is_over(t) && rounds < 5)
            return COPSE_OK; /* not enough to tell */
        if (is_over(t))
            break;
    }
    memcpy(sorted, ratios, sizeof sorted);
    *ratio = median(sorted, rounds);
    *wins = *ratio <= CLEARLY && 3 * better >= 2 * rounds;
    return COPSE_OK;
}

/* The sum over the nodes of the medians of some turns. */
static copse_status measure(session *t, runner *r, double *us, copse_error *err) {
    *us = 0;
    for (size_t s = 0; s < t->subject->spec_count; s++) {
        double samples[5];
        for (size_t i = 0; i < COPSE__COUNT(samples); i++) {
            copse_status status = turn(t, r, s, &samples[i], err);
            if (status != COPSE_OK)
                return status;
        }
        *us += median(samples, COPSE__COUNT(samples));
    }
    return COPSE_OK;
}

/* ---- Right numbers ---------------------------------------------------------------------- */

static copse_status verify(session *t, const candidate *what, copse_error *err) {
    copse__op op = t->subject->specs[0].op;
    copse__tuned *entries;
    size_t count;
    copse_status status = follow(t, copse__op_name(op), what, &entries, &count, err);
    if (status != COPSE_OK)
        return status;
    bool known = false;
    for (size_t i = 0; i < t->right_count; i++)
        known |= t->right_ops[i] == op && memcmp(&t->right[i], what, sizeof *what) == 0;
    if (!known)
        status = copse__tune_verify_op(t->device, op, t->options->thorough, err);
    if (status == COPSE_OK && !known && t->right_count < MOST_TRIED) {
        t->right_ops[t->right_count] = op;
        t->right[t->right_count++] = *what;
    }
    if (status == COPSE_OK)
        status = copse__tune_verify(t->device, t->subject, entries, count,
                                    t->options->thorough, err);
    free(entries);
    return status;
}

static void tell_wrong(session *t, const candidate *what, const copse_error *why) {
    t->wrong++;
    copse__log(COPSE_LOG_WARN, "%s: %s %s is not chosen for %s: %s",
               copse__device_get(t->device)->choice.label, what->provider,
               what->parameters, t->subject->key, why->text);
}

/* What a candidate may fail with without the device being lost. */
static bool is_own_fault(const session *t, copse_status status, const copse_error *why) {
    return status == COPSE_KERNEL || status == COPSE_UNSUPPORTED ||
           status == COPSE_DEVICE_MEMORY ||
           (status == COPSE_DEVICE && t->backend->is_launch_fault &&
            t->backend->is_launch_fault(why));
}

/* So slow in its first launch that turns would only cost time. */
static bool is_hopeless(const session *t, const runner *champion,
                        const runner *challenger) {
    double own = 0, others = 0;
    for (size_t s = 0; s < t->subject->spec_count; s++) {
        own += challenger->us[s];
        others += champion->us[s];
    }
    return own > 4 * others;
}

/* ---- One subject ------------------------------------------------------------------------ */

static void find(const char *provider, const char *parameters, bool general, void *user) {
    session *t = user;
    if (!general && !strchr(t->subject->key, ' '))
        return; /* the result is to suit all sizes */
    candidate made = {{0}, {0}};
    snprintf(made.provider, sizeof made.provider, "%s", provider);
    snprintf(made.parameters, sizeof made.parameters, "%s", parameters);
    for (size_t i = 0; i < t->tried_count; i++)
        if (memcmp(&t->tried[i], &made, sizeof made) == 0)
            return;
    if (t->found_count < MOST_CHALLENGERS && t->tried_count < MOST_TRIED) {
        t->tried[t->tried_count++] = made;
        t->found[t->found_count++] = made;
    }
}

/* All that is worth timing around the champion and was not tried yet. */
static copse_status look(session *t, const candidate *champion, copse_error *err) {
    copse__node_run *run;
    t->found_count = 0;
    copse_status status = follow(t, t->subject->key, champion, NULL, NULL, err);
    if (status == COPSE_OK)
        status = copse__node_run_new(&run, t->device, &t->subject->specs[0], err);
    if (status != COPSE_OK)
        return status;
    copse__node_run_candidates(run,
                               t->options->clblast    ? COPSE__EFFORT_LIBRARIES
                               : t->options->thorough ? COPSE__EFFORT_THOROUGH
                                                      : COPSE__EFFORT_QUICK,
                               find, t);
    copse__node_run_free(run);
    return COPSE_OK;
}

static copse_status challenge(session *t, runner *champion, const candidate *what,
                              bool *won, copse_error *err) {
    runner challenger;
    bool fits, wins = false;
    double ratio = 1;
    copse_error why = {0};
    *won = false;
    copse_status status = engage(t, &challenger, what, &fits, &why);
    if (status == COPSE_OK && fits) {
        t->ran++;
        if (!is_hopeless(t, champion, &challenger))
            status = contest(t, champion, &challenger, &wins, &ratio, &why);
    }
    if (status == COPSE_OK && wins)
        status = verify(t, what, &why);
    if (status == COPSE_KERNEL)
        tell_wrong(t, what, &why);
    if (status == COPSE_OK && wins) {
        retire(t, champion);
        *champion = challenger;
        t->gain /= ratio;
        *won = true;
        return COPSE_OK;
    }
    retire(t, &challenger);
    if (status == COPSE_OK || is_own_fault(t, status, &why))
        return COPSE_OK;
    if (err)
        *err = why;
    return status;
}

static copse_status tune_subject(session *t, copse__pool *pool, copse__tune_result *out,
                                 bool *decided, copse_error *err) {
    runner champion = {0};
    bool fits, won = true, whole = false;
    char *key = NULL, *provider = NULL, *parameters = NULL;
    copse_status status;
    *decided = false;
    t->tried_count = t->ran = t->wrong = 0;
    t->gain = 1;
    COPSE__TRY(engage(t, &champion, NULL, &fits, err), out);
    t->tried[t->tried_count++] = champion.what;
    for (size_t looks = 0; looks < MOST_LOOKS && won && !is_over(t); looks++) {
        const candidate around = champion.what;
        COPSE__TRY(look(t, &around, err), out);
        won = false;
        whole = t->found_count == 0;
        for (size_t i = 0; i < t->found_count && !is_over(t); i++) {
            bool one;
            COPSE__TRY(challenge(t, &champion, &t->found[i], &one, err), out);
            won |= one;
            whole = i + 1 == t->found_count;
        }
        won &= t->options->thorough;
    }
    COPSE__TRY(measure(t, &champion, &out->us, err), out);
    /* Not measured at the beginning: a machine's pace differs more between then and now. */
    out->default_us = out->us * t->gain;
    COPSE__TRY(copse__pool_strdup(pool, &key, t->subject->key, err), out);
    COPSE__TRY(copse__pool_strdup(pool, &provider, champion.what.provider, err), out);
    COPSE__TRY(copse__pool_strdup(pool, &parameters, champion.what.parameters, err), out);
    out->tuned = (copse__tuned){key, provider, parameters};
    *decided = t->ran > 0 || whole;
out:
    retire(t, &champion);
    return status;
}

/* The device follows again what it did before; an earlier error stays. */
static copse_status follow_known(session *t, copse_status status, copse_error *err) {
    const copse__tune_options *o = t->options;
    copse_status back = t->backend->tune(t->device, o->known, o->known_count,
                                         status == COPSE_OK ? err : NULL);
    return status == COPSE_OK ? back : status;
}

copse_status copse__tune_run(copse__tune_result *results, size_t *count,
                             copse__pool *pool, copse__device *device,
                             const copse__tune_list *list,
                             const copse__tune_options *options, copse_error *err) {
    session t = {
        .device = device, .backend = copse__backend_of(device), .options = options};
    uint64_t start = copse__now_ns();
    double weight = 0;
    copse_status status;
    *count = 0;
    COPSE__TRY(copse__calloc(&t.tried, MOST_TRIED, sizeof *t.tried, err), out);
    COPSE__TRY(copse__calloc(&t.found, MOST_CHALLENGERS, sizeof *t.found, err), out);
    COPSE__TRY(copse__calloc(&t.right, MOST_TRIED, sizeof *t.right, err), out);
    COPSE__TRY(copse__calloc(&t.right_ops, MOST_TRIED, sizeof *t.right_ops, err), out);
    for (size_t i = 0; i < list->count; i++)
        weight += list->subjects[i].weight;
    for (size_t i = 0; i < list->count; i++) {
        /* What a subject leaves of its share is the others'. A light one gets some, too. */
        double spent = (double)(copse__now_ns() - start) * 1e-9;
        double left = options->seconds - spent, own = list->subjects[i].weight;
        double share = weight > 0 ? left * own / weight : left;
        double even = left / (double)(list->count - i);
        bool decided;
        weight -= own;
        if (left <= 0 || (options->stop && options->stop(options->user)))
            break;
        t.subject = &list->subjects[i];
        t.end_ns = copse__now_ns() + (uint64_t)(fmin(left, 0.5 * (share + even)) * 1e9);
        COPSE__TRY(tune_subject(&t, pool, &results[*count], &decided, err), out);
        if (decided && options->on_subject)
            options->on_subject(&(copse__tune_progress){.key = t.subject->key,
                                                        .result = &results[*count],
                                                        .tried = t.ran,
                                                        .wrong = t.wrong},
                                options->user);
        *count += decided;
    }
out:
    status = follow_known(&t, status, err);
    free(t.tried);
    free(t.found);
    free(t.right);
    free(t.right_ops);
    return status;
}
