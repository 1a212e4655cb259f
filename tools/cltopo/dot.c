/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cltopo.h"
#include "colours.h"
#include "plan.h"
#include "topo/json.h"

/* A text as a quoted DOT string. */
static void quoted(copse__text *out, const char *text) {
    copse__text_add(out, "\"");
    for (; *text; text++) {
        if (*text == '\n')
            copse__text_add(out, "\\n");
        else
            copse__text_add(out, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    copse__text_add(out, "\"");
}

static void device_label(const session *s, size_t physical, char *out, size_t capacity) {
    const copse__topo *topo = s->topo;
    const copse__physical *p = &topo->physicals[physical];
    char id[64], memory[32];
    size_t used = copse__put(out, capacity, "%s\n%s", p->name[0] ? p->name : "device",
                             copse__shown_id(topo, physical, s->options->redact, id));
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *h = &topo->handles[i];
        if (h->physical != (int)physical)
            continue;
        used += copse__put(out + used, capacity - used, "\n%s%u:%u %s, %u units, %s",
                           h->preferred ? "* " : "", h->platform, h->device,
                           topo->platforms[h->platform].name, h->compute_units,
                           copse__format_bytes(memory, sizeof memory, h->memory_bytes));
    }
}

static void add_device(session *s, size_t physical) {
    char label[2048];
    const vendor_colour *colour = colour_of_device(&s->topo->physicals[physical]);
    device_label(s, physical, label, sizeof label);
    copse__text_add(&s->out,
                    "  d%zu [shape=box, style=filled, fillcolor=\"%s\", "
                    "color=\"%s\", label=",
                    physical, colour->fill, colour->line);
    quoted(&s->out, label);
    copse__text_add(&s->out, "];\n");
}

static void node_label(const copse__topo *topo, size_t index, char *out,
                       size_t capacity) {
    const copse__node *node = &topo->nodes[index];
    char text[32];
    switch (node->kind) {
    case COPSE__NODE_MACHINE:
        copse__put(out, capacity, "%s", node->name[0] ? node->name : "machine");
        break;
    case COPSE__NODE_NUMA:
        copse__put(out, capacity, "NUMA node %d\n%s\nCPUs %s", node->numa,
                   copse__format_bytes(text, sizeof text, node->memory_bytes),
                   node->cpus);
        break;
    case COPSE__NODE_HOST_BRIDGE:
        copse__put(out, capacity, "host bridge\n%04x:%02x-%02x", node->domain,
                   node->bus_first, node->bus_last);
        break;
    case COPSE__NODE_BRIDGE:
        copse__put(out, capacity, "%s\n%s", bridge_word(topo, index),
                   copse__pci_text(text, node->pci));
        break;
    case COPSE__NODE_PCI:
        copse__put(out, capacity, "%s\n%s",
                   node->interface[0] ? node->interface : "network",
                   copse__pci_text(text, node->pci));
        break;
    }
}

static void add_tree(session *s, const bool *show) {
    const copse__topo *topo = s->topo;
    char label[512], link[64];
    for (size_t i = 0; i < topo->node_count; i++) {
        if (!show[i])
            continue;
        int physical = physical_at(topo, i);
        if (physical >= 0) {
            add_device(s, (size_t)physical);
        } else {
            node_label(topo, i, label, sizeof label);
            copse__text_add(&s->out, "  n%zu [shape=%s, label=", i,
                            topo->nodes[i].kind <= COPSE__NODE_NUMA ? "box3d"
                                                                    : "ellipse");
            quoted(&s->out, label);
            copse__text_add(&s->out, "];\n");
        }
        if (topo->nodes[i].parent < 0)
            continue;
        link_text(&topo->nodes[i].link, link, sizeof link);
        copse__text_add(&s->out, "  n%d -- %s%zu [label=", topo->nodes[i].parent,
                        physical >= 0 ? "d" : "n", physical >= 0 ? (size_t)physical : i);
        quoted(&s->out, link);
        copse__text_add(&s->out, "];\n");
    }
    for (size_t p = 0; p < topo->physical_count; p++)
        if (topo->physicals[p].node < 0) {
            add_device(s, p);
            copse__text_add(&s->out, "  n0 -- d%zu [style=dotted];\n", p);
        }
}

static void add_ranks(session *s, const tool_plan *made) {
    const copse__rank_plan *plan = made->plan;
    for (uint32_t i = 0; i < plan->count; i++) {
        const copse__rank *r = &plan->ranks[i];
        copse__text_add(&s->out, "  r%u [shape=circle, label=\"%u\"];\n", i, i);
        if (r->physical >= 0)
            copse__text_add(&s->out,
                            "  d%d -- r%u [style=dashed, label=\"%zu samples\"];\n",
                            r->physical, i, made->shards[i]);
    }
    /* The sum that starts at a rank is at first the rank itself. */
    int *at = calloc(plan->count ? plan->count : 1, sizeof *at);
    for (uint32_t i = 0; at && i < plan->count; i++)
        at[i] = -1;
    for (uint32_t i = 0; at && i + 1 < plan->count; i++) {
        const uint32_t ends[2] = {plan->merges[i].into, plan->merges[i].from};
        copse__text_add(&s->out, "  s%u [shape=plain, label=\"+\"];\n", i);
        for (int k = 0; k < 2; k++) {
            if (at[ends[k]] >= 0)
                copse__text_add(&s->out, "  s%d -- s%u;\n", at[ends[k]], i);
            else
                copse__text_add(&s->out, "  r%u -- s%u;\n", ends[k], i);
        }
        at[ends[0]] = (int)i;
    }
    free(at);
}

int write_dot(session *s, bool with_plan) {
    bool *show = nodes_to_show(s->topo);
    tool_plan made = {0};
    int code = show ? EXIT_OK : EXIT_RUN_FAILED;
    if (!show)
        complain_text("the host has no memory for the graph");
    if (code == EXIT_OK && with_plan)
        code = make_plan(s, &made);
    if (code == EXIT_OK) {
        copse__text_add(&s->out, "graph machine {\n  rankdir=LR;\n  node "
                                 "[fontname=\"sans-serif\", fontsize=10];\n  edge "
                                 "[fontname=\"sans-serif\", fontsize=9];\n");
        if (s->topo->node_count == 0)
            copse__text_add(&s->out, "  n0 [shape=box3d, label=\"machine\"];\n");
        add_tree(s, show);
        if (with_plan)
            add_ranks(s, &made);
        copse__text_add(&s->out, "}\n");
    }
    free_plan(&made);
    free(show);
    return code;
}
