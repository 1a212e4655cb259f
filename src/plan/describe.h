/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_DESCRIBE_H
#define COPSE_PLAN_DESCRIBE_H

#include "base/text.h"
#include "plan/plan.h"

/* A plan for people: the nodes in the order in which they run, with the provider of each, what was fused
 * into it, its outputs' shapes, bytes and places, and its workspace. */
void copse__plan_describe(copse__text *out, const copse__graph *graph,
                          const copse__plan *plan, copse__device *device);

#endif
