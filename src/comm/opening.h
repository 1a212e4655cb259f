/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_OPENING_H
#define COPSE_COMM_OPENING_H

#include "comm/allreduce.h"

/* Calls to devices under a deadline, made by a thread that can be left alone. */

typedef struct copse__calls copse__calls;

/* Before every call: of which rank, and what it is ("download", static). Once the thread was left alone
 * COPSE_TIMEOUT: then no further call may be made, not even to release anything. calls NULL: nothing
 * is watched. */
COPSE_CHECKED copse_status copse__calls_next(copse__calls *calls, size_t rank,
                                             const char *name, copse_error *err);

typedef copse_status copse__calls_fn(copse__calls *calls, void *user, copse_error *err);

/* Runs fn in a thread of its own. Where one of its calls takes longer than limit_ns, the thread is left
 * alone, and so is all that fn may reach:
 * *failed_rank (else SIZE_MAX) is whose call it is. devices: by rank, for their labels. */
COPSE_CHECKED copse_status copse__calls_run(copse__calls_fn *fn, void *user,
                                            copse__device *const *devices,
                                            uint64_t limit_ns, size_t *failed_rank,
                                            copse_error *err);

#endif
