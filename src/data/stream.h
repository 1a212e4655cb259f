/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream's samples in a pipeline's order: a pass over the set, through a window from which they
 * are drawn at random. */
#ifndef COPSE_DATA_STREAM_H
#define COPSE_DATA_STREAM_H

#include "data/dataset.h"

typedef struct copse__feed {
    copse_dataset *set;
    uint64_t seed;
    size_t window_most; /* 0: the set's own order */

    void *pass;
    bool passing;
    bool ended;      /* the pass has no more */
    size_t left_out; /* behind its last sample, then */
    uint64_t epoch, read, drawn;
    copse__raw *window;
    size_t window_count;
} copse__feed;

/* Borrows set. */
copse_status copse__feed_init(copse__feed *feed, copse_dataset *set, uint64_t seed,
                              size_t window, copse_error *err);

/* Begins an epoch; what the last one had left is forgotten. */
copse_status copse__feed_start(copse__feed *feed, uint64_t epoch, copse_error *err);

/* The next sample into *raw, whose old memory goes back to the window; or *end. */
copse_status copse__feed_next(copse__feed *feed, copse__raw *raw, bool *end,
                              copse_error *err);

void copse__feed_free(copse__feed *feed);

/* The same draws for a set that can be indexed: order[0..count) is the order in which a feed with
 * this window would give its samples. */
copse_status copse__window_order(uint64_t *order, size_t count, uint64_t seed,
                                 uint64_t epoch, size_t window, copse_error *err);

#endif
