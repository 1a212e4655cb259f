/* SPDX-License-Identifier: Apache-2.0 */
#include "support/frail.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What a lost device has is left to it: memory that it may still write is never given back (docs/
 * architecture.md, commit). Visible, so that a shared sanitizer library finds it. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
    return "leak:copse__replica_\nleak:copse__updater_\nleak:alloc_one\n"
           "leak:copse__allreduce_new\nleak:copse__trainer_open\n"
           "leak:copse__mover_main\nleak:copse__store_\nleak:copse__workers_new\n"
           "leak:frail_buffer_new\nleak:alloc_pinned\n" /* of slots */
           "leak:make_room\n";                          /* predictions */
}

#define LATE_NS UINT64_C(20000000)

typedef struct frail_device {
    bool armed, struck;
    frail_call call;
    size_t nth;
    frail_action action;
    size_t calls[FRAIL_CALL_COUNT];
    bool forbidden;
    size_t forbidden_calls, objects;
    uint64_t launch_ns, row_ns, pass_ns;
    size_t most_rows; /* of a run that was slowed down */
} frail_device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool release_all;
static frail_device devices[FRAIL_DEVICES];

/* What stands for a buffer, fence or launch of the host. */
typedef struct wrapped {
    size_t device;
    void *real;
    bool once_a_pass; /* a launch of the loss */
} wrapped;

static const copse__backend *host(void) {
    return &copse__backend_host;
}

static size_t index_of(const copse__device *device) {
    return (size_t)copse__device_get(device)->choice.order % FRAIL_DEVICES;
}

static void pause_for(uint64_t ns) {
    const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

static copse_status fail(size_t device, copse_error *err) {
    return copse__fail(err, COPSE_DEVICE, -5, NULL, "device %zu: the driver gave up",
                       device);
}

/* Counts a call; what becomes of it. */
static copse_status strike(size_t device, frail_call call, copse_error *err) {
    frail_device *d = &devices[device];
    copse_status status = COPSE_OK;
    pthread_mutex_lock(&lock);
    d->forbidden_calls += d->forbidden;
    d->calls[call]++;
    bool now = d->armed && d->call == call && --d->nth == 0;
    if (now) {
        d->armed = false;
        d->struck = true;
        if (d->action == FRAIL_HANG)
            while (!release_all)
                pthread_cond_wait(&released, &lock);
        if (d->action != FRAIL_LATE)
            status = fail(device, err);
    }
    bool late = now && d->action == FRAIL_LATE;
    pthread_mutex_unlock(&lock);
    if (late)
        pause_for(LATE_NS);
    return status;
}

/* A call that cannot fail. */
static void count(size_t device, int objects) {
    pthread_mutex_lock(&lock);
    devices[device].forbidden_calls += devices[device].forbidden;
    devices[device].objects += (size_t)objects;
    pthread_mutex_unlock(&lock);
}

static void *wrap(size_t device, void *real) {
    wrapped *made = malloc(sizeof *made);
    if (!made)
        abort();
    *made = (wrapped){.device = device, .real = real};
    count(device, 1);
    return made;
}

static void *real_of(const void *object) {
    return object ? ((const wrapped *)object)->real : NULL;
}

static size_t device_of(const void *object) {
    return ((const wrapped *)object)->device;
}

static copse__view view(copse__view v) {
    v.buffer = real_of(v.buffer);
    return v;
}

static void wrap_fence(size_t device, copse__fence **done) {
    if (done && *done)
        *done = wrap(device, *done);
}

static copse_status frail_open(copse__device **out, const copse__device_choice *choice,
                               const copse__device_options *options, copse_error *err) {
    copse_status status = host()->open(out, choice, options, err);
    if (status == COPSE_OK)
        ((copse__device_base *)(void *)*out)->backend = &frail_backend;
    return status;
}

static void frail_close(copse__device *device) {
    if (!device)
        return;
    count(index_of(device), 0);
    host()->close(device);
}

static copse_status frail_buffer_new(copse__buffer **out, copse__device *device,
                                     size_t bytes, copse__memory memory,
                                     copse_error *err) {
    *out = NULL;
    copse_status status = strike(index_of(device), FRAIL_ALLOC, err);
    if (status == COPSE_OK)
        status = host()->buffer_new(out, device, bytes, memory, err);
    if (status == COPSE_OK)
        *out = wrap(index_of(device), *out);
    return status;
}

static void frail_buffer_free(copse__buffer *buffer) {
    if (!buffer)
        return;
    count(device_of(buffer), -1);
    host()->buffer_free(real_of(buffer));
    free(buffer);
}

static void *frail_buffer_host(copse__buffer *buffer) {
    return host()->buffer_host(real_of(buffer));
}

static copse_status frail_write(copse__device *device, copse__queue queue, copse__view to,
                                const void *from, size_t bytes, copse__fence *wait,
                                copse__fence **done, copse_error *err) {
    if (done)
        *done = NULL;
    copse_status status = strike(index_of(device), FRAIL_WRITE, err);
    if (status == COPSE_OK)
        status =
            host()->write(device, queue, view(to), from, bytes, real_of(wait), done, err);
    wrap_fence(index_of(device), done);
    return status;
}

static copse_status frail_read(copse__device *device, copse__queue queue, void *to,
                               copse__view from, size_t bytes, copse__fence *wait,
                               copse__fence **done, copse_error *err) {
    if (done)
        *done = NULL;
    copse_status status = strike(index_of(device), FRAIL_READ, err);
    if (status == COPSE_OK)
        status =
            host()->read(device, queue, to, view(from), bytes, real_of(wait), done, err);
    wrap_fence(index_of(device), done);
    return status;
}

static copse_status frail_copy(copse__device *device, copse__queue queue, copse__view to,
                               copse__view from, size_t bytes, copse__fence *wait,
                               copse__fence **done, copse_error *err) {
    if (done)
        *done = NULL;
    copse_status status = strike(index_of(device), FRAIL_COPY, err);
    if (status == COPSE_OK)
        status = host()->copy(device, queue, view(to), view(from), bytes, real_of(wait),
                              done, err);
    wrap_fence(index_of(device), done);
    return status;
}

static copse_status frail_fill(copse__device *device, copse__queue queue, copse__view to,
                               uint32_t pattern, copse__fence *wait, copse__fence **done,
                               copse_error *err) {
    copse_status status =
        host()->fill(device, queue, view(to), pattern, real_of(wait), done, err);
    count(index_of(device), 0);
    wrap_fence(index_of(device), done);
    return status;
}

static copse_status frail_map(void **out, copse__device *device, copse__queue queue,
                              copse__view v, bool for_writing, copse__fence *wait,
                              copse_error *err) {
    *out = NULL;
    copse_status status = strike(index_of(device), FRAIL_MAP, err);
    return status == COPSE_OK
               ? host()->map(out, device, queue, view(v), for_writing, real_of(wait), err)
               : status;
}

static copse_status frail_unmap(copse__device *device, copse__queue queue, copse__view v,
                                void *mapped, copse__fence **done, copse_error *err) {
    if (done)
        *done = NULL;
    copse_status status = strike(index_of(device), FRAIL_UNMAP, err);
    if (status == COPSE_OK)
        status = host()->unmap(device, queue, view(v), mapped, done, err);
    wrap_fence(index_of(device), done);
    return status;
}

static copse_status frail_mark(copse__fence **out, copse__device *device,
                               copse__queue queue, copse_error *err) {
    *out = NULL;
    copse_status status = strike(index_of(device), FRAIL_MARK, err);
    if (status == COPSE_OK)
        status = host()->mark(out, device, queue, err);
    wrap_fence(index_of(device), out);
    return status;
}

static copse_status frail_queue_wait(copse__device *device, copse__queue queue,
                                     copse__fence *fence, copse_error *err) {
    count(index_of(device), 0);
    return host()->queue_wait(device, queue, real_of(fence), err);
}

static copse_status frail_flush(copse__device *device, copse__queue queue,
                                copse_error *err) {
    copse_status status = strike(index_of(device), FRAIL_FLUSH, err);
    return status == COPSE_OK ? host()->flush(device, queue, err) : status;
}

static copse_status frail_finish(copse__device *device, copse__queue queue,
                                 copse_error *err) {
    copse_status status = strike(index_of(device), FRAIL_FINISH, err);
    return status == COPSE_OK ? host()->finish(device, queue, err) : status;
}

static copse_status frail_fence_wait(copse__fence *fence, uint64_t timeout_ns,
                                     copse_error *err) {
    copse_status status = strike(device_of(fence), FRAIL_WAIT, err);
    return status == COPSE_OK ? host()->fence_wait(real_of(fence), timeout_ns, err)
                              : status;
}

static copse_status frail_fence_poll(bool *done, copse__fence *fence, copse_error *err) {
    count(device_of(fence), 0);
    return host()->fence_poll(done, real_of(fence), err);
}

static void frail_fence_free(copse__fence *fence) {
    if (!fence)
        return;
    count(device_of(fence), -1);
    host()->fence_free(real_of(fence));
    free(fence);
}

static copse_status frail_supports(copse__device *device, const copse__graph *graph,
                                   const copse__node *node, size_t *workspace_bytes,
                                   copse_error *err) {
    return host()->supports(device, graph, node, workspace_bytes, err);
}

static copse_status frail_launch_new(copse__launch **out, copse__device *device,
                                     const copse__graph *graph, const copse__node *node,
                                     const copse__operands *operands, copse_error *err) {
    copse__operands real = *operands;
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        real.inputs[i] = view(real.inputs[i]);
    for (size_t i = 0; i < COPSE__MAX_OUTPUTS; i++)
        real.outputs[i] = view(real.outputs[i]);
    real.workspace = view(real.workspace);
    real.scalars = view(real.scalars);
    copse_status status = host()->launch_new(out, device, graph, node, &real, err);
    if (status == COPSE_OK) {
        *out = wrap(index_of(device), *out);
        ((wrapped *)(void *)*out)->once_a_pass = node->op == COPSE__OP_CROSS_ENTROPY;
    }
    return status;
}

static void frail_launch_free(copse__launch *launch) {
    if (!launch)
        return;
    count(device_of(launch), -1);
    host()->launch_free(real_of(launch));
    free(launch);
}

static const char *frail_provider(copse__device *device, const copse__graph *graph,
                                  const copse__node *node) {
    (void)device;
    return host()->provider(NULL, graph, node);
}

static const char *frail_launch_provider(const copse__launch *launch) {
    return host()->launch_provider(real_of(launch));
}

static copse_status frail_run(copse__device *device, copse__launch *const *launches,
                              size_t n, const copse__extents *extents, copse_error *err) {
    const size_t index = index_of(device);
    copse_status status = strike(index, FRAIL_RUN, err);
    const uint64_t rows = extents->of[COPSE__BATCH];
    uint64_t extra = n * (devices[index].launch_ns + rows * devices[index].row_ns);
    for (size_t i = 0; i < n; i++)
        if (((const wrapped *)(const void *)launches[i])->once_a_pass)
            extra += devices[index].pass_ns;
    if (extra > 0) {
        pthread_mutex_lock(&lock);
        if (rows > devices[index].most_rows)
            devices[index].most_rows = rows;
        pthread_mutex_unlock(&lock);
        pause_for(extra);
    }
    for (size_t i = 0; i < n && status == COPSE_OK; i++) {
        copse__launch *real = real_of(launches[i]);
        status = host()->run(device, &real, 1, extents, err);
    }
    return status;
}

static bool frail_launch_span(const copse__launch *launch, uint64_t *begin_ns,
                              uint64_t *end_ns) {
    return host()->launch_span(real_of(launch), begin_ns, end_ns);
}

static uint64_t frail_launch_time_ns(const copse__launch *launch) {
    return host()->launch_time_ns(real_of(launch));
}

const copse__backend frail_backend = {
    .name = "frail",
    .open = frail_open,
    .close = frail_close,
    .buffer_new = frail_buffer_new,
    .buffer_free = frail_buffer_free,
    .buffer_host = frail_buffer_host,
    .write = frail_write,
    .read = frail_read,
    .copy = frail_copy,
    .fill = frail_fill,
    .map = frail_map,
    .unmap = frail_unmap,
    .mark = frail_mark,
    .queue_wait = frail_queue_wait,
    .flush = frail_flush,
    .finish = frail_finish,
    .fence_wait = frail_fence_wait,
    .fence_poll = frail_fence_poll,
    .fence_free = frail_fence_free,
    .supports = frail_supports,
    .launch_new = frail_launch_new,
    .launch_free = frail_launch_free,
    .provider = frail_provider,
    .launch_provider = frail_launch_provider,
    .run = frail_run,
    .launch_time_ns = frail_launch_time_ns,
    .launch_span = frail_launch_span,
};

void frail_fault(size_t device, frail_call call, size_t nth, frail_action action) {
    pthread_mutex_lock(&lock);
    frail_device *d = &devices[device];
    d->armed = true;
    d->struck = false;
    d->call = call;
    d->nth = nth;
    d->action = action;
    pthread_mutex_unlock(&lock);
}

bool frail_struck(size_t device) {
    pthread_mutex_lock(&lock);
    bool struck = devices[device].struck;
    pthread_mutex_unlock(&lock);
    return struck;
}

size_t frail_calls(size_t device, frail_call call) {
    pthread_mutex_lock(&lock);
    size_t calls = devices[device].calls[call];
    pthread_mutex_unlock(&lock);
    return calls;
}

void frail_release(void) {
    pthread_mutex_lock(&lock);
    release_all = true;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

void frail_forbid(size_t device) {
    pthread_mutex_lock(&lock);
    devices[device].forbidden = true;
    pthread_mutex_unlock(&lock);
}

size_t frail_forbidden_calls(size_t device) {
    pthread_mutex_lock(&lock);
    size_t calls = devices[device].forbidden_calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

void frail_slow_down(size_t device, uint64_t launch_ns, uint64_t row_ns) {
    devices[device].launch_ns = launch_ns;
    devices[device].row_ns = row_ns;
}

void frail_slow_passes(size_t device, uint64_t pass_ns) {
    devices[device].pass_ns = pass_ns;
}

size_t frail_most_rows(size_t device) {
    pthread_mutex_lock(&lock);
    size_t rows = devices[device].most_rows;
    pthread_mutex_unlock(&lock);
    return rows;
}

size_t frail_live_objects(size_t device) {
    pthread_mutex_lock(&lock);
    size_t objects = devices[device].objects;
    pthread_mutex_unlock(&lock);
    return objects;
}

void frail_reset(void) {
    pthread_mutex_lock(&lock);
    memset(devices, 0, sizeof devices);
    release_all = false;
    pthread_mutex_unlock(&lock);
}
