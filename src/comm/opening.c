/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/opening.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

struct copse__calls {
    pthread_mutex_t lock;
    pthread_cond_t end;
    copse__calls_fn *fn;
    void *user;
    const char *name; /* the call that it is in; NULL: none so far */
    size_t rank;
    uint64_t since;
    bool left_alone, ended;
    copse_status status;
    copse_error error;
};

copse_status copse__calls_next(copse__calls *calls, size_t rank, const char *name,
                               copse_error *err) {
    if (calls == NULL)
        return COPSE_OK;
    pthread_mutex_lock(&calls->lock);
    const bool left_alone = calls->left_alone;
    calls->rank = rank;
    calls->name = name;
    calls->since = copse__now_ns();
    pthread_mutex_unlock(&calls->lock);
    return left_alone ? copse__fail(err, COPSE_TIMEOUT, 0, NULL, "it came back too late")
                      : COPSE_OK;
}

static void *run(void *user) {
    copse__calls *calls = user;
    copse_error error = {0};
    const copse_status status = calls->fn(calls, calls->user, &error);
    pthread_mutex_lock(&calls->lock);
    calls->status = status;
    calls->error = error;
    calls->ended = true;
    pthread_cond_signal(&calls->end);
    pthread_mutex_unlock(&calls->lock);
    return NULL;
}

/* With the lock held. False: a call took too long, and its thread is left alone. */
static bool await_end(copse__calls *calls, uint64_t limit_ns) {
    while (!calls->ended) {
        const uint64_t until = calls->since + limit_ns, since = calls->since;
        const struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                                    .tv_nsec = (long)(until % 1000000000u)};
        pthread_cond_timedwait(&calls->end, &calls->lock, &at);
        if (!calls->ended && calls->since == since && copse__now_ns() >= until) {
            calls->left_alone = true;
            return false;
        }
    }
    return true;
}

static void calls_free(copse__calls *calls) {
    pthread_mutex_destroy(&calls->lock);
    pthread_cond_destroy(&calls->end);
    free(calls);
}

copse_status copse__calls_run(copse__calls_fn *fn, void *user,
                              copse__device *const *devices, uint64_t limit_ns,
                              size_t *failed_rank, copse_error *err) {
    copse__calls *calls = NULL;
    *failed_rank = SIZE_MAX;
    copse_status status = copse__calloc(&calls, 1, sizeof *calls, err);
    if (status != COPSE_OK)
        return status;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&calls->lock, NULL);
    pthread_cond_init(&calls->end, &monotonic);
    pthread_condattr_destroy(&monotonic);
    calls->fn = fn;
    calls->user = user;
    calls->since = copse__now_ns();
    pthread_t thread;
    const int code = pthread_create(&thread, NULL, run, calls);
    if (code != 0) {
        calls_free(calls);
        return copse__fail(err, COPSE_NOMEM, code, "all-reduce",
                           "cannot start a thread: %s", strerror(code));
    }
    pthread_mutex_lock(&calls->lock);
    const bool ended = await_end(calls, limit_ns);
    const size_t rank = calls->rank;
    const char *name = calls->name ? calls->name : "first call";
    pthread_mutex_unlock(&calls->lock);
    if (!ended) {
        pthread_detach(thread);
        *failed_rank = rank;
        const char *label = copse__device_get(devices[rank])->choice.label;
        return copse__fail(err, COPSE_TIMEOUT, 0, label,
                           "while the all-reduce was opened, its driver has not answered "
                           "for %.3g s: %s of rank %zu (%s); leave the device out, or "
                           "allow longer stalls",
                           (double)limit_ns * 1e-9, name, rank, label);
    }
    pthread_join(thread, NULL);
    status = calls->status;
    if (status != COPSE_OK && err)
        *err = calls->error;
    calls_free(calls);
    return status;
}
