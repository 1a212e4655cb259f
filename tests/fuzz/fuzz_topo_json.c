/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>

#include "topo/json.h"
#include "topo/ranks.h"

/* Whatever is accepted must also be written, selected from and planned with. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    copse_error error;
    copse__topo *topo = calloc(1, sizeof *topo);
    if (!topo)
        return 0;
    if (copse__json_read_text(topo, (const char *)data, size, "fuzz", &error) ==
        COPSE_OK) {
        copse__text out = {0};
        copse__device_choice *choices = NULL;
        copse__rank_plan *plan = NULL;
        size_t count = 0;
        if (copse__json_report(&out, topo, size % 2 == 0, &error) != COPSE_OK)
            abort();
        copse__describe_devices(topo, &out);
        if (copse__select_devices(topo, "all,host", &choices, &count, &error) ==
                COPSE_OK &&
            copse__rank_plan_make(&plan, topo, choices, count, 1 << 20, &error) !=
                COPSE_OK)
            abort();
        copse__rank_plan_free(plan);
        free(choices);
        copse__text_free(&out);
    }
    copse__topo_close(topo);
    return 0;
}
