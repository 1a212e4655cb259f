/* SPDX-License-Identifier: Apache-2.0 */
#include "train/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct worker {
    copse__workers *all;
    size_t rank;
    pthread_t thread;
    copse_status status;
    copse_error error;
} worker;

struct copse__workers {
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    copse__work_fn *fn;
    void *user;
    uint64_t round;    /* of work handed out */
    size_t unfinished; /* workers of this round */
    bool stop;
    size_t count, threads;
    worker *workers;
};

static void do_work(worker *w) {
    w->error = (copse_error){0};
    w->status = w->all->fn(w->rank, w->all->user, &w->error);
}

static void *worker_main(void *user) {
    worker *w = user;
    copse__workers *all = w->all;
    uint64_t seen = 0;
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (all->round == seen && !all->stop)
            pthread_cond_wait(&all->begin, &all->lock);
        if (all->stop)
            break;
        seen = all->round;
        pthread_mutex_unlock(&all->lock);
        do_work(w);
        pthread_mutex_lock(&all->lock);
        if (--all->unfinished == 0)
            pthread_cond_signal(&all->end);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

copse_status copse__workers_new(copse__workers **out, size_t count, copse_error *err) {
    *out = NULL;
    copse__workers *all;
    copse_status status = copse__calloc(&all, 1, sizeof *all, err);
    if (status != COPSE_OK)
        return status;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->begin, NULL);
    pthread_cond_init(&all->end, NULL);
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
    copse__workers_free(all);
    return status;
}

void copse__workers_free(copse__workers *all) {
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->stop = true;
    pthread_cond_broadcast(&all->begin);
    pthread_mutex_unlock(&all->lock);
    for (size_t i = 0; i < all->threads; i++)
        pthread_join(all->workers[i].thread, NULL);
    pthread_cond_destroy(&all->begin);
    pthread_cond_destroy(&all->end);
    pthread_mutex_destroy(&all->lock);
    free(all->workers);
    free(all);
}

void copse__workers_begin(copse__workers *all, copse__work_fn *fn, void *user) {
    pthread_mutex_lock(&all->lock);
    all->fn = fn;
    all->user = user;
    all->unfinished = all->threads;
    all->round++;
    pthread_cond_broadcast(&all->begin);
    pthread_mutex_unlock(&all->lock);
    if (all->threads == 0)
        do_work(&all->workers[0]);
}

copse_status copse__workers_finish(copse__workers *all, copse_status *statuses,
                                   copse_error *err) {
    pthread_mutex_lock(&all->lock);
    while (all->unfinished > 0)
        pthread_cond_wait(&all->end, &all->lock);
    pthread_mutex_unlock(&all->lock);
    const worker *failed = NULL;
    for (size_t i = 0; i < all->count; i++) {
        const worker *w = &all->workers[i];
        if (statuses)
            statuses[i] = w->status;
        if (w->status != COPSE_OK && !failed)
            failed = w;
    }
    if (!failed)
        return COPSE_OK;
    if (err)
        *err = failed->error;
    return failed->status;
}

copse_status copse__workers_run(copse__workers *all, copse__work_fn *fn, void *user,
                                copse_status *statuses, copse_error *err) {
    copse__workers_begin(all, fn, user);
    return copse__workers_finish(all, statuses, err);
}
