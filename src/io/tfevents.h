/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_TFEVENTS_H
#define COPSE_IO_TFEVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* TensorBoard's event files: points of curves, and histograms, in the layout of TensorFlow 2's
 * summaries. Keras' callback writes into RUN/train and RUN/validation; so does whoever wants
 * both curves in one chart. Every event is written by one call, so a reader (or a kill) sees whole
 * ones. Not thread-safe. Every function that takes a writer allows NULL: no file. */
typedef struct copse__tfevents copse__tfevents;

/* A new file FOLDER/events.out.tfevents.TIME.HOST.PROCESS.N; the folder is made. step is where the
 * session starts: 0, or where a resumed run goes on. TensorBoard then forgets the points from
 * there on that earlier files of the folder hold. */
copse_status copse__tfevents_open(copse__tfevents **out, const char *folder, int64_t step,
                                  copse_error *err);
void copse__tfevents_close(copse__tfevents *writer);

/* Keras' tags: "epoch_loss" at step = epoch (from 0), "batch_loss" at step = batch. */
copse_status copse__tfevents_scalar(copse__tfevents *writer, const char *tag,
                                    int64_t step, double value, copse_error *err);

/* 30 buckets of equal width from the least to the greatest value; values that are not finite are
 * left out. Keras' tags: "dense/kernel/histogram". */
copse_status copse__tfevents_histogram(copse__tfevents *writer, const char *tag,
                                       int64_t step, const float *values, size_t count,
                                       copse_error *err);

#endif
