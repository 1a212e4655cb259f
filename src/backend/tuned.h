/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_TUNED_H
#define COPSE_BACKEND_TUNED_H

#include "graph/graph.h"

/* Choices of providers and of their parameters, as plain texts: what src/tune measures and keeps, plan.json
 * records, and a backend follows. */

typedef struct copse__tuned {
    const char *
        key; /* of one node (copse__tuned_key), of all nodes of an operation ("dense"), or
                               of a library's own kernel ("clblast Xgemm") */
    const char *provider;   /* "packed" */
    const char *parameters; /* "mr=6 kc=256": the provider's own; "": it decides */
} copse__tuned;

/* A provider's name that stands for whatever the device chooses by itself: nothing was found that is faster. */
#define COPSE__TUNED_DEFAULT "default"

#define COPSE__TUNED_KEY 256

/* "dense 32x784 784x128 128 > 32x128 relu": operation, planned sizes and what else a kernel's speed depends
 * on. Nodes of equal keys run equally fast. Returns buffer. */
const char *copse__tuned_key(char buffer[static COPSE__TUNED_KEY],
                             const copse__graph *graph, const copse__node *node);

/* The entry for a key: its own, else the one for its whole operation; NULL: none. The first of several. */
const copse__tuned *copse__tuned_find(const copse__tuned *entries, size_t count,
                                      const char *key);

/* Reads "name=number" pairs, separated by single spaces, into values[] by the names' positions; those that
 * are not there keep their values. false: a name that is not in the list or comes twice, or no number. */
bool copse__parameters_read(const char *parameters, const char *const *names,
                            size_t *values, size_t count);

#endif
