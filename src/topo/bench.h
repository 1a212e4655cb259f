/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_BENCH_H
#define COPSE_TOPO_BENCH_H

#include "topo/model.h"
#include "topo/select.h"

typedef struct copse__bench_options {
    double budget_s; /* for each device, about; 0: 10 s */
    copse__isolate isolate;
    /* One line of progress, from the measuring process: a child with COPSE__ISOLATE_ICD. */
    void (*progress)(const char *line, void *user);
    void *user;
} copse__bench_options;

/* Measures the chosen devices and the host, and adds the figures to topo->measures (those of
 * an earlier call are replaced). Every transfer is compared with what was sent; a figure whose data were
 * wrong has verified false and is used by nobody.
 *
 * Figures of a device (its preferred staging path is chosen from them by ranks.h):
 *   h2d, d2h      GB/s, by path and size: read_pinned (clEnqueueRead/WriteBuffer into a
 *                 mapped ALLOC_HOST_PTR buffer), copy_pinned (clEnqueueCopyBuffer with such
 *                 a buffer), map (the device's buffer itself), use_host_ptr (a copy with a
 *                 page-aligned USE_HOST_PTR buffer). moves is false where the time does not
 *                 grow with the size: nothing was copied, and the rate is not one of a link.
 *   duplex        GB/s of both directions together, on two queues
 *   alpha_h2d, alpha_d2h   us, of 4 bytes
 *   launch        us, an empty kernel enqueued and finished
 *   gemm_f32, gemm_f16     GFLOP/s of the better of two kernels of our own, checked
 *   device_copy   GB/s read and written by a kernel
 * With several devices, all at once: h2d and d2h with devices > 1, each one's rate.
 * Of the host: host_copy GB/s read and written, by NUMA node and over all; host_sum GB/s of
 * input that is added up.
 *
 * A device that fails or hangs has a warning and no figures. Blocks. COPSE_NODEVICE where no
 * chosen device could be measured. Contract for isolation as in copse__topo_open: no OpenCL
 * call of this process before. */
COPSE_CHECKED copse_status copse__bench(copse__topo *topo,
                                        const copse__device_choice *choices, size_t count,
                                        const copse__bench_options *options,
                                        copse_error *err);

enum { COPSE__MAX_FIGURES = 512 };

/* What the measuring process fills, of fixed size: it may be memory shared with a child. */
typedef struct copse__bench_result {
    uint32_t count;
    uint32_t finished;
    copse__measure figures[COPSE__MAX_FIGURES];
    char problem[256];
} copse__bench_result;

/* NULL where there is no room left. */
copse__measure *copse__bench_add(copse__bench_result *to, const char *what,
                                 const char *path, const char *unit);
/* Sets runs, median, min and max from samples in seconds: work / s / scale where work > 0,
 * else s * 1e6. Sorts the samples. */
void copse__bench_summarise(copse__measure *m, double *seconds, size_t count, double work,
                            double scale);

/* bench_opencl.c, bench_contention.c: the figures of one device; of all at once, each h2d and d2h. handle is set
 * in each figure. */
void copse__bench_device(copse__bench_result *to, const copse__device_choice *choice,
                         int handle, const copse__bench_options *options);
void copse__bench_contention(copse__bench_result *to, const copse__device_choice *choices,
                             const int *handles, size_t count,
                             const copse__bench_options *options);

/* bench_host.c: the figures of the host. */
void copse__bench_host(copse__bench_result *to, const copse__topo *topo,
                       const copse__bench_options *options);

#endif
