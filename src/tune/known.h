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

/* Adds results to the user's file for this device; replace: in place of those of equal keys, and of what first use
 * left to the device where a result is for the whole operation; else the old ones stay. Other processes may do so at
 * the same time. Nothing where there is no cache folder. A damaged file is made anew, with a line in the log. */
COPSE_CHECKED copse_status copse__tune_keep(const copse__device *device,
                                            const char *cache_folder,
                                            const copse__tune_result *results,
                                            size_t count, bool replace, copse_error *err);
/* The same, replacing, for any file, which may hold other devices' too. COPSE_FORMAT, and it stays as it is, where it
 * holds something else. */
COPSE_CHECKED copse_status copse__tune_keep_in(const char *path,
                                               const copse__device *device,
                                               const copse__tune_result *results,
                                               size_t count, copse_error *err);

/* Whether results could be kept there: to be asked before minutes of measuring. */
COPSE_CHECKED copse_status copse__tune_check_target(const char *path, copse_error *err);

#endif
