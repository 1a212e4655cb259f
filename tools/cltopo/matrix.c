/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cltopo.h"
#include "table.h"
#include "topo/json.h"

/* A row of the matrix: a physical device or a network card. */
typedef struct member {
    int physical, node;
    char head[40], id[64];
    char cpus[256];
    int numa;
} member;

static void fill_device(const session *s, member *m, size_t physical) {
    const copse__physical *p = &s->topo->physicals[physical];
    m->physical = (int)physical;
    m->node = p->node;
    m->numa = p->numa;
    copse__put(m->cpus, sizeof m->cpus, "%s", p->cpus);
    copse__shown_id(s->topo, physical, s->options->redact, m->id);
    short_name(s->topo, physical, m->head, sizeof m->head);
}

static void fill_network(const copse__topo *topo, member *m, size_t node, size_t index) {
    const copse__node *at = &topo->nodes[node];
    m->physical = -1;
    m->node = (int)node;
    m->numa = at->numa;
    char address[24];
    copse__put(m->id, sizeof m->id, "pci:%s", copse__pci_text(address, at->pci));
    copse__put(m->head, sizeof m->head, "NIC%zu", index);
    m->cpus[0] = '\0';
    for (size_t i = 0; at->numa >= 0 && i < topo->node_count; i++)
        if (topo->nodes[i].kind == COPSE__NODE_NUMA && topo->nodes[i].numa == at->numa)
            copse__put(m->cpus, sizeof m->cpus, "%s", topo->nodes[i].cpus);
}

static member *members_of(const session *s, size_t *count) {
    const copse__topo *topo = s->topo;
    member *members =
        calloc(topo->physical_count + topo->node_count + 1, sizeof *members);
    size_t networks = 0;
    *count = 0;
    if (!members)
        return NULL;
    for (size_t p = 0; p < topo->physical_count; p++, (*count)++)
        fill_device(s, &members[*count], p);
    for (size_t i = 0; i < topo->node_count; i++)
        if (is_network(&topo->nodes[i]))
            fill_network(topo, &members[(*count)++], i, networks++);
    return members;
}

static bool is_host(const copse__topo *topo, const member *m) {
    return m->physical >= 0 && (topo->physicals[m->physical].why & COPSE__WHY_HOST_CPU);
}

static copse__path_kind path_between(const copse__topo *topo, const member *a,
                                     const member *b) {
    if (a == b)
        return COPSE__PATH_SELF;
    if (a->physical >= 0 && b->physical >= 0)
        return copse__device_path(topo, (size_t)a->physical, (size_t)b->physical);
    if (is_host(topo, a) || is_host(topo, b))
        return copse__host_path(topo, is_host(topo, a) ? b->node : a->node);
    return copse__node_path(topo, a->node, b->node);
}

static void add_cell(copse__text *out, const char *text, size_t width) {
    copse__text_add(out, "%s%*s", text, (int)(width - strlen(text)) + 2, "");
}

static void add_legend(session *s, const member *members, size_t count) {
    copse__text *out = &s->out;
    copse__text_add(out, "\n");
    for (int kind = COPSE__PATH_SELF; kind <= COPSE__PATH_UNKNOWN; kind++)
        copse__text_add(out, "  %-5s %s\n", copse__path_name((copse__path_kind)kind),
                        copse__path_meaning((copse__path_kind)kind));
    copse__text_add(out, "\n");
    for (size_t i = 0; i < count; i++) {
        const member *m = &members[i];
        const char *name = m->physical >= 0 ? s->topo->physicals[m->physical].name
                                            : s->topo->nodes[m->node].name;
        const char *interface = m->physical >= 0 ? "" : s->topo->nodes[m->node].interface;
        copse__text_add(out, "  %-8s %s%s%s%s%s\n", m->head, m->id, name[0] ? "  " : "",
                        name, interface[0] ? "  " : "", interface);
    }
}

static void matrix_text(session *s, const member *members, size_t count) {
    copse__text *out = &s->out;
    size_t width = 4, cpus = strlen("CPU affinity");
    for (size_t i = 0; i < count; i++) {
        width = copse__max_size(width, strlen(members[i].head));
        cpus = copse__max_size(cpus, strlen(members[i].cpus));
    }
    add_cell(out, "", width);
    for (size_t j = 0; j < count; j++)
        add_cell(out, members[j].head, width);
    add_cell(out, "CPU affinity", cpus);
    copse__text_add(out, "NUMA\n");
    for (size_t i = 0; i < count; i++) {
        add_cell(out, members[i].head, width);
        for (size_t j = 0; j < count; j++)
            add_cell(out,
                     copse__path_name(path_between(s->topo, &members[i], &members[j])),
                     width);
        add_cell(out, members[i].cpus[0] ? members[i].cpus : "?", cpus);
        if (members[i].numa >= 0)
            copse__text_add(out, "%d\n", members[i].numa);
        else
            copse__text_add(out, "?\n");
    }
    add_legend(s, members, count);
}

/* One line a pair: easy to sort and to join. */
static int matrix_table(session *s, const member *members, size_t count) {
    static const char *const columns[][2] = {
        {"a", "a"},       {"b", "b"},       {"kind", "kind"}, {"a_numa", NULL},
        {"b_numa", NULL}, {"a_cpus", NULL}, {"b_cpus", NULL}, {NULL, NULL}};
    table t;
    table_begin(&t, columns);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++) {
            table_row(&t);
            table_text(&t, members[i].id);
            table_text(&t, members[j].id);
            table_text(&t,
                       copse__path_name(path_between(s->topo, &members[i], &members[j])));
            table_int(&t, members[i].numa);
            table_int(&t, members[j].numa);
            table_text(&t, members[i].cpus);
            table_text(&t, members[j].cpus);
        }
    return table_write(&t, s, "paths");
}

int run_matrix(session *s) {
    size_t count = 0;
    if (s->options->format == FORMAT_DOT)
        return write_dot(s, false);
    if (s->options->format == FORMAT_SVG)
        return write_svg(s, false);
    member *members = members_of(s, &count);
    if (!members) {
        complain_text("the host has no memory for the matrix");
        return EXIT_RUN_FAILED;
    }
    int code = EXIT_OK;
    if (s->options->format == FORMAT_TEXT)
        matrix_text(s, members, count);
    else
        code = matrix_table(s, members, count);
    free(members);
    return code;
}
