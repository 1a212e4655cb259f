/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_ENGINE_H
#define COPSE_COMM_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/allreduce.h"
#include "comm/sum.h"

/* The engine's inside; included by src/comm only.
 *
 * The chunks of all buckets, in bucket order, step after step, have one running number,
 * q (from 0 when an attempt begins). Each rank has a *mover* thread, the only one that calls
 * its device: it brings chunk after chunk to where the host can read it (arrived), and the
 * sums back (delivered). Chunk q can be summed once all live ranks have it: movers do that
 * between their calls, and reducer threads help. One mutex guards everything; no thread
 * holds it during a device call or a sum.
 *
 * An attempt ends by failing: then every mover drains what it has in flight and parks;
 * when all have, all live ranks were told and the failed ones were dropped, the next
 * attempt begins at q = 0. */

#define COPSE__MAX_REPLICAS 64
#define COPSE__SUM_WINDOW 1024 /* chunks being summed out of order, at most */

/* What a rank submitted for one bucket, from submit until its sum is delivered. */
typedef struct copse__part {
    bool given;  /* in the rank's current step */
    bool filled; /* the engine still has to do with it */
    bool contributes;
    copse__view view;
    copse__fence *ready;
    bool direct;  /* MAPPED: the host needs no call to reach it */
    char *mapped; /* MAPPED: the bytes, while mapped or direct */
} copse__part;

typedef enum copse__stage {
    COPSE__STAGE_IDLE,
    COPSE__STAGE_SUBMIT, /* its gradient was not submitted */
    COPSE__STAGE_DOWNLOAD,
    COPSE__STAGE_MAP,
    COPSE__STAGE_SUM,
    COPSE__STAGE_UPLOAD,
    COPSE__STAGE_UNMAP
} copse__stage;

/* Chunks on one way: those from landed to issued are with the device, by q modulo the slots. */
typedef struct copse__flow {
    uint64_t issued, landed; /* in this attempt */
    copse__fence **fences;   /* slot_count */
    uint64_t *turns;         /* slot_count: when each was issued, over both ways */
    bool unflushed;
} copse__flow;

/* A rank's thread, and what it is in the middle of: its heartbeat. */
typedef struct copse__mover {
    pthread_t thread;
    pthread_cond_t wake;
    bool started, parked, exited;
    bool idle;          /* waits, also for a chunk to sum */
    copse__stage stage; /* IDLE outside device calls */
    uint64_t since;     /* when the stage began */
    uint64_t q;         /* the chunk */
    bool warned;
    copse__flow down, up;
    uint64_t turn;
} copse__mover;

typedef struct copse__rank {
    copse__allreduce *engine;
    size_t index;
    copse__device *device;
    const copse__backend *backend;
    copse__stage_path path;
    copse__buffer *slot_buffer; /* COPIED: slot_count chunks of staging memory */
    char *slots;
    copse__part *parts; /* one a bucket */
    size_t submitted;   /* buckets of its current step */
    uint64_t waited; /* steps finished in this attempt: base_step + it is the current */
    uint64_t first_ns, submit_ns; /* the first submit of the step, the last one */
    bool submit_warned;
    uint64_t arrived, delivered; /* chunks, in this attempt */
    bool dropped;
    bool failed;       /* quarantined: no further call to its device */
    atomic_bool lost;  /* either; also read without the lock, between two device calls */
    bool told;         /* its wait has returned the attempt's failure */
    copse_error error; /* of `failed` */
    pthread_cond_t waiter;
    copse__mover mover;
} copse__rank;

typedef struct copse__bucket {
    size_t elements, bytes;
    uint64_t first_chunk, chunk_count; /* within a step */
    copse__sum_plan plan;
    uint64_t plan_ranks; /* the contributing ranks it was made for */
    bool planned;
} copse__bucket;

/* What the sums of one step found; steps of equal parity share one. */
typedef struct copse__step_found {
    uint64_t nonfinite;
    size_t bucket, rank;
} copse__step_found;

/* A thread that only sums. */
typedef struct copse__reducer {
    copse__allreduce *engine;
    pthread_t thread;
    int numa; /* the node that it keeps to; -1: any */
} copse__reducer;

struct copse__allreduce {
    pthread_mutex_t lock;
    copse__rank *ranks;
    size_t rank_count;
    copse__bucket *buckets;
    size_t bucket_count;
    uint64_t chunks_per_step;
    size_t chunk_bytes, largest; /* bytes: of a chunk, of the largest bucket */
    size_t slot_count;
    uint64_t warn_ns, fail_ns;
    copse__sum_isa isa;
    copse_dtype dtype;

    uint64_t attempt; /* counts up with every new start */
    bool quit;
    bool failing; /* this attempt failed and is being wound down */
    copse_error failure;
    size_t failure_rank;
    bool step_known; /* base_step is set (while failing: for the next attempt) */
    uint64_t
        base_step; /* the attempt's first step: its chunks are 0 .. chunks_per_step */

    uint64_t claimed, summed;     /* chunks: taken by a thread, summed without a gap */
    bool done[COPSE__SUM_WINDOW]; /* of [summed, claimed), by q modulo the window */
    copse__step_found found[2];

    pthread_cond_t work; /* for the reducers */
    copse__reducer *reducers;
    size_t reducers_started;
    size_t sum_limit, summing; /* threads that may ever sum at a time, that do now */
    pthread_t watchdog;
    bool watchdog_started;
    pthread_cond_t watchdog_wake;
    pthread_cond_t exits; /* a mover has exited */
};

/* All of these are called with the lock held. */

static inline bool copse__rank_lives(const copse__rank *rank) {
    return !rank->dropped && !rank->failed;
}

/* The bucket of a chunk, and the chunk's number within it. */
size_t copse__bucket_of(const copse__allreduce *engine, uint64_t q, uint64_t *chunk);
/* Bytes of a chunk. */
size_t copse__chunk_size(const copse__allreduce *engine, size_t bucket, uint64_t chunk);
/* The first chunk number after the bucket that chunk q belongs to. */
uint64_t copse__bucket_end(const copse__allreduce *engine, uint64_t q);

/* Marks a rank as failed and discards the attempt, or, where the rank's step stands
 * already, fails only that rank. */
void copse__engine_fail(copse__allreduce *engine, copse__rank *rank, copse__stage stage,
                        uint64_t q, const copse_error *cause);
/* Discards the attempt; failure and failure_rank are as given. */
void copse__engine_discard(copse__allreduce *engine, size_t rank,
                           const copse_error *failure);
/* Begins the next attempt where nothing holds it back any more. */
void copse__engine_restart(copse__allreduce *engine);
/* Chunks that every rank not dropped has brought to the host. */
uint64_t copse__engine_arrived(const copse__allreduce *engine);
void copse__engine_wake_all(copse__allreduce *engine);

/* Threads that may sum now: all but what CPU devices compute with that have not given all of their
 * step yet; at least one. */
size_t copse__engine_sum_limit(const copse__allreduce *engine);
/* Whether a chunk waits to be summed and one more thread may do it. */
bool copse__engine_can_sum(const copse__allreduce *engine);
/* Sums one chunk; lets the lock go meanwhile. */
void copse__engine_sum(copse__allreduce *engine);
/* Wakes threads for so many chunks, of which the caller will sum `own` itself: idle movers, then
 * reducers. */
void copse__engine_call_for(copse__allreduce *engine, uint64_t chunks, uint64_t own);

/* What needs no call to the rank's device, and so is not left to its mover. own: chunks that the
 * caller will sum, 0 or 1. Lifting tells whether something is left that only the mover can do. */
bool copse__rank_lift_direct(copse__rank *rank, uint64_t own);
void copse__rank_lower_direct(copse__rank *rank);
/* Whether a sum waits to go back to the rank's device. */
bool copse__rank_can_lower(const copse__rank *rank);

/* COPSE_INVALID: what is wrong, and its value. */
copse_status copse__comm_invalid(copse_error *err, const char *what, size_t value);

/* "download". Static. */
const char *copse__stage_name(copse__stage stage);

/* Thread bodies. user: a copse__rank, a copse__reducer, the engine. */
void *copse__mover_main(void *user);
void *copse__reducer_main(void *user);
void *copse__watchdog_main(void *user);

#endif
