/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "cltopo.h"
#include "table.h"
#include "topo/json.h"

/* What one line of the tree stands for. */
typedef struct item {
    int node, physical, handle; /* one of them >= 0 */
} item;

enum { MAX_DEPTH = 64 };

typedef struct printer {
    session *s;
    const copse__topo *topo;
    bool *show;
    char prefix[MAX_DEPTH * 6 + 8];
} printer;

static void colour(printer *p, const char *code) {
    if (p->s->colour)
        copse__text_add(&p->s->out, "\033[%sm", code);
}

static const char *colour_of(const char *tag) {
    return !strcmp(tag, "amd")      ? "31;1"
           : !strcmp(tag, "nvidia") ? "32;1"
           : !strcmp(tag, "intel")  ? "34;1"
                                    : "35;1";
}

static void add_machine(printer *p) {
    copse__text *out = &p->s->out;
    const copse__topo *topo = p->topo;
    const char *name = topo->host[0] ? topo->host : "machine";
    colour(p, "1");
    copse__text_add(out, "%s", p->s->options->redact ? "machine" : name);
    colour(p, "0");
    if (topo->node_count && topo->nodes[0].name[0])
        copse__text_add(out, "  %s", topo->nodes[0].name);
    if (topo->cpus_allowed[0])
        copse__text_add(out, "  CPUs %s", topo->cpus_allowed);
    copse__text_add(out, "\n");
}

static void add_node(printer *p, size_t index) {
    copse__text *out = &p->s->out;
    const copse__node *node = &p->topo->nodes[index];
    char memory[32], link[64], address[24];
    link_text(&node->link, link, sizeof link);
    switch (node->kind) {
    case COPSE__NODE_MACHINE:
        break;
    case COPSE__NODE_NUMA:
        copse__text_add(out, "NUMA node %d", node->numa);
        if (node->memory_bytes)
            copse__text_add(
                out, "  %s",
                copse__format_bytes(memory, sizeof memory, node->memory_bytes));
        if (node->cpus[0])
            copse__text_add(out, "  CPUs %s", node->cpus);
        if (node->name[0])
            copse__text_add(out, "  %s", node->name);
        break;
    case COPSE__NODE_HOST_BRIDGE:
        copse__text_add(out, "host bridge  buses %04x:%02x-%02x", node->domain,
                        node->bus_first, node->bus_last);
        break;
    case COPSE__NODE_BRIDGE:
        copse__text_add(out, "%s  %s", bridge_word(p->topo, index),
                        copse__pci_text(address, node->pci));
        if (link[0])
            copse__text_add(out, "  %s", link);
        break;
    case COPSE__NODE_PCI:
        copse__text_add(out, "network  %s", copse__pci_text(address, node->pci));
        if (node->interface[0])
            copse__text_add(out, "  %s", node->interface);
        if (node->name[0])
            copse__text_add(out, "  %s", node->name);
        if (link[0])
            copse__text_add(out, "  %s", link);
        break;
    }
}

static void add_physical(printer *p, size_t index) {
    copse__text *out = &p->s->out;
    const copse__physical *physical = &p->topo->physicals[index];
    char kind[48], id[64], link[64];
    copse__type_text(kind, sizeof kind, physical->type);
    colour(p, colour_of(physical->tag));
    copse__text_add(out, "%s  %s", kind,
                    copse__shown_id(p->topo, index, p->s->options->redact, id));
    if (physical->name[0])
        copse__text_add(out, "  %s", physical->name);
    colour(p, "0");
    link_text(&physical->link, link, sizeof link);
    if (link[0])
        copse__text_add(out, "  %s", link);
    if (physical->confidence != COPSE__CONFIDENCE_EXACT)
        copse__text_add(out, "  (identity %s)",
                        copse__confidence_name(physical->confidence));
    if (physical->preferred < 0)
        copse__text_add(out, "  (no OpenCL driver shows it)");
}

static void add_handle(printer *p, const copse__handle *h) {
    copse__text *out = &p->s->out;
    char memory[32], features[64];
    copse__text_add(out, "%s %u:%u  %s", h->preferred ? "*" : " ", h->platform, h->device,
                    p->topo->platforms[h->platform].name);
    if (h->version[0])
        copse__text_add(out, "  %s", h->version);
    if (h->driver[0])
        copse__text_add(out, "  driver %s", h->driver);
    if (h->compute_units)
        copse__text_add(out, "  %u unit%s", h->compute_units,
                        h->compute_units == 1 ? "" : "s");
    if (h->clock_mhz)
        copse__text_add(out, "  %u MHz", h->clock_mhz);
    if (h->memory_bytes)
        copse__text_add(out, "  %s",
                        copse__format_bytes(memory, sizeof memory, h->memory_bytes));
    features_text(h, features, sizeof features);
    if (features[0])
        copse__text_add(out, "  %s", features);
    if (h->available == 0)
        copse__text_add(out, "  (not available)");
    else if (h->compiler == 0)
        copse__text_add(out, "  (no compiler)");
}

static bool next_child(const printer *p, item parent, item *child) {
    const copse__topo *topo = p->topo;
    /* The order: nodes, then devices without a place, then handles. */
    if (parent.node >= 0) {
        size_t from = child->node >= 0 ? (size_t)child->node + 1 : 0;
        if (child->physical < 0)
            for (size_t i = from; i < topo->node_count; i++)
                if (topo->nodes[i].parent == parent.node && p->show[i]) {
                    *child = (item){(int)i, -1, -1};
                    return true;
                }
        if (parent.node != 0)
            return false;
        for (size_t i = (size_t)(child->physical + 1); i < topo->physical_count; i++)
            if (topo->physicals[i].node < 0) {
                *child = (item){-1, (int)i, -1};
                return true;
            }
        return false;
    }
    for (size_t i = (size_t)(child->handle + 1); i < topo->handle_count; i++)
        if (topo->handles[i].physical == parent.physical) {
            *child = (item){-1, -1, (int)i};
            return true;
        }
    return false;
}

static void add_children(printer *p, item parent, int depth) {
    const char *const tee = p->s->unicode ? "├─ " : "|- ";
    const char *const corner = p->s->unicode ? "└─ " : "`- ";
    const char *const bar = p->s->unicode ? "│  " : "|  ";
    item child = {-1, -1, -1};
    size_t length = strlen(p->prefix);
    if (depth >= MAX_DEPTH || !next_child(p, parent, &child))
        return;
    for (bool more = true; more;) {
        item after = child;
        more = next_child(p, parent, &after);
        copse__text_add(&p->s->out, "%s%s", p->prefix, more ? tee : corner);
        item down = child;
        if (child.handle >= 0) {
            add_handle(p, &p->topo->handles[child.handle]);
        } else {
            int physical = child.physical >= 0 ? child.physical
                                               : physical_at(p->topo, (size_t)child.node);
            if (physical >= 0) {
                add_physical(p, (size_t)physical);
                down = (item){-1, physical, -1};
            } else {
                add_node(p, (size_t)child.node);
            }
        }
        copse__text_add(&p->s->out, "\n");
        if (child.handle < 0) {
            copse__put(p->prefix + length, sizeof p->prefix - length, "%s",
                       more ? bar : "   ");
            add_children(p, down, depth + 1);
            p->prefix[length] = '\0';
        }
        child = after;
    }
}

static int tree_text(session *s) {
    printer p = {.s = s, .topo = s->topo, .show = nodes_to_show(s->topo)};
    if (!p.show) {
        complain_text("the host has no memory for the tree");
        return EXIT_RUN_FAILED;
    }
    add_machine(&p);
    add_children(&p, (item){0, -1, -1}, 0);
    free(p.show);
    return EXIT_OK;
}

/* One line an object: {"record": "node" | "device" | …, …}. */
static int tree_lines(session *s) {
    json_t *root = copse__json_build(s->topo, s->options->redact);
    bool good = root != NULL;
    const char *key;
    json_t *list;
    static const char *const keys[][2] = {
        {"host", "host"},         {"icds", "icd"},        {"platforms", "platform"},
        {"nodes", "node"},        {"devices", "device"},  {"paths", "path"},
        {"bench", "measurement"}, {"warnings", "warning"}};
    for (size_t k = 0; good && k < sizeof keys / sizeof keys[0]; k++) {
        key = keys[k][0];
        list = json_object_get(root, key);
        size_t count = json_is_array(list) ? json_array_size(list) : 1;
        for (size_t i = 0; good && i < count; i++) {
            json_t *one = json_is_array(list) ? json_array_get(list, i) : list;
            good = json_object_set_new(one, "record", json_string(keys[k][1])) == 0 &&
                   add_json(&s->out, one, false);
        }
    }
    json_decref(root);
    if (!good)
        complain_text("the host has no memory for the report");
    return good ? EXIT_OK : EXIT_RUN_FAILED;
}

static int report_json(session *s) {
    copse_error error;
    if (copse__json_report(&s->out, s->topo, s->options->redact, &error) != COPSE_OK)
        return complain(&error);
    return EXIT_OK;
}

int run_tree(session *s) {
    switch (s->options->format) {
    case FORMAT_TEXT:
        return tree_text(s);
    case FORMAT_JSON:
        return report_json(s);
    case FORMAT_JSONL:
        return tree_lines(s);
    case FORMAT_CSV:
        return run_list(s);
    case FORMAT_DOT:
        return write_dot(s, false);
    case FORMAT_SVG:
        return write_svg(s, false);
    }
    return EXIT_USAGE;
}
