/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "backend/host/host.h"
#include "base/mem.h"

/* Work worth a thread's start, which costs some tens of microseconds. */
#define WORTHWHILE 1000000u

enum { MOST_THREADS = 64 };

typedef struct share {
    copse__host_body *body;
    const void *context;
    size_t begin, end;
} share;

static void *run_share(void *argument) {
    const share *s = argument;
    s->body(s->context, s->begin, s->end);
    return NULL;
}

void copse__host_for(const copse__host_call *call, size_t count, size_t cost,
                     copse__host_body *body, const void *context) {
    size_t work;
    if (!copse__mul_size(count, cost, &work))
        work = SIZE_MAX;
    size_t threads = copse__min_size(copse__min_size(call->threads, MOST_THREADS),
                                     copse__min_size(work / WORTHWHILE, count));
    if (threads <= 1) {
        if (count > 0)
            body(context, 0, count);
        return;
    }
    share shares[MOST_THREADS];
    pthread_t started[MOST_THREADS];
    bool running[MOST_THREADS] = {false};
    for (size_t t = 0; t < threads; t++) {
        size_t rest = count % threads, each = count / threads;
        size_t begin = t * each + copse__min_size(t, rest);
        shares[t] = (share){body, context, begin, begin + each + (t < rest)};
    }
    for (size_t t = 1; t < threads; t++)
        running[t] = pthread_create(&started[t], NULL, run_share, &shares[t]) == 0;
    run_share(&shares[0]);
    for (size_t t = 1; t < threads; t++) {
        if (running[t])
            pthread_join(started[t], NULL);
        else
            run_share(&shares[t]);
    }
}
