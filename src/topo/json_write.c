/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "topo/json.h"

/* Every function that makes a value returns NULL where memory ran out; jansson's setters
 * take that as an error, which is counted here and told once, at the end. */
typedef struct writer {
    const copse__topo *topo;
    bool redact, failed;
} writer;

static void put(writer *w, json_t *object, const char *key, json_t *value) {
    if (!object || json_object_set_new(object, key, value) != 0)
        w->failed = true;
}

static void append(writer *w, json_t *array, json_t *value) {
    if (!array || json_array_append_new(array, value) != 0)
        w->failed = true;
}

static json_t *text_or_null(const char *text) {
    return text[0] ? json_string(text) : json_null();
}

/* 64-bit numbers are strings: many readers keep 53 bits only. 0 is "not known". */
static json_t *big_or_null(uint64_t value) {
    return value ? json_sprintf("%" PRIu64, value) : json_null();
}

static json_t *count_or_null(uint32_t value) {
    return value ? json_integer(value) : json_null();
}

static json_t *int_or_null(int value) {
    return value >= 0 ? json_integer(value) : json_null();
}

static json_t *flag_or_null(int8_t value) {
    return value < 0 ? json_null() : json_boolean(value);
}

static json_t *hex(const uint8_t *bytes, size_t count) {
    char text[257];
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count && used + 3 <= sizeof text; i++)
        used += copse__put(text + used, sizeof text - used, "%02x", bytes[i]);
    return json_string(text);
}

static json_t *address_or_null(bool known, copse__pci pci) {
    char text[24];
    return known ? json_string(copse__pci_text(text, pci)) : json_null();
}

static json_t *bits(writer *w, uint64_t value, const char *(*name)(unsigned)) {
    json_t *array = json_array();
    for (unsigned bit = 0; name(bit); bit++)
        if (value >> bit & 1)
            append(w, array, json_string(name(bit)));
    return array;
}

static json_t *link_object(writer *w, const copse__link *link) {
    json_t *made = json_object();
    put(w, made, "width", int_or_null(link->width));
    put(w, made, "generation", int_or_null(link->generation));
    put(w, made, "max_width", int_or_null(link->max_width));
    put(w, made, "max_generation", int_or_null(link->max_generation));
    put(w, made, "GBps",
        link->gbytes_per_s > 0 ? json_real(link->gbytes_per_s) : json_null());
    return made;
}

static json_t *host_object(writer *w) {
    const copse__topo *topo = w->topo;
    json_t *made = json_object();
    put(w, made, "name",
        w->redact && topo->host[0] ? json_string("redacted") : text_or_null(topo->host));
    put(w, made, "cpus_allowed", text_or_null(topo->cpus_allowed));
    put(w, made, "cpu_count", count_or_null(topo->cpu_count));
    put(w, made, "container", flag_or_null(topo->container));
    return made;
}

static json_t *icd_array(writer *w) {
    json_t *array = json_array();
    for (size_t i = 0; i < w->topo->icd_count; i++) {
        const copse__icd *icd = &w->topo->icds[i];
        json_t *made = json_object();
        put(w, made, "file", text_or_null(icd->file));
        put(w, made, "library", text_or_null(icd->shared_object));
        put(w, made, "status", json_string(copse__icd_status_name(icd->status)));
        put(w, made, "signal", icd->signal ? json_integer(icd->signal) : json_null());
        put(w, made, "stage", text_or_null(icd->stage));
        put(w, made, "message", text_or_null(icd->message));
        put(w, made, "platforms", json_integer(icd->platforms));
        put(w, made, "devices", json_integer(icd->devices));
        append(w, array, made);
    }
    return array;
}

static json_t *platform_array(writer *w) {
    json_t *array = json_array();
    for (size_t i = 0; i < w->topo->platform_count; i++) {
        const copse__platform *platform = &w->topo->platforms[i];
        json_t *made = json_object();
        put(w, made, "index", json_integer((json_int_t)i));
        put(w, made, "name", text_or_null(platform->name));
        put(w, made, "vendor", text_or_null(platform->vendor));
        put(w, made, "version", text_or_null(platform->version));
        put(w, made, "icd",
            platform->icd >= 0 ? text_or_null(w->topo->icds[platform->icd].file)
                               : json_null());
        put(w, made, "devices", json_integer(platform->device_count));
        append(w, array, made);
    }
    return array;
}

static json_t *node_array(writer *w) {
    json_t *array = json_array();
    for (size_t i = 0; i < w->topo->node_count; i++) {
        const copse__node *node = &w->topo->nodes[i];
        json_t *made = json_object();
        bool pci = node->has_pci;
        bool bridge =
            node->kind == COPSE__NODE_BRIDGE || node->kind == COPSE__NODE_HOST_BRIDGE;
        put(w, made, "id", json_integer((json_int_t)i));
        put(w, made, "kind", json_string(copse__node_kind_name(node->kind)));
        put(w, made, "parent", int_or_null(node->parent));
        put(w, made, "numa", int_or_null(node->numa));
        put(w, made, "name", text_or_null(node->name));
        put(w, made, "pci", address_or_null(pci, node->pci));
        if (pci) {
            put(w, made, "class", json_sprintf("%04x", node->class_id));
            put(w, made, "vendor_id", json_sprintf("%04x", node->vendor_id));
            put(w, made, "device_id", json_sprintf("%04x", node->device_id));
            put(w, made, "link", link_object(w, &node->link));
        }
        if (bridge)
            put(w, made, "buses",
                json_sprintf("%04x:%02x-%02x", node->domain, node->bus_first,
                             node->bus_last));
        if (node->interface[0])
            put(w, made, "interface", json_string(node->interface));
        if (node->kind <= COPSE__NODE_NUMA) {
            put(w, made, "cpus", text_or_null(node->cpus));
            put(w, made, "memory_bytes", big_or_null(node->memory_bytes));
        }
        append(w, array, made);
    }
    return array;
}

static json_t *extension_array(writer *w, const char *text) {
    json_t *array = json_array();
    while (*text) {
        size_t length = strcspn(text, " ");
        append(w, array, json_stringn(text, length));
        text += length + (text[length] == ' ');
    }
    return array;
}

static json_t *handle_object(writer *w, const copse__handle *h) {
    json_t *made = json_object();
    put(w, made, "platform", json_integer(h->platform));
    put(w, made, "index", json_integer(h->device));
    put(w, made, "platform_name", text_or_null(w->topo->platforms[h->platform].name));
    put(w, made, "preferred", json_boolean(h->preferred));
    put(w, made, "name", text_or_null(h->name));
    put(w, made, "name_raw_hex", hex(h->name_raw, h->name_raw_bytes));
    put(w, made, "vendor", text_or_null(h->vendor));
    put(w, made, "vendor_id", json_sprintf("%04x", h->vendor_id));
    put(w, made, "driver", text_or_null(h->driver));
    put(w, made, "version", text_or_null(h->version));
    put(w, made, "c_version", text_or_null(h->c_version));
    put(w, made, "kind", bits(w, h->type, copse__type_bit_name));
    put(w, made, "compute_units", count_or_null(h->compute_units));
    put(w, made, "clock_mhz", count_or_null(h->clock_mhz));
    put(w, made, "memory_bytes", big_or_null(h->memory_bytes));
    put(w, made, "max_alloc_bytes", big_or_null(h->max_alloc_bytes));
    put(w, made, "local_bytes", big_or_null(h->local_bytes));
    put(w, made, "cache_bytes", big_or_null(h->cache_bytes));
    put(w, made, "max_work_group", big_or_null(h->max_work_group));
    put(w, made, "native_float_width", count_or_null(h->native_float_width));
    put(w, made, "align_bits", count_or_null(h->align_bits));
    put(w, made, "max_parts", json_integer(h->max_parts));
    put(w, made, "available", flag_or_null(h->available));
    put(w, made, "compiler", flag_or_null(h->compiler));
    put(w, made, "unified", flag_or_null(h->unified));
    put(w, made, "fp16", flag_or_null(h->fp16));
    put(w, made, "fp64", flag_or_null(h->fp64));
    put(w, made, "subgroups", flag_or_null(h->subgroups));
    put(w, made, "images", flag_or_null(h->images));
    put(w, made, "native_kernels", flag_or_null(h->native_kernels));
    put(w, made, "extensions", extension_array(w, h->extensions ? h->extensions : ""));
    put(w, made, "pci", address_or_null(h->pci_evidence != COPSE__BY_NOTHING, h->pci));
    put(w, made, "pci_evidence",
        h->pci_evidence ? json_string(copse__evidence_name(h->pci_evidence))
                        : json_null());
    put(w, made, "uuid",
        h->has_uuid && !w->redact ? hex(h->uuid, sizeof h->uuid) : json_null());
    return made;
}

const char *copse__shown_id(const copse__topo *topo, size_t physical, bool redact,
                            char buffer[64]) {
    const char *id = topo->physicals[physical].id;
    if (redact && !strncmp(id, "uuid:", 5))
        copse__put(buffer, 64, "uuid:redacted-%zu", physical);
    else
        copse__put(buffer, 64, "%s", id);
    return buffer;
}

static json_t *device_array(writer *w) {
    const copse__topo *topo = w->topo;
    json_t *array = json_array();
    char id[64];
    for (size_t p = 0; p < topo->physical_count; p++) {
        const copse__physical *physical = &topo->physicals[p];
        json_t *made = json_object(), *handles = json_array();
        put(w, made, "id", json_string(copse__shown_id(topo, p, w->redact, id)));
        put(w, made, "name", text_or_null(physical->name));
        put(w, made, "confidence",
            json_string(copse__confidence_name(physical->confidence)));
        put(w, made, "evidence", bits(w, physical->why, copse__why_bit_name));
        put(w, made, "kind", bits(w, physical->type, copse__type_bit_name));
        put(w, made, "vendor", text_or_null(physical->tag));
        put(w, made, "pci", address_or_null(physical->has_pci, physical->pci));
        put(w, made, "node", int_or_null(physical->node));
        put(w, made, "numa", int_or_null(physical->numa));
        put(w, made, "cpus", text_or_null(physical->cpus));
        put(w, made, "link", link_object(w, &physical->link));
        for (size_t i = 0; i < topo->handle_count; i++)
            if (topo->handles[i].physical == (int)p)
                append(w, handles, handle_object(w, &topo->handles[i]));
        put(w, made, "handles", handles);
        append(w, array, made);
    }
    return array;
}

static json_t *path_array(writer *w) {
    json_t *array = json_array();
    char a_id[64], b_id[64];
    for (size_t a = 0; a < w->topo->physical_count; a++)
        for (size_t b = a + 1; b < w->topo->physical_count; b++) {
            json_t *made = json_object();
            put(w, made, "a", json_string(copse__shown_id(w->topo, a, w->redact, a_id)));
            put(w, made, "b", json_string(copse__shown_id(w->topo, b, w->redact, b_id)));
            put(w, made, "kind",
                json_string(copse__path_name(copse__device_path(w->topo, a, b))));
            append(w, array, made);
        }
    return array;
}

json_t *copse__json_measure(const copse__topo *topo, const copse__measure *m,
                            bool redact) {
    writer w = {.topo = topo, .redact = redact};
    char id[64];
    json_t *made = json_object();
    put(&w, made, "device",
        m->physical >= 0
            ? json_string(copse__shown_id(topo, (size_t)m->physical, redact, id))
            : json_null());
    put(&w, made, "handle",
        m->handle >= 0 ? json_sprintf("%u:%u", topo->handles[m->handle].platform,
                                      topo->handles[m->handle].device)
                       : json_null());
    put(&w, made, "numa", int_or_null(m->numa));
    put(&w, made, "what", json_string(m->what));
    put(&w, made, "path", text_or_null(m->path));
    put(&w, made, "unit", json_string(m->unit));
    put(&w, made, "bytes", big_or_null(m->bytes));
    put(&w, made, "devices", json_integer(m->devices));
    put(&w, made, "runs", json_integer(m->runs));
    put(&w, made, "median", json_real(m->median));
    put(&w, made, "min", json_real(m->min));
    put(&w, made, "max", json_real(m->max));
    put(&w, made, "verified", json_boolean(m->verified));
    put(&w, made, "moves", json_boolean(m->moves));
    if (w.failed) {
        json_decref(made);
        return NULL;
    }
    return made;
}

static json_t *warning_array(writer *w) {
    json_t *array = json_array();
    for (size_t i = 0; i < w->topo->warning_count; i++) {
        json_t *made = json_object();
        put(w, made, "code", json_string(w->topo->warnings[i].code));
        put(w, made, "text", json_string(w->topo->warnings[i].text));
        append(w, array, made);
    }
    return array;
}

json_t *copse__json_build(const copse__topo *topo, bool redact) {
    writer w = {.topo = topo, .redact = redact};
    json_t *root = json_object(), *bench = json_array();
    for (size_t i = 0; i < topo->measure_count; i++)
        append(&w, bench, copse__json_measure(topo, &topo->measures[i], redact));
    put(&w, root, "schema", json_string("cltopo/1"));
    put(&w, root, "host", host_object(&w));
    put(&w, root, "icds", icd_array(&w));
    put(&w, root, "platforms", platform_array(&w));
    put(&w, root, "nodes", node_array(&w));
    put(&w, root, "devices", device_array(&w));
    put(&w, root, "paths", path_array(&w));
    put(&w, root, "bench", bench);
    put(&w, root, "warnings", warning_array(&w));
    if (w.failed) {
        json_decref(root);
        return NULL;
    }
    return root;
}

copse_status copse__json_report(copse__text *out, const copse__topo *topo, bool redact,
                                copse_error *err) {
    json_t *root = copse__json_build(topo, redact);
    char *text =
        root ? json_dumps(root, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(12))
             : NULL;
    json_decref(root);
    if (!text)
        return copse__fail(err, COPSE_NOMEM, 0, NULL,
                           "the host has no memory for the report");
    copse__text_add_bytes(out, text, strlen(text));
    copse__text_add_bytes(out, "\n", 1);
    free(text);
    return copse__text_check(out, err);
}
