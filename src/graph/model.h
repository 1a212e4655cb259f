/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_GRAPH_MODEL_H
#define COPSE_GRAPH_MODEL_H

#include <copse/types.h>
#include <stdbool.h>

#include "base/text.h"
#include "graph/graph.h"

/* From a list of layers, as a configuration gives it, to a graph. The configuration's
 * syntax is not known here: a layer is a kind, a name, its inputs and keys with values,
 * each with the place it was read at, so that an error names file, line and column. */

typedef enum copse__value_kind {
    COPSE__VALUE_NULL,
    COPSE__VALUE_BOOL,
    COPSE__VALUE_NUMBER,
    COPSE__VALUE_TEXT,
    COPSE__VALUE_NUMBERS /* [3, 3] */
} copse__value_kind;

typedef struct copse__value {
    copse__value_kind kind;
    bool boolean;
    double number;
    char *text; /* owned by whoever owns the spec */
    double numbers[COPSE_MAX_RANK];
    size_t count; /* of numbers */
} copse__value;

/* Initializers are a TEXT ("he_normal") or a NUMBER: a constant. An absent activation is
 * NULL or the TEXT "none" or "linear". */
typedef struct copse__layer_arg {
    char *key;
    copse__value value;
    char *place; /* "fashion.yaml:12:15" */
} copse__layer_arg;

typedef struct copse__layer_spec {
    char *kind;    /* "conv2d" */
    char *name;    /* NULL: Keras' numbering: dense, dense_1, … */
    char **inputs; /* names of earlier layers, or "input"; none: the layer before */
    size_t input_count;
    copse__layer_arg *args;
    size_t arg_count;
    char *place;
} copse__layer_spec;

typedef enum copse__loss {
    COPSE__LOSS_NONE, /* forward only */
    COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY,
    COPSE__LOSS_MEAN_SQUARED_ERROR
} copse__loss;

typedef struct copse__model_options {
    size_t sample_rank; /* of one sample, without the batch */
    size_t sample_shape[COPSE_MAX_RANK];
    copse_dtype sample_dtype; /* what is uploaded */
    float scale, offset;      /* x * scale + offset, on the device */
    size_t max_batch;         /* planned maximum of COPSE__BATCH */
    copse__loss loss;
    bool from_logits;
    size_t class_count; /* of the labels, to be checked; 0: not known */
    /* Cross-entropy in training is against probabilities of the classes instead of one class: the
     * label is f32 in the shape of the output. Inference keeps classes. */
    bool soft_labels;
    /* Of one sample's target. Cross-entropy: of its classes; rank 0 is one class a
     * sample. */
    size_t target_rank;
    size_t target_shape[COPSE_MAX_RANK];
    bool training; /* dropout, batch moments, gradients */
} copse__model_options;

/* Grayscale samples of rank 2 (H, W) before a layer that wants channels are read as (H,
 * W, 1). COPSE_CONFIG with the layer's place where something is wrong: an unknown kind or
 * key (with the nearest known one), a wrong type, an impossible shape (with both shapes),
 * an unknown input, a duplicate name. */
copse_status copse__model_build(copse__graph **out, const copse__layer_spec *layers,
                                size_t layer_count, const copse__model_options *options,
                                copse_error *err);

/* What can be said of a list of layers before the samples' shape is known: kinds, keys and their values,
 * names, inputs. The same errors. */
copse_status copse__model_check(const copse__layer_spec *layers, size_t layer_count,
                                copse_error *err);

/* Initial value of parameter `index` into values (its elements), a pure function of seed,
 * the parameter's index and the element: Philox counter {element / 4, 0, UINT32_MAX,
 * index}. */
void copse__parameter_initialize(const copse__graph *graph, size_t index, uint64_t seed,
                                 float *values);

/* Initial values of state pair `index`: zeros into moving_mean and ones into
 * moving_variance (the channels each). */
void copse__state_initialize(const copse__graph *graph, size_t index, float *moving_mean,
                             float *moving_variance);

/* Floating-point operations of one sample's way forward, without the loss. */
double copse__graph_forward_flops(const copse__graph *graph);

/* The table that `copse summary` prints, as Keras does: layer (kind), output shape,
 * parameters, and what each layer reads where the network is no plain chain; then the
 * totals (trainable, not trainable) and FLOPs a sample. Appended to out. */
copse_status copse__model_summary(const copse__graph *graph, copse__text *out,
                                  copse_error *err);

#endif
