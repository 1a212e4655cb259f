/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_SUM_H
#define COPSE_COMM_SUM_H

#include <copse/types.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/tree.h"

/* The k-way sum: one pass over memory that adds many parts element by element, associated
 * as comm/tree.h says, and finds numbers that are not finite on the way. Pure: no thread,
 * no device. The bits are the same on every instruction set. */

#define COPSE__SUM_MAX_PARTS 128

typedef struct copse__sum_op {
    uint8_t count;   /* operands, 1 to 8 */
    uint8_t to;      /* block that takes the result */
    uint8_t from[8]; /* below COPSE__SUM_MAX_PARTS: a part; else that block + it */
} copse__sum_op;

/* What to add, as straight-line work on blocks that fit the first cache. */
typedef struct copse__sum_plan {
    size_t part_count;
    size_t op_count; /* 0: there is no part: the sum is +0 */
    copse__sum_op ops[COPSE__SUM_MAX_PARTS];
} copse__sum_plan;

/* The tree over `leaves`, whose parts[i] is the sum over that range of leaves (for one rank:
 * {rank, 1}); leaves outside every part are absent. parts are in order, do not overlap, and
 * each is one subtree (copse__tree_subtrees) or a range whose absent leaves are its only
 * excuse. COPSE_INVALID where they are not, or where there are more than
 * COPSE__SUM_MAX_PARTS. */
copse_status copse__sum_plan_make(copse__sum_plan *plan, size_t leaves,
                                  const copse__tree_range *parts, size_t part_count,
                                  copse_error *err);

typedef enum copse__sum_isa {
    COPSE__SUM_PORTABLE, /* what the compiler makes of the plain loops */
    COPSE__SUM_AVX2,     /* with F16C */
    COPSE__SUM_AVX512,
    COPSE__SUM_ISA_COUNT
} copse__sum_isa;

/* The widest that this processor and build have. */
copse__sum_isa copse__sum_isa_best(void);
bool copse__sum_isa_has(copse__sum_isa isa);

typedef struct copse__sum_found {
    uint64_t nonfinite;               /* elements of the sum that are not finite */
    bool parts[COPSE__SUM_MAX_PARTS]; /* which parts held one that is not; none: finite
                                         parts overflowed */
} copse__sum_found;

/* targets[j][e] = sum over the plan's parts of sources[i][e]. Targets may be sources (the
 * same element), and not overlap otherwise. dtype COPSE_F32, or COPSE_F16 (added in float,
 * rounded once, to nearest even). stream: targets are written past the caches, where the
 * instruction set can. Adds to *found, which the caller zeroed. */
void copse__sum_run(const copse__sum_plan *plan, copse__sum_isa isa, copse_dtype dtype,
                    const void *const *sources, void *const *targets, size_t target_count,
                    size_t elements, bool stream, copse__sum_found *found);

#endif
