/* SPDX-License-Identifier: Apache-2.0 */
#include "support/fake_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* What a device made and still has: freed with it, as a lost one's objects are with its driver. */
typedef struct made {
    struct made *next, **at;
} made;

struct copse__fence {
    made made; /* first */
    copse__device *device;
    int references; /* the holder and the command */
    bool done;
};

typedef struct command {
    struct command *next;
    void *to;
    const void *from;
    size_t bytes;
    uint32_t pattern;
    copse__fence *wait, *done;
} command;

typedef struct lane {
    copse__device *device;
    pthread_t thread;
    command *first, **end;
    bool busy;
} lane;

struct copse__device {
    copse__device_base base;
    pthread_mutex_t lock;
    pthread_cond_t change;
    lane queues[COPSE__QUEUE_COUNT];
    made *fences, *buffers;
    bool quit, released, struck, forbidden, shares;
    bool armed;
    fake_call fault_call;
    size_t fault_left;
    fake_action action;
    uint64_t delay_ns;
    size_t staging_bytes;
    size_t wrong_calls, live, inside; /* inside: calls that were struck and run on */
};

struct copse__buffer {
    made made; /* first */
    copse__device *device;
    copse__memory memory;
    size_t bytes;
    char *data;
};

static void *check_alloc(void *memory) {
    if (memory == NULL)
        abort();
    return memory;
}

/* With the device's lock held. */
static void enlist(made **list, made *one) {
    *one = (made){.next = *list, .at = list};
    if (*list != NULL)
        (*list)->at = &one->next;
    *list = one;
}

static void delist(made *one) {
    *one->at = one->next;
    if (one->next != NULL)
        one->next->at = one->at;
}

static void sleep_ns(uint64_t ns) {
    const struct timespec time = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

/* Counts a call and strikes where it is its turn. */
static copse_status enter(copse__device *device, int call, copse_error *err) {
    pthread_mutex_lock(&device->lock);
    if (device->forbidden)
        device->wrong_calls++;
    bool strike = false;
    if (device->armed && (int)device->fault_call == call && --device->fault_left == 0) {
        strike = true;
        device->armed = false;
        device->struck = true;
        device->inside++;
    }
    const fake_action action = device->action;
    while (strike && action == FAKE_HANG && !device->released)
        pthread_cond_wait(&device->change, &device->lock);
    pthread_mutex_unlock(&device->lock);
    if (!strike)
        return COPSE_OK;
    copse_status status = COPSE_OK;
    if (action == FAKE_DELAY)
        sleep_ns(device->delay_ns);
    else
        status =
            copse__fail(err, call == FAKE_ALLOC ? COPSE_DEVICE_MEMORY : COPSE_DEVICE, -5,
                        device->base.choice.label, "the fake device fails as asked");
    pthread_mutex_lock(&device->lock);
    device->inside--;
    pthread_cond_broadcast(&device->change);
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* The compute queue is the replica's own: a fault is for the engine's calls alone, in whichever order the
 * two come. */
static copse_status enter_queue(copse__device *device, copse__queue queue, int call,
                                copse_error *err) {
    return queue == COPSE__QUEUE_COMPUTE ? COPSE_OK : enter(device, call, err);
}

static void drop_fence(copse__device *device, copse__fence *fence) {
    if (fence != NULL && --fence->references == 0) {
        delist(&fence->made);
        free(fence);
        device->live--;
    }
}

static void *run_queue(void *user) {
    lane *self = user;
    copse__device *device = self->device;
    pthread_mutex_lock(&device->lock);
    for (;;) {
        while (self->first == NULL && !device->quit)
            pthread_cond_wait(&device->change, &device->lock);
        command *now = self->first;
        if (now == NULL)
            break;
        while (now->wait != NULL && !now->wait->done)
            pthread_cond_wait(&device->change, &device->lock);
        self->first = now->next;
        if (self->first == NULL)
            self->end = &self->first;
        self->busy = true;
        const bool dead = device->struck && device->action != FAKE_DELAY &&
                          device->fault_call != FAKE_ALLOC;
        pthread_mutex_unlock(&device->lock);
        if (dead) {
            /* A failed device moves nothing any more. */
        } else if (now->to != NULL && now->from != NULL)
            memcpy(now->to, now->from, now->bytes);
        else if (now->to != NULL)
            for (size_t at = 0; at + 4 <= now->bytes; at += 4)
                memcpy((char *)now->to + at, &now->pattern, 4);
        pthread_mutex_lock(&device->lock);
        self->busy = false;
        now->done->done = true;
        drop_fence(device, now->done);
        drop_fence(device, now->wait);
        free(now);
        pthread_cond_broadcast(&device->change);
    }
    pthread_mutex_unlock(&device->lock);
    return NULL;
}

static copse__fence *new_fence(copse__device *device, int references) {
    copse__fence *fence = check_alloc(calloc(1, sizeof *fence));
    *fence = (copse__fence){.device = device, .references = references};
    enlist(&device->fences, &fence->made);
    device->live++;
    return fence;
}

static copse_status enqueue(copse__device *device, copse__queue queue, void *to,
                            const void *from, size_t bytes, uint32_t pattern,
                            copse__fence *wait, copse__fence **done) {
    command *now = check_alloc(calloc(1, sizeof *now));
    *now = (command){.to = to, .from = from, .bytes = bytes, .pattern = pattern};
    pthread_mutex_lock(&device->lock);
    now->wait = wait;
    if (wait != NULL)
        wait->references++;
    now->done = new_fence(device, done != NULL ? 2 : 1);
    if (done != NULL)
        *done = now->done;
    *device->queues[queue].end = now;
    device->queues[queue].end = &now->next;
    pthread_cond_broadcast(&device->change);
    pthread_mutex_unlock(&device->lock);
    return COPSE_OK;
}

static copse_status fake_buffer_new(copse__buffer **out, copse__device *device,
                                    size_t bytes, copse__memory memory,
                                    copse_error *err) {
    *out = NULL;
    const copse_status status = enter(device, FAKE_ALLOC, err);
    if (status != COPSE_OK)
        return status;
    if (bytes > device->base.caps.max_alloc_bytes)
        return copse__fail(err, COPSE_DEVICE_MEMORY, 0, device->base.choice.label,
                           "the fake device allows less in one buffer");
    copse__buffer *buffer = check_alloc(calloc(1, sizeof *buffer));
    *buffer = (copse__buffer){.device = device, .memory = memory, .bytes = bytes};
    buffer->data = check_alloc(aligned_alloc(4096, (bytes + 4095) / 4096 * 4096 + 4096));
    pthread_mutex_lock(&device->lock);
    enlist(&device->buffers, &buffer->made);
    device->live++;
    device->staging_bytes += memory == COPSE__MEMORY_STAGING ? bytes : 0;
    pthread_mutex_unlock(&device->lock);
    *out = buffer;
    return COPSE_OK;
}

static void fake_buffer_free(copse__buffer *buffer) {
    if (buffer == NULL)
        return;
    (void)enter(buffer->device, -1, NULL);
    pthread_mutex_lock(&buffer->device->lock);
    delist(&buffer->made);
    buffer->device->live--;
    if (buffer->memory == COPSE__MEMORY_STAGING)
        buffer->device->staging_bytes -= buffer->bytes;
    pthread_mutex_unlock(&buffer->device->lock);
    free(buffer->data);
    free(buffer);
}

static void *fake_buffer_host(copse__buffer *buffer) {
    const bool shared = buffer->memory == COPSE__MEMORY_SHARED && buffer->device->shares;
    return shared || buffer->memory == COPSE__MEMORY_STAGING ? buffer->data : NULL;
}

static copse_status fake_write(copse__device *device, copse__queue queue, copse__view to,
                               const void *host, size_t bytes, copse__fence *wait,
                               copse__fence **done, copse_error *err) {
    if (done != NULL)
        *done = NULL;
    const copse_status status = enter_queue(device, queue, FAKE_WRITE, err);
    if (status != COPSE_OK)
        return status;
    if (bytes > to.bytes || to.offset + to.bytes > to.buffer->bytes)
        abort();
    return enqueue(device, queue, to.buffer->data + to.offset, host, bytes, 0, wait,
                   done);
}

static copse_status fake_read(copse__device *device, copse__queue queue, void *host,
                              copse__view from, size_t bytes, copse__fence *wait,
                              copse__fence **done, copse_error *err) {
    if (done != NULL)
        *done = NULL;
    const copse_status status = enter(device, FAKE_READ, err);
    if (status != COPSE_OK)
        return status;
    if (bytes > from.bytes || from.offset + from.bytes > from.buffer->bytes)
        abort();
    return enqueue(device, queue, host, from.buffer->data + from.offset, bytes, 0, wait,
                   done);
}

static copse_status fake_copy(copse__device *device, copse__queue queue, copse__view to,
                              copse__view from, size_t bytes, copse__fence *wait,
                              copse__fence **done, copse_error *err) {
    (void)err;
    return enqueue(device, queue, to.buffer->data + to.offset,
                   from.buffer->data + from.offset, bytes, 0, wait, done);
}

static copse_status fake_fill(copse__device *device, copse__queue queue, copse__view to,
                              uint32_t pattern, copse__fence *wait, copse__fence **done,
                              copse_error *err) {
    (void)err;
    return enqueue(device, queue, to.buffer->data + to.offset, NULL, to.bytes, pattern,
                   wait, done);
}

static copse_status fake_flush(copse__device *device, copse__queue queue,
                               copse_error *err) {
    return enter_queue(device, queue, FAKE_FLUSH, err);
}

static copse_status wait_done(copse__fence *fence) {
    copse__device *device = fence->device;
    pthread_mutex_lock(&device->lock);
    while (!fence->done)
        pthread_cond_wait(&device->change, &device->lock);
    pthread_mutex_unlock(&device->lock);
    return COPSE_OK;
}

static void fake_fence_free(copse__fence *fence) {
    if (fence == NULL)
        return;
    copse__device *device = fence->device;
    (void)enter(device, -1, NULL);
    pthread_mutex_lock(&device->lock);
    drop_fence(device, fence);
    pthread_mutex_unlock(&device->lock);
}

static copse_status fake_map(void **out, copse__device *device, copse__queue queue,
                             copse__view view, bool for_writing, copse__fence *wait,
                             copse_error *err) {
    (void)for_writing;
    *out = NULL;
    copse_status status = enter(device, FAKE_MAP, err);
    if (status != COPSE_OK)
        return status;
    copse__fence *done = NULL;
    enqueue(device, queue, NULL, NULL, 0, 0, wait, &done);
    wait_done(done);
    pthread_mutex_lock(&device->lock);
    drop_fence(device, done);
    pthread_mutex_unlock(&device->lock);
    *out = view.buffer->data + view.offset;
    return COPSE_OK;
}

static copse_status fake_unmap(copse__device *device, copse__queue queue,
                               copse__view view, void *mapped, copse__fence **done,
                               copse_error *err) {
    if (done != NULL)
        *done = NULL;
    const copse_status status = enter(device, FAKE_UNMAP, err);
    if (status != COPSE_OK)
        return status;
    if (mapped != view.buffer->data + view.offset)
        abort();
    return enqueue(device, queue, NULL, NULL, 0, 0, NULL, done);
}

static copse_status fake_mark(copse__fence **out, copse__device *device,
                              copse__queue queue, copse_error *err) {
    (void)err;
    return enqueue(device, queue, NULL, NULL, 0, 0, NULL, out);
}

static copse_status fake_queue_wait(copse__device *device, copse__queue queue,
                                    copse__fence *fence, copse_error *err) {
    (void)err;
    return enqueue(device, queue, NULL, NULL, 0, 0, fence, NULL);
}

static copse_status fake_fence_wait(copse__fence *fence, uint64_t timeout_ns,
                                    copse_error *err) {
    (void)timeout_ns;
    const copse_status status = enter(fence->device, FAKE_WAIT, err);
    return status == COPSE_OK ? wait_done(fence) : status;
}

static copse_status fake_fence_poll(bool *done, copse__fence *fence, copse_error *err) {
    (void)err;
    pthread_mutex_lock(&fence->device->lock);
    *done = fence->done;
    pthread_mutex_unlock(&fence->device->lock);
    return COPSE_OK;
}

static copse_status fake_finish(copse__device *device, copse__queue queue,
                                copse_error *err) {
    copse__fence *done = NULL;
    enqueue(device, queue, NULL, NULL, 0, 0, NULL, &done);
    const copse_status status = fake_fence_wait(done, UINT64_MAX, err);
    fake_fence_free(done);
    return status;
}

static const copse__backend fake_backend = {
    .name = "fake",
    .buffer_new = fake_buffer_new,
    .buffer_free = fake_buffer_free,
    .buffer_host = fake_buffer_host,
    .write = fake_write,
    .read = fake_read,
    .copy = fake_copy,
    .fill = fake_fill,
    .map = fake_map,
    .unmap = fake_unmap,
    .mark = fake_mark,
    .queue_wait = fake_queue_wait,
    .flush = fake_flush,
    .finish = fake_finish,
    .fence_wait = fake_fence_wait,
    .fence_poll = fake_fence_poll,
    .fence_free = fake_fence_free,
};

copse__device *fake_device_new(size_t index, bool unified) {
    copse__device *device = check_alloc(calloc(1, sizeof *device));
    device->base.backend = &fake_backend;
    device->base.caps = (copse__caps){.total_bytes = (size_t)1 << 34,
                                      .max_alloc_bytes = (size_t)1 << 32,
                                      .view_alignment = 512,
                                      .compute_units = 1,
                                      .cpu = true,
                                      .unified = unified};
    snprintf(device->base.choice.label, sizeof device->base.choice.label, "fake:%zu",
             index);
    pthread_mutex_init(&device->lock, NULL);
    pthread_cond_init(&device->change, NULL);
    for (size_t q = 0; q < COPSE__QUEUE_COUNT; q++) {
        lane *one = &device->queues[q];
        one->device = device;
        one->end = &one->first;
        if (pthread_create(&one->thread, NULL, run_queue, one) != 0)
            abort();
    }
    return device;
}

void fake_device_free(copse__device *device) {
    if (device == NULL)
        return;
    fake_release(device);
    pthread_mutex_lock(&device->lock);
    while (device->inside > 0)
        pthread_cond_wait(&device->change, &device->lock);
    device->quit = true;
    pthread_cond_broadcast(&device->change);
    pthread_mutex_unlock(&device->lock);
    for (size_t q = 0; q < COPSE__QUEUE_COUNT; q++)
        pthread_join(device->queues[q].thread, NULL);
    while (device->fences != NULL) {
        made *one = device->fences;
        delist(one);
        free(one);
    }
    while (device->buffers != NULL) {
        made *one = device->buffers;
        delist(one);
        free(((copse__buffer *)(void *)one)->data);
        free(one);
    }
    pthread_mutex_destroy(&device->lock);
    pthread_cond_destroy(&device->change);
    free(device);
}

void fake_fault(copse__device *device, fake_call call, size_t nth, fake_action action,
                uint64_t delay_ns) {
    pthread_mutex_lock(&device->lock);
    device->armed = true;
    device->struck = false;
    device->fault_call = call;
    device->fault_left = nth;
    device->action = action;
    device->delay_ns = delay_ns;
    pthread_mutex_unlock(&device->lock);
}

bool fake_struck(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    const bool struck = device->struck;
    pthread_mutex_unlock(&device->lock);
    return struck;
}

void fake_release(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    device->released = true;
    pthread_cond_broadcast(&device->change);
    pthread_mutex_unlock(&device->lock);
}

void fake_forbid(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    device->forbidden = true;
    pthread_mutex_unlock(&device->lock);
}

size_t fake_forbidden_calls(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    const size_t calls = device->wrong_calls;
    pthread_mutex_unlock(&device->lock);
    return calls;
}

size_t fake_live_objects(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    const size_t live = device->live;
    pthread_mutex_unlock(&device->lock);
    return live;
}

size_t fake_staging_bytes(copse__device *device) {
    pthread_mutex_lock(&device->lock);
    const size_t bytes = device->staging_bytes;
    pthread_mutex_unlock(&device->lock);
    return bytes;
}

void fake_share(copse__device *device) {
    device->shares = true;
}

void fake_limit_allocation(copse__device *device, size_t bytes) {
    device->base.caps.max_alloc_bytes = bytes;
}

void *fake_bytes(copse__buffer *buffer) {
    return buffer->data;
}
