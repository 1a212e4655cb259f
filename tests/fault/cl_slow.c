/* SPDX-License-Identifier: Apache-2.0 */
#include "cl_slow.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

/* A thread that sleeps comes late, by up to 0.1 ms on a virtual machine, and a step has some thirty kernels. So what
 * one was held back too long the next ones are held back less; no more than this, as a process may stand still. */
#define MOST_CREDIT_S 5e-3

typedef struct held {
    struct held *next;
    const struct _cl_icd_dispatch *calls;
    cl_event ran, gate;
    double factor;
    size_t device;
    double began_s, ended_s, due_s;
} held;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    held *first; /* by due_s */
    double credit_s[SLOW_DEVICES];
} slow = {.lock = PTHREAD_MUTEX_INITIALIZER};

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void wait_until(double due_s) {
    const struct timespec at = {(time_t)due_s,
                                (long)((due_s - (double)(time_t)due_s) * 1e9)};
    pthread_cond_timedwait(&slow.changed, &slow.lock, &at);
}

static void let_go(held *h) {
    pthread_mutex_unlock(&slow.lock);
    h->calls->clSetUserEventStatus(h->gate, CL_COMPLETE);
    const double late_s = now_s() - h->due_s;
    h->calls->clReleaseEvent(h->gate);
    h->calls->clReleaseEvent(h->ran);
    pthread_mutex_lock(&slow.lock);
    double *credit = &slow.credit_s[h->device];
    *credit = *credit + late_s < MOST_CREDIT_S ? *credit + late_s : MOST_CREDIT_S;
    free(h);
}

static void *timer_main(void *unused) {
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&slow.lock);
    for (;;) {
        held *first = slow.first;
        if (first == NULL) {
            pthread_cond_wait(&slow.changed, &slow.lock);
        } else if (first->due_s > now_s()) {
            wait_until(first->due_s);
        } else {
            slow.first = first->next;
            let_go(first);
        }
    }
    return NULL;
}

static void start_timer(void) {
    pthread_condattr_t monotonic;
    pthread_t thread;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&slow.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&thread, NULL, timer_main, NULL) != 0)
        abort();
    pthread_detach(thread);
    slow.started = true;
}

static void CL_CALLBACK begins(cl_event event, cl_int state, void *user) {
    (void)event;
    (void)state;
    ((held *)user)->began_s = now_s();
}

static void CL_CALLBACK ends(cl_event event, cl_int state, void *user) {
    held *h = user;
    (void)event;
    (void)state;
    pthread_mutex_lock(&slow.lock);
    h->ended_s = now_s();
    double *credit = &slow.credit_s[h->device];
    double wanted = (h->factor - 1) * (h->ended_s - h->began_s);
    const double saved = wanted < *credit ? wanted : *credit;
    *credit -= saved;
    h->due_s = h->ended_s + wanted - saved;
    held **at = &slow.first;
    while (*at != NULL && (*at)->due_s <= h->due_s)
        at = &(*at)->next;
    h->next = *at;
    *at = h;
    pthread_cond_signal(&slow.changed);
    pthread_mutex_unlock(&slow.lock);
}

cl_int slow_hold_back(const struct _cl_icd_dispatch *next, cl_command_queue queue,
                      cl_context context, cl_event ran, double factor, size_t device,
                      cl_event *done) {
    cl_int code;
    held *h = calloc(1, sizeof *h);
    pthread_mutex_lock(&slow.lock);
    if (!slow.started)
        start_timer();
    pthread_mutex_unlock(&slow.lock);
    if (h == NULL)
        abort();
    *h = (held){.calls = next,
                .ran = ran,
                .factor = factor,
                .device = device % SLOW_DEVICES,
                .began_s = now_s()};
    h->gate = next->clCreateUserEvent(context, &code);
    if (code == CL_SUCCESS)
        code = next->clEnqueueBarrierWithWaitList(queue, 1, &h->gate, done);
    if (code == CL_SUCCESS)
        code = next->clSetEventCallback(ran, CL_RUNNING, begins, h);
    if (code == CL_SUCCESS)
        code = next->clSetEventCallback(ran, CL_COMPLETE, ends, h);
    return code;
}
