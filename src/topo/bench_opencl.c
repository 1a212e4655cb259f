/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench_opencl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { PAGE = 4096 };

bool copse__bench_good(bench_device *d, cl_int code, const char *call) {
    if (code != CL_SUCCESS && d->failure == CL_SUCCESS) {
        d->failure = code;
        copse__put(d->to->problem, sizeof d->to->problem, "%s: %s failed (%d)",
                   d->stage ? d->stage : "the start", call, code);
    }
    return d->failure == CL_SUCCESS;
}

void copse__bench_close(bench_device *d) {
    cl_mem all[] = {d->data, d->data2, d->pinned, d->pinned2, d->user};
    for (size_t i = 0; i < COPSE__COUNT(all); i++)
        if (all[i])
            clReleaseMemObject(all[i]);
    if (d->queue)
        clReleaseCommandQueue(d->queue);
    if (d->second)
        clReleaseCommandQueue(d->second);
    if (d->context)
        clReleaseContext(d->context);
    free(d->user_memory);
    free(d->pattern);
    free(d->check);
}

static cl_mem make_buffer(bench_device *d, cl_mem_flags flags, void *host) {
    cl_int code = CL_SUCCESS;
    cl_mem made =
        d->failure ? NULL : clCreateBuffer(d->context, flags, d->bytes, host, &code);
    copse__bench_good(d, code, "clCreateBuffer");
    return made;
}

static bool find_device(bench_device *d, const copse__device_choice *choice) {
    cl_platform_id platforms[COPSE__MAX_PLATFORMS];
    cl_device_id devices[COPSE__MAX_HANDLES];
    cl_uint count = 0;
    if (!DO(d, clGetPlatformIDs, COPSE__MAX_PLATFORMS, platforms, &count) ||
        choice->platform_index >= count)
        return copse__bench_good(d, CL_INVALID_PLATFORM, "clGetPlatformIDs");
    count = 0;
    if (!DO(d, clGetDeviceIDs, platforms[choice->platform_index], CL_DEVICE_TYPE_ALL,
            COPSE__MAX_HANDLES, devices, &count) ||
        choice->device_index >= count)
        return copse__bench_good(d, CL_INVALID_DEVICE, "clGetDeviceIDs");
    d->id = devices[choice->device_index];
    return true;
}

bool copse__bench_open(bench_device *d, const copse__device_choice *choice, int handle,
                       copse__bench_result *to, double budget_s) {
    cl_int code = CL_SUCCESS;
    cl_ulong most = 0;
    *d = (bench_device){.to = to, .handle = handle, .share_s = budget_s / 60};
    if (!find_device(d, choice) ||
        !DO(d, clGetDeviceInfo, d->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most,
            NULL))
        return false;
    d->bytes = (size_t)64 << 20;
    while (d->bytes > most / 8 && d->bytes > 1 << 20)
        d->bytes /= 2;
    d->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &code);
    if (!copse__bench_good(d, code, "clCreateContext"))
        return false;
    d->queue = clCreateCommandQueue(d->context, d->id, 0, &code);
    if (!copse__bench_good(d, code, "clCreateCommandQueue"))
        return false;
    d->second = clCreateCommandQueue(d->context, d->id, 0, &code);
    copse__bench_good(d, code, "clCreateCommandQueue");
    d->user_memory = aligned_alloc(PAGE, d->bytes);
    d->pattern = aligned_alloc(PAGE, d->bytes);
    d->check = aligned_alloc(PAGE, d->bytes);
    if (!d->user_memory || !d->pattern || !d->check)
        return copse__bench_good(d, CL_OUT_OF_HOST_MEMORY, "aligned_alloc");
    memset(d->user_memory, 0, d->bytes);
    d->data = make_buffer(d, CL_MEM_READ_WRITE, NULL);
    d->data2 = make_buffer(d, CL_MEM_READ_WRITE, NULL);
    d->pinned = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, NULL);
    d->pinned2 = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, NULL);
    d->user = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, d->user_memory);
    return d->failure == CL_SUCCESS;
}

void copse__bench_fill(char *to, size_t bytes, uint32_t seed) {
    uint32_t x = seed * 2654435761u + 1, *words = (uint32_t *)(void *)to;
    for (size_t i = 0; i < bytes / 4; i++) {
        x = x * 1664525u + 1013904223u;
        words[i] = x;
    }
}

void *copse__bench_map(bench_device *d, cl_command_queue queue, cl_mem buffer,
                       cl_map_flags how, size_t bytes) {
    cl_int code = CL_SUCCESS;
    void *at = d->failure ? NULL
                          : clEnqueueMapBuffer(queue, buffer, CL_TRUE, how, 0, bytes, 0,
                                               NULL, NULL, &code);
    copse__bench_good(d, code, "clEnqueueMapBuffer");
    return d->failure ? NULL : at;
}

void copse__bench_unmap(bench_device *d, cl_command_queue queue, cl_mem buffer,
                        void *at) {
    if (at &&
        copse__bench_good(d, clEnqueueUnmapMemObject(queue, buffer, at, 0, NULL, NULL),
                          "clEnqueueUnmapMemObject"))
        DO(d, clFinish, queue);
}

bool copse__bench_enough(size_t runs, uint64_t begin, double share_s) {
    return runs >= COPSE__BENCH_MOST_RUNS ||
           (runs >= COPSE__BENCH_LEAST_RUNS &&
            (double)(copse__now_ns() - begin) / 1e9 > share_s);
}

copse__measure *copse__bench_figure(bench_device *d, const char *what, const char *path,
                                    const char *unit) {
    copse__measure *m = copse__bench_add(d->to, what, path, unit);
    if (m)
        m->handle = d->handle;
    return m;
}

void copse__bench_tell(const copse__bench_options *options, const char *label,
                       const char *what) {
    char line[128];
    copse__put(line, sizeof line, "%s %s", label, what);
    if (options->progress)
        options->progress(line, options->user);
}

void copse__bench_device(copse__bench_result *to, const copse__device_choice *choice,
                         int handle, const copse__bench_options *options) {
    bench_device d;
    if (copse__bench_open(&d, choice, handle, to, options->budget_s)) {
        copse__bench_tell(options, choice->label, "transfers");
        copse__bench_transfers(&d);
        copse__bench_compute(&d, choice, options);
    }
    copse__bench_close(&d);
}
