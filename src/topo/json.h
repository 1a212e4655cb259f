/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TOPO_JSON_H
#define COPSE_TOPO_JSON_H

#include <jansson.h>

#include "topo/model.h"

/* The report, or one figure of it, as a value the caller releases; NULL: no memory. */
json_t *copse__json_build(const copse__topo *topo, bool redact);
json_t *copse__json_measure(const copse__topo *topo, const copse__measure *measure,
                            bool redact);

/* The id of a physical device as it may be shown. Returns buffer. */
const char *copse__shown_id(const copse__topo *topo, size_t physical, bool redact,
                            char buffer[64]);

#endif
