/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CLTOPO_COLOURS_H
#define CLTOPO_COLOURS_H

#include <string.h>

#include "topo/model.h"

typedef struct vendor_colour {
    const char *tag, *name, *fill, *line;
} vendor_colour;

/* Dark enough to tell apart in print, light enough for black text on them. */
static const vendor_colour vendor_colours[] = {
    {"amd", "AMD", "#fbe4e1", "#c8341f"},
    {"nvidia", "NVIDIA", "#e7f3d3", "#5f8f00"},
    {"intel", "Intel", "#dceaf8", "#1f6bb5"},
    {"arm", "Arm", "#d9f2f2", "#128a92"},
    {"host", "host CPU", "#fdf2d2", "#b3830b"},
    {"network", "network", "#efe6f6", "#7a4aa5"},
    {"other", "other", "#ececec", "#6b6b6b"}};

static inline const vendor_colour *colour_of_tag(const char *tag) {
    size_t count = sizeof vendor_colours / sizeof vendor_colours[0];
    for (size_t i = 0; i < count; i++)
        if (!strcmp(tag, vendor_colours[i].tag))
            return &vendor_colours[i];
    return &vendor_colours[count - 1];
}

static inline const vendor_colour *colour_of_device(const copse__physical *physical) {
    return colour_of_tag(physical->why & COPSE__WHY_HOST_CPU ? "host" : physical->tag);
}

#endif
