/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_BENCH_OPENCL_H
#define COPSE_TOPO_BENCH_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "topo/bench.h"

/* What the files that measure one device share: bench_transfers.c, bench_compute.c,
 * bench_contention.c. */

enum { COPSE__BENCH_MOST_RUNS = 200, COPSE__BENCH_LEAST_RUNS = 5 };

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

/* Notes the first failure of a device; everything after it is skipped. */
bool copse__bench_good(bench_device *d, cl_int code, const char *call);

#define DO(d, call, ...)                                                                 \
    copse__bench_good((d), (d)->failure ? CL_SUCCESS : call(__VA_ARGS__), #call)

/* false: it noted why. Close it in either case. */
bool copse__bench_open(bench_device *d, const copse__device_choice *choice, int handle,
                       copse__bench_result *to, double budget_s);
void copse__bench_close(bench_device *d);

/* Other bytes for each seed, so that a stale buffer is noticed. */
void copse__bench_fill(char *to, size_t bytes, uint32_t seed);

/* Blocking; NULL after a failure. unmap waits too, and takes NULL. */
void *copse__bench_map(bench_device *d, cl_command_queue queue, cl_mem buffer,
                       cl_map_flags how, size_t bytes);
void copse__bench_unmap(bench_device *d, cl_command_queue queue, cl_mem buffer, void *at);

/* Whether a figure has been repeated enough. */
bool copse__bench_enough(size_t runs, uint64_t begin, double share_s);
/* A new figure of the device; NULL: no room. */
copse__measure *copse__bench_figure(bench_device *d, const char *what, const char *path,
                                    const char *unit);
void copse__bench_tell(const copse__bench_options *options, const char *label,
                       const char *what);

/* ---- bench_transfers.c ---- */

typedef enum staging { READ_PINNED, COPY_PINNED, MAP, USE_HOST, STAGINGS } staging;
extern const char *const copse__staging_names[STAGINGS];

/* One transfer as a trainer would do it: afterwards the host may read the bytes (down), or
 * the device has those which the host had written (up). at is the mapped pinned memory of
 * READ_PINNED. */
void copse__bench_transfer(bench_device *d, staging how, bool up, size_t bytes, void *at);
/* Puts the pattern where a transfer of this kind starts. */
void copse__bench_prepare(bench_device *d, staging how, bool up, size_t bytes, void *at);
/* Whether the pattern arrived. */
bool copse__bench_arrived(bench_device *d, staging how, bool up, size_t bytes, void *at);

/* h2d, d2h by path and size, latencies, both directions at once. */
void copse__bench_transfers(bench_device *d);

/* ---- bench_compute.c ---- */

/* Launches, copies by a kernel, products; in float and, where the device has it, in half. */
void copse__bench_compute(bench_device *d, const copse__device_choice *choice,
                          const copse__bench_options *options);

#endif
