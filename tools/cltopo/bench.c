/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cltopo.h"
#include "table.h"
#include "topo/json.h"
#include "topo/select.h"

static void show_progress(const char *line, void *user) {
    (void)user;
    fprintf(stderr, "cltopo: measuring %s\n", line);
}

static const char *const columns[][2] = {
    {"device", "device"}, {"name", NULL},           {"numa", "NUMA"},
    {"what", "what"},     {"path", "path"},         {"bytes", NULL},
    {"size", "size"},     {"devices", "at once"},   {"median", "median"},
    {"min", "min"},       {"max", "max"},           {"unit", "unit"},
    {"runs", "runs"},     {"verified", "verified"}, {"note", "note"},
    {NULL, NULL}};

static const char *handle_name(const copse__topo *topo, int handle, char *out,
                               size_t capacity) {
    copse__put(out, capacity, "%u:%u", topo->handles[handle].platform,
               topo->handles[handle].device);
    return out;
}

static void add_row(table *t, const session *s, const copse__measure *m) {
    const copse__topo *topo = s->topo;
    char text[64];
    table_row(t);
    table_text(t,
               m->handle >= 0 ? handle_name(topo, m->handle, text, sizeof text) : "host");
    table_text(t, m->physical >= 0 ? topo->physicals[m->physical].name : "");
    table_int(t, m->physical >= 0 ? topo->physicals[m->physical].numa : m->numa);
    table_text(t, m->what);
    table_text(t, m->path);
    table_int(t, m->bytes ? (long long)m->bytes : -1);
    table_text(t, m->bytes ? copse__format_bytes(text, sizeof text, m->bytes) : "");
    table_int(t, m->devices);
    if (m->moves || s->options->format != FORMAT_TEXT) {
        table_add(t, json_real(m->median));
        table_add(t, json_real(m->min));
        table_add(t, json_real(m->max));
        table_text(t, m->unit);
    } else {
        /* Bytes over time would be a rate that no link has. */
        double us = (double)m->bytes / 1e3;
        table_add(t, json_real(us / m->median));
        table_add(t, json_real(us / m->max));
        table_add(t, json_real(us / m->min));
        table_text(t, "us");
    }
    table_int(t, m->runs);
    table_add(t, json_boolean(m->verified));
    table_text(t, !m->verified ? "wrong data" : !m->moves ? "moves nothing" : "");
}

int run_bench(session *s) {
    copse__device_choice *choices = NULL;
    size_t count = 0;
    copse_error error;
    copse__bench_options how = {.budget_s = s->options->budget_s,
                                .isolate = s->options->no_isolation ? COPSE__ISOLATE_NONE
                                                                    : COPSE__ISOLATE_ICD,
                                .progress = show_progress};
    size_t warned = s->topo->warning_count;
    if (s->options->format == FORMAT_DOT || s->options->format == FORMAT_SVG)
        return refuse_format(s);
    copse_status status =
        copse__select_devices(s->topo, s->options->select, &choices, &count, &error);
    if (status == COPSE_OK)
        status = copse__bench(s->topo, choices, count, &how, &error);
    free(choices);
    for (; warned < s->topo->warning_count; warned++)
        complain_text("warning: %s", s->topo->warnings[warned].text);
    if (status != COPSE_OK)
        return complain(&error);
    if (s->options->format == FORMAT_JSON) {
        /* The whole report, figures included: what --input reads back. */
        if (copse__json_report(&s->out, s->topo, s->options->redact, &error) != COPSE_OK)
            return complain(&error);
        return EXIT_OK;
    }
    table t;
    table_begin(&t, columns);
    for (size_t i = 0; i < s->topo->measure_count; i++)
        add_row(&t, s, &s->topo->measures[i]);
    return table_write(&t, s, "bench");
}
