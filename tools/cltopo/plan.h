/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLTOPO_PLAN_H
#define CLTOPO_PLAN_H

#include "cltopo.h"
#include "topo/ranks.h"

typedef struct tool_plan {
    copse__rank_plan *plan;
    size_t *shards; /* samples of each rank */
} tool_plan;

/* Of the selected devices. Complains and returns an exit code; free_plan after success. */
int make_plan(session *s, tool_plan *out);
void free_plan(tool_plan *plan);

#endif
