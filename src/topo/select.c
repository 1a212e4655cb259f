/* SPDX-License-Identifier: Apache-2.0 */
#include "topo/select.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

typedef enum term_kind {
    TERM_ALL,
    TERM_TYPE,
    TERM_HOST,
    TERM_HANDLE,
    TERM_PCI,
    TERM_VENDOR,
    TERM_PLATFORM,
    TERM_NAME
} term_kind;

typedef struct term {
    term_kind kind;
    uint64_t type;
    uint32_t platform, device;
    char text[128]; /* what is compared */
    char whole[160];
    uint32_t parts;
    double weight;
} term;

typedef struct choices {
    copse__device_choice *items;
    size_t count, capacity;
    bool taken[COPSE__MAX_HANDLES];     /* handle */
    bool physical[COPSE__MAX_HANDLES];  /* physical device */
    uint32_t times[COPSE__MAX_HANDLES]; /* replicas on a handle */
    bool host;
} choices;

/* "there is: 0:0 (…), host". What every complaint ends with. */
static void list_what_there_is(const copse__topo *topo, copse__text *out) {
    copse__text_add(out, "there is");
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *handle = &topo->handles[i];
        if (copse__handle_usable(handle))
            copse__text_add(out, " %u:%u (%s),", handle->platform, handle->device,
                            handle->name);
    }
    copse__text_add(out, " host");
}

static copse_status refuse(const copse__topo *topo, copse_status why, const char *text,
                           const char *problem, copse_error *err) {
    copse__text list = {0};
    list_what_there_is(topo, &list);
    copse__fail(err, why, 0, text, "%s; %s", problem, list.data ? list.data : "");
    copse__text_free(&list);
    return why;
}

static bool parse_number(const char **at, uint32_t *out) {
    if (!isdigit((unsigned char)**at))
        return false;
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(*at, &end, 10);
    if (errno || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    *at = end;
    return true;
}

static bool parse_pair(const char *text, term *out) {
    if (!strncmp(text, "opencl:", 7))
        text += 7;
    if (!parse_number(&text, &out->platform) || *text++ != ':' ||
        !parse_number(&text, &out->device))
        return false;
    return *text == '\0';
}

/* "0000:03:00.0", or "03:00.0" of domain 0, as copse__pci_text writes it. */
static bool parse_address(const char *text, char out[128]) {
    unsigned domain = 0, bus, device, function;
    int used = 0;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function, &used) !=
            4 ||
        text[used]) {
        domain = 0;
        used = 0;
        if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &used) != 3 ||
            text[used])
            return false;
    }
    copse__pci pci = {domain, bus, device, function};
    char buffer[24];
    copse__put(out, 128, "%s", copse__pci_text(buffer, pci));
    return device <= 31 && function <= 7;
}

/* Cuts "/N" and "*W" off the end of text, in either order. A pattern may hold a slash:
 * only what reads as a number counts. */
static bool cut_suffixes(char *text, term *out, const char **problem) {
    out->parts = 1;
    out->weight = 0;
    bool have_parts = false, have_weight = false;
    for (;;) {
        char *slash = strrchr(text, '/'), *star = strrchr(text, '*');
        char *last = slash > star ? slash : star;
        if (!last)
            return true;
        char *end = NULL;
        const char *digits = last + 1;
        if (*last == '/') {
            uint32_t parts = 0;
            if (!parse_number(&digits, &parts) || *digits)
                return true;
            if (parts == 0 || parts > 255 || have_parts) {
                *problem = "'/N' wants one number of parts from 1 to 255";
                return false;
            }
            out->parts = parts;
            have_parts = true;
        } else {
            double weight = strtod(digits, &end);
            if (end == digits || *end || !isfinite(weight) || weight <= 0 ||
                have_weight) {
                *problem = "'*W' wants one weight above 0";
                return false;
            }
            out->weight = weight;
            have_weight = true;
        }
        *last = '\0';
    }
}

static bool parse_term(const char *text, size_t length, term *out, const char **problem) {
    static const struct {
        const char *word;
        term_kind kind;
        uint64_t type;
    } words[] = {{"all", TERM_ALL, 0},
                 {"gpu", TERM_TYPE, COPSE__TYPE_GPU},
                 {"cpu", TERM_TYPE, COPSE__TYPE_CPU},
                 {"accelerator", TERM_TYPE, COPSE__TYPE_ACCELERATOR},
                 {"host", TERM_HOST, 0}};
    static const struct {
        const char *prefix;
        term_kind kind;
    } prefixes[] = {
        {"vendor=", TERM_VENDOR}, {"platform~=", TERM_PLATFORM}, {"name~=", TERM_NAME}};
    char body[160];
    while (length > 0 && text[0] == ' ')
        text++, length--;
    while (length > 0 && text[length - 1] == ' ')
        length--;
    *out = (term){.parts = 1};
    *problem = "an unknown term";
    copse__put(out->whole, sizeof out->whole, "%.*s", (int)copse__min_size(length, 159),
               text);
    if (length == 0 || length >= sizeof out->text)
        return false;
    copse__put(body, sizeof body, "%s", out->whole);
    if (!cut_suffixes(body, out, problem))
        return false;
    for (size_t i = 0; i < COPSE__COUNT(words); i++)
        if (!strcmp(body, words[i].word)) {
            out->kind = words[i].kind;
            out->type = words[i].type;
            return true;
        }
    for (size_t i = 0; i < COPSE__COUNT(prefixes); i++) {
        size_t n = strlen(prefixes[i].prefix);
        if (!strncmp(body, prefixes[i].prefix, n) && body[n]) {
            out->kind = prefixes[i].kind;
            copse__put(out->text, sizeof out->text, "%.*s", (int)sizeof out->text - 1,
                       body + n);
            return true;
        }
    }
    if (!strncmp(body, "pci:", 4)) {
        out->kind = TERM_PCI;
        return parse_address(body + 4, out->text);
    }
    out->kind = TERM_HANDLE;
    return parse_pair(body, out);
}

static bool matches(const copse__topo *topo, const term *t, const copse__handle *handle) {
    char text[24];
    const copse__physical *physical = &topo->physicals[handle->physical];
    switch (t->kind) {
    case TERM_ALL:
        return true;
    case TERM_TYPE:
        return (handle->type & t->type) != 0;
    case TERM_HANDLE:
        return handle->platform == t->platform && handle->device == t->device;
    case TERM_PCI:
        return physical->has_pci &&
               !strcmp(copse__pci_text(text, physical->pci), t->text);
    case TERM_VENDOR:
        return !strcasecmp(handle->tag, t->text);
    case TERM_PLATFORM:
        return strcasestr(topo->platforms[handle->platform].name, t->text) != NULL ||
               strcasestr(topo->platforms[handle->platform].version, t->text) != NULL;
    case TERM_NAME:
        return strcasestr(handle->name, t->text) != NULL;
    case TERM_HOST:
        break;
    }
    return false;
}

static copse_status add_part(choices *made, const copse__topo *topo,
                             const copse__handle *handle, const term *t, uint32_t part,
                             uint32_t replica, copse_error *err) {
    copse_status status = copse__grow(&made->items, &made->capacity, made->count + 1,
                                      sizeof made->items[0], err);
    if (status != COPSE_OK)
        return status;
    copse__device_choice *c = &made->items[made->count++];
    *c = (copse__device_choice){
        .part_index = part, .part_count = t->parts, .weight = t->weight};
    char again[16] = "", piece[32] = "";
    if (replica > 1)
        copse__put(again, sizeof again, "@%u", replica);
    if (t->parts > 1)
        copse__put(piece, sizeof piece, "/%u#%u", t->parts, part);
    if (!handle) {
        c->api = COPSE__API_HOST;
        c->order = UINT64_MAX;
        copse__put(c->label, sizeof c->label, "host%s%s", again, piece);
        copse__put(c->name, sizeof c->name, "host CPU");
        copse__put(c->platform_name, sizeof c->platform_name, "host");
        copse__put(c->driver, sizeof c->driver, "%s", copse_version());
        copse__put(c->vendor, sizeof c->vendor, "host");
        return COPSE_OK;
    }
    c->api = COPSE__API_OPENCL;
    c->platform_index = handle->platform;
    c->device_index = handle->device;
    c->order = copse__handle_order(topo, handle) | (part & 0xFF);
    copse__put(c->label, sizeof c->label, "%u:%u%s%s", handle->platform, handle->device,
               again, piece);
    copse__put(c->name, sizeof c->name, "%s", handle->name);
    copse__put(c->platform_name, sizeof c->platform_name, "%s",
               topo->platforms[handle->platform].name);
    copse__put(c->driver, sizeof c->driver, "%s", handle->driver);
    copse__put(c->vendor, sizeof c->vendor, "%s", handle->tag);
    return COPSE_OK;
}

static copse_status add_handle(choices *made, const copse__topo *topo, size_t index,
                               const term *t, copse_error *err) {
    const copse__handle *handle = &topo->handles[index];
    char problem[128];
    if (t->parts > 1 && handle->max_parts < t->parts) {
        copse__put(problem, sizeof problem,
                   handle->max_parts < 2
                       ? "%u:%u cannot be split into sub-devices"
                       : "%u:%u cannot be split into more than %u parts",
                   handle->platform, handle->device, handle->max_parts);
        return refuse(topo, COPSE_INVALID, t->whole, problem, err);
    }
    uint32_t replica = ++made->times[index];
    made->taken[index] = true;
    made->physical[handle->physical] = true;
    copse_status status = COPSE_OK;
    for (uint32_t part = 0; status == COPSE_OK && part < t->parts; part++)
        status = add_part(made, topo, handle, t, part, replica, err);
    return status;
}

/* The platform of the preferred handle among those of the host CPU that the term matches;
 * UINT32_MAX where there is none. */
static uint32_t cpu_platform(const copse__topo *topo, const term *t) {
    const copse__handle *best = NULL;
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *h = &topo->handles[i];
        if ((topo->physicals[h->physical].why & COPSE__WHY_HOST_CPU) &&
            copse__handle_usable(h) && matches(topo, t, h) &&
            (!best || copse__handle_better(topo, h, best)))
            best = h;
    }
    return best ? best->platform : UINT32_MAX;
}

/* One handle a physical device, all of the chosen platform for the host CPU. */
static copse_status add_matching(choices *made, const copse__topo *topo, const term *t,
                                 size_t *matched, copse_error *err) {
    bool before[COPSE__MAX_HANDLES];
    memcpy(before, made->physical, sizeof before);
    uint32_t of_cpu = cpu_platform(topo, t);
    copse_status status = COPSE_OK;
    for (size_t p = 0; status == COPSE_OK && p < topo->physical_count; p++) {
        bool cpu = topo->physicals[p].why & COPSE__WHY_HOST_CPU;
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < topo->handle_count; i++) {
            const copse__handle *h = &topo->handles[i];
            if (h->physical != (int)p || !copse__handle_usable(h) || !matches(topo, t, h))
                continue;
            (*matched)++;
            if (before[p])
                continue;
            if (cpu) {
                if (status == COPSE_OK && h->platform == of_cpu)
                    status = add_handle(made, topo, i, t, err);
            } else if (best == SIZE_MAX ||
                       copse__handle_better(topo, h, &topo->handles[best])) {
                best = i;
            }
        }
        if (status == COPSE_OK && best != SIZE_MAX)
            status = add_handle(made, topo, best, t, err);
    }
    return status;
}

static copse_status add_host(choices *made, const copse__topo *topo, const term *t,
                             copse_error *err) {
    if (t->parts > 1)
        return refuse(topo, COPSE_INVALID, t->whole, "host cannot be split", err);
    if (made->host)
        return COPSE_OK;
    made->host = true;
    return add_part(made, topo, NULL, t, 0, 1, err);
}

static copse_status add_exact(choices *made, const copse__topo *topo, const term *t,
                              copse_error *err) {
    for (size_t i = 0; i < topo->handle_count; i++) {
        const copse__handle *handle = &topo->handles[i];
        if (!matches(topo, t, handle))
            continue;
        if (handle->available == 0)
            return refuse(topo, COPSE_INVALID, t->whole, "its driver says not available",
                          err);
        if (handle->compiler == 0)
            return refuse(topo, COPSE_INVALID, t->whole,
                          "its driver has no compiler, so it cannot run kernels", err);
        return add_handle(made, topo, i, t, err);
    }
    return refuse(topo, COPSE_INVALID, t->whole, "no such device", err);
}

static copse_status add_term(choices *made, const copse__topo *topo, const term *t,
                             copse_error *err) {
    if (t->kind == TERM_HOST)
        return add_host(made, topo, t, err);
    if (t->kind == TERM_HANDLE)
        return add_exact(made, topo, t, err);
    size_t matched = 0;
    copse_status status = add_matching(made, topo, t, &matched, err);
    if (status != COPSE_OK || matched > 0)
        return status;
    return t->kind == TERM_PCI
               ? refuse(topo, COPSE_INVALID, t->whole, "no usable device there", err)
               : refuse(topo, COPSE_NODEVICE, t->whole, "matches no usable device", err);
}

static copse_status add_default(choices *made, const copse__topo *topo,
                                copse_error *err) {
    static const term fast = {
        .kind = TERM_TYPE, .type = COPSE__TYPE_GPU | COPSE__TYPE_ACCELERATOR, .parts = 1};
    static const term cpu = {.kind = TERM_TYPE, .type = COPSE__TYPE_CPU, .parts = 1};
    static const term host = {.kind = TERM_HOST, .parts = 1};
    size_t matched = 0;
    copse_status status = add_matching(made, topo, &fast, &matched, err);
    if (status == COPSE_OK && made->count == 0)
        status = add_matching(made, topo, &cpu, &matched, err);
    if (status == COPSE_OK && made->count == 0)
        status = add_host(made, topo, &host, err);
    return status;
}

static copse_status add_terms(choices *made, const copse__topo *topo,
                              const char *selector, copse_error *err) {
    const char *at = selector;
    for (;;) {
        const char *end = strchrnul(at, ',');
        const char *problem = NULL;
        term t;
        if (!parse_term(at, (size_t)(end - at), &t, &problem))
            return refuse(topo, COPSE_INVALID, t.whole[0] ? t.whole : selector, problem,
                          err);
        copse_status status = add_term(made, topo, &t, err);
        if (status != COPSE_OK)
            return status;
        if (!*end)
            return COPSE_OK;
        at = end + 1;
    }
}

/* Stable, so that ties stay in the order of the terms; few items. */
static void sort_choices(copse__device_choice *items, size_t count) {
    for (size_t i = 1; i < count; i++) {
        copse__device_choice moved = items[i];
        size_t j = i;
        for (; j > 0 && items[j - 1].order > moved.order; j--)
            items[j] = items[j - 1];
        items[j] = moved;
    }
}

copse_status copse__select_devices(const copse__topo *topo, const char *selector,
                                   copse__device_choice **out, size_t *out_count,
                                   copse_error *err) {
    choices *made = NULL;
    *out = NULL;
    *out_count = 0;
    copse_status status = copse__calloc(&made, 1, sizeof *made, err);
    if (status != COPSE_OK)
        return status;
    if (!selector || !selector[0])
        status = add_default(made, topo, err);
    else
        status = add_terms(made, topo, selector, err);
    if (status == COPSE_OK && made->count == 0)
        status = refuse(topo, COPSE_NODEVICE, selector, "selects nothing", err);
    if (status == COPSE_OK) {
        sort_choices(made->items, made->count);
        *out = made->items;
        *out_count = made->count;
    } else {
        free(made->items);
    }
    free(made);
    return status;
}
