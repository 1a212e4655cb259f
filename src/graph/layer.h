/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_LAYER_H
#define COPSE_GRAPH_LAYER_H

#include "graph/build.h"
#include "graph/model.h"

/* Inside the room only: the kinds of layers a configuration may name. A kind is a row of a
 * table: its names, its keys, their defaults, and the function that builds it. To add a
 * layer, add a row (layer_table.c) and a function (layer_build.c). */

/* How initial values are asked for, before the fans are known. */
typedef enum copse__scheme {
    COPSE__SCHEME_GLOROT_UNIFORM,
    COPSE__SCHEME_GLOROT_NORMAL,
    COPSE__SCHEME_HE_UNIFORM,
    COPSE__SCHEME_HE_NORMAL,
    COPSE__SCHEME_LECUN_UNIFORM,
    COPSE__SCHEME_LECUN_NORMAL,
    COPSE__SCHEME_ZEROS,
    COPSE__SCHEME_ONES,
    COPSE__SCHEME_CONSTANT,
    COPSE__SCHEME_RANDOM_UNIFORM,
    COPSE__SCHEME_RANDOM_NORMAL,
    COPSE__SCHEME_TRUNCATED_NORMAL,
    COPSE__SCHEME_COUNT
} copse__scheme;

typedef struct copse__initializer {
    copse__scheme scheme;
    float constant; /* COPSE__SCHEME_CONSTANT */
} copse__initializer;

/* "glorot_uniform". Static. */
const char *copse__scheme_name(copse__scheme scheme);

/* Fans as Keras counts them: inputs and outputs of one unit, each times the receptive
 * field. */
copse__init copse__initializer_resolve(copse__initializer initializer, double fan_in,
                                       double fan_out);

/* What `activation:` may name: an elementwise one, or softmax. */
typedef struct copse__layer_activation {
    copse__activation act;
    bool softmax;
} copse__layer_activation;

/* The keys' values of any layer; each kind uses its own. */
typedef struct copse__layer_config {
    size_t units, filters;
    size_t kernel[2], strides[2], pool[2], dilation[2]; /* strides 0: those of the pool */
    copse__padding padding;
    copse__layer_activation activation;
    copse__initializer kernel_initializer, bias_initializer;
    bool use_bias, center, scale, sync;
    double rate, momentum, epsilon;
    int64_t axis;
    int64_t shape[COPSE_MAX_RANK]; /* without the batch; one may be -1 */
    size_t shape_rank;
} copse__layer_config;

typedef enum copse__key_type {
    COPSE__KEY_COUNT,       /* size_t, 1 to 2^31 - 1 */
    COPSE__KEY_PAIR,        /* size_t[2], each such; one number stands for both */
    COPSE__KEY_RATE,        /* double in [0, 1) */
    COPSE__KEY_MOMENTUM,    /* double in [0, 1] */
    COPSE__KEY_POSITIVE,    /* double > 0 */
    COPSE__KEY_BOOL,        /* bool */
    COPSE__KEY_PADDING,     /* copse__padding */
    COPSE__KEY_ACTIVATION,  /* copse__layer_activation; null is none */
    COPSE__KEY_INITIALIZER, /* copse__initializer; a number is a constant */
    COPSE__KEY_AXIS,        /* int64_t */
    COPSE__KEY_SHAPE        /* int64_t[] and its count, shape_rank */
} copse__key_type;

typedef struct copse__layer_key {
    const char *name;
    const char *alias; /* Keras' spelling where ours is shorter; else NULL */
    copse__key_type type;
    bool required;
    size_t offset; /* in copse__layer_config */
} copse__layer_key;

typedef struct copse__layer_kind copse__layer_kind;

typedef copse_status copse__layer_build(copse__builder *b,
                                        const copse__layer_config *config, bool training,
                                        const copse__tensor_id *inputs, size_t count,
                                        copse__tensor_id *out, copse_error *err);

struct copse__layer_kind {
    const char *name;
    const char *alias;     /* Keras' spelling where ours is shorter; else NULL */
    const char *auto_name; /* what unnamed layers of this kind are numbered after */
    const char *title;     /* Keras' class, as a summary shows it */
    const copse__layer_key *keys;
    size_t key_count;
    copse__layer_config defaults;
    bool images;         /* a grayscale sample (H, W) is read as (H, W, 1) */
    bool several_inputs; /* two or more instead of one */
    copse__layer_build *build;
};

/* All kinds. Static. */
const copse__layer_kind *copse__layer_kinds(size_t *count);

/* By name or alias; COPSE_CONFIG with the nearest where there is none. */
copse_status copse__layer_kind_find(const copse__layer_kind **out,
                                    const copse__layer_spec *spec, copse_error *err);

/* The kind's defaults, overwritten by the spec's keys. name: for messages. */
copse_status copse__layer_config_read(copse__layer_config *out,
                                      const copse__layer_kind *kind,
                                      const copse__layer_spec *spec, const char *name,
                                      copse_error *err);

copse__layer_build copse__layer_dense, copse__layer_conv2d, copse__layer_max_pool2d,
    copse__layer_avg_pool2d, copse__layer_global_avg_pool2d, copse__layer_flatten,
    copse__layer_reshape, copse__layer_add, copse__layer_activate, copse__layer_dropout,
    copse__layer_batch_norm;

#endif
