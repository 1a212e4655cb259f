/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_PLAN_LAYOUT_H
#define COPSE_PLAN_LAYOUT_H

#include "graph/graph.h"

/* Where every parameter lies, for all devices of a run alike: parameters in the order in which the
 * backward pass finishes their gradients, cut into buckets. Weights, gradients and each optimizer
 * slot use the same places. Each parameter starts at a multiple of the alignment; what lies between stays 0. */

#define COPSE__LAYOUT_ALIGNMENT                                                          \
    512 /* bytes: rusticl's, the largest seen; devices may ask for more */

typedef struct copse__parameter_place {
    uint32_t bucket;
    size_t offset;   /* elements, in the bucket */
    size_t elements; /* without padding */
} copse__parameter_place;

typedef struct copse__bucket {
    size_t elements; /* with padding */
    size_t base;     /* of its first element in the model's flat parameters */
} copse__bucket;

typedef struct copse__layout {
    copse__parameter_place *places; /* by parameter index */
    size_t parameter_count;
    copse__bucket *buckets; /* in the order in which they become ready */
    size_t bucket_count;
} copse__layout;

typedef struct copse__layout_options {
    size_t alignment;          /* bytes; at least COPSE__LAYOUT_ALIGNMENT is used */
    size_t first_bucket_bytes; /* small, so that the reduction starts early; 0: 1 MiB */
    size_t bucket_bytes;       /* 0: 25 MiB */
    size_t max_bucket_bytes;   /* the smallest device's largest allocation; 0: no limit */
} copse__layout_options;

/* graph is a training graph. A parameter is never cut: COPSE_DEVICE_MEMORY names one that is larger
 * than max_bucket_bytes. Without parameters there are no buckets. */
copse_status copse__layout_new(copse__layout **out, const copse__graph *graph,
                               const copse__layout_options *options, copse_error *err);
void copse__layout_free(copse__layout *layout);

#endif
