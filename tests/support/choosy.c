/* SPDX-License-Identifier: Apache-2.0 */
#include "support/choosy.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

typedef struct choosy_launch {
    copse__launch *real;
    copse__operands operands;
    size_t planned_batch;
    char parameters[64];
    size_t us, wrong;
    bool own;
} choosy_launch;

static const char *const *offered;
static copse__tuned *table;
static bool *used;
static size_t table_count;
static atomic_size_t wrong_runs, launches_run, offered_run;
static atomic_uint_fast64_t told_ns; /* the time while a device is open; 0: none is */
static const copse__backend *real;

/* The linker puts these in clock_gettime's place in all that is part of the program itself (--wrap). */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

static uint64_t real_ns(void) {
    struct timespec now;
    __real_clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* To look takes 100 ns. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    if (clock != CLOCK_MONOTONIC || atomic_load(&told_ns) == 0)
        return __real_clock_gettime(clock, now);
    const uint64_t ns = atomic_fetch_add(&told_ns, 100);
    *now = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    return 0;
}

void choosy_offer(const char *const *parameters) {
    offered = parameters;
    atomic_store(&wrong_runs, 0);
    atomic_store(&launches_run, 0);
}

size_t choosy_runs(void) {
    return atomic_load(&launches_run);
}

size_t choosy_offered_runs(void) {
    return atomic_load(&offered_run);
}

size_t choosy_wrong_runs(void) {
    return atomic_load(&wrong_runs);
}

static copse_status choosy_open(copse__device **out, const copse__device_choice *choice,
                                const copse__device_options *options, copse_error *err) {
    copse__device_options plain = {0};
    real = choice->api == COPSE__API_HOST ? &copse__backend_host : &copse__backend_opencl;
    if (options)
        plain = *options;
    plain.backend = NULL;
    copse_status status = real->open(out, choice, &plain, err);
    if (status == COPSE_OK)
        ((copse__device_base *)(void *)*out)->backend = &choosy_backend;
    if (status == COPSE_OK)
        atomic_store(&told_ns, real_ns());
    return status;
}

static void free_table(void) {
    for (size_t i = 0; i < table_count; i++) {
        free((char *)(size_t)table[i].key);
        free((char *)(size_t)table[i].provider);
        free((char *)(size_t)table[i].parameters);
    }
    free(table);
    free(used);
    table = NULL;
    used = NULL;
    table_count = 0;
}

static void choosy_close(copse__device *device) {
    if (device)
        real->close(device);
    atomic_store(&told_ns, 0);
    free_table();
}

static copse_status choosy_tune(copse__device *device, const copse__tuned *entries,
                                size_t count, copse_error *err) {
    (void)device;
    (void)err;
    free_table();
    table = calloc(count + 1, sizeof *table);
    used = calloc(count + 1, sizeof *used);
    if (!table || !used)
        abort();
    for (; table_count < count; table_count++)
        table[table_count] = (copse__tuned){strdup(entries[table_count].key),
                                            strdup(entries[table_count].provider),
                                            strdup(entries[table_count].parameters)};
    return COPSE_OK;
}

static bool choosy_tuned_used(const copse__device *device, size_t entry) {
    (void)device;
    return entry < table_count && used[entry];
}

#define TOO_MUCH 4711

static bool choosy_is_launch_fault(const copse_error *err) {
    return err->native == TOO_MUCH;
}

static void choosy_candidates(copse__device *device, const copse__graph *graph,
                              const copse__node *node, copse__effort effort,
                              copse__candidate_fn *fn, void *user) {
    (void)device;
    (void)graph;
    (void)effort;
    fn("own", "", true, user);
    for (size_t i = 0; node->op == COPSE__OP_DENSE && offered && offered[i]; i++)
        fn("choosy", offered[i], true, user);
}

static void choosy_tuning_id(const copse__device *device, copse__tuning_id *out) {
    (void)device;
    *out = (copse__tuning_id){
        .units = 2, .vector = 8, .build = "this build", .sources = "these kernels"};
}

static copse_status choosy_launch_new(copse__launch **out, copse__device *device,
                                      const copse__graph *graph, const copse__node *node,
                                      const copse__operands *operands, copse_error *err) {
    static const char *const names[] = {"us", "wrong"};
    char key[COPSE__TUNED_KEY];
    size_t values[2] = {0, 0};
    choosy_launch *made = calloc(1, sizeof *made);
    if (!made)
        abort();
    const copse__tuned *entry =
        copse__tuned_find(table, table_count, copse__tuned_key(key, graph, node));
    made->own = !entry || strcmp(entry->provider, "choosy") != 0;
    made->operands = *operands;
    made->planned_batch = graph->tensors[node->inputs[0]].dim[0].size;
    made->us = CHOOSY_OWN_US;
    if (entry)
        used[entry - table] = true;
    if (!made->own) {
        snprintf(made->parameters, sizeof made->parameters, "%s", entry->parameters);
        if (!copse__parameters_read(entry->parameters, names, values, 2))
            abort();
        made->us = values[0];
        made->wrong = values[1];
    }
    *out = NULL;
    copse_status status =
        made->wrong == 4
            ? copse__fail(err, COPSE_KERNEL, 0, "choosy", "it does not build here")
            : real->launch_new(&made->real, device, graph, node, operands, err);
    if (status == COPSE_OK)
        *out = (copse__launch *)(void *)made;
    else
        free(made);
    return status;
}

static void choosy_launch_free(copse__launch *launch) {
    choosy_launch *own = (choosy_launch *)(void *)launch;
    if (!own)
        return;
    real->launch_free(own->real);
    free(own);
}

static const char *choosy_launch_provider(const copse__launch *launch) {
    return ((const choosy_launch *)(const void *)launch)->own ? "own" : "choosy";
}

static const char *choosy_launch_parameters(const copse__launch *launch) {
    return ((const choosy_launch *)(const void *)launch)->parameters;
}

static copse_status spoil(copse__device *device, const choosy_launch *l,
                          const copse__extents *extents, copse_error *err) {
    copse__view to = l->operands.outputs[0];
    uint32_t thousand = 0x447A0000, pattern = l->wrong == 2 ? 0x7FC00000 : thousand;
    if (to.bytes < 4 || (l->wrong == 3 && extents->of[COPSE__BATCH] == l->planned_batch))
        return COPSE_OK;
    atomic_fetch_add(&wrong_runs, 1);
    if (l->wrong == 5)
        to.offset += (to.bytes + 63) / 64 * 64;
    to.bytes = 4;
    return real->fill(device, COPSE__QUEUE_COMPUTE, to, pattern, NULL, NULL, err);
}

static copse_status choosy_run(copse__device *device, copse__launch *const *launches,
                               size_t count, const copse__extents *extents,
                               copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        choosy_launch *l = (choosy_launch *)(void *)launches[i];
        atomic_fetch_add(&launches_run, 1);
        atomic_fetch_add(&offered_run, !l->own);
        if (l->wrong == 6)
            return copse__fail(err, COPSE_DEVICE, TOO_MUCH, "choosy", "too much");
        if (l->wrong == 7)
            return copse__fail(err, COPSE_DEVICE, 1, "choosy", "nobody knows why");
        atomic_fetch_add(&told_ns, l->us * 1000);
        status = real->run(device, &l->real, 1, extents, err);
        if (status == COPSE_OK && l->wrong)
            status = spoil(device, l, extents, err);
    }
    return status;
}

/* What is not chosen goes straight to the real backend; which is known when the first device is opened. */
static copse_status buffer_new(copse__buffer **out, copse__device *device, size_t bytes,
                               copse__memory memory, copse_error *err) {
    return real->buffer_new(out, device, bytes, memory, err);
}
static void buffer_free(copse__buffer *buffer) {
    real->buffer_free(buffer);
}
static void *buffer_host(copse__buffer *buffer) {
    return real->buffer_host(buffer);
}
static copse_status write_to(copse__device *device, copse__queue queue, copse__view to,
                             const void *host, size_t bytes, copse__fence *wait,
                             copse__fence **done, copse_error *err) {
    return real->write(device, queue, to, host, bytes, wait, done, err);
}
static copse_status read_from(copse__device *device, copse__queue queue, void *host,
                              copse__view from, size_t bytes, copse__fence *wait,
                              copse__fence **done, copse_error *err) {
    return real->read(device, queue, host, from, bytes, wait, done, err);
}
static copse_status fill(copse__device *device, copse__queue queue, copse__view to,
                         uint32_t pattern, copse__fence *wait, copse__fence **done,
                         copse_error *err) {
    return real->fill(device, queue, to, pattern, wait, done, err);
}
static copse_status finish(copse__device *device, copse__queue queue, copse_error *err) {
    return real->finish(device, queue, err);
}
static copse_status supports(copse__device *device, const copse__graph *graph,
                             const copse__node *node, size_t *workspace_bytes,
                             copse_error *err) {
    return real->supports(device, graph, node, workspace_bytes, err);
}

const copse__backend choosy_backend = {
    .name = "choosy",
    .open = choosy_open,
    .close = choosy_close,
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
    .buffer_host = buffer_host,
    .write = write_to,
    .read = read_from,
    .fill = fill,
    .finish = finish,
    .supports = supports,
    .launch_new = choosy_launch_new,
    .launch_free = choosy_launch_free,
    .launch_provider = choosy_launch_provider,
    .launch_parameters = choosy_launch_parameters,
    .tune = choosy_tune,
    .tuned_used = choosy_tuned_used,
    .tuned_found = choosy_tuned_used,
    .is_launch_fault = choosy_is_launch_fault,
    .candidates = choosy_candidates,
    .tuning_id = choosy_tuning_id,
    .run = choosy_run,
};
