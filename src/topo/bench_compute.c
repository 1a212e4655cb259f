/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench_opencl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/bench_kernels.h"

static cl_program build(bench_device *d, bool use_half) {
    const char *source = copse__bench_source;
    cl_int code = CL_SUCCESS;
    d->stage = "building the kernels";
    cl_program made = clCreateProgramWithSource(d->context, 1, &source, NULL, &code);
    if (!copse__bench_good(d, code, "clCreateProgramWithSource"))
        return NULL;
    code = clBuildProgram(made, 1, &d->id, use_half ? "-DUSE_HALF" : "", NULL, NULL);
    if (copse__bench_good(d, code, "clBuildProgram"))
        return made;
    clReleaseProgram(made);
    return NULL;
}

static cl_kernel make_kernel(bench_device *d, cl_program program, const char *name) {
    cl_int code = CL_SUCCESS;
    cl_kernel made = d->failure ? NULL : clCreateKernel(program, name, &code);
    return copse__bench_good(d, code, "clCreateKernel") ? made : NULL;
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
    double times[COPSE__BENCH_MOST_RUNS];
    size_t runs = 0, one = 1;
    cl_kernel kernel = make_kernel(d, program, "nothing");
    d->stage = "launch";
    DO(d, clSetKernelArg, kernel, 0, sizeof d->data, &d->data);
    for (int i = 0; i < 5; i++)
        run_kernel(d, kernel, 1, &one, NULL);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !copse__bench_enough(runs, begin, d->share_s))
        times[runs++] = run_kernel(d, kernel, 1, &one, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    copse__measure *m = d->failure ? NULL : copse__bench_figure(d, "launch", "", "us");
    if (!m)
        return;
    m->verified = true; /* it has no data; it returned */
    copse__bench_summarise(m, times, runs, 0, 1);
}

static void measure_device_copy(bench_device *d, cl_program program) {
    double times[COPSE__BENCH_MOST_RUNS];
    size_t runs = 0, items = d->bytes / 16;
    cl_kernel kernel = make_kernel(d, program, "copy");
    d->stage = "device_copy";
    copse__bench_fill(d->pattern, d->bytes, 99);
    DO(d, clEnqueueWriteBuffer, d->queue, d->data, CL_TRUE, 0, d->bytes, d->pattern, 0,
       NULL, NULL);
    DO(d, clSetKernelArg, kernel, 0, sizeof d->data, &d->data);
    DO(d, clSetKernelArg, kernel, 1, sizeof d->data2, &d->data2);
    run_kernel(d, kernel, 1, &items, NULL);
    uint64_t begin = copse__now_ns();
    while (!d->failure && !copse__bench_enough(runs, begin, d->share_s))
        times[runs++] = run_kernel(d, kernel, 1, &items, NULL);
    DO(d, clEnqueueReadBuffer, d->queue, d->data2, CL_TRUE, 0, d->bytes, d->check, 0,
       NULL, NULL);
    if (kernel)
        clReleaseKernel(kernel);
    copse__measure *m =
        d->failure ? NULL : copse__bench_figure(d, "device_copy", "", "GB/s");
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
        double times[COPSE__BENCH_MOST_RUNS];
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
            while (!d->failure && !copse__bench_enough(runs, begin, 2 * d->share_s))
                times[runs++] = time_gemm(d, kernel, tiled, n);
            copse__measure m = {.verified = right, .bytes = n * n * (use_half ? 2 : 4)};
            copse__bench_summarise(&m, times, runs,
                                   2.0 * (double)n * (double)n * (double)n, 1e9);
            if (right && m.median > best.median)
                best = m;
        }
        clReleaseKernel(kernel);
    }
    copse__measure *m =
        d->failure || best.runs == 0
            ? NULL
            : copse__bench_figure(d, use_half ? "gemm_f16" : "gemm_f32", "", "GFLOP/s");
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

void copse__bench_compute(bench_device *d, const copse__device_choice *choice,
                          const copse__bench_options *options) {
    for (int use_half = 0; use_half <= (has_half(d) ? 1 : 0) && !d->failure; use_half++) {
        copse__bench_tell(options, choice->label,
                          use_half ? "arithmetic, half" : "arithmetic");
        cl_program program = build(d, use_half);
        if (!program)
            break;
        if (!use_half) {
            measure_launch(d, program);
            measure_device_copy(d, program);
        }
        measure_gemm(d, program, use_half);
        clReleaseProgram(program);
    }
}
