/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_DATA_ARRIVAL_H
#define COPSE_DATA_ARRIVAL_H

#include <stdatomic.h>

#include "base/error.h"

/* A thread that reads what the opening of a set left to it. */
typedef struct copse__arrival copse__arrival;

/* Ends early, with COPSE_OK, where *stop becomes true. */
typedef copse_status copse__arrive_fn(void *user, const atomic_bool *stop,
                                      copse_error *err);

/* Calls read(user) there, once; where no thread can be had, here. user is the caller's, and must
 * live until it was waited for or freed. */
copse_status copse__arrival_new(copse__arrival **out, copse__arrive_fn *read, void *user,
                                copse_error *err);

/* How it ended. Thread-safe; cheap once it has. */
copse_status copse__arrival_wait(copse__arrival *arrival, copse_error *err);

/* Stops it where it still reads. NULL is allowed. */
void copse__arrival_free(copse__arrival *arrival);

#endif
