/* SPDX-License-Identifier: Apache-2.0 */
#include "train/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* How long the thread of a device that is known to be lost may take to come back, and how long
 * the end waits for threads that are out. */
#define MOMENT_NS UINT64_C(200000000)

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
    uint64_t returned_ns; /* when the last one came back */
    bool stop;
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

static void wait_until(copse__workers *all, uint64_t until_ns) {
    const struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&all->end, &all->lock, &at);
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
    const uint64_t until = copse__now_ns() + MOMENT_NS;
    while (any_out(all) && copse__now_ns() < until)
        wait_until(all, until);
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

/* Whether the worker's time is over; else *until is lowered to when it will be. */
static bool is_overdue(const copse__workers *all, const worker *w, uint64_t now,
                       uint64_t *until) {
    uint64_t patience = w->doubted ? MOMENT_NS : all->patience_ns;
    if (patience == 0 || all->returned_ns == 0)
        return false;
    uint64_t due = all->returned_ns + patience;
    if (now >= due)
        return true;
    *until = due < *until ? due : *until;
    return false;
}

static void leave_alone(copse__workers *all, worker *w) {
    w->out = true;
    w->rests = true;
    w->called = false;
    w->status = copse__fail(&w->error, COPSE_TIMEOUT, 0, NULL,
                            "replica %zu has not answered for %.3g s after the others",
                            w->rank, (double)(copse__now_ns() - all->returned_ns) * 1e-9);
}

static void wait_for_all(copse__workers *all) {
    for (;;) {
        uint64_t now = copse__now_ns(), until = UINT64_MAX;
        bool busy = false;
        for (size_t i = 0; i < all->count; i++) {
            worker *w = &all->workers[i];
            if (w->called && is_overdue(all, w, now, &until))
                leave_alone(all, w);
            busy |= w->called;
        }
        if (!busy)
            return;
        if (until == UINT64_MAX)
            pthread_cond_wait(&all->end, &all->lock);
        else
            wait_until(all, until);
    }
}

/* The called workers' round, with the lock held. */
static void run_round(copse__workers *all, copse__work_fn *fn, void *user) {
    all->fn = fn;
    all->user = user;
    all->returned_ns = 0;
    pthread_cond_broadcast(&all->begin);
    for (size_t i = all->threads; i < all->count; i++) /* the caller is the only one */
        if (all->workers[i].called)
            do_work(&all->workers[i]);
    wait_for_all(all);
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
    run_round(all, fn, user);
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
    all->fn = fn;
    all->user = user;
    all->returned_ns = copse__now_ns(); /* nobody else: its patience begins now */
    pthread_cond_broadcast(&all->begin);
    if (all->threads == 0)
        do_work(w);
    wait_for_all(all);
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
