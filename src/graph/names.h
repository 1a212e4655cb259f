/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_NAMES_H
#define COPSE_GRAPH_NAMES_H

#include "graph/layer.h"

/* What `inputs:` calls the network's input. */
#define COPSE__INPUT_NAME "input"

/* Names of all layers, given or numbered as Keras numbers them, into names[count] (each to
 * be freed, also after a failure; NULL to begin with). COPSE_CONFIG where one is given twice
 * or is no name. */
copse_status copse__layer_names(char **names, const copse__layer_kind *const *kinds,
                                const copse__layer_spec *layers, size_t count,
                                copse_error *err);

#endif
