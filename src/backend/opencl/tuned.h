/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_OPENCL_TUNED_H
#define COPSE_BACKEND_OPENCL_TUNED_H

#include "backend/opencl/provider.h"

/* What was tuned for this device, and what could be. */

/* The entry for a node, or NULL. Borrowed until the next copse__cl_tune. */
const copse__tuned *copse__cl_tuned(const copse__device *device,
                                    const copse__graph *graph, const copse__node *node);

/* The parameters tuned for a node where they are this provider's, else "". Borrowed as above. */
const char *copse__cl_parameters(const copse__device *device, const copse__graph *graph,
                                 const copse__node *node, const char *provider);

/* Says once that an entry cannot be followed here. */
void copse__cl_tuned_refuse(const copse__device *device, const copse__tuned *entry,
                            const char *reason);
/* Notes that a launch follows it. NULL is allowed. */
void copse__cl_tuned_follow(const copse__device *device, const copse__tuned *entry);

copse_status copse__cl_tune(copse__device *device, const copse__tuned *entries,
                            size_t count, copse_error *err);
/* A node has this entry, whether it can follow it or not. */
void copse__cl_tuned_find(const copse__device *device, const copse__tuned *entry);
bool copse__cl_tuned_used(const copse__device *device, size_t entry);
bool copse__cl_tuned_found(const copse__device *device, size_t entry);
void copse__cl_tuned_free(copse__device *device);
void copse__cl_candidates(copse__device *device, const copse__graph *graph,
                          const copse__node *node, copse__effort effort,
                          copse__candidate_fn *fn, void *user);
void copse__cl_tuning_id(const copse__device *device, copse__tuning_id *out);

#endif
