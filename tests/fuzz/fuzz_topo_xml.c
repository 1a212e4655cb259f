/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "topo/json.h"

/* A saved topology of hwloc: its parser is hwloc's, what is made of it is ours. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    copse_error error;
    copse__topo *topo = NULL;
    if (copse__topo_from_xml(&topo, (const char *)data, size, "fuzz", &error) ==
        COPSE_OK) {
        copse__text out = {0};
        if (copse__json_report(&out, topo, false, &error) != COPSE_OK)
            abort();
        copse__text_free(&out);
    }
    copse__topo_close(topo);
    return 0;
}
