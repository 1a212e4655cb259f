/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"
#include "table.h"

/* A report as sorted facts, "device pci:0000:03:00.0 / NVIDIA CUDA#0 / driver" = "550.54".
 * Volatile things are no facts: host name, messages, measurements, clocks and link speeds
 * that power saving changes, the host's free memory, and indices, which move when another
 * driver appears. */
typedef struct fact {
    char *key, *value;
} fact;

typedef struct facts {
    fact *items;
    size_t count, capacity;
    bool failed;
} facts;

static void add_fact(facts *all, const char *value, const char *format, ...)
    COPSE_PRINTF(3, 4);

static void add_fact(facts *all, const char *value, const char *format, ...) {
    char key[512];
    va_list args;
    va_start(args, format);
    vsnprintf(key, sizeof key, format, args);
    va_end(args);
    fact made = {0};
    if (copse__grow(&all->items, &all->capacity, all->count + 1, sizeof all->items[0],
                    NULL) != COPSE_OK ||
        copse__strdup(&made.key, key, NULL) != COPSE_OK ||
        copse__strdup(&made.value, value[0] ? value : "?", NULL) != COPSE_OK) {
        free(made.key);
        all->failed = true;
        return;
    }
    all->items[all->count++] = made;
}

static void free_facts(facts *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->items[i].key);
        free(all->items[i].value);
    }
    free(all->items);
}

static void add_number(facts *all, const char *key, const char *what, long long value) {
    char text[32] = "?";
    if (value >= 0)
        copse__put(text, sizeof text, "%lld", value);
    add_fact(all, text, "%s / %s", key, what);
}

static void add_extensions(facts *all, const char *key, const char *list) {
    while (list && *list) {
        int length = (int)strcspn(list, " ");
        add_fact(all, "yes", "%s / %.*s", key, length, list);
        list += length + (list[length] == ' ');
    }
}

static void add_handle(facts *all, const copse__topo *topo, const char *device,
                       const copse__handle *h) {
    char key[400], text[48];
    int ordinal = 0;
    for (const copse__handle *b = topo->handles; b < h; b++)
        ordinal += b->physical == h->physical && b->platform == h->platform;
    copse__put(key, sizeof key, "device %s / %s#%d", device,
               topo->platforms[h->platform].name, ordinal);
    add_fact(all, h->name, "%s / name", key);
    add_fact(all, h->driver, "%s / driver", key);
    add_fact(all, h->version, "%s / version", key);
    add_fact(all, copse__type_text(text, sizeof text, h->type), "%s / kind", key);
    add_number(all, key, "compute_units", h->compute_units);
    add_number(all, key, "fp16", h->fp16);
    add_number(all, key, "fp64", h->fp64);
    add_number(all, key, "subgroups", h->subgroups);
    add_number(all, key, "available", h->available);
    add_number(all, key, "compiler", h->compiler);
    add_number(all, key, "preferred", h->preferred);
    if (!(topo->physicals[h->physical].why & COPSE__WHY_HOST_CPU)) {
        copse__put(text, sizeof text, "%llu", (unsigned long long)h->memory_bytes);
        add_fact(all, text, "%s / memory_bytes", key);
    }
    add_extensions(all, key, h->extensions);
}

static void add_path(facts *all, const copse__topo *topo, size_t p, size_t q) {
    copse__path_kind kind = copse__device_path(topo, p, q);
    if (kind != COPSE__PATH_UNKNOWN)
        add_fact(all, copse__path_name(kind), "device %s / path to %s",
                 topo->physicals[p].id, topo->physicals[q].id);
}

static void add_devices(facts *all, const copse__topo *topo) {
    for (size_t p = 0; p < topo->physical_count; p++) {
        const copse__physical *d = &topo->physicals[p];
        char key[96];
        copse__put(key, sizeof key, "device %s", d->id);
        add_fact(all, d->name, "%s / name", key);
        add_fact(all, d->tag, "%s / vendor", key);
        add_fact(all, d->cpus, "%s / cpus", key);
        add_number(all, key, "numa", d->numa);
        add_number(all, key, "link max_width", d->link.max_width);
        add_number(all, key, "link max_generation", d->link.max_generation);
        add_number(all, key, "link width", d->link.width);
        for (size_t q = p + 1; q < topo->physical_count; q++)
            add_path(all, topo, p, q);
    }
    for (size_t i = 0; i < topo->handle_count; i++)
        add_handle(all, topo, topo->physicals[topo->handles[i].physical].id,
                   &topo->handles[i]);
}

static void add_machine(facts *all, const copse__topo *topo) {
    char address[24];
    add_fact(all, topo->cpus_allowed, "host / cpus_allowed");
    for (size_t i = 0; i < topo->icd_count; i++) {
        const copse__icd *icd = &topo->icds[i];
        add_fact(all, icd->shared_object, "driver %s / library", icd->file);
        add_fact(all, copse__icd_status_name(icd->status), "driver %s / status",
                 icd->file);
    }
    for (size_t i = 0; i < topo->node_count; i++) {
        const copse__node *node = &topo->nodes[i];
        if (node->kind == COPSE__NODE_NUMA)
            add_fact(all, node->cpus, "numa %d / cpus", node->numa);
        if (!is_network(node))
            continue;
        copse__pci_text(address, node->pci);
        add_fact(all, node->interface, "network %s / interface", address);
        add_fact(all, node->name, "network %s / name", address);
    }
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const fact *)a)->key, ((const fact *)b)->key);
}

static int read_facts(facts *all, const char *path) {
    copse__topo *topo = NULL;
    copse_error error;
    copse__topo_options how = {.input_json = path};
    if (copse__topo_open(&topo, &how, &error) != COPSE_OK)
        return complain(&error);
    add_devices(all, topo);
    add_machine(all, topo);
    copse__topo_close(topo);
    if (all->failed) {
        complain_text("the host has no memory for the comparison");
        return EXIT_RUN_FAILED;
    }
    if (all->count)
        qsort(all->items, all->count, sizeof all->items[0], by_key);
    return EXIT_OK;
}

/* "device X / P#0" of "device X / P#0 / driver": what a fact belongs to. */
static size_t group_length(const char *key) {
    const char *last = NULL;
    for (const char *at = key; (at = strstr(at, " / ")) != NULL; at += 3)
        last = at;
    return last ? (size_t)(last - key) : strlen(key);
}

static bool has_group(const facts *all, const char *key, size_t length) {
    for (size_t i = 0; i < all->count; i++) {
        const char *other = all->items[i].key;
        if (!strncmp(other, key, length) &&
            (!other[length] || !strncmp(other + length, " / ", 3)))
            return true;
    }
    return false;
}

/* The index after the fact at i and, where the other report has nothing of its group, after
 * the rest of the group: a device that is gone is one change, not twenty. */
static size_t skip_group(const facts *all, size_t i, const facts *other, char *key,
                         size_t capacity) {
    const char *first = all->items[i].key, *outer = strstr(first, " / ");
    size_t length = group_length(first), end = i + 1;
    /* The outermost group that is missing: the device, before one of its handles. */
    if (outer && !has_group(other, first, (size_t)(outer - first)))
        length = (size_t)(outer - first);
    copse__put(key, capacity, "%s", first);
    if (has_group(other, first, length))
        return end;
    copse__put(key, capacity, "%.*s", (int)length, first);
    while (end < all->count && !strncmp(all->items[end].key, first, length) &&
           !strncmp(all->items[end].key + length, " / ", 3))
        end++;
    return end;
}

static void add_change(table *t, const char *change, const char *key, const char *a,
                       const char *b) {
    table_row(t);
    table_text(t, change);
    table_text(t, key);
    table_text(t, a);
    table_text(t, b);
}

int run_diff(session *s) {
    static const char *const columns[][2] = {
        {"change", "change"}, {"key", "what"}, {"a", "A"}, {"b", "B"}, {NULL, NULL}};
    facts a = {0}, b = {0};
    table t;
    char key[512];
    if (s->options->format == FORMAT_DOT || s->options->format == FORMAT_SVG)
        return refuse_format(s);
    int code = read_facts(&a, s->options->operands[0]);
    if (code == EXIT_OK)
        code = read_facts(&b, s->options->operands[1]);
    if (code != EXIT_OK)
        goto out;
    table_begin(&t, columns);
    size_t i = 0, j = 0;
    while (i < a.count || j < b.count) {
        int order = i == a.count   ? 1
                    : j == b.count ? -1
                                   : strcmp(a.items[i].key, b.items[j].key);
        if (order < 0) {
            size_t next = skip_group(&a, i, &b, key, sizeof key);
            add_change(&t, "removed", key, next == i + 1 ? a.items[i].value : "", "");
            i = next;
        } else if (order > 0) {
            size_t next = skip_group(&b, j, &a, key, sizeof key);
            add_change(&t, "added", key, "", next == j + 1 ? b.items[j].value : "");
            j = next;
        } else {
            if (strcmp(a.items[i].value, b.items[j].value) != 0)
                add_change(&t, "changed", a.items[i].key, a.items[i].value,
                           b.items[j].value);
            i++;
            j++;
        }
    }
    bool same = json_array_size(t.rows) == 0;
    if (same && s->options->format == FORMAT_TEXT)
        table_free(&t);
    else
        code = table_write(&t, s, "changes");
    if (code == EXIT_OK && !same)
        code = EXIT_RUN_FAILED;
out:
    free_facts(&a);
    free_facts(&b);
    return code;
}
