/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include "comm/allreduce.h"

/* Threads that play the replicas of one all-reduce: each fills its buckets, submits them
 * and waits, step after step. */

#define RANKS_MAX 16
#define BUCKETS_MAX 4

typedef struct ranks {
    size_t count, bucket_count;
    const size_t *elements;
    copse_dtype dtype; /* COPSE_F32 (0) or COPSE_F16 */
    bool same_values;  /* every step gives those of step 0 */
    bool
        backwards; /* buckets are given last to first, those in shared memory when they are ready */
    bool shared[RANKS_MAX][BUCKETS_MAX]; /* COPSE__MEMORY_SHARED */
    copse__device *devices[RANKS_MAX];
    copse__buffer *buffers[RANKS_MAX][BUCKETS_MAX];
    void *host[RANKS_MAX][BUCKETS_MAX]; /* what was given; lives as long as the buffers */
    copse__allreduce *engine;
    bool empty[RANKS_MAX]; /* an empty shard */
    bool gone[RANKS_MAX];  /* dropped: its thread does nothing */

    /* What the last run_step gave. */
    copse_status status[RANKS_MAX];
    copse_error errors[RANKS_MAX];
    copse__allreduce_result results[RANKS_MAX];
} ranks;

/* Makes the buffers (devices and the fields above engine are set). Aborts where it
 * cannot. */
void ranks_make_buffers(ranks *all);
void ranks_free_buffers(ranks *all);

/* The float that rank r gives for element e of bucket b in step s. */
float ranks_value(size_t rank, uint64_t step, size_t bucket, size_t element);

/* One step of all that are not gone, a thread each. delay_ns[r] (may be NULL): before its
 * first submit. */
void ranks_run_step(ranks *all, uint64_t step, const uint64_t *delay_ns);

/* The bytes of a bucket as the device has them, read through the seam. */
void ranks_read(ranks *all, size_t rank, size_t bucket, void *out);

/* Of all bytes of all buckets that a rank has. */
uint64_t ranks_hash(ranks *all, size_t rank);

/* Aborts the test where a bucket of a rank is not the tree's sum of what was given in the last
 * step, bit by bit, or is far from the sum in double. */
void ranks_check(ranks *all);

#endif
