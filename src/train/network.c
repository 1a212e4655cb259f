/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "train/augment.h"
#include "train/trainer_private.h"

/* The network that a configuration describes, for the data that it names. */

/* Whether training makes probabilities of classes. */
static bool mixes(const copse__config *config) {
    const copse__config_data *data = &config->data;
    return data->augment_count > 0 &&
           strcmp(data->augment[data->augment_count - 1].kind,
                  copse_augment_name(COPSE_AUGMENT_MIXUP)) == 0;
}

copse_status copse__network_make(copse__network *out, const copse__config *config,
                                 const copse__datasets *sets, copse_error *err) {
    copse_dataset *set = sets->train  ? sets->train
                         : sets->test ? sets->test
                                      : sets->validation;
    copse_data_spec features;
    const copse_data_spec *labels = copse_dataset_get_labels(set);
    copse_status status =
        copse__config_augmented(&features, config, copse_dataset_get_features(set), err);
    if (status != COPSE_OK)
        return status;
    *out = (copse__network){.layers = config->layers, .layer_count = config->layer_count};
    copse__model_options *o = &out->options;
    o->sample_rank = features.rank;
    memcpy(o->sample_shape, features.shape, sizeof o->sample_shape);
    o->sample_dtype = features.dtype;
    o->scale = (float)config->data.scale;
    o->offset = (float)config->data.offset;
    o->loss = labels ? config->train.loss : COPSE__LOSS_NONE;
    o->from_logits = config->train.from_logits;
    o->class_count = sets->classes;
    if (labels && o->loss == COPSE__LOSS_MEAN_SQUARED_ERROR) {
        if (labels->dtype != COPSE_F32)
            return copse__fail(
                err, COPSE_CONFIG, 0, config->path,
                "mean_squared_error needs float targets, but the labels are "
                "%s; use sparse_categorical_crossentropy",
                copse_dtype_name(labels->dtype));
        o->target_rank = labels->rank;
        memcpy(o->target_shape, labels->shape, sizeof o->target_shape);
    } else if (labels && labels->dtype != COPSE_I32) {
        return copse__fail(err, COPSE_CONFIG, 0, config->path,
                           "sparse_categorical_crossentropy needs class labels, but the "
                           "labels are %s; use mean_squared_error",
                           copse_dtype_name(labels->dtype));
    }
    o->soft_labels =
        o->loss == COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY && mixes(config);
    return COPSE_OK;
}

copse_status copse__trainer_build_graph(copse__graph **out, const copse__config *config,
                                        const copse__datasets *sets, size_t max_batch,
                                        bool training, copse_error *err) {
    *out = NULL;
    copse__network network;
    copse_status status = copse__network_make(&network, config, sets, err);
    if (status != COPSE_OK)
        return status;
    network.options.max_batch = max_batch;
    network.options.training = training;
    return copse__model_build(out, network.layers, network.layer_count, &network.options,
                              err);
}
