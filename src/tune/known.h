/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_KNOWN_H
#define COPSE_TUNE_KNOWN_H

#include "tune/file.h"

/* What is known about one device before a run, and what becomes known. */

typedef struct copse__tune_known {
    copse__tune_file user, shipped; /* whose texts the entries borrow */
    copse__tuned *entries; /* in the order of precedence, for copse__backend.tune */
    const char **origins;  /* of each: a path, "cl/tune/….json" */
    size_t count, capacity, origin_capacity;
    char *path; /* of the user's own results for this device; NULL: no cache folder */
} copse__tune_known;

/* how: "off": nothing; "auto": the user's own results, then those that come with copse; else a file, which must be
 * readable. A damaged file of the user's own is told of in the log and left aside. A device whose backend
 * has nothing to choose gets nothing. */
COPSE_CHECKED copse_status copse__tune_known_open(copse__tune_known *out,
                                                  const copse__device *device,
                                                  const char *how,
                                                  const char *cache_folder,
                                                  copse_error *err);
void copse__tune_known_close(copse__tune_known *known);

/* Whether there is an entry for this node, or its operation. */
bool copse__tune_known_has(const copse__tune_known *known, const char *key);

/* Adds results to the user's file for this device, replacing those of equal keys; other processes may do so
 * at the same time. Nothing where there is no cache folder. */
COPSE_CHECKED copse_status copse__tune_keep(const copse__device *device,
                                            const char *cache_folder,
                                            const copse__tune_result *results,
                                            size_t count, copse_error *err);
/* The same for any file, which may hold other devices' too. */
COPSE_CHECKED copse_status copse__tune_keep_in(const char *path,
                                               const copse__device *device,
                                               const copse__tune_result *results,
                                               size_t count, copse_error *err);

#endif
