/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_FIRST_USE_H
#define COPSE_TUNE_FIRST_USE_H

#include "tune/known.h"
#include "tune/tuner.h"

/* Measures what is in the list and not in `known` (opened as "auto" with this cache folder), for so many seconds, keeps
 * a result for each and opens `known` anew. A node that was not reached, or where nothing was clearly faster, is
 * left to the device (COPSE__TUNED_DEFAULT), so that the next run measures nothing and chooses the same; `copse tune`
 * looks again. Where another process kept results meanwhile, those hold. What cannot be kept is not used, and what
 * cannot be measured is left to the device: the log says so. An error is one of the device or of memory. */
COPSE_CHECKED copse_status copse__tune_first_use(copse__tune_known *known,
                                                 copse__device *device,
                                                 const copse__tune_list *list,
                                                 const char *cache_folder, double seconds,
                                                 copse_error *err);

#endif
