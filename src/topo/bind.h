/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_BIND_H
#define COPSE_TOPO_BIND_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* How many CPUs this process may run on: its affinity mask, which a container's cpuset
 * narrows, and its cgroup's CPU quota rounded up. At least 1. */
uint32_t copse__allowed_cpus(void);

/* The NUMA nodes with CPUs that this process may use: their indices as the system counts them, in
 * order, and how many such CPUs each has. At most `most` are written. Returns their number; 0:
 * hwloc cannot tell. */
size_t copse__numa_nodes(int *nodes, uint32_t *cpus, size_t most);

/* Which of the nodes the index-th of `threads` threads belongs to, where every node gets its share
 * by its CPUs. count >= 1. */
size_t copse__numa_of_thread(const uint32_t *cpus, size_t count, size_t index,
                             size_t threads);

/* Binds the calling thread to those CPUs of a NUMA node (its index as the system counts
 * them) that the process may use. Binds nothing, and is no failure, where the node is -1
 * (unknown). COPSE_INVALID where there is no such node or none of its CPUs is allowed;
 * COPSE_UNSUPPORTED where the system refuses. */
COPSE_CHECKED copse_status copse__bind_to_numa(int numa_node, copse_error *err);

#endif
