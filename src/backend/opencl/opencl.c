/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/internal.h"
#include "backend/opencl/provider.h"

const copse__backend copse__backend_opencl = {
    .name = "opencl",
    .open = copse__cl_open,
    .close = copse__cl_close,
    .buffer_new = copse__cl_buffer_new,
    .buffer_free = copse__cl_buffer_free,
    .buffer_host = copse__cl_buffer_host,
    .write = copse__cl_write,
    .read = copse__cl_read,
    .copy = copse__cl_copy,
    .fill = copse__cl_fill,
    .map = copse__cl_map,
    .unmap = copse__cl_unmap,
    .mark = copse__cl_mark,
    .queue_wait = copse__cl_queue_wait,
    .flush = copse__cl_queue_flush,
    .finish = copse__cl_queue_finish,
    .hold = copse__cl_queue_hold,
    .release = copse__cl_queue_release,
    .fence_wait = copse__cl_fence_wait,
    .fence_poll = copse__cl_fence_poll,
    .fence_free = copse__cl_fence_free,
    .supports = copse__cl_supports,
    .launch_new = copse__cl_launch_new,
    .launch_free = copse__cl_launch_free,
    .launch_provider = copse__cl_launch_provider,
    .run = copse__cl_run,
    .launch_time_ns = copse__cl_launch_time_ns,
    .peak_flops = copse__cl_peak_flops,
};
