/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

copse__measure *copse__bench_add(copse__bench_result *to, const char *what,
                                 const char *path, const char *unit) {
    if (to->count >= COPSE__MAX_FIGURES)
        return NULL;
    copse__measure *m = &to->figures[to->count++];
    *m = (copse__measure){
        .physical = -1, .handle = -1, .numa = -1, .devices = 1, .moves = true};
    copse__put(m->what, sizeof m->what, "%s", what);
    copse__put(m->path, sizeof m->path, "%s", path);
    copse__put(m->unit, sizeof m->unit, "%s", unit);
    return m;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void copse__bench_summarise(copse__measure *m, double *seconds, size_t count, double work,
                            double scale) {
    if (count == 0)
        return;
    qsort(seconds, count, sizeof seconds[0], by_value);
    double middle = seconds[count / 2], least = seconds[0], most = seconds[count - 1];
    if (count % 2 == 0)
        middle = (seconds[count / 2 - 1] + seconds[count / 2]) / 2;
    m->runs = (uint32_t)count;
    if (work > 0) {
        m->median = work / fmax(middle, 1e-9) / scale;
        m->min = work / fmax(most, 1e-9) / scale;
        m->max = work / fmax(least, 1e-9) / scale;
    } else {
        m->median = middle * 1e6;
        m->min = least * 1e6;
        m->max = most * 1e6;
    }
}

/* One thing to measure, in a process of its own or here. */
typedef struct job {
    const copse__topo *topo;
    const copse__device_choice *choices;
    const int *handles;
    size_t count; /* 0: the host */
    bool together;
    const copse__bench_options *options;
    const char *label;
} job;

static void work(const job *j, copse__bench_result *to) {
    if (j->count == 0)
        copse__bench_host(to, j->topo, j->options);
    else if (j->together)
        copse__bench_contention(to, j->choices, j->handles, j->count, j->options);
    else
        copse__bench_device(to, &j->choices[0], j->handles[0], j->options);
    to->finished = 1;
}

/* Waits for the child at most limit_s; what it measured until then counts. */
static void watch(pid_t pid, double limit_s, copse__bench_result *to) {
    uint64_t start = copse__now_ns();
    int how = 0;
    for (;;) {
        pid_t got = waitpid(pid, &how, WNOHANG);
        if (got == pid || (got < 0 && errno == ECHILD)) {
            if (got == pid && WIFSIGNALED(how) && !to->finished)
                copse__put(to->problem, sizeof to->problem, "its driver crashed with %s",
                           strsignal(WTERMSIG(how)));
            return;
        }
        if ((double)(copse__now_ns() - start) / 1e9 > limit_s) {
            kill(-pid, SIGKILL);
            kill(pid, SIGKILL);
            while (waitpid(pid, &how, 0) < 0 && errno == EINTR) {
            }
            copse__put(to->problem, sizeof to->problem, "not done after %.0f s", limit_s);
            return;
        }
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static void run_job(const job *j, copse__bench_result *to, double limit_s) {
    if (j->options->isolate == COPSE__ISOLATE_NONE) {
        work(j, to);
        return;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        copse__put(to->problem, sizeof to->problem, "no process for it: %s",
                   strerror(errno));
        return;
    }
    if (pid == 0) {
        copse__child_begin(parent, -1);
        work(j, to);
        _exit(0);
    }
    watch(pid, limit_s, to);
}

static copse_status keep_figures(copse__topo *topo, const copse__bench_result *from,
                                 copse_error *err) {
    size_t count = copse__min_size(from->count, COPSE__MAX_FIGURES);
    copse_status status =
        copse__grow(&topo->measures, &topo->measure_capacity, topo->measure_count + count,
                    sizeof topo->measures[0], err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        copse__measure m = from->figures[i];
        m.what[sizeof m.what - 1] = m.path[sizeof m.path - 1] = '\0';
        m.unit[sizeof m.unit - 1] = '\0';
        /* A figure that was begun and not finished has no runs. */
        if (m.handle >= 0 && m.handle < (int)topo->handle_count)
            m.physical = topo->handles[m.handle].physical;
        if (m.runs > 0 && m.physical < (int)topo->physical_count &&
            m.handle < (int)topo->handle_count)
            topo->measures[topo->measure_count++] = m;
    }
    return COPSE_OK;
}

static int handle_of(const copse__topo *topo, const copse__device_choice *choice) {
    for (size_t i = 0; i < topo->handle_count; i++)
        if (choice->api == COPSE__API_OPENCL &&
            topo->handles[i].platform == choice->platform_index &&
            topo->handles[i].device == choice->device_index)
            return (int)i;
    return -1;
}

/* Runs one job and keeps what it found; a device that failed is a warning. */
static copse_status measure(copse__topo *topo, const job *j, double limit_s,
                            copse_error *err) {
    copse__bench_result *result = mmap(NULL, sizeof *result, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (result == MAP_FAILED)
        return copse__fail_nomem(err, sizeof *result);
    run_job(j, result, limit_s);
    result->problem[sizeof result->problem - 1] = '\0';
    if (result->problem[0] || !result->finished)
        copse__topo_warn(topo, "BENCH_FAILED", "%s: %s", j->label,
                         result->problem[0] ? result->problem
                                            : "the measurement ended early");
    copse_status status = keep_figures(topo, result, err);
    munmap(result, sizeof *result);
    return status;
}

copse_status copse__bench(copse__topo *topo, const copse__device_choice *choices,
                          size_t count, const copse__bench_options *options,
                          copse_error *err) {
    int handles[COPSE__MAX_HANDLES];
    copse__device_choice *once = NULL;
    size_t devices = 0;
    copse__bench_options o = *options;
    if (o.budget_s <= 0)
        o.budget_s = 10;
    copse_status status = copse__calloc(&once, count, sizeof *once, err);
    if (status != COPSE_OK)
        return status;
    /* Parts and replicas share their device's links: it is measured once. */
    for (size_t i = 0; i < count && devices < COPSE__MAX_HANDLES; i++) {
        int handle = handle_of(topo, &choices[i]);
        bool again = handle < 0;
        for (size_t k = 0; k < devices && !again; k++)
            again = handles[k] == handle;
        if (again)
            continue;
        handles[devices] = handle;
        once[devices++] = choices[i];
    }
    topo->measure_count = 0;
    double limit_s = 60 + 10 * o.budget_s;
    job host = {.topo = topo, .options = &o, .label = "host"};
    COPSE__TRY(measure(topo, &host, limit_s, err), out);
    size_t of_host = topo->measure_count;
    for (size_t i = 0; i < devices; i++) {
        job one = {.topo = topo,
                   .choices = &once[i],
                   .handles = &handles[i],
                   .count = 1,
                   .options = &o,
                   .label = once[i].label};
        COPSE__TRY(measure(topo, &one, limit_s, err), out);
    }
    if (devices > 1) {
        job all = {.topo = topo,
                   .choices = once,
                   .handles = handles,
                   .count = devices,
                   .together = true,
                   .options = &o,
                   .label = "all devices at once"};
        COPSE__TRY(measure(topo, &all, limit_s, err), out);
    }
    if (topo->measure_count == of_host)
        status = copse__fail(err, COPSE_NODEVICE, 0, NULL,
                             "no device could be measured; try: cltopo doctor");
out:
    free(once);
    return status;
}
