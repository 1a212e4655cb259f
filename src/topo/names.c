/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

static const char *const icd_names[] = {"ok",    "empty",   "missing",
                                        "crash", "timeout", "unknown"};
static const char *const confidence_names[] = {"unknown", "inferred", "exact"};
static const char *const node_names[] = {"machine", "numa", "host_bridge", "bridge",
                                         "pci"};
static const char *const evidence_names[] = {"none", "khr_pci", "amd_topology", "nv_pci",
                                             "hwloc"};

const char *copse__icd_status_name(copse__icd_status status) {
    return (size_t)status < COPSE__COUNT(icd_names) ? icd_names[status] : "unknown";
}

const char *copse__confidence_name(copse__confidence confidence) {
    return (size_t)confidence < COPSE__COUNT(confidence_names)
               ? confidence_names[confidence]
               : "unknown";
}

const char *copse__node_kind_name(copse__node_kind kind) {
    return (size_t)kind < COPSE__COUNT(node_names) ? node_names[kind] : "unknown";
}

const char *copse__evidence_name(copse__evidence evidence) {
    return (size_t)evidence < COPSE__COUNT(evidence_names) ? evidence_names[evidence]
                                                           : "none";
}

const char *copse__why_bit_name(unsigned bit) {
    static const char *const names[] = {"khr_pci",   "amd_topology", "nv_pci",
                                        "uuid",      "host_cpu",     "ambiguous_ignored",
                                        "pci_class", "hwloc"};
    return bit < COPSE__COUNT(names) ? names[bit] : NULL;
}

const char *copse__type_bit_name(unsigned bit) {
    static const char *const names[] = {"", "cpu", "gpu", "accelerator", "custom"};
    return bit < COPSE__COUNT(names) ? names[bit] : NULL;
}

/* Length of the valid UTF-8 sequence at text; 0: none. */
static size_t sequence(const unsigned char *text) {
    if (text[0] < 0x80)
        return 1;
    size_t more = text[0] >= 0xF0 ? 3 : text[0] >= 0xE0 ? 2 : 1;
    if (text[0] < 0xC2 || text[0] > 0xF4)
        return 0;
    for (size_t i = 1; i <= more; i++)
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    bool bad = (text[0] == 0xE0 && text[1] < 0xA0) ||
               (text[0] == 0xED && text[1] > 0x9F) ||
               (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F);
    return bad ? 0 : more + 1;
}

void copse__clean_utf8(char *text) {
    while (*text) {
        size_t length = sequence((const unsigned char *)text);
        if (length == 0)
            *text = '?';
        else if (length == 1 && ((unsigned char)*text < ' ' || *text == 0x7F))
            *text = ' ';
        text += length ? length : 1;
    }
}
