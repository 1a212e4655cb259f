/* SPDX-License-Identifier: Apache-2.0 */
#include "train/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"

/* How long the thread of a device that is known to be lost may take to come back, and how long
 * the end waits for threads that are out. */
#define MOMENT_NS UINT64_C(200000000)
/* Waits are cut in slices; one that was much longer was a process that stood still, whose
 * devices did too. */
#define SLICE_NS UINT64_C(1000000000)
/* A round may take so many times as long as the longest before it. */
#define PACES 20

typedef struct worker {
    copse__workers *all;
    size_t rank;
    pthread_t thread;
    bool called; /* has work of this round to do, or is doing it */
    bool rests;
    bool doubted;
    bool out; /* left alone in the middle of its work */
    bool left;
    copse_status status;
    copse_error error;
} worker;

struct copse__workers {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    copse__work_fn *fn;
    void *user;
    uint64_t patience_ns;
    uint64_t begun_ns;                /* when the round began; 0: between two */
    uint64_t returned_ns;             /* when the last one came back */
    uint64_t expected_ns, longest_ns; /* a round's time */
    unsigned rounds;                  /* so far */
    bool paced;     /* rounds from now on are measures of those to come */
    bool cut_short; /* somebody was left alone in this round */
    bool stop;
    copse__hang_fn *hang; /* of a single worker */
    void *hang_user;
    pthread_t watchdog;
    bool watched;
    pthread_cond_t watch;
    size_t count, threads;
    worker *workers;
};

/* ---- The threads ----------------------------------------------------------------------- */

/* With the lock held; lets it go for the work. */
static void do_work(worker *w) {
    copse__workers *all = w->all;
    copse__work_fn *fn = all->fn;
    void *user = all->user;
    copse_error error = {0};
    pthread_mutex_unlock(&all->lock);
    copse_status status = fn(w->rank, user, &error);
    pthread_mutex_lock(&all->lock);
    if (w->out)
        return; /* too late: nobody asks any more */
    w->status = status;
    w->error = error;
    w->called = false;
    all->returned_ns = copse__now_ns();
    pthread_cond_broadcast(&all->end);
}

static void *worker_main(void *user) {
    worker *w = user;
    copse__workers *all = w->all;
    copse__thread_is_brief();
    pthread_mutex_lock(&all->lock);
    while (!all->stop && !w->out) {
        if (w->called)
            do_work(w);
        else
            pthread_cond_wait(&all->begin, &all->lock);
    }
    w->out = false;
    w->left = true;
    pthread_cond_broadcast(&all->end);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

static void init_locks(copse__workers *all) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->begin, NULL);
    pthread_cond_init(&all->end, &monotonic);
    pthread_cond_init(&all->watch, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

copse_status copse__workers_new(copse__workers **out, size_t count, copse_error *err) {
    *out = NULL;
    copse__workers *all;
    copse_status status = copse__calloc(&all, 1, sizeof *all, err);
    if (status != COPSE_OK)
        return status;
    init_locks(all);
    all->count = count;
    COPSE__TRY(copse__calloc(&all->workers, count, sizeof *all->workers, err), fail);
    for (size_t i = 0; i < count; i++)
        all->workers[i] = (worker){.all = all, .rank = i};
    for (; count > 1 && all->threads < count; all->threads++) {
        worker *w = &all->workers[all->threads];
        int code = pthread_create(&w->thread, NULL, worker_main, w);
        if (code != 0) {
            status = copse__fail(err, COPSE_NOMEM, code, NULL,
                                 "cannot start a thread for replica %zu: %s",
                                 all->threads, strerror(code));
            goto fail;
        }
    }
    *out = all;
    return COPSE_OK;
fail:
    (void)copse__workers_free(all);
    return status;
}

static void wait_on(copse__workers *all, pthread_cond_t *cond, uint64_t until_ns) {
    const struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(cond, &all->lock, &at);
}

static bool any_out(const copse__workers *all) {
    for (size_t i = 0; i < all->threads; i++)
        if (all->workers[i].out)
            return true;
    return false;
}

bool copse__workers_free(copse__workers *all) {
    if (!all)
        return true;
    pthread_mutex_lock(&all->lock);
    all->stop = true;
    pthread_cond_broadcast(&all->begin);
    if (all->watched) {
        pthread_cond_signal(&all->watch);
        pthread_mutex_unlock(&all->lock);
        pthread_join(all->watchdog, NULL);
        pthread_mutex_lock(&all->lock);
    }
    const uint64_t until = copse__now_ns() + MOMENT_NS;
    while (any_out(all) && copse__now_ns() < until)
        wait_on(all, &all->end, until);
    bool stays = false;
    for (size_t i = 0; i < all->threads; i++) {
        pthread_t thread = all->workers[i].thread;
        bool out = all->workers[i].out;
        stays |= out;
        pthread_mutex_unlock(&all->lock);
        if (out)
            pthread_detach(thread);
        else
            pthread_join(thread, NULL);
        pthread_mutex_lock(&all->lock);
    }
    pthread_mutex_unlock(&all->lock);
    if (stays)
        return false;
    pthread_cond_destroy(&all->begin);
    pthread_cond_destroy(&all->end);
    pthread_cond_destroy(&all->watch);
    pthread_mutex_destroy(&all->lock);
    free(all->workers);
    free(all);
    return true;
}

/* ---- The caller's side ----------------------------------------------------------------- */

static void call(worker *w) {
    w->status = COPSE_OK;
    w->error = (copse_error){0};
    w->doubted = false;
    w->called = true;
}

/* How long a round may take until somebody returns: of several, all may wait for the one that hangs until
 * their all-reduce tells them. */
static uint64_t round_limit(const copse__workers *all) {
    uint64_t least = all->count > 1 ? 3 * all->patience_ns : all->patience_ns;
    uint64_t pace =
        all->expected_ns > all->longest_ns ? all->expected_ns : all->longest_ns;
    return pace > least / PACES ? pace * PACES : least;
}

/* Whether the worker's time is over; else *until is lowered to when it will be. */
static bool is_overdue(const copse__workers *all, const worker *w, uint64_t now,
                       uint64_t *until) {
    uint64_t patience = w->doubted ? MOMENT_NS : all->patience_ns;
    uint64_t since = all->returned_ns;
    if (since == 0) { /* nobody to judge it by but the rounds before */
        since = all->begun_ns;
        patience = all->patience_ns ? round_limit(all) : 0;
    }
    if (patience == 0)
        return false;
    uint64_t due = since + patience;
    if (now >= due)
        return true;
    *until = due < *until ? due : *until;
    return false;
}

static void leave_alone(copse__workers *all, worker *w, uint64_t now) {
    bool after = all->returned_ns != 0;
    uint64_t since = after ? all->returned_ns : all->begun_ns;
    all->cut_short = w->out = w->rests = true;
    w->called = false;
    w->status = copse__fail(
        &w->error, COPSE_TIMEOUT, 0, NULL, "replica %zu has not answered for %.3g s%s",
        w->rank, (double)(now - since) * 1e-9, after ? " after the others" : "");
}

/* What is more than was asked for is no time that a device had. */
static void forgive(copse__workers *all, uint64_t slept_ns) {
    if (slept_ns < 2 * SLICE_NS)
        return;
    all->begun_ns += all->begun_ns ? slept_ns - SLICE_NS : 0;
    all->returned_ns += all->returned_ns ? slept_ns - SLICE_NS : 0;
}

static void wait_for_all(copse__workers *all) {
    for (;;) {
        uint64_t now = copse__now_ns(), until = now + SLICE_NS;
        bool busy = false;
        for (size_t i = 0; i < all->count; i++) {
            worker *w = &all->workers[i];
            if (w->called && is_overdue(all, w, now, &until))
                leave_alone(all, w, now);
            busy |= w->called;
        }
        if (!busy)
            return;
        wait_on(all, &all->end, until);
        forgive(all, copse__now_ns() - now);
    }
}

/* The called workers' round, with the lock held. returned_ns: 0, or from when their patience counts. */
static void run_round(copse__workers *all, copse__work_fn *fn, void *user,
                      uint64_t returned_ns) {
    all->fn = fn;
    all->user = user;
    all->begun_ns = copse__now_ns();
    all->cut_short = false;
    all->returned_ns = returned_ns;
    pthread_cond_broadcast(&all->begin);
    for (size_t i = all->threads; i < all->count; i++) /* the caller is the only one */
        if (all->workers[i].called)
            do_work(&all->workers[i]);
    wait_for_all(all);
    uint64_t took = copse__now_ns() - all->begun_ns;
    if (all->paced && !all->cut_short && took > all->longest_ns)
        all->longest_ns = took;
    all->rounds++;
    all->begun_ns = 0;
}

copse_status copse__workers_run(copse__workers *all, copse__work_fn *fn, void *user,
                                copse_status *statuses, copse_error *err) {
    const worker *failed = NULL;
    pthread_mutex_lock(&all->lock);
    for (size_t i = 0; i < all->count; i++) {
        all->workers[i].status = COPSE_OK;
        if (!all->workers[i].rests)
            call(&all->workers[i]);
    }
    run_round(all, fn, user, 0);
    for (size_t i = 0; i < all->count; i++) {
        const worker *w = &all->workers[i];
        if (statuses)
            statuses[i] = w->status;
        if (w->status != COPSE_OK && !failed)
            failed = w;
    }
    if (failed && err)
        *err = failed->error;
    copse_status status = failed ? failed->status : COPSE_OK;
    pthread_mutex_unlock(&all->lock);
    return status;
}

copse_status copse__workers_run_on(copse__workers *all, size_t rank, copse__work_fn *fn,
                                   void *user, copse_error *err) {
    worker *w = &all->workers[rank];
    pthread_mutex_lock(&all->lock);
    if (w->out || w->left) {
        pthread_mutex_unlock(&all->lock);
        return copse__fail(err, COPSE_TIMEOUT, 0, NULL, "replica %zu does not answer",
                           rank);
    }
    call(w);
    run_round(all, fn, user, copse__now_ns()); /* nobody else: its patience begins now */
    copse_status status = w->status;
    if (status != COPSE_OK && err)
        *err = w->error;
    pthread_mutex_unlock(&all->lock);
    return status;
}

void copse__workers_set_patience(copse__workers *all, uint64_t ns) {
    pthread_mutex_lock(&all->lock);
    all->patience_ns = ns;
    pthread_mutex_unlock(&all->lock);
}

void copse__workers_set_pace(copse__workers *all, uint64_t round_ns) {
    pthread_mutex_lock(&all->lock);
    all->expected_ns = round_ns;
    all->longest_ns = 0;
    all->paced = true;
    pthread_mutex_unlock(&all->lock);
}

/* ---- A single worker's watchdog -------------------------------------------------------- */

/* With the lock held while it tells, which holds up the caller. */
static void *watchdog_main(void *user) {
    copse__workers *all = user;
    unsigned told = 0; /* rounds, when it did */
    bool ever = false;
    pthread_mutex_lock(&all->lock);
    while (!all->stop) {
        uint64_t before = copse__now_ns(), slice = SLICE_NS;
        if (all->patience_ns > 0 && all->patience_ns / 4 < slice)
            slice = all->patience_ns / 4;
        wait_on(all, &all->watch, before + slice);
        uint64_t now = copse__now_ns();
        forgive(all, now - before);
        if (all->patience_ns == 0 || all->begun_ns == 0 ||
            (ever && told == all->rounds) || now < all->begun_ns + round_limit(all))
            continue;
        ever = true;
        told = all->rounds;
        all->hang(all->hang_user, (double)(now - all->begun_ns) * 1e-9);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

copse_status copse__workers_watch(copse__workers *all, copse__hang_fn *fn, void *user,
                                  copse_error *err) {
    if (all->count != 1 || all->watched)
        return COPSE_OK;
    all->hang = fn;
    all->hang_user = user;
    int code = pthread_create(&all->watchdog, NULL, watchdog_main, all);
    if (code != 0)
        return copse__fail(err, COPSE_NOMEM, code, NULL,
                           "cannot start the watchdog's thread: %s", strerror(code));
    all->watched = true;
    return COPSE_OK;
}

void copse__workers_doubt(copse__workers *all, size_t rank) {
    pthread_mutex_lock(&all->lock);
    all->workers[rank].doubted = true;
    pthread_cond_broadcast(&all->end);
    pthread_mutex_unlock(&all->lock);
}

void copse__workers_rest(copse__workers *all, size_t rank, bool rests) {
    pthread_mutex_lock(&all->lock);
    all->workers[rank].rests = rests;
    pthread_mutex_unlock(&all->lock);
}

bool copse__workers_is_out(copse__workers *all, size_t rank) {
    pthread_mutex_lock(&all->lock);
    bool out = all->workers[rank].out;
    pthread_mutex_unlock(&all->lock);
    return out;
}

const copse_error *copse__workers_error(const copse__workers *all, size_t rank) {
    return &all->workers[rank].error;
}
