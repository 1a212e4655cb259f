/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_SELECT_H
#define COPSE_TOPO_SELECT_H

#include <stddef.h>

#include "topo/topo.h"

typedef enum copse__api { COPSE__API_HOST, COPSE__API_OPENCL } copse__api;

/* One thing to open: a whole device, or part part_index of part_count equal sub-devices.
 */
typedef struct copse__device_choice {
    copse__api api;
    uint32_t platform_index, device_index; /* as `P:D`; 0 for host */
    uint32_t part_index, part_count;       /* 0 of 1: the whole device */
    double weight;  /* from `*W`, of this part alone: `0:0/2*3` gives two parts of weight
                       3 each; 0: to be measured */
    char label[64]; /* "0:0", "0:0/2#1", "0:0@2", "host": unique within a selection */
    char name[128]; /* trimmed device name */
    char platform_name[128], driver[128];
    char vendor[64]; /* "amd", "nvidia", "intel", …: the tag that `vendor=` matches */
    uint64_t order;  /* rank order: NUMA node, PCI address, platform:device, part */
} copse__device_choice;

/* Resolves a `--devices` selector: comma-separated terms, each one of
 *   all | gpu | cpu | accelerator | host | [opencl:]P:D | pci:0000:03:00.0 |
 *   vendor=TAG | platform~=TEXT | name~=TEXT      (~= ignores case; a platform's name or version)
 * and optionally `/N` (N equal sub-devices) and `*W` (weight of each part).
 * NULL or "": every usable GPU and accelerator; where there is none, every CPU device of
 * the preferred CPU platform; else `host`.
 *
 * A term that names many takes one handle a physical device, the preferred one among
 * those it matches, and leaves out what an earlier term took. All CPU devices are the one
 * host CPU: of several platforms that drive it, one is taken (the preferred among those
 * matched), with all the devices which that platform shows. `P:D` takes just that handle,
 * also when it was taken before: a further replica, labelled `P:D@2`.
 *
 * Usable means available and able to compile. A selection naming an unusable handle by
 * P:D, an unknown term, or P:D or pci: that is not there: COPSE_INVALID, and err lists
 * what there is. A term that matches nothing usable: COPSE_NODEVICE. Too many parts or a
 * device that cannot be split: COPSE_INVALID.
 *
 * On success *out has *out_count >= 1 entries, sorted by order, ties in the order of the
 * terms; free() it. */
COPSE_CHECKED copse_status copse__select_devices(const copse__topo *topo,
                                                 const char *selector,
                                                 copse__device_choice **out,
                                                 size_t *out_count, copse_error *err);

#endif
