/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/tuned.h"

#include <stdio.h>
#include <string.h>

#include "backend/opencl/clblast.h"
#include "backend/opencl/packed_device.h"
#include "base/hash.h"

struct copse__cl_tuned_flags {
    atomic_bool found, used, refused;
};

const copse__tuned *copse__cl_tuned(const copse__device *device,
                                    const copse__graph *graph, const copse__node *node) {
    char key[COPSE__TUNED_KEY];
    if (device->tuned_count == 0)
        return NULL;
    return copse__tuned_find(device->tuned, device->tuned_count,
                             copse__tuned_key(key, graph, node));
}

const char *copse__cl_parameters(const copse__device *device, const copse__graph *graph,
                                 const copse__node *node, const char *provider) {
    const copse__tuned *entry = copse__cl_tuned(device, graph, node);
    return entry && strcmp(entry->provider, provider) == 0 ? entry->parameters : "";
}

void copse__cl_tuned_refuse(const copse__device *device, const copse__tuned *entry,
                            const char *reason) {
    /* An operation's entry need not suit all of its nodes. */
    copse_log_level level = strchr(entry->key, ' ') ? COPSE_LOG_WARN : COPSE_LOG_DEBUG;
    if (!atomic_exchange(&device->tuned_flags[entry - device->tuned].refused, true))
        copse__log(level, "%s: what was tuned for %s (%s %s) is not used: %s",
                   device->place, entry->key, entry->provider, entry->parameters, reason);
}

void copse__cl_tuned_follow(const copse__device *device, const copse__tuned *entry) {
    if (entry)
        atomic_store(&device->tuned_flags[entry - device->tuned].used, true);
}

bool copse__cl_tuned_used(const copse__device *device, size_t entry) {
    return entry < device->tuned_count && atomic_load(&device->tuned_flags[entry].used);
}

void copse__cl_tuned_find(const copse__device *device, const copse__tuned *entry) {
    atomic_store(&device->tuned_flags[entry - device->tuned].found, true);
}

bool copse__cl_tuned_found(const copse__device *device, size_t entry) {
    return entry < device->tuned_count &&
           (atomic_load(&device->tuned_flags[entry].found) ||
            atomic_load(&device->tuned_flags[entry].used));
}

void copse__cl_tuned_free(copse__device *device) {
    for (size_t i = 0; i < device->tuned_count; i++) {
        free((char *)(size_t)device->tuned[i].key);
        free((char *)(size_t)device->tuned[i].provider);
        free((char *)(size_t)device->tuned[i].parameters);
    }
    free(device->tuned);
    free(device->tuned_flags);
    device->tuned = NULL;
    device->tuned_flags = NULL;
    device->tuned_count = 0;
}

static copse_status copy(const char **out, const char *text, copse_error *err) {
    char *made;
    copse_status status = copse__strdup(&made, text, err);
    *out = made;
    return status;
}

/* CLBlast's own kernels are built with what their entries say. */
static void override_clblast(copse__device *device) {
    static const char prefix[] = "clblast ";
    for (size_t i = 0; i < device->tuned_count; i++) {
        const copse__tuned *entry = &device->tuned[i];
        copse_error why = {0};
        if (strncmp(entry->key, prefix, sizeof prefix - 1) != 0)
            continue;
        if (copse__cl_clblast_override(device, entry->key + sizeof prefix - 1,
                                       entry->parameters, &why) == COPSE_OK)
            copse__cl_tuned_follow(device, entry);
        else
            copse__cl_tuned_refuse(device, entry, why.text);
    }
}

copse_status copse__cl_tune(copse__device *device, const copse__tuned *entries,
                            size_t count, copse_error *err) {
    copse_status status;
    copse__cl_tuned_free(device);
    COPSE__TRY(copse__calloc(&device->tuned, count, sizeof *device->tuned, err), out);
    COPSE__TRY(
        copse__calloc(&device->tuned_flags, count, sizeof *device->tuned_flags, err),
        out);
    for (size_t i = 0; i < count; i++) {
        copse__tuned *to = &device->tuned[device->tuned_count++];
        COPSE__TRY(copy(&to->key, entries[i].key, err), out);
        COPSE__TRY(copy(&to->provider, entries[i].provider, err), out);
        COPSE__TRY(copy(&to->parameters, entries[i].parameters, err), out);
    }
    override_clblast(device);
out:
    if (status != COPSE_OK)
        copse__cl_tuned_free(device);
    return status;
}

/* ---- What could be ---------------------------------------------------------------------- */

typedef struct visit {
    const char *provider;
    copse__candidate_fn *fn;
    void *user;
} visit;

static void send(const char *parameters, bool general, void *user) {
    const visit *v = user;
    v->fn(v->provider, parameters, general, v->user);
}

void copse__cl_candidates(copse__device *device, const copse__graph *graph,
                          const copse__node *node, copse__effort effort,
                          copse__candidate_fn *fn, void *user) {
    const char *reason;
    for (const copse__cl_provider *const *p = copse__cl_providers(node->op); *p; p++) {
        visit v = {.provider = (*p)->name, .fn = fn, .user = user};
        const copse__cl_candidate_sink sink = {send, &v};
        if ((*p)->from_library && effort < COPSE__EFFORT_LIBRARIES)
            continue;
        if ((*p)->fits && !(*p)->fits(device, graph, node, &reason))
            continue;
        send("", true, &v);
        if ((*p)->candidates)
            (*p)->candidates(device, graph, node, effort >= COPSE__EFFORT_THOROUGH,
                             &sink);
    }
}

/* ---- For whom it holds ------------------------------------------------------------------ */

/* One number over every kernel file: with another one, what was measured may not hold. */
static void hash_sources(char out[33]) {
    copse__hash128 sum = {0, 0};
    char text[128];
    for (size_t i = 0; copse__cl_sources[i]; i++) {
        snprintf(text, sizeof text, "%016llx%016llx%s", (unsigned long long)sum.high,
                 (unsigned long long)sum.low, copse__cl_sources[i]->hash);
        sum = copse__hash128_of(text, strlen(text));
    }
    copse__hash128_hex(out, sum);
}

void copse__cl_tuning_id(const copse__device *device, copse__tuning_id *out) {
    *out = (copse__tuning_id){.units = device->base.caps.compute_units,
                              .vector = (uint32_t)copse__cl_native_width(device)};
    copse__hash128_hex(out->build,
                       copse__hash128_of(device->identity, strlen(device->identity)));
    hash_sources(out->sources);
}
