/* SPDX-License-Identifier: Apache-2.0 */
#include "data/arrival.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"

struct copse__arrival {
    copse__arrive_fn *read;
    void *user;
    pthread_t thread;
    pthread_mutex_t lock; /* guards joining */
    bool started, joined;
    atomic_bool stop, ended; /* ended: status and error stay as they are */
    copse_status status;
    copse_error error;
};

static void *run(void *user) {
    copse__arrival *a = user;
    a->status = a->read(a->user, &a->stop, &a->error);
    atomic_store_explicit(&a->ended, true, memory_order_release);
    return NULL;
}

copse_status copse__arrival_new(copse__arrival **out, copse__arrive_fn *read, void *user,
                                copse_error *err) {
    copse_status status = copse__calloc(out, 1, sizeof **out, err);
    if (status != COPSE_OK)
        return status;
    copse__arrival *a = *out;
    a->read = read;
    a->user = user;
    pthread_mutex_init(&a->lock, NULL);
    atomic_init(&a->stop, false);
    atomic_init(&a->ended, false);
    a->started = pthread_create(&a->thread, NULL, run, a) == 0;
    if (!a->started)
        run(a);
    return COPSE_OK;
}

static void join(copse__arrival *a) {
    pthread_mutex_lock(&a->lock);
    if (a->started && !a->joined)
        pthread_join(a->thread, NULL);
    a->joined = true;
    pthread_mutex_unlock(&a->lock);
}

copse_status copse__arrival_wait(copse__arrival *a, copse_error *err) {
    if (!atomic_load_explicit(&a->ended, memory_order_acquire))
        join(a);
    if (a->status != COPSE_OK && err)
        *err = a->error;
    return a->status;
}

void copse__arrival_free(copse__arrival *a) {
    if (!a)
        return;
    atomic_store(&a->stop, true);
    join(a);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
