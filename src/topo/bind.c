/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bind.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topo/model.h"

/* The CPU quota of the process's cgroup in whole CPUs, rounded up; 0: none. */
static uint32_t cgroup_quota(void) {
    long long quota = 0, period = 0;
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file) {
        if (fscanf(file, "%lld %lld", &quota, &period) != 2)
            quota = 0;
        fclose(file);
    } else {
        file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
        if (file) {
            if (fscanf(file, "%lld", &quota) != 1)
                quota = 0;
            fclose(file);
        }
        file = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
        if (file) {
            if (fscanf(file, "%lld", &period) != 1)
                period = 0;
            fclose(file);
        }
    }
    if (quota <= 0 || period <= 0 || quota / period > 1 << 20)
        return 0;
    return (uint32_t)((quota + period - 1) / period);
}

/* A mask as large as the kernel needs: its size is not known beforehand. */
static uint32_t affinity_count(void) {
    for (size_t cpus = 1024; cpus <= (size_t)1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int got = sched_getaffinity(0, bytes, set);
        int count = got == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (got == 0)
            return (uint32_t)count;
        if (errno != EINVAL)
            break;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (uint32_t)online : 1;
}

uint32_t copse__allowed_cpus(void) {
    uint32_t count = affinity_count(), quota = cgroup_quota();
    if (quota && quota < count)
        count = quota;
    return count ? count : 1;
}

size_t copse__numa_nodes(int *nodes, uint32_t *cpus, size_t most) {
    hwloc_topology_t machine;
    size_t count = 0;
    if (hwloc_topology_init(&machine) != 0)
        return 0;
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    if (mine != NULL && hwloc_topology_load(machine) == 0 &&
        hwloc_get_cpubind(machine, mine, HWLOC_CPUBIND_THREAD) == 0) {
        hwloc_obj_t node = NULL;
        while (count < most && (node = hwloc_get_next_obj_by_type(
                                    machine, HWLOC_OBJ_NUMANODE, node)) != NULL) {
            hwloc_bitmap_t both = hwloc_bitmap_alloc();
            if (both == NULL)
                break;
            hwloc_bitmap_and(both, mine, node->cpuset);
            const int usable = hwloc_bitmap_weight(both);
            hwloc_bitmap_free(both);
            if (usable <= 0)
                continue;
            nodes[count] = (int)node->os_index;
            cpus[count++] = (uint32_t)usable;
        }
    }
    hwloc_bitmap_free(mine);
    hwloc_topology_destroy(machine);
    return count;
}

size_t copse__numa_of_thread(const uint32_t *cpus, size_t count, size_t index,
                             size_t threads) {
    uint64_t all = 0, before = 0;
    for (size_t n = 0; n < count; n++)
        all += cpus[n];
    for (size_t n = 0; n + 1 < count; n++) {
        before += cpus[n];
        if (index * all < before * threads)
            return n;
    }
    return count - 1;
}

copse_status copse__bind_to_numa(int numa_node, copse_error *err) {
    if (numa_node < 0)
        return COPSE_OK;
    hwloc_topology_t machine;
    char place[32];
    copse_status status = COPSE_OK;
    copse__put(place, sizeof place, "NUMA node %d", numa_node);
    if (hwloc_topology_init(&machine) != 0)
        return copse__fail_nomem(err, sizeof machine);
    if (hwloc_topology_load(machine) != 0) {
        status = copse__fail(err, COPSE_UNSUPPORTED, errno, place,
                             "hwloc cannot read this machine: %s", strerror(errno));
        goto out;
    }
    hwloc_obj_t node = hwloc_get_numanode_obj_by_os_index(machine, (unsigned)numa_node);
    if (!node || !node->cpuset || hwloc_bitmap_iszero(node->cpuset)) {
        status = copse__fail(err, COPSE_INVALID, 0, place,
                             "none of its CPUs may be used by this process");
        goto out;
    }
    if (hwloc_set_cpubind(machine, node->cpuset, HWLOC_CPUBIND_THREAD) != 0)
        status =
            copse__fail(err, COPSE_UNSUPPORTED, errno, place,
                        "the system refuses to bind a thread to it: %s", strerror(errno));
out:
    hwloc_topology_destroy(machine);
    return status;
}
