/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_BIND_H
#define COPSE_TOPO_BIND_H

#include <stdint.h>

#include "base/error.h"

/* How many CPUs this process may run on: its affinity mask, which a container's cpuset
 * narrows, and its cgroup's CPU quota rounded up. At least 1. */
uint32_t copse__allowed_cpus(void);

/* Binds the calling thread to those CPUs of a NUMA node (its index as the system counts
 * them) that the process may use. Binds nothing, and is no failure, where the node is -1
 * (unknown). COPSE_INVALID where there is no such node or none of its CPUs is allowed;
 * COPSE_UNSUPPORTED where the system refuses. */
COPSE_CHECKED copse_status copse__bind_to_numa(int numa_node, copse_error *err);

#endif
