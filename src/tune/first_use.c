/* SPDX-License-Identifier: Apache-2.0 */
#include "tune/first_use.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"

static copse_status list_unknown(copse__tune_list *out, const copse__tune_list *list,
                                 const copse__tune_known *known, copse_error *err) {
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < list->count && status == COPSE_OK; i++)
        if (!copse__tune_known_has(known, list->subjects[i].key))
            status =
                copse__tune_list_spec(out, list->subjects[i].key, list->subjects[i].specs,
                                      list->subjects[i].weight, err);
    return status;
}

/* One result for each: the measured ones that are faster than the device's choice, else that choice. */
static void complete(copse__tune_result *all, const copse__tune_list *list,
                     const copse__tune_result *measured, size_t count) {
    for (size_t i = 0; i < list->count; i++) {
        all[i].tuned = (copse__tuned){list->subjects[i].key, COPSE__TUNED_DEFAULT, ""};
        for (size_t j = 0; j < count; j++)
            if (strcmp(measured[j].tuned.key, list->subjects[i].key) == 0 &&
                measured[j].us < measured[j].default_us)
                all[i] = measured[j];
    }
}

static copse_status measure(copse__tune_result *all, copse__pool *pool,
                            copse__device *device, const copse__tune_list *list,
                            const copse__tune_options *options, copse_error *err) {
    copse__tune_result *measured;
    copse_error why = {0};
    size_t count = 0;
    copse_status status = copse__calloc(&measured, list->count, sizeof *measured, err);
    if (status != COPSE_OK)
        return status;
    status = copse__tune_run(measured, &count, pool, device, list, options, &why);
    if (status != COPSE_OK && status != COPSE_NOMEM &&
        copse__backend_of(device)->finish(device, COPSE__QUEUE_COMPUTE, NULL) ==
            COPSE_OK) {
        copse__log(COPSE_LOG_WARN,
                   "%s: timing kernels ended early, and the rest is left to the device: "
                   "%s",
                   copse__device_get(device)->choice.label, why.text);
        status = COPSE_OK;
    }
    if (status == COPSE_OK)
        complete(all, list, measured, count);
    else if (err)
        *err = why;
    free(measured);
    return status;
}

copse_status copse__tune_first_use(copse__tune_known *known, copse__device *device,
                                   const copse__tune_list *list, const char *cache_folder,
                                   double seconds, copse_error *err) {
    copse__tune_list unknown = {0};
    copse__tune_result *all = NULL;
    copse__pool pool = {0};
    copse_error why = {0};
    const copse__tune_options options = {
        .seconds = seconds, .known = known->entries, .known_count = known->count};
    copse_status status;
    COPSE__TRY(list_unknown(&unknown, list, known, err), out);
    if (unknown.count == 0)
        goto out;
    COPSE__TRY(copse__calloc(&all, unknown.count, sizeof *all, err), out);
    COPSE__TRY(measure(all, &pool, device, &unknown, &options, err), out);
    /* A full disk does not stop a run. */
    if (copse__tune_keep(device, cache_folder, all, unknown.count, false, &why) !=
        COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: what was tuned is not kept, and not used: %s",
                   why.place, why.text);
    copse__tune_known_close(known);
    status = copse__tune_known_open(known, device, "auto", cache_folder, err);
out:
    copse__pool_free(&pool);
    copse__tune_list_free(&unknown);
    free(all);
    return status;
}
