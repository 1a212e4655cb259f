/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: collective operations over tensors on devices of any mix, through host memory.
 *
 * A group has n devices; tensors are passed as arrays of n, the i-th on the group's i-th
 * device, its rank. Sums are associated as a fixed balanced tree over ranks, element by
 * element: the left child of a node over n ranks holds as many as the largest power of two
 * below n. The bits are the same whatever the timing, the number of threads and the cut
 * into chunks. f16 is added in float and rounded once.
 *
 * Operations block until every result is in place. A group is used by one thread at a
 * time, and the devices by nobody else meanwhile. After a failure other than COPSE_INVALID
 * and COPSE_UNSUPPORTED the tensors hold anything and the group can only be freed, before
 * its tensors are: other devices' sums may still be on their way into them. err names the
 * device, and where one stalled, for how long.
 */
#ifndef COPSE_GROUP_H
#define COPSE_GROUP_H

#include <copse/tensor.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct copse_group copse_group;

typedef struct copse_group_options {
    uint64_t stall_ns; /* a device that does not go on for so long has failed; 0: 60 s */
    size_t threads;    /* that sum; 0: chosen */
} copse_group_options;

/* 1 to 64 devices, borrowed; options may be NULL. */
COPSE_API COPSE_CHECKED copse_status copse_group_new(copse_group **out,
                                                     copse_device *const devices[],
                                                     size_t count,
                                                     const copse_group_options *options,
                                                     copse_error *err);
/* NULL is allowed. */
COPSE_API void copse_group_free(copse_group *group);

/* Every part becomes the sum of all. Of equal numbers of elements; f32 or f16. */
COPSE_API COPSE_CHECKED copse_status copse_group_allreduce_sum(copse_group *group,
                                                               copse_tensor *const part[],
                                                               copse_error *err);

/* Every other part becomes a copy of part[root]. Of equal sizes, any dtype. */
COPSE_API COPSE_CHECKED copse_status copse_group_broadcast(copse_group *group,
                                                           size_t root,
                                                           copse_tensor *const part[],
                                                           copse_error *err);

/* Each from[i] has n times the elements of each to[i]; to[i] becomes the i-th of n equal
 * slices of the sum of all from. f32 or f16. from is not changed. */
COPSE_API COPSE_CHECKED copse_status
copse_group_reduce_scatter_sum(copse_group *group, copse_tensor *const from[],
                               copse_tensor *const to[], copse_error *err);

/* Each to[i] has n times the elements of each from[i], and becomes all of them, in rank
 * order. Any dtype. */
COPSE_API COPSE_CHECKED copse_status copse_group_all_gather(copse_group *group,
                                                            copse_tensor *const from[],
                                                            copse_tensor *const to[],
                                                            copse_error *err);

#ifdef __cplusplus
}
#endif
#endif
