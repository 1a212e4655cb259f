/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/mem.h"
#include "cltopo.h"
#include "table.h"
#include "topo/json.h"
#include "topo/select.h"

static const char *const columns[][2] = {
    {"handle", "handle"}, {"id", "device"},       {"kind", "type"},
    {"vendor", "vendor"}, {"name", "name"},       {"platform", "platform"},
    {"driver", "driver"}, {"version", NULL},      {"compute_units", "units"},
    {"clock_mhz", "MHz"}, {"memory_bytes", NULL}, {"memory", "memory"},
    {"fp16", "fp16"},     {"fp64", "fp64"},       {"subgroups", "sub-groups"},
    {"numa", "NUMA"},     {"link", "link"},       {"usable", "usable"},
    {NULL, NULL}};

static void add_flag(table *t, int8_t flag) {
    table_add(t, flag < 0 ? json_null() : json_boolean(flag));
}

static void add_row(table *t, const session *s, size_t physical, const copse__handle *h) {
    const copse__topo *topo = s->topo;
    const copse__physical *p = &topo->physicals[physical];
    char text[64];
    bool star = h && h->preferred && s->options->all_handles;
    table_row(t);
    if (h)
        table_format(t, "%u:%u%s", h->platform, h->device,
                     star && s->options->format == FORMAT_TEXT ? "*" : "");
    else
        table_text(t, "");
    table_text(t, copse__shown_id(topo, physical, s->options->redact, text));
    table_text(t, copse__type_text(text, sizeof text, h ? h->type : p->type));
    table_text(t, p->tag);
    table_text(t, h ? h->name : p->name);
    table_text(t, h ? topo->platforms[h->platform].name : "");
    table_text(t, h ? h->driver : "");
    table_text(t, h ? h->version : "");
    table_int(t, h && h->compute_units ? (long long)h->compute_units : -1);
    table_int(t, h && h->clock_mhz ? (long long)h->clock_mhz : -1);
    if (h && h->memory_bytes) {
        table_format(t, "%llu", (unsigned long long)h->memory_bytes);
        table_text(t, copse__format_bytes(text, sizeof text, h->memory_bytes));
    } else {
        table_text(t, "");
        table_text(t, "");
    }
    add_flag(t, h ? h->fp16 : -1);
    add_flag(t, h ? h->fp64 : -1);
    add_flag(t, h ? h->subgroups : -1);
    table_int(t, p->numa);
    table_text(t, link_text(&p->link, text, sizeof text));
    add_flag(t, h ? (h->available < 0 || h->compiler < 0 ? -1 : copse__handle_usable(h))
                  : 0);
}

static const copse__handle *chosen_handle(const copse__topo *topo,
                                          const copse__device_choice *c) {
    for (size_t i = 0; i < topo->handle_count; i++)
        if (c->api == COPSE__API_OPENCL &&
            topo->handles[i].platform == c->platform_index &&
            topo->handles[i].device == c->device_index)
            return &topo->handles[i];
    return NULL;
}

/* What a selector names, once each; parts and replicas are not devices of their own. */
static int list_selected(session *s, table *t) {
    copse__device_choice *choices = NULL;
    size_t count = 0;
    copse_error error;
    if (copse__select_devices(s->topo, s->options->select, &choices, &count, &error) !=
        COPSE_OK)
        return complain(&error);
    for (size_t i = 0; i < count; i++) {
        const copse__handle *h = chosen_handle(s->topo, &choices[i]);
        bool again = !h;
        for (size_t j = 0; j < i && !again; j++)
            again = chosen_handle(s->topo, &choices[j]) == h;
        if (!again)
            add_row(t, s, (size_t)h->physical, h);
    }
    free(choices);
    return EXIT_OK;
}

int run_list(session *s) {
    const copse__topo *topo = s->topo;
    table t;
    int code = EXIT_OK;
    if (s->options->format == FORMAT_DOT)
        return write_dot(s, false);
    if (s->options->format == FORMAT_SVG)
        return write_svg(s, false);
    table_begin(&t, columns);
    if (s->options->select)
        code = list_selected(s, &t);
    for (size_t p = 0; !s->options->select && p < topo->physical_count; p++) {
        const copse__physical *physical = &topo->physicals[p];
        if (!s->options->all_handles) {
            add_row(&t, s, p,
                    physical->preferred >= 0 ? &topo->handles[physical->preferred]
                                             : NULL);
            continue;
        }
        for (size_t i = 0; i < topo->handle_count; i++)
            if (topo->handles[i].physical == (int)p)
                add_row(&t, s, p, &topo->handles[i]);
        if (physical->preferred < 0)
            add_row(&t, s, p, NULL);
    }
    if (code != EXIT_OK) {
        table_free(&t);
        return code;
    }
    code = table_write(&t, s, "devices");
    if (code == EXIT_OK && topo->handle_count == 0) {
        complain_text("no OpenCL driver shows a device; try: cltopo doctor");
        return EXIT_NO_DEVICE;
    }
    return code;
}
