/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "topo/model.h"

static const struct {
    const char *name;
    const char *meaning;
} kinds[] = {
    {"X", "the device itself"},
    {"PIX", "at most one PCI switch between"},
    {"PXB", "several PCI switches between, but not the host bridge"},
    {"PHB", "through one PCI host bridge (usually the CPU)"},
    {"NODE", "between PCI host bridges of one NUMA node"},
    {"SYS", "between NUMA nodes"},
    {"?", "the place of one of the two is not known"},
};

const char *copse__path_name(copse__path_kind kind) {
    return kinds[(size_t)kind < COPSE__COUNT(kinds) ? kind : COPSE__PATH_UNKNOWN].name;
}

const char *copse__path_meaning(copse__path_kind kind) {
    return kinds[(size_t)kind < COPSE__COUNT(kinds) ? kind : COPSE__PATH_UNKNOWN].meaning;
}

static size_t numa_count(const copse__topo *topo) {
    size_t count = 0;
    for (size_t i = 0; i < topo->node_count; i++)
        count += topo->nodes[i].kind == COPSE__NODE_NUMA;
    return count;
}

static int depth_of(const copse__topo *topo, int node) {
    int depth = 0;
    for (; node >= 0; node = topo->nodes[node].parent)
        depth++;
    return depth;
}

/* The nearest node above both, and how many bridges lie below it on either side. */
static int common_above(const copse__topo *topo, int a, int b, int bridges[2]) {
    int at[2] = {a, b}, depth[2] = {depth_of(topo, a), depth_of(topo, b)};
    bridges[0] = bridges[1] = 0;
    while (at[0] != at[1]) {
        int deeper = depth[0] >= depth[1] ? 0 : 1;
        bridges[deeper] += topo->nodes[at[deeper]].kind == COPSE__NODE_BRIDGE;
        at[deeper] = topo->nodes[at[deeper]].parent;
        depth[deeper]--;
    }
    return at[0];
}

copse__path_kind copse__node_path(const copse__topo *topo, int a, int b) {
    if (a < 0 || b < 0)
        return COPSE__PATH_UNKNOWN;
    if (a == b)
        return COPSE__PATH_SELF;
    int bridges[2];
    const copse__node *above = &topo->nodes[common_above(topo, a, b, bridges)];
    switch (above->kind) {
    case COPSE__NODE_BRIDGE:
        /* A switch is an upstream port with its downstream ports below it: one bridge on
         * either side of the common one is still one switch. */
        return bridges[0] <= 1 && bridges[1] <= 1 ? COPSE__PATH_PIX : COPSE__PATH_PXB;
    case COPSE__NODE_HOST_BRIDGE:
        return COPSE__PATH_PHB;
    case COPSE__NODE_NUMA:
        return COPSE__PATH_NODE;
    case COPSE__NODE_PCI:
        return COPSE__PATH_PIX;
    case COPSE__NODE_MACHINE:
        break;
    }
    if (numa_count(topo) == 1)
        return COPSE__PATH_NODE;
    if (topo->nodes[a].numa < 0 || topo->nodes[b].numa < 0)
        return COPSE__PATH_UNKNOWN;
    return topo->nodes[a].numa == topo->nodes[b].numa ? COPSE__PATH_NODE
                                                      : COPSE__PATH_SYS;
}

copse__path_kind copse__host_path(const copse__topo *topo, int node) {
    return node >= 0 && numa_count(topo) == 1 ? COPSE__PATH_PHB : COPSE__PATH_UNKNOWN;
}

copse__path_kind copse__device_path(const copse__topo *topo, size_t a, size_t b) {
    if (a == b)
        return COPSE__PATH_SELF;
    const copse__physical *x = &topo->physicals[a], *y = &topo->physicals[b];
    if (x->why & COPSE__WHY_HOST_CPU)
        return copse__host_path(topo, y->node);
    if (y->why & COPSE__WHY_HOST_CPU)
        return copse__host_path(topo, x->node);
    return copse__node_path(topo, x->node, y->node);
}
