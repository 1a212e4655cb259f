/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"

const char *short_name(const copse__topo *topo, size_t physical, char *out,
                       size_t capacity) {
    const copse__physical *p = &topo->physicals[physical];
    if (p->preferred >= 0)
        copse__put(out, capacity, "%u:%u", topo->handles[p->preferred].platform,
                   topo->handles[p->preferred].device);
    else if (p->has_pci)
        copse__put(out, capacity, "%02x:%02x.%x", p->pci.bus, p->pci.device,
                   p->pci.function);
    else
        copse__put(out, capacity, "%s", p->id);
    return out;
}

const char *link_text(const copse__link *link, char *out, size_t capacity) {
    size_t used = 0;
    out[0] = '\0';
    if (link->generation > 0)
        used += copse__put(out, capacity, "gen%d", link->generation);
    if (link->width > 0)
        used += copse__put(out + used, capacity - used, "%sx%d", used ? " " : "",
                           link->width);
    if (link->gbytes_per_s > 0)
        used += copse__put(out + used, capacity - used, "%s%.1f GB/s", used ? " " : "",
                           link->gbytes_per_s);
    bool slower =
        (link->max_generation > 0 && link->generation > 0 &&
         link->generation < link->max_generation) ||
        (link->max_width > 0 && link->width > 0 && link->width < link->max_width);
    if (slower)
        copse__put(out + used, capacity - used, " (of gen%d x%d)", link->max_generation,
                   link->max_width);
    return out;
}

const char *features_text(const copse__handle *handle, char *out, size_t capacity) {
    size_t used = 0;
    const struct {
        int8_t has;
        const char *word;
    } all[] = {{handle->fp16, "fp16"},
               {handle->fp64, "fp64"},
               {handle->subgroups, "sub-groups"}};
    out[0] = '\0';
    for (size_t i = 0; i < COPSE__COUNT(all); i++)
        if (all[i].has == 1)
            used += copse__put(out + used, capacity - used, "%s%s", used ? " " : "",
                               all[i].word);
    return out;
}

bool is_network(const copse__node *node) {
    return node->kind == COPSE__NODE_PCI && node->class_id >> 8 == 0x02;
}

int physical_at(const copse__topo *topo, size_t node) {
    for (size_t p = 0; p < topo->physical_count; p++)
        if (topo->physicals[p].node == (int)node)
            return (int)p;
    return -1;
}

bool *nodes_to_show(const copse__topo *topo) {
    bool *show = calloc(topo->node_count ? topo->node_count : 1, sizeof *show);
    if (!show)
        return NULL;
    for (size_t i = topo->node_count; i-- > 0;) {
        const copse__node *node = &topo->nodes[i];
        if (node->kind <= COPSE__NODE_NUMA || is_network(node) ||
            physical_at(topo, i) >= 0)
            show[i] = true;
        /* A parent comes before its children: it is looked at later here. */
        if (show[i] && node->parent >= 0)
            show[node->parent] = true;
    }
    return show;
}

const char *bridge_word(const copse__topo *topo, size_t node) {
    const copse__node *at = &topo->nodes[node];
    if (at->parent < 0 || topo->nodes[at->parent].kind != COPSE__NODE_BRIDGE)
        return at->parent >= 0 && topo->nodes[at->parent].kind == COPSE__NODE_HOST_BRIDGE
                   ? "root port"
                   : "bridge";
    for (size_t i = node + 1; i < topo->node_count; i++)
        if (topo->nodes[i].parent == (int)node &&
            topo->nodes[i].kind == COPSE__NODE_BRIDGE)
            return "switch";
    return "port";
}
