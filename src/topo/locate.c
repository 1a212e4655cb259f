/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

static bool same_address(copse__pci a, copse__pci b) {
    return a.domain == b.domain && a.bus == b.bus && a.device == b.device &&
           a.function == b.function;
}

/* The PCI object of an address. Where the domain is not known, an address that only one
 * object has, in whatever domain, is that object; its domain is then learnt. */
static int find_node(const copse__topo *topo, const copse__physical *physical,
                     bool any_domain) {
    int found = -1, count = 0;
    for (size_t i = 0; i < topo->node_count; i++) {
        const copse__node *node = &topo->nodes[i];
        copse__pci wanted = physical->pci;
        if (node->kind != COPSE__NODE_PCI)
            continue;
        if (any_domain)
            wanted.domain = node->pci.domain;
        if (same_address(node->pci, wanted)) {
            found = (int)i;
            count++;
        }
    }
    return count == 1 ? found : -1;
}

static const copse__node *numa_node(const copse__topo *topo, int numa) {
    for (size_t i = 0; numa >= 0 && i < topo->node_count; i++)
        if (topo->nodes[i].kind == COPSE__NODE_NUMA && topo->nodes[i].numa == numa)
            return &topo->nodes[i];
    return NULL;
}

static void place(copse__topo *topo, copse__physical *physical) {
    char text[24];
    if (physical->why & COPSE__WHY_HOST_CPU) {
        copse__put(physical->cpus, sizeof physical->cpus, "%s", topo->cpus_allowed);
        size_t nodes = 0;
        for (size_t i = 0; i < topo->node_count; i++)
            if (topo->nodes[i].kind == COPSE__NODE_NUMA) {
                physical->numa = nodes == 0 ? topo->nodes[i].numa : -1;
                nodes++;
            }
        return;
    }
    if (!physical->has_pci)
        return;
    bool no_domain = (physical->why & (COPSE__WHY_AMD_TOPOLOGY | COPSE__WHY_KHR_PCI |
                                       COPSE__WHY_NV_PCI)) == COPSE__WHY_AMD_TOPOLOGY;
    physical->node = find_node(topo, physical, no_domain);
    if (physical->node < 0)
        return;
    const copse__node *node = &topo->nodes[physical->node];
    if (no_domain) {
        physical->pci = node->pci;
        copse__put(physical->id, sizeof physical->id, "pci:%s",
                   copse__pci_text(text, node->pci));
    }
    physical->numa = node->numa;
    physical->link = node->link;
    const copse__node *near = numa_node(topo, node->numa);
    if (near)
        copse__put(physical->cpus, sizeof physical->cpus, "%s", near->cpus);
}

static const char *tag_of_vendor(uint32_t vendor_id) {
    static const struct {
        uint32_t id;
        const char *tag;
    } known[] = {{0x1002, "amd"},    {0x10de, "nvidia"}, {0x8086, "intel"},
                 {0x10ee, "xilinx"}, {0x1172, "altera"}, {0x1010, "imagination"}};
    for (size_t i = 0; i < COPSE__COUNT(known); i++)
        if (known[i].id == vendor_id)
            return known[i].tag;
    return NULL;
}

/* A 3D controller, a co-processor, a processing accelerator; a display of a vendor that
 * makes compute devices (a server's console chip is none). */
static bool is_compute(const copse__node *node) {
    uint32_t class_id = node->class_id;
    if (node->kind != COPSE__NODE_PCI)
        return false;
    if (class_id == 0x0302 || class_id == 0x0b40 || class_id >> 8 == 0x12)
        return true;
    return class_id >> 8 == 0x03 && tag_of_vendor(node->vendor_id) != NULL;
}

static copse_status add_silent(copse__topo *topo, int index, copse_error *err) {
    size_t capacity = topo->physical_count;
    copse_status status =
        copse__grow(&topo->physicals, &capacity, topo->physical_count + 1,
                    sizeof topo->physicals[0], err);
    if (status != COPSE_OK)
        return status;
    const copse__node *node = &topo->nodes[index];
    copse__physical *made = &topo->physicals[topo->physical_count++];
    char text[24];
    *made = (copse__physical){.preferred = -1,
                              .numa = node->numa,
                              .node = index,
                              .has_pci = true,
                              .pci = node->pci,
                              .confidence = COPSE__CONFIDENCE_EXACT,
                              .why = COPSE__WHY_PCI_CLASS,
                              .link = node->link};
    const char *tag = tag_of_vendor(node->vendor_id);
    made->type = node->class_id >> 8 == 0x03 ? COPSE__TYPE_GPU : COPSE__TYPE_ACCELERATOR;
    copse__put(made->id, sizeof made->id, "pci:%s", copse__pci_text(text, node->pci));
    copse__put(made->tag, sizeof made->tag, "%s", tag ? tag : "other");
    if (node->name[0])
        copse__put(made->name, sizeof made->name, "%s", node->name);
    else
        copse__put(made->name, sizeof made->name, "PCI %04x:%04x", node->vendor_id,
                   node->device_id);
    const copse__node *near = numa_node(topo, node->numa);
    if (near)
        copse__put(made->cpus, sizeof made->cpus, "%s", near->cpus);
    return COPSE_OK;
}

static uint64_t physical_order(const copse__topo *topo, const copse__physical *physical) {
    copse__handle alone = {.platform = 0xFF, .device = 0xFF};
    const copse__handle *handle = &alone;
    if (physical->preferred >= 0)
        handle = &topo->handles[physical->preferred];
    copse__handle probe = *handle;
    probe.physical = (int)(physical - topo->physicals);
    return copse__handle_order(topo, &probe);
}

static copse_status sort_physicals(copse__topo *topo, copse_error *err) {
    size_t count = topo->physical_count;
    copse__physical *sorted = NULL;
    int *now_at = NULL;
    bool *done = NULL;
    copse_status status = copse__calloc(&sorted, count, sizeof *sorted, err);
    if (status == COPSE_OK)
        status = copse__calloc(&now_at, count, sizeof *now_at, err);
    if (status == COPSE_OK)
        status = copse__calloc(&done, count, sizeof *done, err);
    if (status != COPSE_OK)
        goto out;
    for (size_t to = 0; to < count; to++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (!done[i] &&
                (best == SIZE_MAX || physical_order(topo, &topo->physicals[i]) <
                                         physical_order(topo, &topo->physicals[best])))
                best = i;
        done[best] = true;
        sorted[to] = topo->physicals[best];
        now_at[best] = (int)to;
    }
    for (size_t i = 0; i < topo->handle_count; i++)
        topo->handles[i].physical = now_at[topo->handles[i].physical];
    free(topo->physicals);
    topo->physicals = sorted;
    sorted = NULL;
out:
    free(sorted);
    free(now_at);
    free(done);
    return status;
}

copse_status copse__locate(copse__topo *topo, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t p = 0; p < topo->physical_count; p++) {
        copse__physical *physical = &topo->physicals[p];
        place(topo, physical);
        if (physical->preferred >= 0 && !physical->name[0])
            copse__put(physical->name, sizeof physical->name, "%s",
                       topo->handles[physical->preferred].name);
    }
    for (size_t i = 0; status == COPSE_OK && i < topo->node_count; i++) {
        bool shown = !is_compute(&topo->nodes[i]);
        for (size_t p = 0; !shown && p < topo->physical_count; p++)
            shown = topo->physicals[p].node == (int)i;
        if (!shown)
            status = add_silent(topo, (int)i, err);
    }
    return status == COPSE_OK ? sort_physicals(topo, err) : status;
}
