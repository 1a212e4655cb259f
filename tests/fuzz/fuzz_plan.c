/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/run_plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A plan that is accepted has the shards of its batch at every step. */
static void walk(const copse__run_plan *plan, const char *text) {
    static const copse__device_choice host = {
        .label = "host", .name = "host CPU", .driver = "0.1.0"};
    const copse__cuts *cuts = copse__run_plan_cuts(plan);
    const uint64_t steps[] = {0, 1, UINT64_MAX};
    copse__text devices = {0};
    copse__run_plan_devices(plan, &devices);
    copse__text_free(&devices);
    (void)copse__run_plan_same_kernels(plan, text);
    for (size_t i = 1; i < cuts->count; i++)
        if (cuts->steps[i] <= cuts->steps[i - 1])
            abort();
    const size_t *first = copse__run_plan_match(plan, &host, 1, 0);
    for (size_t i = 0; i < 3; i++) {
        const size_t *shards = copse__run_plan_match(plan, &host, 1, steps[i]);
        if ((shards == NULL) != (first == NULL) || (shards && *shards != *first))
            abort(); /* of one replica, always the whole batch */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    copse_error error;
    copse__run_plan *plan;
    char *text = calloc(size + 1, 1);
    if (!text)
        return 0;
    memcpy(text, data, size);
    if (copse__run_plan_parse(&plan, "fuzz", text, size, &error) == COPSE_OK)
        walk(plan, text);
    copse__run_plan_free(plan);
    free(text);
    return 0;
}
