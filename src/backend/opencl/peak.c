/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "backend/opencl/packed_device.h"
#include "base/clock.h"

enum { CHAINS = 12, SAMPLES = 9 }; /* CHAINS as in peak.cl */

typedef struct peak {
    cl_kernel kernel;
    cl_mem out;
    size_t global, local, width;
} peak;

static copse_status set_up(peak *p, copse__device *device, copse_error *err) {
    const copse__caps *caps = &device->base.caps;
    char options[32];
    cl_program program;
    cl_int code;
    copse_status status;
    p->width = copse__cl_native_width(device);
    p->local = caps->cpu ? 1 : copse__min_size(256, device->max_local);
    p->global = p->local * caps->compute_units * (caps->cpu ? 4 : 8);
    snprintf(options, sizeof options, "-DWIDTH=%zu", p->width);
    COPSE__TRY(
        copse__cl_program_get(&program, device, &copse__cl_source_peak, options, err),
        out);
    p->kernel = clCreateKernel(program, "peak_f32", &code);
    COPSE__CL_TRY(device, code, "clCreateKernel", out);
    p->out = clCreateBuffer(device->context, CL_MEM_READ_WRITE, p->global * sizeof(float),
                            NULL, &code);
    COPSE__CL_TRY(device, code, "clCreateBuffer", out);
    const cl_float a = 0.5f, b = 1.0f;
    COPSE__CL_TRY(device, clSetKernelArg(p->kernel, 0, sizeof p->out, &p->out),
                  "clSetKernelArg", out);
    COPSE__CL_TRY(device, clSetKernelArg(p->kernel, 1, sizeof a, &a), "clSetKernelArg",
                  out);
    COPSE__CL_TRY(device, clSetKernelArg(p->kernel, 2, sizeof b, &b), "clSetKernelArg",
                  out);
out:
    return status;
}

static copse_status run(double *seconds, const peak *p, copse__device *device,
                        cl_uint rounds, copse_error *err) {
    cl_command_queue queue = device->queues[COPSE__QUEUE_COMPUTE];
    copse_status status = COPSE_OK;
    COPSE__CL_TRY(device, clSetKernelArg(p->kernel, 3, sizeof rounds, &rounds),
                  "clSetKernelArg", out);
    uint64_t start = copse__now_ns();
    COPSE__CL_TRY(device,
                  clEnqueueNDRangeKernel(queue, p->kernel, 1, NULL, &p->global, &p->local,
                                         0, NULL, NULL),
                  "clEnqueueNDRangeKernel", out);
    COPSE__CL_TRY(device, clFinish(queue), "clFinish", out);
    *seconds = (double)(copse__now_ns() - start) * 1e-9;
out:
    return status;
}

copse_status copse__cl_peak_flops(double *out, copse__device *device, copse_error *err) {
    peak p = {0};
    double seconds = 0, best = 0;
    cl_uint rounds = 1024;
    copse_status status;
    *out = 0;
    COPSE__TRY(set_up(&p, device, err), out);
    COPSE__TRY(run(&seconds, &p, device, rounds, err), out);
    /* Long enough that starting it does not count. */
    while (rounds < (cl_uint)1 << 28) {
        COPSE__TRY(run(&seconds, &p, device, rounds, err), out);
        if (seconds > 4e-3)
            break;
        rounds *= 2;
    }
    for (int i = 0; i < SAMPLES; i++) {
        COPSE__TRY(run(&seconds, &p, device, rounds, err), out);
        double rate =
            2.0 * CHAINS * (double)p.width * rounds * (double)p.global / seconds;
        if (rate > best)
            best = rate;
    }
    *out = best;
out:
    if (p.kernel)
        clReleaseKernel(p.kernel);
    if (p.out)
        clReleaseMemObject(p.out);
    return status;
}
