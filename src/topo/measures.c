/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "topo/model.h"

/* Figures of a saved bench for the machine as it is now. */

static const char *platform_of(const copse__topo *topo, const copse__handle *h) {
    return h->platform < topo->platform_count ? topo->platforms[h->platform].name : "";
}

static bool alike(const copse__topo *a, const copse__handle *x, const copse__topo *b,
                  const copse__handle *y) {
    return strcmp(x->name, y->name) == 0 && strcmp(x->driver, y->driver) == 0 &&
           strcmp(platform_of(a, x), platform_of(b, y)) == 0;
}

/* A handle's number among those that are alike. */
static size_t number_among(const copse__topo *topo, const copse__handle *h) {
    size_t number = 0;
    for (const copse__handle *at = topo->handles; at < h; at++)
        number += alike(topo, at, topo, h);
    return number;
}

/* The handle here that is the saved one's device: of its model, platform and driver, and the same one
 * of several. -1: none. */
static int counterpart(const copse__topo *here, const copse__topo *saved,
                       const copse__handle *h) {
    size_t wanted = number_among(saved, h);
    for (size_t i = 0; i < here->handle_count; i++)
        if (alike(here, &here->handles[i], saved, h) && wanted-- == 0)
            return (int)i;
    return -1;
}

copse_status copse__topo_take_measures(copse__topo *topo, const copse__topo *saved,
                                       const char *place, copse_error *err) {
    for (size_t i = 0; i < saved->measure_count; i++) {
        copse__measure m = saved->measures[i];
        if (m.handle < 0 && m.physical >= 0)
            continue;
        if (m.handle >= 0) {
            m.handle = counterpart(topo, saved, &saved->handles[m.handle]);
            if (m.handle < 0)
                continue;
            m.physical = topo->handles[m.handle].physical;
        } else if (topo->cpu_count != saved->cpu_count) {
            continue; /* the host's rates are those of all its allowed CPUs */
        }
        copse_status status =
            copse__grow(&topo->measures, &topo->measure_capacity, topo->measure_count + 1,
                        sizeof topo->measures[0], err);
        if (status != COPSE_OK)
            return status;
        topo->measures[topo->measure_count++] = m;
    }
    for (size_t h = 0; h < topo->handle_count; h++)
        for (size_t i = 0; i < topo->measure_count; i++)
            if (topo->measures[i].handle == (int)h)
                return COPSE_OK;
    return copse__fail(
        err, COPSE_INVALID, 0, place,
        "it has no figures of a device that this machine has; measure with: "
        "cltopo bench --format json --output FILE");
}
