/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

/* Which handles are one piece of silicon. No single identifier is to be trusted:
 * - a PCI address counts where its extension is advertised, except where it repeats
 * within one platform (partitions of a card, or a driver that reports one card for all);
 * - a UUID of a GPU counts likewise; two UUIDs that differ prove nothing, since drivers
 *   make them each in their own way; a UUID of a CPU device never counts (some are the
 * same on every host);
 * - handles merge across platforms only, never within one;
 * - all CPU devices are the one host CPU;
 * - names never merge. */

static bool is_host_cpu(const copse__handle *handle) {
    return (handle->type & (COPSE__TYPE_CPU | COPSE__TYPE_GPU | COPSE__TYPE_ACCELERATOR |
                            COPSE__TYPE_CUSTOM)) == COPSE__TYPE_CPU;
}

const char *copse__pci_text(char buffer[24], copse__pci pci) {
    copse__put(buffer, 24, "%04x:%02x:%02x.%x", pci.domain, pci.bus & 0xFFu,
               pci.device & 0x1Fu, pci.function & 7u);
    return buffer;
}

static bool same_pci(const copse__handle *a, const copse__handle *b) {
    if (!a->pci_evidence || !b->pci_evidence || a->pci.bus != b->pci.bus ||
        a->pci.device != b->pci.device || a->pci.function != b->pci.function)
        return false;
    /* AMD's query has no domain: it fits any. */
    return a->pci.domain == b->pci.domain || a->pci_evidence == COPSE__BY_AMD_TOPOLOGY ||
           b->pci_evidence == COPSE__BY_AMD_TOPOLOGY;
}

static bool same_uuid(const copse__handle *a, const copse__handle *b) {
    return a->has_uuid && b->has_uuid && !memcmp(a->uuid, b->uuid, sizeof a->uuid);
}

/* Repeated within its platform, an address or a UUID names no single device. */
static void find_ambiguous(const copse__topo *topo, size_t i, bool *pci, bool *uuid) {
    const copse__handle *a = &topo->handles[i];
    *pci = false;
    *uuid = false;
    for (size_t j = 0; j < topo->handle_count; j++) {
        const copse__handle *b = &topo->handles[j];
        if (i == j || a->platform != b->platform)
            continue;
        *pci |= same_pci(a, b);
        *uuid |= same_uuid(a, b);
    }
}

/* How well an address is known: one without a domain is worth less. */
static bool better_pci(const copse__handle *a, const copse__handle *b) {
    return a->pci_evidence != COPSE__BY_AMD_TOPOLOGY &&
           b->pci_evidence == COPSE__BY_AMD_TOPOLOGY;
}

/* The better handle of one physical device comes first. The rule asks for what the work
 * needs, never for a vendor's name:
 * 1. it can be used (available, compiles);
 * 2. of CPU devices: it runs native kernels, so it is a CPU runtime and not a renderer;
 * 3. of CPU devices: it does not claim more compute units than there are CPUs, and among
 *    those that do not, it has the most;
 * 4. the wider native float vector; 5. fp16, then fp64; 6. the larger allocation;
 * 7. the lower platform, then device. */
static int compare_handles(const copse__topo *topo, const copse__handle *a,
                           const copse__handle *b) {
    bool cpu = is_host_cpu(a) && is_host_cpu(b);
    bool honest_a = a->compute_units <= topo->cpu_count;
    bool honest_b = b->compute_units <= topo->cpu_count;
    if (copse__handle_usable(a) != copse__handle_usable(b))
        return copse__handle_usable(a) ? -1 : 1;
    if (cpu && (a->native_kernels == 1) != (b->native_kernels == 1))
        return a->native_kernels == 1 ? -1 : 1;
    if (cpu && topo->cpu_count && honest_a != honest_b)
        return honest_a ? -1 : 1;
    if (cpu && honest_a && a->compute_units != b->compute_units)
        return a->compute_units > b->compute_units ? -1 : 1;
    if (a->native_float_width != b->native_float_width)
        return a->native_float_width > b->native_float_width ? -1 : 1;
    if ((a->fp16 == 1) != (b->fp16 == 1))
        return a->fp16 == 1 ? -1 : 1;
    if ((a->fp64 == 1) != (b->fp64 == 1))
        return a->fp64 == 1 ? -1 : 1;
    if (a->max_alloc_bytes != b->max_alloc_bytes)
        return a->max_alloc_bytes > b->max_alloc_bytes ? -1 : 1;
    if (a->platform != b->platform)
        return a->platform < b->platform ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

bool copse__handle_better(const copse__topo *topo, const copse__handle *a,
                          const copse__handle *b) {
    return compare_handles(topo, a, b) < 0;
}

static bool has_any(const char *text, const char *const words[]) {
    for (size_t i = 0; words[i]; i++)
        if (strcasestr(text, words[i]))
            return true;
    return false;
}

void copse__handle_set_tag(copse__handle *handle) {
    static const struct {
        const char *tag;
        uint32_t id;
        const char *const words[4];
    } known[] = {
        {"amd", 0x1002, {"AMD", "Advanced Micro", "Radeon", NULL}},
        {"nvidia", 0x10de, {"NVIDIA", NULL}},
        {"intel", 0x8086, {"Intel", NULL}},
        {"arm", 0x13b5, {"ARM", NULL}},
        {"qualcomm", 0x5143, {"Qualcomm", NULL}},
        {"apple", 0x106b, {"Apple", NULL}},
        {"imagination", 0x1010, {"Imagination", "PowerVR", NULL}},
        {"xilinx", 0x10ee, {"Xilinx", NULL}},
        {"altera", 0x1172, {"Altera", NULL}},
        {"mesa", 0, {"Mesa", "X.org", NULL}},
        {"oclgrind", 0, {"Oclgrind", "Bristol", NULL}},
    };
    const char *tag = "other";
    size_t i = 0;
    /* The words first: there are CPU runtimes that show a foreign vendor's number. */
    while (i < COPSE__COUNT(known) && !has_any(handle->vendor, known[i].words))
        i++;
    if (i == COPSE__COUNT(known))
        for (i = 0; i < COPSE__COUNT(known); i++)
            if (known[i].id && handle->vendor_id == known[i].id)
                break;
    if (i < COPSE__COUNT(known))
        tag = known[i].tag;
    copse__put(handle->tag, sizeof handle->tag, "%s", tag);
}

static void name_physical(copse__physical *physical, const copse__handle *handle,
                          bool pci_counts, bool uuid_counts) {
    char text[24];
    if (is_host_cpu(handle)) {
        copse__put(physical->id, sizeof physical->id, "host");
        physical->confidence = COPSE__CONFIDENCE_EXACT;
        physical->why = COPSE__WHY_HOST_CPU;
        return;
    }
    if (handle->pci_evidence && pci_counts) {
        copse__put(physical->id, sizeof physical->id, "pci:%s",
                   copse__pci_text(text, handle->pci));
        physical->has_pci = true;
        physical->pci = handle->pci;
        physical->confidence = handle->pci_evidence == COPSE__BY_AMD_TOPOLOGY
                                   ? COPSE__CONFIDENCE_INFERRED
                                   : COPSE__CONFIDENCE_EXACT;
        return;
    }
    if (handle->has_uuid && uuid_counts) {
        size_t used = copse__put(physical->id, sizeof physical->id, "uuid:");
        for (size_t i = 0; i < sizeof handle->uuid; i++)
            used += copse__put(physical->id + used, sizeof physical->id - used, "%02x",
                               handle->uuid[i]);
        physical->confidence = COPSE__CONFIDENCE_EXACT;
        return;
    }
    copse__put(physical->id, sizeof physical->id, "opencl:%u:%u", handle->platform,
               handle->device);
    physical->confidence = COPSE__CONFIDENCE_UNKNOWN;
}

static void add_reasons(copse__physical *physical, const copse__handle *handle,
                        bool pci_counts, bool uuid_counts) {
    static const uint32_t of_pci[] = {0, COPSE__WHY_KHR_PCI, COPSE__WHY_AMD_TOPOLOGY,
                                      COPSE__WHY_NV_PCI, COPSE__WHY_HWLOC};
    if (is_host_cpu(handle))
        return;
    if (handle->pci_evidence)
        physical->why |= pci_counts ? of_pci[handle->pci_evidence] : COPSE__WHY_AMBIGUOUS;
    if (handle->has_uuid)
        physical->why |= uuid_counts ? COPSE__WHY_UUID : COPSE__WHY_AMBIGUOUS;
}

static void join(copse__topo *topo, copse__handle *handle, int p) {
    copse__physical *physical = &topo->physicals[p];
    handle->physical = p;
    physical->type |= handle->type;
    if (physical->preferred < 0 ||
        copse__handle_better(topo, handle, &topo->handles[physical->preferred]))
        physical->preferred = (int)(handle - topo->handles);
}

/* The physical device that handle i is another handle of, or -1. */
static int find_same(const copse__topo *topo, size_t i, const bool *bad_pci,
                     const bool *bad_uuid) {
    const copse__handle *a = &topo->handles[i];
    for (size_t j = 0; j < i; j++) {
        const copse__handle *b = &topo->handles[j];
        if (is_host_cpu(a) && is_host_cpu(b))
            return b->physical;
        if (a->platform == b->platform || is_host_cpu(a) || is_host_cpu(b))
            continue;
        if (!bad_pci[i] && !bad_pci[j] && same_pci(a, b))
            return b->physical;
        if (!bad_uuid[i] && !bad_uuid[j] && same_uuid(a, b))
            return b->physical;
    }
    return -1;
}

copse_status copse__identify(copse__topo *topo, copse_error *err) {
    bool bad_pci[COPSE__MAX_HANDLES] = {false}, bad_uuid[COPSE__MAX_HANDLES] = {false};
    copse_status status = copse__calloc(&topo->physicals, topo->handle_count,
                                        sizeof topo->physicals[0], err);
    if (status != COPSE_OK)
        return status;
    for (size_t i = 0; i < topo->handle_count; i++) {
        find_ambiguous(topo, i, &bad_pci[i], &bad_uuid[i]);
        if (bad_pci[i])
            copse__topo_warn(topo, "AMBIGUOUS_ADDRESS",
                             "%u:%u shares its PCI address with another device of its "
                             "platform: the address is ignored",
                             topo->handles[i].platform, topo->handles[i].device);
    }
    for (size_t i = 0; i < topo->handle_count; i++) {
        copse__handle *handle = &topo->handles[i];
        int p = find_same(topo, i, bad_pci, bad_uuid);
        if (p < 0) {
            p = (int)topo->physical_count++;
            topo->physicals[p] = (copse__physical){
                .preferred = -1, .numa = -1, .node = -1, .link = {-1, -1, -1, -1, 0}};
            name_physical(&topo->physicals[p], handle, !bad_pci[i], !bad_uuid[i]);
        } else if (handle->pci_evidence && !bad_pci[i]) {
            const copse__handle *first = &topo->handles[topo->physicals[p].preferred];
            if (!topo->physicals[p].has_pci || better_pci(handle, first))
                name_physical(&topo->physicals[p], handle, true, true);
        }
        add_reasons(&topo->physicals[p], handle, !bad_pci[i], !bad_uuid[i]);
        join(topo, handle, p);
    }
    for (size_t p = 0; p < topo->physical_count; p++) {
        copse__handle *best = &topo->handles[topo->physicals[p].preferred];
        best->preferred = true;
        copse__put(topo->physicals[p].tag, sizeof topo->physicals[p].tag, "%s",
                   best->tag);
    }
    return COPSE_OK;
}
