/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_WORKERS_H
#define COPSE_TRAIN_WORKERS_H

#include <stddef.h>

#include "base/error.h"

/* One host thread a replica. A single worker is the caller itself: no thread, no hand-over. */
typedef struct copse__workers copse__workers;

typedef copse_status copse__work_fn(size_t rank, void *user, copse_error *err);

copse_status copse__workers_new(copse__workers **out, size_t count, copse_error *err);
/* Ends and joins the threads. NULL is allowed. */
void copse__workers_free(copse__workers *workers);

/* Runs fn(rank, user) for every rank at once and blocks until all have returned. The first failing
 * rank's error comes back; statuses (may be NULL) receives everyone's. */
copse_status copse__workers_run(copse__workers *workers, copse__work_fn *fn, void *user,
                                copse_status *statuses, copse_error *err);

/* The same in two halves: begin hands the work out, finish waits for it. */
void copse__workers_begin(copse__workers *workers, copse__work_fn *fn, void *user);
copse_status copse__workers_finish(copse__workers *workers, copse_status *statuses,
                                   copse_error *err);

#endif
