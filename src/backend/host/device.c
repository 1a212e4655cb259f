/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/host/device.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

/* Memory and queues of the host: every queue is the calling thread, so all is done when a
 * call returns and fences have nothing to say. They are objects all the same, so that a
 * leak in the engine shows here too. */
struct copse__fence {
    copse__device *device;
};

enum { ALIGNMENT = 64 };

static size_t usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (size_t)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (size_t)online : 1;
}

static size_t total_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t bytes;
    if (pages <= 0 || page <= 0 || !copse__mul_size((size_t)pages, (size_t)page, &bytes))
        return SIZE_MAX / 2;
    return bytes;
}

/* A recorded plan may fix providers; only the one there is can be had. */
static copse_status check_providers(const char *const *pairs, const char *label,
                                    copse_error *err) {
    for (; pairs && *pairs; pairs++) {
        const char *equals = strchr(*pairs, '=');
        if (!equals || strcmp(equals + 1, COPSE__HOST_PROVIDER) != 0)
            return copse__fail(err, COPSE_UNSUPPORTED, 0, label,
                               "the recorded provider '%s' is not one of the host, whose "
                               "only one is '%s'",
                               *pairs, COPSE__HOST_PROVIDER);
    }
    return COPSE_OK;
}

static copse_status host_open(copse__device **out, const copse__device_choice *choice,
                              const copse__device_options *options, copse_error *err) {
    copse__host_device *made = NULL;
    copse_status status;
    *out = NULL;
    COPSE__TRY(check_providers(options ? options->providers : NULL, choice->label, err),
               out);
    COPSE__TRY(copse__calloc(&made, 1, sizeof *made, err), out);
    size_t parts = choice->part_count > 0 ? choice->part_count : 1;
    made->threads = copse__max_size(usable_cores() / parts, 1);
    made->profile = options && options->profile;
    made->base.backend = &copse__backend_host;
    made->base.choice = *choice;
    made->base.caps = (copse__caps){.total_bytes = total_memory(),
                                    .max_alloc_bytes = total_memory(),
                                    .view_alignment = ALIGNMENT,
                                    .compute_units = (uint32_t)made->threads,
                                    .cpu = true,
                                    .unified = true,
                                    .fp16 = false,
                                    .fp64 = true,
                                    .exact_divide_sqrt = true};
    *out = (copse__device *)(void *)made;
out:
    return status;
}

static void host_close(copse__device *device) {
    free(device);
}

static copse_status host_buffer_new(copse__buffer **out, copse__device *device,
                                    size_t bytes, copse__memory memory,
                                    copse_error *err) {
    const copse__device_base *base = copse__device_get(device);
    copse__buffer *made = NULL;
    copse_status status;
    *out = NULL;
    if (bytes > base->caps.max_alloc_bytes)
        return copse__fail(err, COPSE_DEVICE_MEMORY, 0, base->choice.label,
                           "%zu bytes are more than the machine's %zu", bytes,
                           base->caps.max_alloc_bytes);
    COPSE__TRY(copse__calloc(&made, 1, sizeof *made, err), out);
    made->bytes = bytes;
    made->memory = memory;
    made->data = aligned_alloc(ALIGNMENT, copse__round_up(bytes ? bytes : 1, ALIGNMENT));
    if (!made->data) {
        status = copse__fail(err, COPSE_DEVICE_MEMORY, 0, base->choice.label,
                             "the machine could not give %zu bytes", bytes);
        goto out;
    }
    made->device = device;
    (void)copse__device_took(device, memory, copse__memory_lines(bytes));
    *out = made;
    made = NULL;
out:
    free(made);
    return status;
}

static void host_buffer_free(copse__buffer *buffer) {
    if (!buffer)
        return;
    copse__device_gave(buffer->device, buffer->memory,
                       copse__memory_lines(buffer->bytes));
    free(buffer->data);
    free(buffer);
}

static void *host_buffer_host(copse__buffer *buffer) {
    return buffer->memory == COPSE__MEMORY_DEVICE ? NULL : buffer->data;
}

/* Whether `bytes` from the view's start lie in its buffer. */
static copse_status check_view(const copse__device *device, copse__view view,
                               size_t bytes, copse_error *err) {
    size_t end;
    if (view.buffer && bytes <= view.bytes &&
        copse__add_size(view.offset, view.bytes, &end) && end <= view.buffer->bytes)
        return COPSE_OK;
    return copse__fail(err, COPSE_INVALID, 0, copse__device_get(device)->choice.label,
                       "%zu bytes at %zu leave the buffer", bytes, view.offset);
}

static copse_status give_fence(copse__fence **done, copse__device *device,
                               copse_error *err) {
    if (!done)
        return COPSE_OK;
    copse_status status = copse__calloc(done, 1, sizeof **done, err);
    if (status == COPSE_OK)
        (*done)->device = device;
    return status;
}

static void no_fence(copse__fence **done) {
    if (done)
        *done = NULL;
}

static copse_status host_write(copse__device *device, copse__queue queue, copse__view to,
                               const void *host, size_t bytes, copse__fence *wait,
                               copse__fence **done, copse_error *err) {
    (void)queue;
    (void)wait;
    no_fence(done);
    copse_status status = check_view(device, to, bytes, err);
    if (status != COPSE_OK)
        return status;
    if (bytes > 0)
        memmove(to.buffer->data + to.offset, host, bytes);
    return give_fence(done, device, err);
}

static copse_status host_read(copse__device *device, copse__queue queue, void *host,
                              copse__view from, size_t bytes, copse__fence *wait,
                              copse__fence **done, copse_error *err) {
    (void)queue;
    (void)wait;
    no_fence(done);
    copse_status status = check_view(device, from, bytes, err);
    if (status != COPSE_OK)
        return status;
    if (bytes > 0)
        memmove(host, from.buffer->data + from.offset, bytes);
    return give_fence(done, device, err);
}

static copse_status host_copy(copse__device *device, copse__queue queue, copse__view to,
                              copse__view from, size_t bytes, copse__fence *wait,
                              copse__fence **done, copse_error *err) {
    no_fence(done);
    copse_status status = check_view(device, from, bytes, err);
    if (status != COPSE_OK)
        return status;
    return host_write(device, queue, to, from.buffer->data + from.offset, bytes, wait,
                      done, err);
}

static copse_status host_fill(copse__device *device, copse__queue queue, copse__view to,
                              uint32_t pattern, copse__fence *wait, copse__fence **done,
                              copse_error *err) {
    (void)queue;
    (void)wait;
    no_fence(done);
    copse_status status = check_view(device, to, to.bytes, err);
    if (status != COPSE_OK)
        return status;
    if (to.bytes % sizeof pattern != 0)
        return copse__fail(err, COPSE_INVALID, 0, copse__device_get(device)->choice.label,
                           "a fill of %zu bytes is not a multiple of 4", to.bytes);
    for (size_t i = 0; i < to.bytes; i += sizeof pattern)
        memcpy(to.buffer->data + to.offset + i, &pattern, sizeof pattern);
    return give_fence(done, device, err);
}

static copse_status host_map(void **out, copse__device *device, copse__queue queue,
                             copse__view view, bool for_writing, copse__fence *wait,
                             copse_error *err) {
    (void)queue;
    (void)for_writing;
    (void)wait;
    *out = NULL;
    copse_status status = check_view(device, view, view.bytes, err);
    if (status == COPSE_OK)
        *out = view.buffer->data + view.offset;
    return status;
}

static copse_status host_unmap(copse__device *device, copse__queue queue,
                               copse__view view, void *mapped, copse__fence **done,
                               copse_error *err) {
    (void)queue;
    (void)view;
    (void)mapped;
    no_fence(done);
    return give_fence(done, device, err);
}

static copse_status host_mark(copse__fence **out, copse__device *device,
                              copse__queue queue, copse_error *err) {
    (void)queue;
    *out = NULL;
    return give_fence(out, device, err);
}

static copse_status host_queue_wait(copse__device *device, copse__queue queue,
                                    copse__fence *fence, copse_error *err) {
    (void)device;
    (void)queue;
    (void)fence;
    (void)err;
    return COPSE_OK;
}

static copse_status host_flush(copse__device *device, copse__queue queue,
                               copse_error *err) {
    (void)device;
    (void)queue;
    (void)err;
    return COPSE_OK;
}

static copse_status host_fence_wait(copse__fence *fence, uint64_t timeout_ns,
                                    copse_error *err) {
    (void)fence;
    (void)timeout_ns;
    (void)err;
    return COPSE_OK;
}

static copse_status host_fence_poll(bool *done, copse__fence *fence, copse_error *err) {
    (void)fence;
    (void)err;
    *done = true;
    return COPSE_OK;
}

static void host_fence_free(copse__fence *fence) {
    free(fence);
}

const copse__backend copse__backend_host = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .buffer_new = host_buffer_new,
    .buffer_free = host_buffer_free,
    .buffer_host = host_buffer_host,
    .write = host_write,
    .read = host_read,
    .copy = host_copy,
    .fill = host_fill,
    .map = host_map,
    .unmap = host_unmap,
    .mark = host_mark,
    .queue_wait = host_queue_wait,
    .flush = host_flush,
    .finish = host_flush,
    .fence_wait = host_fence_wait,
    .fence_poll = host_fence_poll,
    .fence_free = host_fence_free,
    .supports = copse__host_supports,
    .launch_new = copse__host_launch_new,
    .launch_free = copse__host_launch_free,
    .provider = copse__host_provider,
    .launch_provider = copse__host_launch_provider,
    .run = copse__host_run,
    .launch_time_ns = copse__host_launch_time_ns,
    .launch_span = copse__host_launch_span,
};
