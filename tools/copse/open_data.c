/* SPDX-License-Identifier: Apache-2.0 */
#include "open_data.h"

#include <stdlib.h>

#include "base/mem.h"
#include "train/augment.h"

copse_status copse_open_data_open(copse_open_data *out, const char *path,
                                  const copse_overrides *overrides, copse_error *err) {
    copse_status status;
    *out = (copse_open_data){0};
    COPSE__TRY(
        copse__config_load(&out->config, path, overrides->items, overrides->count, err),
        fail);
    COPSE__TRY(
        copse__config_augment(&out->augment, &out->augment_count, out->config, err),
        fail);
    COPSE__TRY(copse__datasets_open(&out->sets, out->config, true, err), fail);
    return COPSE_OK;
fail:
    copse_open_data_close(out);
    return status;
}

void copse_open_data_close(copse_open_data *data) {
    copse__datasets_close(&data->sets);
    copse__config_free(data->config);
    free(data->augment);
    *data = (copse_open_data){0};
}

copse_pipeline_options copse_open_data_reading(const copse_open_data *data, size_t batch,
                                               bool augmented) {
    const copse__config_data *config = &data->config->data;
    return (copse_pipeline_options){
        .batch = batch,
        .shuffle = config->shuffle,
        .shuffle_buffer = (size_t)config->shuffle_buffer,
        .seed = config->shuffle_seed,
        .prefetch = (size_t)config->prefetch,
        .label_classes = data->sets.classes,
        .augment = augmented ? data->augment : NULL,
        .augment_count = augmented ? data->augment_count : 0,
    };
}
