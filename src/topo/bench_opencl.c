/* SPDX-License-Identifier: Apache-2.0 */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/bench.h"
#include "topo/bench_kernels.h"

enum { MAX_RUNS = 200, MIN_RUNS = 5, PAGE = 4096 };

/* Everything of one device that a measurement uses; released as a whole. */
typedef struct bench_device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue, second; /* in order; second for the other direction */
    cl_mem data, data2;             /* on the device, `bytes` each */
    cl_mem pinned, pinned2;         /* ALLOC_HOST_PTR */
    cl_mem user;                    /* USE_HOST_PTR over user_memory */
    void *user_memory;
    char *pattern, *check; /* host memory of the program */
    size_t bytes;
    double share_s; /* for one figure */
    int handle;
    copse__bench_result *to;
    cl_int failure;
    const char *stage;
} bench_device;

/* Notes the first failure; everything after it is skipped. */
static bool good(bench_device *d, cl_int code, const char *call) {
    if (code != CL_SUCCESS && d->failure == CL_SUCCESS) {
        d->failure = code;
        copse__put(d->to->problem, sizeof d->to->problem, "%s: %s failed (%d)",
                   d->stage ? d->stage : "the start", call, code);
    }
    return d->failure == CL_SUCCESS;
}

#define DO(d, call, ...) good((d), (d)->failure ? CL_SUCCESS : call(__VA_ARGS__), #call)

static void close_device(bench_device *d) {
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
    good(d, code, "clCreateBuffer");
    return made;
}

static bool find_device(bench_device *d, const copse__device_choice *choice) {
    cl_platform_id platforms[COPSE__MAX_PLATFORMS];
    cl_device_id devices[COPSE__MAX_HANDLES];
    cl_uint count = 0;
    if (!DO(d, clGetPlatformIDs, COPSE__MAX_PLATFORMS, platforms, &count) ||
        choice->platform_index >= count)
        return good(d, CL_INVALID_PLATFORM, "clGetPlatformIDs");
    count = 0;
    if (!DO(d, clGetDeviceIDs, platforms[choice->platform_index], CL_DEVICE_TYPE_ALL,
            COPSE__MAX_HANDLES, devices, &count) ||
        choice->device_index >= count)
        return good(d, CL_INVALID_DEVICE, "clGetDeviceIDs");
    d->id = devices[choice->device_index];
    return true;
}

static bool open_device(bench_device *d, const copse__device_choice *choice, int handle,
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
    if (!good(d, code, "clCreateContext"))
        return false;
    d->queue = clCreateCommandQueue(d->context, d->id, 0, &code);
    if (!good(d, code, "clCreateCommandQueue"))
        return false;
    d->second = clCreateCommandQueue(d->context, d->id, 0, &code);
    good(d, code, "clCreateCommandQueue");
    d->user_memory = aligned_alloc(PAGE, d->bytes);
    d->pattern = aligned_alloc(PAGE, d->bytes);
    d->check = aligned_alloc(PAGE, d->bytes);
    if (!d->user_memory || !d->pattern || !d->check)
        return good(d, CL_OUT_OF_HOST_MEMORY, "aligned_alloc");
    memset(d->user_memory, 0, d->bytes);
    d->data = make_buffer(d, CL_MEM_READ_WRITE, NULL);
    d->data2 = make_buffer(d, CL_MEM_READ_WRITE, NULL);
    d->pinned = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, NULL);
    d->pinned2 = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, NULL);
    d->user = make_buffer(d, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, d->user_memory);
    return d->failure == CL_SUCCESS;
}

/* Other bytes for each seed, so that a stale buffer is noticed. */
static void fill_pattern(char *to, size_t bytes, uint32_t seed) {
    uint32_t x = seed * 2654435761u + 1, *words = (uint32_t *)(void *)to;
    for (size_t i = 0; i < bytes / 4; i++) {
        x = x * 1664525u + 1013904223u;
        words[i] = x;
    }
}

static void *map(bench_device *d, cl_command_queue queue, cl_mem buffer, cl_map_flags how,
                 size_t bytes) {
    cl_int code = CL_SUCCESS;
    void *at = d->failure ? NULL
                          : clEnqueueMapBuffer(queue, buffer, CL_TRUE, how, 0, bytes, 0,
                                               NULL, NULL, &code);
    good(d, code, "clEnqueueMapBuffer");
    return d->failure ? NULL : at;
}

static void unmap(bench_device *d, cl_command_queue queue, cl_mem buffer, void *at) {
    if (at && good(d, clEnqueueUnmapMemObject(queue, buffer, at, 0, NULL, NULL),
                   "clEnqueueUnmapMemObject"))
        DO(d, clFinish, queue);
}

typedef enum staging { READ_PINNED, COPY_PINNED, MAP, USE_HOST, STAGINGS } staging;

static const char *const staging_names[] = {"read_pinned", "copy_pinned", "map",
                                            "use_host_ptr"};

/* One transfer as a trainer would do it: afterwards the host may read the bytes (down), or
 * the device has those which the host had written (up). at is the mapped pinned memory of
 * READ_PINNED. */
static void transfer(bench_device *d, staging how, bool up, size_t bytes, void *at) {
    cl_mem stage_buffer = how == USE_HOST ? d->user : d->pinned;
    void *mapped;
    switch (how) {
    case READ_PINNED:
        if (up)
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, bytes, at, 0, NULL,
               NULL);
        else
            DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, bytes, at, 0, NULL,
               NULL);
        break;
    case COPY_PINNED:
    case USE_HOST:
        if (up) {
            mapped = map(d, d->queue, stage_buffer, CL_MAP_WRITE, bytes);
            unmap(d, d->queue, stage_buffer, mapped);
            DO(d, clEnqueueCopyBuffer, d->queue, stage_buffer, d->data, 0, 0, bytes, 0,
               NULL, NULL);
            DO(d, clFinish, d->queue);
        } else {
            DO(d, clEnqueueCopyBuffer, d->queue, d->data, stage_buffer, 0, 0, bytes, 0,
               NULL, NULL);
            mapped = map(d, d->queue, stage_buffer, CL_MAP_READ, bytes);
            unmap(d, d->queue, stage_buffer, mapped);
        }
        break;
    case MAP:
        mapped = map(d, d->queue, d->data, up ? CL_MAP_WRITE : CL_MAP_READ, bytes);
        unmap(d, d->queue, d->data, mapped);
        break;
    case STAGINGS:
        break;
    }
}

/* Puts the pattern where a transfer of this kind starts. */
static void prepare(bench_device *d, staging how, bool up, size_t bytes, void *at) {
    if (!up) {
        DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, bytes, d->pattern, 0,
           NULL, NULL);
        return;
    }
    if (how == READ_PINNED) {
        memcpy(at, d->pattern, bytes);
        return;
    }
    cl_mem buffer = how == MAP ? d->data : how == USE_HOST ? d->user : d->pinned;
    void *mapped = map(d, d->queue, buffer, CL_MAP_WRITE, bytes);
    if (mapped)
        memcpy(mapped, d->pattern, bytes);
    unmap(d, d->queue, buffer, mapped);
}

/* Whether the pattern arrived. */
static bool arrived(bench_device *d, staging how, bool up, size_t bytes, void *at) {
    if (up) {
        DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, bytes, d->check, 0,
           NULL, NULL);
        return !d->failure && memcmp(d->check, d->pattern, bytes) == 0;
    }
    if (how == READ_PINNED)
        return !d->failure && memcmp(at, d->pattern, bytes) == 0;
    cl_mem buffer = how == MAP ? d->data : how == USE_HOST ? d->user : d->pinned;
    void *mapped = map(d, d->queue, buffer, CL_MAP_READ, bytes);
    bool same = mapped && memcmp(mapped, d->pattern, bytes) == 0;
    unmap(d, d->queue, buffer, mapped);
    return same;
}

static bool enough(size_t runs, uint64_t begin, double share_s) {
    return runs >= MAX_RUNS ||
           (runs >= MIN_RUNS && (double)(copse__now_ns() - begin) / 1e9 > share_s);
}

static copse__measure *add(bench_device *d, const char *what, const char *path,
                           const char *unit) {
    copse__measure *m = copse__bench_add(d->to, what, path, unit);
    if (m)
        m->handle = d->handle;
    return m;
}

static copse__measure *measure_transfer(bench_device *d, staging how, bool up,
                                        size_t bytes) {
    double times[MAX_RUNS];
    size_t runs = 0;
    void *at = NULL;
    d->stage = up ? "h2d" : "d2h";
    fill_pattern(d->pattern, bytes, (uint32_t)(how * 2 + up) + (uint32_t)bytes);
    if (how == READ_PINNED)
        at = map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, bytes);
    if (d->failure)
        return NULL;
    if (at && !up)
        memset(at, 0, bytes);
    prepare(d, how, up, bytes, at);
    transfer(d, how, up, bytes, at); /* warm-up, and the one that is compared */
    bool verified = arrived(d, how, up, bytes, at);
    transfer(d, how, up, bytes, at);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !enough(runs, begin, d->share_s)) {
        uint64_t start = copse__now_ns();
        transfer(d, how, up, bytes, at);
        times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    unmap(d, d->queue, d->pinned, at);
    if (d->failure)
        return NULL;
    copse__measure *m = add(d, up ? "h2d" : "d2h", staging_names[how], "GB/s");
    if (!m)
        return NULL;
    m->bytes = bytes;
    m->verified = verified;
    copse__bench_summarise(m, times, runs, (double)bytes, 1e9);
    return m;
}

static double seconds_of(const copse__measure *m) {
    return (double)m->bytes / (m->median * 1e9);
}

static void measure_transfers(bench_device *d) {
    const size_t sizes[] = {64 << 10, 1 << 20, 16 << 20, 64 << 20};
    for (int how = 0; how < STAGINGS; how++)
        for (int up = 0; up <= 1; up++) {
            copse__measure *first = NULL, *last = NULL;
            for (size_t i = 0; i < COPSE__COUNT(sizes) && sizes[i] <= d->bytes; i++) {
                copse__measure *m = measure_transfer(d, (staging)how, up, sizes[i]);
                if (!m)
                    return;
                first = first ? first : m;
                last = m;
            }
            /* 16 times the bytes and more in not even 4 times the time: nothing moved. */
            bool grows = !first || first == last || last->bytes < 16 * first->bytes ||
                         seconds_of(last) > 4 * seconds_of(first);
            for (copse__measure *m = first; m && !grows && m <= last; m++)
                m->moves = false;
        }
}

static void measure_latency(bench_device *d, bool up) {
    double times[MAX_RUNS];
    size_t runs = 0;
    uint32_t word = 0x12345678;
    d->stage = "latency";
    for (int i = 0; i < 5; i++)
        DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, sizeof word, &word, 0,
           NULL, NULL);
    uint64_t begin = copse__now_ns();
    uint32_t back = 0;
    while (!d->failure && !enough(runs, begin, d->share_s)) {
        uint64_t start = copse__now_ns();
        if (up)
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, sizeof word, &word,
               0, NULL, NULL);
        else
            DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, sizeof back, &back,
               0, NULL, NULL);
        times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    if (up)
        DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, sizeof back, &back, 0,
           NULL, NULL);
    copse__measure *m =
        d->failure ? NULL : add(d, up ? "alpha_h2d" : "alpha_d2h", "", "us");
    if (!m)
        return;
    m->bytes = sizeof word;
    m->verified = back == word;
    copse__bench_summarise(m, times, runs, 0, 1);
}

/* Both directions at once: on one queue each, other buffers, other pinned memory. */
static void measure_duplex(bench_device *d, staging how) {
    double times[MAX_RUNS];
    size_t runs = 0;
    d->stage = "duplex";
    void *at = map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    void *at2 = map(d, d->queue, d->pinned2, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    fill_pattern(d->pattern, d->bytes, 77 + (uint32_t)how);
    if (at && at2) {
        memcpy(at, d->pattern, d->bytes);
        memset(at2, 0, d->bytes);
    }
    if (how == COPY_PINNED) {
        unmap(d, d->queue, d->pinned, at);
        unmap(d, d->queue, d->pinned2, at2);
    }
    DO(d, clEnqueueWriteBuffer, d->queue, d->data2, CL_TRUE, 0, d->bytes, d->pattern, 0,
       NULL, NULL);
    uint64_t begin = copse__now_ns();
    for (size_t run = 0; !d->failure && !enough(runs, begin, d->share_s); run++) {
        uint64_t start = copse__now_ns();
        /* Waited for by their events: there is a driver whose clFinish returns at once after
         * a clFlush. */
        cl_event done[2] = {NULL, NULL};
        if (how == COPY_PINNED) {
            DO(d, clEnqueueCopyBuffer, d->queue, d->pinned, d->data, 0, 0, d->bytes, 0,
               NULL, &done[0]);
            DO(d, clEnqueueCopyBuffer, d->second, d->data2, d->pinned2, 0, 0, d->bytes, 0,
               NULL, &done[1]);
        } else {
            DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_FALSE, 0, d->bytes, at, 0,
               NULL, &done[0]);
            DO(d, clEnqueueReadBuffer, d->second, d->data2, CL_FALSE, 0, d->bytes, at2, 0,
               NULL, &done[1]);
        }
        DO(d, clFlush, d->queue);
        DO(d, clFlush, d->second);
        DO(d, clWaitForEvents, 2, done);
        for (int i = 0; i < 2; i++)
            if (done[i])
                clReleaseEvent(done[i]);
        if (run > 0)
            times[runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    if (how == COPY_PINNED)
        at2 = map(d, d->queue, d->pinned2, CL_MAP_READ, d->bytes);
    bool verified = !d->failure && at2 && memcmp(at2, d->pattern, d->bytes) == 0;
    DO(d, clEnqueueReadBuffer, d->queue, d->data, CL_TRUE, 0, d->bytes, d->check, 0, NULL,
       NULL);
    verified = verified && !d->failure && memcmp(d->check, d->pattern, d->bytes) == 0;
    unmap(d, d->queue, d->pinned2, at2);
    if (how == READ_PINNED)
        unmap(d, d->queue, d->pinned, at);
    copse__measure *m = d->failure ? NULL : add(d, "duplex", staging_names[how], "GB/s");
    if (!m)
        return;
    m->bytes = d->bytes;
    m->verified = verified;
    copse__bench_summarise(m, times, runs, 2 * (double)d->bytes, 1e9);
}

static cl_program build(bench_device *d, bool use_half) {
    const char *source = copse__bench_source;
    cl_int code = CL_SUCCESS;
    d->stage = "building the kernels";
    cl_program made = clCreateProgramWithSource(d->context, 1, &source, NULL, &code);
    if (!good(d, code, "clCreateProgramWithSource"))
        return NULL;
    code = clBuildProgram(made, 1, &d->id, use_half ? "-DUSE_HALF" : "", NULL, NULL);
    if (good(d, code, "clBuildProgram"))
        return made;
    clReleaseProgram(made);
    return NULL;
}

static cl_kernel make_kernel(bench_device *d, cl_program program, const char *name) {
    cl_int code = CL_SUCCESS;
    cl_kernel made = d->failure ? NULL : clCreateKernel(program, name, &code);
    return good(d, code, "clCreateKernel") ? made : NULL;
}

static double run_kernel(bench_device *d, cl_kernel kernel, cl_uint rank,
                         const size_t *global, const size_t *local) {
    uint64_t start = copse__now_ns();
    DO(d, clEnqueueNDRangeKernel, d->queue, kernel, rank, NULL, global, local, 0, NULL,
       NULL);
    DO(d, clFinish, d->queue);
    return (double)(copse__now_ns() - start) / 1e9;
}

static void measure_launch(bench_device *d, cl_program program) {
    double times[MAX_RUNS];
    size_t runs = 0, one = 1;
    cl_kernel kernel = make_kernel(d, program, "nothing");
    d->stage = "launch";
    DO(d, clSetKernelArg, kernel, 0, sizeof d->data, &d->data);
    for (int i = 0; i < 5; i++)
        run_kernel(d, kernel, 1, &one, NULL);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !enough(runs, begin, d->share_s))
        times[runs++] = run_kernel(d, kernel, 1, &one, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    copse__measure *m = d->failure ? NULL : add(d, "launch", "", "us");
    if (!m)
        return;
    m->verified = true; /* it has no data; it returned */
    copse__bench_summarise(m, times, runs, 0, 1);
}

static void measure_device_copy(bench_device *d, cl_program program) {
    double times[MAX_RUNS];
    size_t runs = 0, items = d->bytes / 16;
    cl_kernel kernel = make_kernel(d, program, "copy");
    d->stage = "device_copy";
    fill_pattern(d->pattern, d->bytes, 99);
    DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, d->bytes, d->pattern, 0,
       NULL, NULL);
    DO(d, clSetKernelArg, kernel, 0, sizeof d->data, &d->data);
    DO(d, clSetKernelArg, kernel, 1, sizeof d->data2, &d->data2);
    run_kernel(d, kernel, 1, &items, NULL);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !enough(runs, begin, d->share_s))
        times[runs++] = run_kernel(d, kernel, 1, &items, NULL);
    DO(d, clEnqueueReadBuffer, d->queue, d->data2, CL_TRUE, 0, d->bytes, d->check, 0,
       NULL, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    copse__measure *m = d->failure ? NULL : add(d, "device_copy", "", "GB/s");
    if (!m)
        return;
    m->bytes = d->bytes;
    m->verified = memcmp(d->check, d->pattern, d->bytes) == 0;
    copse__bench_summarise(m, times, runs, 2 * (double)d->bytes, 1e9);
}

/* Small whole numbers, exact in half as in float, so that the sums can be compared exactly:
 * a in -3 … 3, b likewise, |sum| < 2^24. */
static int element(size_t i, unsigned seed) {
    return (int)((i * 2654435761u + seed) >> 7 & 7) % 7 - 3;
}

static uint16_t half_of(int value) {
    /* 0, 1, 2, 3 as IEEE half. */
    static const uint16_t known[] = {0, 0x3c00, 0x4000, 0x4200};
    return (uint16_t)((value < 0 ? 0x8000 : 0) | known[value < 0 ? -value : value]);
}

static void fill_matrix(bench_device *d, cl_mem to, size_t n, unsigned seed,
                        bool use_half) {
    size_t size = use_half ? 2 : 4;
    for (size_t i = 0; i < n * n; i++) {
        int value = element(i, seed);
        if (use_half)
            ((uint16_t *)(void *)d->pattern)[i] = half_of(value);
        else
            ((float *)(void *)d->pattern)[i] = (float)value;
    }
    DO(d, clEnqueueWriteBuffer, d->queue, to, CL_TRUE, 0, n * n * size, d->pattern, 0,
       NULL, NULL);
}

/* Compares 64 rows spread over the product, exactly. */
static bool product_is_right(bench_device *d, size_t n) {
    const float *c = (const float *)(const void *)d->check;
    DO(d, clEnqueueReadBuffer, d->queue, d->pinned, CL_TRUE, 0, n * n * 4, d->check, 0,
       NULL, NULL);
    for (size_t r = 0; r < 64 && !d->failure; r++) {
        size_t row = r * n / 64 + r % (n / 64 ? n / 64 : 1), col = (r * 37 + 5) % n;
        long sum = 0;
        for (size_t k = 0; k < n; k++)
            sum += (long)element(row * n + k, 1) * element(k * n + col, 2);
        if (c[row * n + col] != (float)sum)
            return false;
    }
    return !d->failure;
}

static bool set_gemm(bench_device *d, cl_kernel kernel, cl_int n) {
    return DO(d, clSetKernelArg, kernel, 0, sizeof d->data, &d->data) &&
           DO(d, clSetKernelArg, kernel, 1, sizeof d->data2, &d->data2) &&
           DO(d, clSetKernelArg, kernel, 2, sizeof d->pinned, &d->pinned) &&
           DO(d, clSetKernelArg, kernel, 3, sizeof n, &n);
}

static double time_gemm(bench_device *d, cl_kernel kernel, cl_uint tiled, size_t n) {
    size_t global[2] = {tiled ? n / 4 : n / 16, n / 4}, local[2] = {16, 16};
    if (!set_gemm(d, kernel, (cl_int)n))
        return 0;
    return run_kernel(d, kernel, 2, global, tiled ? local : NULL);
}

/* The largest size of which a run stays within the share of time. */
static size_t gemm_size(bench_device *d, cl_kernel kernel, cl_uint tiled,
                        double share_s) {
    size_t n = 256;
    time_gemm(d, kernel, tiled, n);
    while (!d->failure && n < 4096 && 4 * n * n * 4 <= d->bytes) {
        double seconds = time_gemm(d, kernel, tiled, n);
        if (seconds * 8 > share_s)
            break;
        n *= 2;
    }
    return n;
}

static void measure_gemm(bench_device *d, cl_program program, bool use_half) {
    static const char *const names[] = {"gemm_wide", "gemm_tiled"};
    copse__measure best = {0};
    d->stage = use_half ? "gemm_f16" : "gemm_f32";
    for (cl_uint tiled = 0; tiled < 2 && !d->failure; tiled++) {
        double times[MAX_RUNS];
        size_t runs = 0, most = 0;
        cl_kernel kernel = make_kernel(d, program, names[tiled]);
        if (!DO(d, clGetKernelWorkGroupInfo, kernel, d->id, CL_KERNEL_WORK_GROUP_SIZE,
                sizeof most, &most, NULL))
            break;
        if (!tiled || most >= 256) {
            size_t n = gemm_size(d, kernel, tiled, d->share_s);
            fill_matrix(d, d->data, n, 1, use_half);
            fill_matrix(d, d->data2, n, 2, use_half);
            time_gemm(d, kernel, tiled, n);
            bool right = product_is_right(d, n);
            uint64_t begin = copse__now_ns();
            while (!d->failure && !enough(runs, begin, 2 * d->share_s))
                times[runs++] = time_gemm(d, kernel, tiled, n);
            copse__measure m = {.verified = right, .bytes = n * n * (use_half ? 2 : 4)};
            copse__bench_summarise(&m, times, runs,
                                   2.0 * (double)n * (double)n * (double)n, 1e9);
            if (right && m.median > best.median)
                best = m;
        }
        clReleaseKernel(kernel);
    }
    copse__measure *m = d->failure || best.runs == 0
                            ? NULL
                            : add(d, use_half ? "gemm_f16" : "gemm_f32", "", "GFLOP/s");
    if (!m)
        return;
    m->bytes = best.bytes;
    m->runs = best.runs;
    m->median = best.median;
    m->min = best.min;
    m->max = best.max;
    m->verified = true;
}

static bool has_half(bench_device *d) {
    size_t bytes = 0;
    if (clGetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, 0, NULL, &bytes) != CL_SUCCESS)
        return false;
    char *text = calloc(bytes + 1, 1);
    bool has =
        text &&
        clGetDeviceInfo(d->id, CL_DEVICE_EXTENSIONS, bytes, text, NULL) == CL_SUCCESS &&
        strstr(text, "cl_khr_fp16") != NULL;
    free(text);
    return has;
}

static void tell(const copse__bench_options *options, const char *label,
                 const char *what) {
    char line[128];
    copse__put(line, sizeof line, "%s %s", label, what);
    if (options->progress)
        options->progress(line, options->user);
}

void copse__bench_device(copse__bench_result *to, const copse__device_choice *choice,
                         int handle, const copse__bench_options *options) {
    bench_device d;
    if (!open_device(&d, choice, handle, to, options->budget_s))
        goto out;
    tell(options, choice->label, "transfers");
    measure_transfers(&d);
    measure_latency(&d, true);
    measure_latency(&d, false);
    measure_duplex(&d, READ_PINNED);
    measure_duplex(&d, COPY_PINNED);
    for (int use_half = 0; use_half <= (has_half(&d) ? 1 : 0) && !d.failure; use_half++) {
        tell(options, choice->label, use_half ? "arithmetic, half" : "arithmetic");
        cl_program program = build(&d, use_half);
        if (!program)
            break;
        if (!use_half) {
            measure_launch(&d, program);
            measure_device_copy(&d, program);
        }
        measure_gemm(&d, program, use_half);
        clReleaseProgram(program);
    }
out:
    close_device(&d);
}

/* One device among all at once. */
typedef struct contender {
    bench_device d;
    pthread_t thread;
    pthread_barrier_t *barrier;
    bool up, verified;
    double times[MIN_RUNS * 2];
    size_t runs;
} contender;

static void *contend(void *argument) {
    contender *c = argument;
    bench_device *d = &c->d;
    void *at = map(d, d->queue, d->pinned, CL_MAP_READ | CL_MAP_WRITE, d->bytes);
    fill_pattern(d->pattern, d->bytes, (uint32_t)c->up + 5);
    prepare(d, READ_PINNED, c->up, d->bytes, at ? at : d->check);
    for (size_t run = 0; run <= COPSE__COUNT(c->times); run++) {
        /* A device that failed still comes to the barrier: the others wait there. */
        pthread_barrier_wait(c->barrier);
        uint64_t start = copse__now_ns();
        if (!d->failure)
            transfer(d, READ_PINNED, c->up, d->bytes, at);
        if (run > 0 && !d->failure)
            c->times[c->runs++] = (double)(copse__now_ns() - start) / 1e9;
    }
    c->verified = at && arrived(d, READ_PINNED, c->up, d->bytes, at);
    unmap(d, d->queue, d->pinned, at);
    return NULL;
}

static void contend_once(contender *all, size_t count, bool up, copse__bench_result *to) {
    pthread_barrier_t barrier;
    size_t started = 0;
    if (pthread_barrier_init(&barrier, NULL, (unsigned)count) != 0)
        return;
    for (; started < count; started++) {
        all[started].barrier = &barrier;
        all[started].up = up;
        all[started].runs = 0;
        if (pthread_create(&all[started].thread, NULL, contend, &all[started]) != 0)
            break;
    }
    if (started < count) {
        /* The started ones wait for ever; this process ends with the measurement. */
        copse__put(to->problem, sizeof to->problem, "no thread for each device");
        return;
    }
    for (size_t i = 0; i < count; i++)
        pthread_join(all[i].thread, NULL);
    pthread_barrier_destroy(&barrier);
    for (size_t i = 0; i < count; i++) {
        if (all[i].d.failure)
            continue;
        copse__measure *m =
            add(&all[i].d, up ? "h2d" : "d2h", staging_names[READ_PINNED], "GB/s");
        if (!m)
            return;
        m->devices = (uint32_t)count;
        m->bytes = all[i].d.bytes;
        m->verified = all[i].verified;
        copse__bench_summarise(m, all[i].times, all[i].runs, (double)m->bytes, 1e9);
    }
}

void copse__bench_contention(copse__bench_result *to, const copse__device_choice *choices,
                             const int *handles, size_t count,
                             const copse__bench_options *options) {
    contender *all = calloc(count, sizeof *all);
    size_t opened = 0;
    if (!all)
        return;
    tell(options, "all devices", "at once");
    for (size_t i = 0; i < count; i++) {
        if (open_device(&all[opened].d, &choices[i], handles[i], to, options->budget_s))
            opened++;
        else
            close_device(&all[opened].d);
    }
    if (opened > 1) {
        contend_once(all, opened, false, to);
        contend_once(all, opened, true, to);
    }
    for (size_t i = 0; i < opened; i++)
        close_device(&all[i].d);
    free(all);
}
