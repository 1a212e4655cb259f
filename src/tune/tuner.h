/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_TUNER_H
#define COPSE_TUNE_TUNER_H

#include "backend/selftest/cases.h"
#include "tune/file.h"

/* Times what a device could run its nodes with. Blocking; one thread; the device must be idle, and nothing of
 * it prepared meanwhile by others.
 *
 * A node's choice so far is the champion. Each challenger runs in turns with it, a few milliseconds a turn;
 * who was not clearly faster in most turns is dropped. Before a challenger becomes the champion its results
 * are compared with the host's, at the self-test's boundary sizes and at the node's own (where the host would
 * take too long there, with those of what the device chose by itself), full and partial; a wrong number, a
 * NaN or a write outside disqualifies it, and the log says so. */

/* What is tuned at once: nodes that get one result. */
typedef struct copse__tune_subject {
    char key
        [COPSE__TUNED_KEY];  /* of one node, or an operation's name, for all its nodes */
    copse__node_spec *specs; /* owned; typical nodes where it is an operation */
    size_t spec_count;
    double weight; /* of its share of the time: operations a step */
} copse__tune_subject;

typedef struct copse__tune_list {
    copse__tune_subject *subjects;
    size_t count, capacity;
} copse__tune_list;

/* Adds a graph's nodes that this device can run in more than one way, of at least least_flops. Equal nodes are
 * one subject with more weight. Heaviest first. */
COPSE_CHECKED copse_status copse__tune_list_graph(copse__tune_list *list,
                                                  copse__device *device,
                                                  const copse__graph *graph,
                                                  double least_flops, copse_error *err);
/* Adds one spec to the subject `key` (an operation's name), or to a new one. */
COPSE_CHECKED copse_status copse__tune_list_spec(copse__tune_list *list, const char *key,
                                                 const copse__node_spec *spec,
                                                 double weight, copse_error *err);
void copse__tune_list_free(copse__tune_list *list);

typedef struct copse__tune_progress {
    const char *key;
    const copse__tune_result *result;
    size_t tried, wrong; /* challengers that ran; of those disqualified */
} copse__tune_progress;

typedef struct copse__tune_options {
    double seconds; /* for all subjects */
    bool thorough;  /* compile kernels anew, and go on around each new champion */
    bool clblast;   /* challengers by CLBlast, too: each takes seconds to build */
    const copse__tuned
        *known; /* what the device follows now; it does so again at the end */
    size_t known_count;
    void (*on_subject)(const copse__tune_progress *progress, void *user); /* NULL: none */
    bool (*stop)(void *user); /* asked between measurements; NULL: never */
    void *user;
} copse__tune_options;

/* results: room for all subjects; *count of them were decided before the time was up. Their texts are in
 * the pool. */
COPSE_CHECKED copse_status copse__tune_run(copse__tune_result *results, size_t *count,
                                           copse__pool *pool, copse__device *device,
                                           const copse__tune_list *list,
                                           const copse__tune_options *options,
                                           copse_error *err);

/* verify.c: whether what the device follows now (which `now` repeats) for the subject's operation computes its
 * nodes right, and smaller ones at the edges of tiles. COPSE_KERNEL with what is wrong. */
COPSE_CHECKED copse_status copse__tune_verify(copse__device *device,
                                              const copse__tune_subject *subject,
                                              const copse__tuned *now, size_t now_count,
                                              bool thorough, copse_error *err);
/* The self-test's cases of one operation, where the device runs them by what it follows now. */
COPSE_CHECKED copse_status copse__tune_verify_op(copse__device *device, copse__op op,
                                                 bool thorough, copse_error *err);
/* The node as the self-test's operands would fill it, at its planned sizes. */
void copse__tune_case(copse__case *out, const copse__node_spec *spec);

#endif
