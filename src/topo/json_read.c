/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "topo/model.h"

enum { JSON_LIMIT = 64 << 20, MAX_MEASURES = 65536 };

typedef struct source {
    copse__topo *topo;
    const char *place;
    copse_error *err;
} source;

static copse_status bad(const source *s, const char *what, size_t index,
                        const char *problem) {
    return copse__fail(s->err, COPSE_FORMAT, 0, s->place, "%s %zu: %s", what, index,
                       problem);
}

static void get_text(const json_t *object, const char *key, char *out, size_t capacity) {
    const char *text = json_string_value(json_object_get(object, key));
    copse__put(out, capacity, "%s", text ? text : "");
    copse__clean_utf8(out);
}

#define GET_TEXT(object, key, array) get_text((object), (key), (array), sizeof(array))

/* A number or a string of one; 0 where it is neither. */
static uint64_t get_big(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (uint64_t)json_integer_value(value);
    const char *text = json_string_value(value);
    if (!text || text[0] < '0' || text[0] > '9')
        return 0;
    char *end = NULL;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    return errno || *end ? 0 : number;
}

static uint32_t get_count(const json_t *object, const char *key) {
    uint64_t value = get_big(object, key);
    return value <= UINT32_MAX ? (uint32_t)value : 0;
}

static int get_int(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    return number >= 0 && number <= INT32_MAX ? (int)number : -1;
}

static int8_t get_flag(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? (int8_t)json_is_true(value) : (int8_t)-1;
}

static double get_real(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static uint32_t get_hex(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? (uint32_t)strtoul(text, NULL, 16) : 0;
}

static bool get_address(const json_t *object, const char *key, copse__pci *out) {
    const char *text = json_string_value(json_object_get(object, key));
    int used = 0;
    *out = (copse__pci){0};
    return text &&
           sscanf(text, "%8x:%2x:%2x.%1x%n", &out->domain, &out->bus, &out->device,
                  &out->function, &used) == 4 &&
           !text[used] && out->device <= 31 && out->function <= 7;
}

static size_t get_bytes(const json_t *object, const char *key, uint8_t *out,
                        size_t capacity) {
    const char *text = json_string_value(json_object_get(object, key));
    size_t count = 0;
    unsigned value = 0;
    while (text && count < capacity && text[0] && text[1] &&
           sscanf(text, "%2x", &value) == 1) {
        out[count++] = (uint8_t)value;
        text += 2;
    }
    return count;
}

static uint64_t get_bits(const json_t *object, const char *key,
                         const char *(*name)(unsigned)) {
    const json_t *array = json_object_get(object, key);
    uint64_t made = 0;
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *word = json_string_value(json_array_get(array, i));
        for (unsigned bit = 0; word && word[0] && name(bit); bit++)
            if (!strcmp(word, name(bit)))
                made |= (uint64_t)1 << bit;
    }
    return made;
}

static void get_link(const json_t *object, copse__link *out) {
    const json_t *link = json_object_get(object, "link");
    out->width = get_int(link, "width");
    out->generation = get_int(link, "generation");
    out->max_width = get_int(link, "max_width");
    out->max_generation = get_int(link, "max_generation");
    out->gbytes_per_s = get_real(link, "GBps");
    if (!(out->gbytes_per_s >= 0 && out->gbytes_per_s < 1e6))
        out->gbytes_per_s = 0;
}

static void read_host(source *s, const json_t *root) {
    const json_t *host = json_object_get(root, "host");
    GET_TEXT(host, "name", s->topo->host);
    GET_TEXT(host, "cpus_allowed", s->topo->cpus_allowed);
    s->topo->cpu_count = get_count(host, "cpu_count");
    s->topo->container = get_flag(host, "container");
}

/* A list of objects of at most `most`. */
static copse_status get_list(const source *s, const json_t *root, const char *key,
                             size_t most, const json_t **out) {
    const json_t *array = json_object_get(root, key);
    *out = array;
    if (!json_is_array(array))
        return copse__fail(s->err, COPSE_FORMAT, 0, s->place, "\"%s\" is %s", key,
                           array ? "not a list" : "missing");
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_object(json_array_get(array, i)))
            return copse__fail(s->err, COPSE_FORMAT, 0, s->place,
                               "\"%s\": entry %zu is not an object", key, i);
    if (json_array_size(array) > most)
        return copse__fail(s->err, COPSE_FORMAT, 0, s->place,
                           "\"%s\" has more than %zu entries", key, most);
    return COPSE_OK;
}

static copse_status read_icds(source *s, const json_t *root) {
    const json_t *array;
    copse_status status = get_list(s, root, "icds", COPSE__MAX_ICDS, &array);
    size_t count = json_array_size(array);
    if (status == COPSE_OK)
        status = copse__calloc(&s->topo->icds, count, sizeof s->topo->icds[0], s->err);
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        const json_t *from = json_array_get(array, i);
        copse__icd *icd = &s->topo->icds[s->topo->icd_count++];
        char word[32];
        GET_TEXT(from, "file", icd->file);
        GET_TEXT(from, "library", icd->shared_object);
        GET_TEXT(from, "stage", icd->stage);
        GET_TEXT(from, "message", icd->message);
        GET_TEXT(from, "status", word);
        int signal = get_int(from, "signal");
        icd->signal = signal > 0 && signal < 128 ? signal : 0;
        icd->platforms = get_count(from, "platforms");
        icd->devices = get_count(from, "devices");
        icd->status = COPSE__ICD_UNKNOWN;
        for (int k = 0; k < (int)COPSE__ICD_UNKNOWN; k++)
            if (!strcmp(word, copse__icd_status_name((copse__icd_status)k)))
                icd->status = (copse__icd_status)k;
    }
    return status;
}

static copse_status read_platforms(source *s, const json_t *root) {
    const json_t *array;
    copse_status status = get_list(s, root, "platforms", COPSE__MAX_PLATFORMS, &array);
    size_t count = json_array_size(array);
    if (status == COPSE_OK)
        status = copse__calloc(&s->topo->platforms, count, sizeof s->topo->platforms[0],
                               s->err);
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        const json_t *from = json_array_get(array, i);
        copse__platform *platform = &s->topo->platforms[s->topo->platform_count++];
        char file[256];
        GET_TEXT(from, "name", platform->name);
        GET_TEXT(from, "vendor", platform->vendor);
        GET_TEXT(from, "version", platform->version);
        GET_TEXT(from, "icd", file);
        platform->device_count = get_count(from, "devices");
        platform->icd = -1;
        for (size_t k = 0; k < s->topo->icd_count; k++)
            if (file[0] && !strcmp(file, s->topo->icds[k].file))
                platform->icd = (int)k;
    }
    return status;
}

static copse_status read_node(source *s, const json_t *from, size_t index) {
    copse__node *node = &s->topo->nodes[index];
    char word[32];
    *node =
        (copse__node){.parent = get_int(from, "parent"), .numa = get_int(from, "numa")};
    GET_TEXT(from, "kind", word);
    int kind = -1;
    for (int k = 0; k <= (int)COPSE__NODE_PCI; k++)
        if (!strcmp(word, copse__node_kind_name((copse__node_kind)k)))
            kind = k;
    if (kind < 0)
        return bad(s, "node", index, "an unknown kind");
    node->kind = (copse__node_kind)kind;
    if (get_int(from, "id") != (int)index)
        return bad(s, "node", index, "its id is not its place in the list");
    if (index == 0 ? node->parent != -1 || node->kind != COPSE__NODE_MACHINE
                   : node->parent < 0 || node->parent >= (int)index ||
                         node->kind == COPSE__NODE_MACHINE)
        return bad(s, "node", index,
                   "a parent comes before its children, from one machine");
    GET_TEXT(from, "name", node->name);
    GET_TEXT(from, "interface", node->interface);
    GET_TEXT(from, "cpus", node->cpus);
    node->has_pci = get_address(from, "pci", &node->pci);
    node->class_id = get_hex(from, "class");
    node->vendor_id = get_hex(from, "vendor_id");
    node->device_id = get_hex(from, "device_id");
    node->memory_bytes = get_big(from, "memory_bytes");
    get_link(from, &node->link);
    const char *buses = json_string_value(json_object_get(from, "buses"));
    if (buses && sscanf(buses, "%8x:%2x-%2x", &node->domain, &node->bus_first,
                        &node->bus_last) != 3)
        return bad(s, "node", index, "buses are not as \"0000:01-02\"");
    return COPSE_OK;
}

static copse_status read_nodes(source *s, const json_t *root) {
    const json_t *array;
    copse_status status = get_list(s, root, "nodes", COPSE__MAX_NODES, &array);
    size_t count = json_array_size(array);
    if (status == COPSE_OK)
        status = copse__calloc(&s->topo->nodes, count, sizeof s->topo->nodes[0], s->err);
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        status = read_node(s, json_array_get(array, i), i);
        s->topo->node_count = i + 1;
    }
    return status;
}

static copse_status read_extensions(source *s, const json_t *from, copse__handle *out) {
    const json_t *array = json_object_get(from, "extensions");
    copse__text text = {0};
    copse__text_add(&text, "%s", "");
    for (size_t i = 0; i < json_array_size(array) && text.length < 65536; i++) {
        const char *word = json_string_value(json_array_get(array, i));
        if (word && word[0])
            copse__text_add(&text, "%s%s", text.length ? " " : "", word);
    }
    copse_status status = copse__text_check(&text, s->err);
    if (status != COPSE_OK) {
        copse__text_free(&text);
        return status;
    }
    out->extensions = text.data;
    copse__clean_utf8(out->extensions);
    return COPSE_OK;
}

static void read_capabilities(const json_t *from, copse__handle *h) {
    h->vendor_id = get_hex(from, "vendor_id");
    h->type = get_bits(from, "kind", copse__type_bit_name);
    h->compute_units = get_count(from, "compute_units");
    h->clock_mhz = get_count(from, "clock_mhz");
    h->memory_bytes = get_big(from, "memory_bytes");
    h->max_alloc_bytes = get_big(from, "max_alloc_bytes");
    h->local_bytes = get_big(from, "local_bytes");
    h->cache_bytes = get_big(from, "cache_bytes");
    h->max_work_group = get_big(from, "max_work_group");
    h->native_float_width = get_count(from, "native_float_width");
    h->align_bits = get_count(from, "align_bits");
    h->max_parts = get_count(from, "max_parts");
    h->available = get_flag(from, "available");
    h->compiler = get_flag(from, "compiler");
    h->unified = get_flag(from, "unified");
    h->fp16 = get_flag(from, "fp16");
    h->fp64 = get_flag(from, "fp64");
    h->subgroups = get_flag(from, "subgroups");
    h->images = get_flag(from, "images");
    h->native_kernels = get_flag(from, "native_kernels");
}

static copse_status read_handle(source *s, const json_t *from, size_t physical) {
    copse__topo *topo = s->topo;
    if (topo->handle_count >= COPSE__MAX_HANDLES)
        return bad(s, "device", physical, "too many handles in all");
    copse__handle *h = &topo->handles[topo->handle_count];
    int platform = get_int(from, "platform"), device = get_int(from, "index");
    if (platform < 0 || platform >= (int)topo->platform_count || device < 0)
        return bad(s, "device", physical, "a handle of a platform that is not listed");
    *h = (copse__handle){.platform = (uint32_t)platform,
                         .device = (uint32_t)device,
                         .physical = (int)physical,
                         .preferred = get_flag(from, "preferred") == 1};
    GET_TEXT(from, "name", h->name);
    GET_TEXT(from, "vendor", h->vendor);
    GET_TEXT(from, "driver", h->driver);
    GET_TEXT(from, "version", h->version);
    GET_TEXT(from, "c_version", h->c_version);
    h->name_raw_bytes =
        (uint32_t)get_bytes(from, "name_raw_hex", h->name_raw, sizeof h->name_raw);
    read_capabilities(from, h);
    h->has_uuid = get_bytes(from, "uuid", h->uuid, sizeof h->uuid) == sizeof h->uuid;
    if (get_address(from, "pci", &h->pci)) {
        char word[32];
        GET_TEXT(from, "pci_evidence", word);
        for (int k = COPSE__BY_KHR_PCI; k <= COPSE__BY_HWLOC; k++)
            if (!strcmp(word, copse__evidence_name((copse__evidence)k)))
                h->pci_evidence = (copse__evidence)k;
    }
    copse__handle_set_tag(h);
    copse_status status = read_extensions(s, from, h);
    if (status == COPSE_OK)
        topo->handle_count++;
    return status;
}

static copse_status read_device(source *s, const json_t *from, size_t index) {
    copse__physical *p = &s->topo->physicals[index];
    *p = (copse__physical){.preferred = -1};
    char word[32];
    GET_TEXT(from, "id", p->id);
    GET_TEXT(from, "name", p->name);
    GET_TEXT(from, "vendor", p->tag);
    GET_TEXT(from, "cpus", p->cpus);
    GET_TEXT(from, "confidence", word);
    if (!p->id[0])
        return bad(s, "device", index, "it has no id");
    for (size_t i = 0; i < index; i++)
        if (!strcmp(s->topo->physicals[i].id, p->id))
            return bad(s, "device", index, "its id is that of another");
    for (int k = 0; k <= (int)COPSE__CONFIDENCE_EXACT; k++)
        if (!strcmp(word, copse__confidence_name((copse__confidence)k)))
            p->confidence = (copse__confidence)k;
    p->why = (uint32_t)get_bits(from, "evidence", copse__why_bit_name);
    p->type = get_bits(from, "kind", copse__type_bit_name);
    p->has_pci = get_address(from, "pci", &p->pci);
    p->numa = get_int(from, "numa");
    p->node = get_int(from, "node");
    if (p->node >= (int)s->topo->node_count)
        return bad(s, "device", index, "a node that is not listed");
    get_link(from, &p->link);
    const json_t *handles;
    copse_status status = get_list(s, from, "handles", COPSE__MAX_HANDLES, &handles);
    for (size_t i = 0; status == COPSE_OK && i < json_array_size(handles); i++) {
        status = read_handle(s, json_array_get(handles, i), index);
        if (status != COPSE_OK)
            return status;
        size_t made = s->topo->handle_count - 1;
        if (s->topo->handles[made].preferred || p->preferred < 0)
            p->preferred = (int)made;
    }
    return status;
}

static int by_pair(const void *a, const void *b) {
    const copse__handle *x = a, *y = b;
    if (x->platform != y->platform)
        return x->platform < y->platform ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

/* Handles in the order of their pairs; each device's preferred one by its index there. */
static copse_status settle_handles(source *s) {
    copse__topo *topo = s->topo;
    for (size_t i = 0; i < topo->handle_count; i++)
        topo->handles[i].preferred =
            topo->physicals[topo->handles[i].physical].preferred == (int)i;
    qsort(topo->handles, topo->handle_count, sizeof topo->handles[0], by_pair);
    for (size_t i = 0; i < topo->handle_count; i++) {
        if (i > 0 && by_pair(&topo->handles[i - 1], &topo->handles[i]) == 0)
            return copse__fail(s->err, COPSE_FORMAT, 0, s->place,
                               "two handles are both %u:%u", topo->handles[i].platform,
                               topo->handles[i].device);
        if (topo->handles[i].preferred)
            topo->physicals[topo->handles[i].physical].preferred = (int)i;
    }
    return COPSE_OK;
}

static copse_status read_devices(source *s, const json_t *root) {
    const json_t *array;
    copse_status status =
        get_list(s, root, "devices", COPSE__MAX_HANDLES + COPSE__MAX_NODES, &array);
    size_t count = json_array_size(array);
    if (status == COPSE_OK)
        status = copse__calloc(&s->topo->physicals, count, sizeof s->topo->physicals[0],
                               s->err);
    if (status == COPSE_OK)
        status = copse__calloc(&s->topo->handles, COPSE__MAX_HANDLES,
                               sizeof s->topo->handles[0], s->err);
    for (size_t i = 0; status == COPSE_OK && i < count; i++) {
        status = read_device(s, json_array_get(array, i), i);
        s->topo->physical_count = i + 1;
    }
    return status == COPSE_OK ? settle_handles(s) : status;
}

static copse_status read_measures(source *s, const json_t *root) {
    const json_t *array;
    if (!json_object_get(root, "bench"))
        return COPSE_OK; /* nobody measured */
    copse_status status = get_list(s, root, "bench", MAX_MEASURES, &array);
    size_t count = json_array_size(array);
    if (status == COPSE_OK)
        status =
            copse__calloc(&s->topo->measures, count, sizeof s->topo->measures[0], s->err);
    if (status != COPSE_OK)
        return status;
    s->topo->measure_capacity = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *from = json_array_get(array, i);
        copse__measure *m = &s->topo->measures[i];
        char id[64];
        *m =
            (copse__measure){.physical = -1, .handle = -1, .numa = get_int(from, "numa")};
        GET_TEXT(from, "device", id);
        for (size_t p = 0; id[0] && p < s->topo->physical_count; p++)
            if (!strcmp(id, s->topo->physicals[p].id))
                m->physical = (int)p;
        const char *pair = json_string_value(json_object_get(from, "handle"));
        unsigned platform = 0, device = 0;
        if (pair && sscanf(pair, "%u:%u", &platform, &device) == 2)
            for (size_t h = 0; h < s->topo->handle_count; h++)
                if (s->topo->handles[h].platform == platform &&
                    s->topo->handles[h].device == device)
                    m->handle = (int)h;
        if (m->handle >= 0 && s->topo->handles[m->handle].physical != m->physical)
            return bad(s, "bench", i, "its handle is not one of its device");
        if (id[0] && m->physical < 0)
            return bad(s, "bench", i, "a device that is not listed");
        GET_TEXT(from, "what", m->what);
        GET_TEXT(from, "path", m->path);
        GET_TEXT(from, "unit", m->unit);
        m->bytes = get_big(from, "bytes");
        m->devices = get_count(from, "devices");
        m->runs = get_count(from, "runs");
        m->median = get_real(from, "median");
        m->min = get_real(from, "min");
        m->max = get_real(from, "max");
        m->verified = get_flag(from, "verified") == 1;
        m->moves = get_flag(from, "moves") != 0;
        s->topo->measure_count = i + 1;
    }
    return COPSE_OK;
}

static copse_status read_warnings(source *s, const json_t *root) {
    const json_t *array;
    copse_status status = get_list(s, root, "warnings", 4096, &array);
    for (size_t i = 0; status == COPSE_OK && i < json_array_size(array); i++) {
        const json_t *from = json_array_get(array, i);
        char code[32], text[256];
        GET_TEXT(from, "code", code);
        GET_TEXT(from, "text", text);
        copse__topo_warn(s->topo, code, "%s", text);
    }
    return status;
}

copse_status copse__json_read_text(copse__topo *topo, const char *text, size_t bytes,
                                   const char *place, copse_error *err) {
    json_error_t where;
    source s = {.topo = topo, .place = place, .err = err};
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    copse_status status = COPSE_OK;
    if (!root) {
        char at[300];
        copse__put(at, sizeof at, "%s:%d:%d", place, where.line, where.column);
        return copse__fail(err, COPSE_FORMAT, 0, at, "not JSON: %s", where.text);
    }
    const char *schema = json_string_value(json_object_get(root, "schema"));
    if (!schema || strcmp(schema, "cltopo/1")) {
        status = copse__fail(err, COPSE_FORMAT, 0, place,
                             "no report of cltopo (\"schema\" is not \"cltopo/1\"); save "
                             "one with: cltopo --format json --output FILE");
        goto out;
    }
    read_host(&s, root);
    COPSE__TRY(read_icds(&s, root), out);
    COPSE__TRY(read_platforms(&s, root), out);
    COPSE__TRY(read_nodes(&s, root), out);
    COPSE__TRY(read_devices(&s, root), out);
    COPSE__TRY(read_measures(&s, root), out);
    COPSE__TRY(read_warnings(&s, root), out);
out:
    json_decref(root);
    return status;
}

copse_status copse__json_read(copse__topo *topo, const char *path, copse_error *err) {
    char *text = NULL;
    size_t bytes = 0;
    copse_status status = copse__file_read(&text, &bytes, path, JSON_LIMIT, err);
    if (status == COPSE_OK)
        status = copse__json_read_text(topo, text, bytes, path, err);
    free(text);
    return status;
}
