/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_NODE_RUN_H
#define COPSE_BACKEND_NODE_RUN_H

#include "backend/backend.h"

/* One node alone on a device: what the self-test and the tests of single operations are
 * made of. Not thread-safe; blocking. */

typedef struct copse__node_operand {
    bool present;
    copse_dtype dtype;
    size_t rank;
    copse__dim dim[COPSE_MAX_RANK];
} copse__node_operand;

typedef struct copse__node_spec {
    copse__op op;
    copse__attrs attrs;
    copse__node_operand in[COPSE__MAX_INPUTS];
    copse__node_operand out[COPSE__MAX_OUTPUTS];
    /* 1 + position of the input whose memory the output overwrites; 0: memory of its own.
     * An update's or a check's outputs are its inputs' very tensors. */
    uint8_t in_place[COPSE__MAX_OUTPUTS];
} copse__node_spec;

typedef struct copse__node_run copse__node_run;

/* Builds the graph, allocates, prepares the launch. device must outlive it.
 * COPSE_UNSUPPORTED where the device cannot run this node. */
COPSE_CHECKED copse_status copse__node_run_new(copse__node_run **out,
                                               copse__device *device,
                                               const copse__node_spec *spec,
                                               copse_error *err);
void copse__node_run_free(copse__node_run *run); /* NULL is allowed */

/* Sets an input as the next run will see it: `elements` of them are taken from data, what
 * is planned beyond them reads as NaN (in bytes: 0xFF). */
COPSE_CHECKED copse_status copse__node_run_set(copse__node_run *run, size_t input,
                                               const void *data, size_t elements,
                                               copse_error *err);

/* Poisons outputs and workspace with NaN, runs, waits. COPSE_KERNEL where the node wrote
 * outside its outputs. */
COPSE_CHECKED copse_status copse__node_run_go(copse__node_run *run,
                                              const copse__extents *extents,
                                              const copse_scalars *scalars,
                                              copse_error *err);

/* Runs it over and over, nothing poisoned or checked: what a step would see of it. */
typedef struct copse__node_time {
    size_t samples; /* each of `launches` launches and one wait */
    size_t launches;
    double median_us, min_us, max_us; /* of one launch */
} copse__node_time;

/* Warms up, then measures for about `seconds`, at least 5 samples, each of as many launches as
 * fill a millisecond. copse__node_run_go must have succeeded at these extents before. */
COPSE_CHECKED copse_status copse__node_run_time(copse__node_time *out,
                                                copse__node_run *run,
                                                const copse__extents *extents,
                                                double seconds, copse_error *err);

/* One sample: `launches` of it and one wait; microseconds of each. */
COPSE_CHECKED copse_status copse__node_run_sample(double *us, copse__node_run *run,
                                                  const copse__extents *extents,
                                                  size_t launches, copse_error *err);

/* Floating-point operations of one run. */
double copse__node_run_flops(const copse__node_run *run, const copse__extents *extents);

/* The first `elements` of an output. */
COPSE_CHECKED copse_status copse__node_run_get(copse__node_run *run, size_t output,
                                               void *data, size_t elements,
                                               copse_error *err);

/* Elements of an operand at these extents (NULL: as planned). */
size_t copse__node_operand_elements(const copse__node_operand *operand,
                                    const copse__extents *extents);

const char *copse__node_run_provider(const copse__node_run *run);
/* What else could run it; see copse__backend. */
void copse__node_run_candidates(const copse__node_run *run, copse__effort effort,
                                copse__candidate_fn *fn, void *user);
const char *copse__node_run_parameters(const copse__node_run *run); /* "": its own */

#endif
