/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_STAGES_H
#define COPSE_COMM_STAGES_H

#include "comm/allreduce.h"

/* The stages of an all-reduce, each alone with the machine: what its limits are made of. */

typedef struct copse__stages copse__stages;

typedef struct copse__stage_times {
    double sum;        /* seconds that one thread sums all ranks, from its own cache */
    double down[64];   /* seconds by rank; 0 where it is mapped */
    double up[64];     /* likewise */
    double duplex[64]; /* both ways at once */
} copse__stage_times;

/* buffers[r], of `bytes`, on devices[r]; paths[r]: COPIED or MAPPED. All borrowed. Copied
 * ranks get slots of chunk_bytes, as the engine has. */
copse_status copse__stages_open(copse__stages **out, copse__device *const *devices,
                                copse__buffer *const *buffers,
                                const copse__stage_path *paths, size_t ranks,
                                size_t bytes, size_t chunk_bytes, copse_error *err);
void copse__stages_close(copse__stages *stages);

/* One pass over all bytes. The buffers hold anything afterwards. */
copse_status copse__stages_run(copse__stages *stages, copse__stage_times *out,
                               copse_error *err);

#endif
