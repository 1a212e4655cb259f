/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_BENCH_H
#define COPSE_COMM_BENCH_H

#include "comm/allreduce.h"

typedef struct copse__allreduce_bench_options {
    copse__device *const *devices; /* in rank order */
    size_t rank_count;
    size_t bytes; /* one bucket; a multiple of 4 */
    copse__stage_path path;
    size_t chunk_bytes, reducer_threads; /* 0: chosen */
    double seconds; /* about how long to measure, at least 5 repetitions; 0: 1 s */
} copse__allreduce_bench_options;

/* The limits of the machine for one all-reduce, each as the least time in seconds; what
 * was measured for them in rates of bytes per second. 0: does not apply. */
typedef struct copse__allreduce_limits {
    double memory; /* T_mem: bytes that must pass the host's memory / memory_rate */
    double link;   /* T_link: the slowest device's own link, alone */
    double
        cores; /* T_cpu: work of the host's cores, sums and the copies of CPU devices */
    double memory_rate, sum_rate, down_rate, up_rate; /* down, up: of the slowest */
} copse__allreduce_limits;

typedef struct copse__allreduce_bench {
    size_t repetitions;
    double median_us, min_us, max_us; /* from the first submit to the last wait */
    double busbw;                     /* bytes/s: bytes / median * 2 (ranks-1)/ranks */
    copse__allreduce_limits limits;
    double eta;        /* the largest limit / median */
    const char *bound; /* "mem", "link" or "cpu": that limit. Static */
    size_t mapped;     /* ranks whose memory is mapped */
} copse__allreduce_bench;

/* Measures the engine on one size. Every repetition's result is compared bit by bit with
 * the tree's sum on every rank: COPSE_KERNEL where it differs. Blocks; the devices must
 * be idle. */
COPSE_CHECKED copse_status
copse__bench_allreduce(copse__allreduce_bench *out,
                       const copse__allreduce_bench_options *options, copse_error *err);

#endif
