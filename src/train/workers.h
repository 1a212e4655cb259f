/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_WORKERS_H
#define COPSE_TRAIN_WORKERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* One host thread a replica. A single worker is the caller itself: no thread and no hand-over. */
typedef struct copse__workers copse__workers;

typedef copse_status copse__work_fn(size_t rank, void *user, copse_error *err);

copse_status copse__workers_new(copse__workers **out, size_t count, copse_error *err);
/* Ends and joins the threads. NULL is allowed. False where one has not come back: it and what it may
 * still touch of the workers stay as they are, and so must what its fn may touch. */
bool copse__workers_free(copse__workers *workers);

/* Runs fn(rank, user) for every rank that does not rest, at once, and blocks until all have
 * returned. The first failing rank's error comes back; statuses (may be NULL) receives everyone's,
 * COPSE_OK for those that rest.
 *
 * With a patience, a rank that has not returned so long after the last other one did is left
 * alone, and so are all where nobody has returned for thrice as long (a single one: for as long) and for
 * 20 times the longest round so far or expected: its status is COPSE_TIMEOUT, and it rests from then on. Its thread may return at any
 * later time, so all that fn reaches must outlive it (copse__workers_is_out), and fn must look
 * after each device call whether it is still wanted. */
copse_status copse__workers_run(copse__workers *workers, copse__work_fn *fn, void *user,
                                copse_status *statuses, copse_error *err);

/* The same for one rank alone, which may be resting. */
copse_status copse__workers_run_on(copse__workers *workers, size_t rank,
                                   copse__work_fn *fn, void *user, copse_error *err);

/* 0: without end, the state at first. */
void copse__workers_set_patience(copse__workers *workers, uint64_t ns);

/* What the longest of the next rounds is expected to take; those so far count no more. Before the first
 * call no round is a measure of others. */
void copse__workers_set_pace(copse__workers *workers, uint64_t round_ns);

/* A single worker, whom nobody can leave alone as it is the caller: where its patience ends, fn is called
 * from another thread, and the caller is held up if it returns meanwhile. For ending the process. Not
 * called again in that round. Nothing happens where there are several workers. */
typedef void copse__hang_fn(void *user, double seconds);
copse_status copse__workers_watch(copse__workers *workers, copse__hang_fn *fn, void *user,
                                  copse_error *err);

/* The rank's device is known to be lost: its fn is waited for a moment only. From any thread. */
void copse__workers_doubt(copse__workers *workers, size_t rank);

/* A resting rank takes no part in copse__workers_run. Between runs only. */
void copse__workers_rest(copse__workers *workers, size_t rank, bool rests);

/* Whether the rank's thread was left alone and has not come back yet. */
bool copse__workers_is_out(copse__workers *workers, size_t rank);

/* What the rank's fn returned last: the error where it failed. Borrowed, between runs only. */
const copse_error *copse__workers_error(const copse__workers *workers, size_t rank);

#endif
