/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_IMPORT_H
#define COPSE_TRAIN_IMPORT_H

#include <stdbool.h>

#include "graph/graph.h"
#include "io/weights_file.h"
#include "train/config.h"

/* Weights from a file of another program, under other names and in another layout (docs/formats.md
 * has the rules): which of the file's arrays is which parameter, and how its elements are moved.
 *
 * Keras' names are ours ("conv2d/kernel"), perhaps behind the model's name and with ":0" at the
 * end, and so is its layout. PyTorch's modules ("fc1.weight", "fc1.bias") are found by the layer's
 * name, else by the order of modules and layers where all shapes agree, else by the shapes where
 * they leave no choice; filters OIHW become HWIO, matrices (out, in) become (in, out), and behind a
 * flatten layer their rows go from channels first to channels last. */

typedef struct copse__import_target {
    const char *name; /* "conv2d/kernel" */
    size_t rank;
    size_t shape[COPSE_MAX_RANK];
    /* A matrix behind a flattened image: its height, width and channels; else 0. */
    size_t image[3];
} copse__import_target;

#define COPSE__NOT_IMPORTED SIZE_MAX

typedef struct copse__import_match {
    size_t item;  /* of the file; COPSE__NOT_IMPORTED */
    bool pytorch; /* its layout */
} copse__import_match;

/* Fills matches[0..count). COPSE_CONFIG names the parameter for which nothing fits, unless partial:
 * then it is left out. That nothing at all fits is an error in any case. */
copse_status copse__import_match_all(const copse__weights_file *file, const char *path,
                                     const copse__import_target *targets, size_t count,
                                     copse__config_layout layout, bool partial,
                                     copse__import_match *matches, copse_error *err);

/* The elements of a matched target, in its own layout. */
copse_status copse__import_read(const copse__weights_file *file,
                                const copse__import_target *target,
                                const copse__import_match *match, float *out,
                                copse_error *err);

/* Height, width and channels of the image that the dense layer of this kernel sees flattened (through
 * activations and dropout); all 0 where it does not. */
void copse__import_find_image(const copse__graph *graph, const char *kernel,
                              size_t image[3]);

#endif
