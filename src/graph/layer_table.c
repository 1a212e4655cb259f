/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "graph/layer.h"

#define AT(field) offsetof(copse__layer_config, field)

static const copse__layer_key dense_keys[] = {
    {"units", NULL, COPSE__KEY_COUNT, true, AT(units)},
    {"activation", NULL, COPSE__KEY_ACTIVATION, false, AT(activation)},
    {"use_bias", NULL, COPSE__KEY_BOOL, false, AT(use_bias)},
    {"kernel_initializer", NULL, COPSE__KEY_INITIALIZER, false, AT(kernel_initializer)},
    {"bias_initializer", NULL, COPSE__KEY_INITIALIZER, false, AT(bias_initializer)},
};

static const copse__layer_key conv2d_keys[] = {
    {"filters", NULL, COPSE__KEY_COUNT, true, AT(filters)},
    {"kernel", "kernel_size", COPSE__KEY_PAIR, true, AT(kernel)},
    {"strides", NULL, COPSE__KEY_PAIR, false, AT(strides)},
    {"padding", NULL, COPSE__KEY_PADDING, false, AT(padding)},
    {"dilation", "dilation_rate", COPSE__KEY_PAIR, false, AT(dilation)},
    {"activation", NULL, COPSE__KEY_ACTIVATION, false, AT(activation)},
    {"use_bias", NULL, COPSE__KEY_BOOL, false, AT(use_bias)},
    {"kernel_initializer", NULL, COPSE__KEY_INITIALIZER, false, AT(kernel_initializer)},
    {"bias_initializer", NULL, COPSE__KEY_INITIALIZER, false, AT(bias_initializer)},
};

static const copse__layer_key pool2d_keys[] = {
    {"pool", "pool_size", COPSE__KEY_PAIR, false, AT(pool)},
    {"strides", NULL, COPSE__KEY_PAIR, false, AT(strides)},
    {"padding", NULL, COPSE__KEY_PADDING, false, AT(padding)},
};

static const copse__layer_key activation_keys[] = {
    {"kind", "activation", COPSE__KEY_ACTIVATION, true, AT(activation)},
};

static const copse__layer_key dropout_keys[] = {
    {"rate", NULL, COPSE__KEY_RATE, true, AT(rate)},
};

static const copse__layer_key batch_norm_keys[] = {
    {"axis", NULL, COPSE__KEY_AXIS, false, AT(axis)},
    {"momentum", NULL, COPSE__KEY_MOMENTUM, false, AT(momentum)},
    {"epsilon", NULL, COPSE__KEY_POSITIVE, false, AT(epsilon)},
    {"center", NULL, COPSE__KEY_BOOL, false, AT(center)},
    {"scale", NULL, COPSE__KEY_BOOL, false, AT(scale)},
    {"sync", "synchronized", COPSE__KEY_BOOL, false, AT(sync)},
};

static const copse__layer_key reshape_keys[] = {
    {"shape", "target_shape", COPSE__KEY_SHAPE, true, AT(shape)},
};

#define KEYS(table) .keys = table, .key_count = COPSE__COUNT(table)

#define WEIGHTED                                                                         \
    .use_bias = true, .kernel_initializer = {COPSE__SCHEME_GLOROT_UNIFORM, 0},           \
    .bias_initializer = {COPSE__SCHEME_ZEROS, 0}

static const copse__layer_kind kinds[] = {
    {.name = "dense",
     .auto_name = "dense",
     .title = "Dense",
     KEYS(dense_keys),
     .defaults = {WEIGHTED},
     .build = copse__layer_dense},
    {.name = "conv2d",
     .auto_name = "conv2d",
     .title = "Conv2D",
     KEYS(conv2d_keys),
     .defaults = {WEIGHTED, .strides = {1, 1}, .dilation = {1, 1}},
     .images = true,
     .build = copse__layer_conv2d},
    {.name = "max_pool2d",
     .alias = "max_pooling2d",
     .auto_name = "max_pooling2d",
     .title = "MaxPooling2D",
     KEYS(pool2d_keys),
     .defaults = {.pool = {2, 2}},
     .images = true,
     .build = copse__layer_max_pool2d},
    {.name = "avg_pool2d",
     .alias = "average_pooling2d",
     .auto_name = "average_pooling2d",
     .title = "AveragePooling2D",
     KEYS(pool2d_keys),
     .defaults = {.pool = {2, 2}},
     .images = true,
     .build = copse__layer_avg_pool2d},
    {.name = "global_avg_pool2d",
     .alias = "global_average_pooling2d",
     .auto_name = "global_average_pooling2d",
     .title = "GlobalAveragePooling2D",
     .images = true,
     .build = copse__layer_global_avg_pool2d},
    {.name = "flatten",
     .auto_name = "flatten",
     .title = "Flatten",
     .build = copse__layer_flatten},
    {.name = "reshape",
     .auto_name = "reshape",
     .title = "Reshape",
     KEYS(reshape_keys),
     .build = copse__layer_reshape},
    {.name = "add",
     .auto_name = "add",
     .title = "Add",
     .several_inputs = true,
     .build = copse__layer_add},
    {.name = "activation",
     .auto_name = "activation",
     .title = "Activation",
     KEYS(activation_keys),
     .build = copse__layer_activate},
    {.name = "relu",
     .auto_name = "relu",
     .title = "ReLU",
     .defaults = {.activation = {.act = COPSE__ACT_RELU}},
     .build = copse__layer_activate},
    {.name = "sigmoid",
     .auto_name = "sigmoid",
     .title = "Activation",
     .defaults = {.activation = {.act = COPSE__ACT_SIGMOID}},
     .build = copse__layer_activate},
    {.name = "tanh",
     .auto_name = "tanh",
     .title = "Activation",
     .defaults = {.activation = {.act = COPSE__ACT_TANH}},
     .build = copse__layer_activate},
    {.name = "gelu",
     .auto_name = "gelu",
     .title = "Activation",
     .defaults = {.activation = {.act = COPSE__ACT_GELU}},
     .build = copse__layer_activate},
    {.name = "softmax",
     .auto_name = "softmax",
     .title = "Softmax",
     .defaults = {.activation = {.softmax = true}},
     .build = copse__layer_activate},
    {.name = "dropout",
     .auto_name = "dropout",
     .title = "Dropout",
     KEYS(dropout_keys),
     .build = copse__layer_dropout},
    {.name = "batch_norm",
     .alias = "batch_normalization",
     .auto_name = "batch_normalization",
     .title = "BatchNormalization",
     KEYS(batch_norm_keys),
     .defaults =
         {.axis = -1, .momentum = 0.99, .epsilon = 1e-3, .center = true, .scale = true},
     .build = copse__layer_batch_norm},
};

const copse__layer_kind *copse__layer_kinds(size_t *count) {
    *count = COPSE__COUNT(kinds);
    return kinds;
}

copse_status copse__layer_kind_find(const copse__layer_kind **out,
                                    const copse__layer_spec *spec, copse_error *err) {
    const char *known[2 * COPSE__COUNT(kinds)];
    size_t known_count = 0;
    *out = NULL;
    for (size_t i = 0; i < COPSE__COUNT(kinds); i++) {
        known[known_count++] = kinds[i].name;
        if (kinds[i].alias)
            known[known_count++] = kinds[i].alias;
        if (strcmp(spec->kind, kinds[i].name) == 0 ||
            (kinds[i].alias && strcmp(spec->kind, kinds[i].alias) == 0))
            *out = &kinds[i];
    }
    if (*out)
        return COPSE_OK;
    char hint[96], list[512];
    size_t used = 0;
    for (size_t i = 0; i < COPSE__COUNT(kinds) && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0 ? "" : ", ", kinds[i].name);
    return copse__fail(
        err, COPSE_CONFIG, 0, spec->place, "there is no layer '%.64s'%s; there are: %s",
        spec->kind,
        copse__suggest_text(hint, sizeof hint, spec->kind, known, known_count), list);
}
