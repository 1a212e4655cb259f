/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_ALLREDUCE_H
#define COPSE_COMM_ALLREDUCE_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"

/* All-reduce of buckets of float32 (or half) numbers over the devices of one process, through host memory:
 * device -> staging slot -> one tree sum on the host -> device, chunk by chunk, all in
 * flight; devices whose memory is the host's are mapped and summed in place.
 *
 * The sum is associated as the fixed tree over ranks (comm/tree.h), element by element:
 * the same bits whatever the chunk size, path, number of threads or timing. Ranks that do
 * not contribute are skipped.
 *
 * A step: every rank submits every bucket (from the first to the last in any order; they
 * are reduced in index order), then waits. A rank whose wait has returned may submit the
 * next step at once. Steps are numbered by the caller, equal on all ranks.
 *
 * Threads: calls with different ranks may run at the same time; those of one rank come
 * from one thread at a time (drop from any). The engine's own threads use the DOWNLOAD
 * and UPLOAD queues of every device from the first submit of a step until the rank's wait
 * returns. */
typedef struct copse__allreduce copse__allreduce;

/* How a device's bytes reach the sum. */
typedef enum copse__stage_path {
    COPSE__PATH_AUTO,   /* COPIED, or on a unified device what is measured to be faster */
    COPSE__PATH_COPIED, /* through staging slots */
    COPSE__PATH_MAPPED /* the device's own memory, mapped; COPSE_UNSUPPORTED where that is not
                           the host's */
} copse__stage_path;

typedef struct copse__allreduce_options {
    copse__device *const *devices; /* in rank order; borrowed, must outlive the engine */
    size_t rank_count;             /* 1 to 64 */
    const size_t *bucket_elements; /* may be 0 */
    size_t bucket_count;
    copse_dtype dtype; /* COPSE_F32 (0), or COPSE_F16, summed in float and rounded once */
    size_t chunk_bytes;             /* 0: chosen; else rounded up to a multiple of 4096 */
    copse__stage_path path;         /* of all ranks, or */
    const copse__stage_path *paths; /* of each; NULL: path */
    size_t staging_bytes; /* that all slots may take together; 0: a quarter of what this
                             process may still take (comm/budget.h) */
    uint64_t warn_ns, fail_ns; /* stall limits; 0: 5 s and 60 s */
    size_t reducer_threads;    /* 0: chosen */
    size_t
        *failed_rank; /* NULL, or where new fails: whose driver did not answer; SIZE_MAX:
                                  nobody's */
} copse__allreduce_options;

/* rank_count, or bucket_count: none. */
typedef struct copse__allreduce_result {
    uint64_t nonfinite;      /* elements of the sums that are not finite */
    size_t nonfinite_rank;   /* the first rank that contributed one (of the first such
                                bucket); SIZE_MAX: none, or finite parts overflowed */
    size_t nonfinite_bucket; /* the first bucket with one; SIZE_MAX: none */
    size_t failed_rank;      /* where wait fails: whom to drop; SIZE_MAX: nobody known */
} copse__allreduce_result;

/* Measures paths and allocates the slots: fewer, then smaller ones where staging_bytes or a
 * device leave too little room; fails with COPSE_NOMEM or COPSE_DEVICE_MEMORY only where
 * even those do not fit. COPSE_TIMEOUT: a call of a device has not returned for three times fail_ns;
 * no further call is made to it, and what was made stays. */
COPSE_CHECKED copse_status copse__allreduce_new(copse__allreduce **out,
                                                const copse__allreduce_options *options,
                                                copse_error *err);

/* NULL is allowed. Waits for what healthy devices still run. What belongs to a failed or
 * dropped device is left as it is: no call is made to it, and where one of its calls has
 * not returned, the engine's memory stays too. */
void copse__allreduce_free(copse__allreduce *engine);

/* Rank's part of `bucket` for `step`: the first bucket_elements[bucket] elements of
 * `part`, a whole root buffer, ready when `ready` is done (taken, also on failure; NULL: ready
 * now). The buffer is the engine's until wait returns. contributes false: an empty shard:
 * nothing is read, the sum still arrives. Does not block. The caller flushed the compute
 * queue. After a failure that the rank has not been told yet, the part is ignored:
 * COPSE_OK, and wait tells. COPSE_INVALID: a wrong rank, bucket or step, a bucket
 * submitted twice, a part too small, a dropped rank. */
COPSE_CHECKED copse_status copse__allreduce_submit(copse__allreduce *engine, size_t rank,
                                                   uint64_t step, size_t bucket,
                                                   copse__view part, copse__fence *ready,
                                                   bool contributes, copse_error *err);

/* Blocks until every bucket of the step holds the sum in this rank's parts, visible to
 * what this rank enqueues next on its compute queue. result may be NULL; it is written on
 * success and failure, and equal on all ranks on success.
 *
 * Before the last bucket is summed, a failure (a device errored, stalled past fail_ns, or
 * was dropped) discards the step: every rank's wait returns it, naming step, bucket,
 * chunk, stage and rank, and parts hold anything. When all live ranks have been told and
 * the failed one was dropped, a step (the same or another) can be submitted anew. After
 * the last bucket is summed the step stands: only the failed rank's wait fails.
 * COPSE_DEVICE, COPSE_DEVICE_MEMORY, COPSE_TIMEOUT…: as the device said; COPSE_INVALID:
 * the rank has not submitted every bucket of that step. */
COPSE_CHECKED copse_status copse__allreduce_wait(copse__allreduce *engine, size_t rank,
                                                 uint64_t step,
                                                 copse__allreduce_result *result,
                                                 copse_error *err);

/* Leaves a rank out from now on; no further call is made to its device, not even to
 * release anything. A step in flight is discarded as above, unless it failed already or
 * stands. Ranks keep their numbers. Dropping a rank twice is allowed; the last live rank:
 * COPSE_INVALID. */
COPSE_CHECKED copse_status copse__allreduce_drop(copse__allreduce *engine, size_t rank,
                                                 copse_error *err);

/* COPIED or MAPPED. */
/* Pinned memory that each copied rank takes for such buckets of float32, where enough is free. */
size_t copse__allreduce_slot_bytes(const size_t *bucket_elements, size_t bucket_count,
                                   size_t rank_count);
copse__stage_path copse__allreduce_path(const copse__allreduce *engine, size_t rank);
size_t copse__allreduce_chunk_bytes(const copse__allreduce *engine);
/* How often the bytes of a bucket must pass the host's memory, read or written, when all
 * ranks contribute: for copied devices with memory of their own once in, once read, once
 * written with the sum and once out; for copied devices whose memory is the host's the two
 * that leave and reach it (slots stay in the caches); for mapped ones twice. */
double copse__allreduce_passes(const copse__allreduce *engine);

#endif
