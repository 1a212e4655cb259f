/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_SELFTEST_CASES_H
#define COPSE_BACKEND_SELFTEST_CASES_H

#include "backend/node_run.h"
#include "backend/selftest.h"

/* Inside of the self-test: one case is one node, how its operands are filled, and how its
 * results are compared. */

typedef enum copse__fill_kind {
    COPSE__FILL_UNIFORM, /* f32 in [low, high) */
    COPSE__FILL_STEPS,   /* f32 multiples of 1/4 in [low, high): ties are common */
    COPSE__FILL_LABELS,  /* i32 in [0, high) */
    COPSE__FILL_BYTES,   /* any bits of an integer type */
    COPSE__FILL_HALVES,  /* finite f16 */
    COPSE__FILL_DOUBLES, /* f64 in [low, high) */
    COPSE__FILL_INDEX    /* a place inside the window and the image, u8 or i32 */
} copse__fill_kind;

typedef struct copse__fill {
    copse__fill_kind kind;
    float low, high;
    /* Every special_every-th element, counted from the last, is `special`; 0: none. */
    float special;
    size_t special_every;
} copse__fill;

typedef enum copse__measure {
    COPSE__MEASURE_NEAR,    /* f32, within the operation's tolerance; its bits where the
                               operation is exact */
    COPSE__MEASURE_BITS,    /* any type */
    COPSE__MEASURE_PATTERN, /* f32: zeros at equal places, the rest near */
    COPSE__MEASURE_SUM,     /* u64: equal sums modulo 2^64 */
    COPSE__MEASURE_TRUTH    /* u32: both zero or both not */
} copse__measure;

enum { COPSE__CASE_RUNS = 4 };

typedef struct copse__case {
    char name[96];
    copse__node_spec spec;
    copse__fill fill[COPSE__MAX_INPUTS];
    copse__measure measure[COPSE__MAX_OUTPUTS];
    copse__extents runs[COPSE__CASE_RUNS];
    size_t run_count;
    copse_scalars scalars;
} copse__case;

/* Levels a row of a size table belongs to. */
enum {
    COPSE__IN_QUICK = 1 << COPSE__SELFTEST_QUICK,
    COPSE__IN_SMALL = 1 << COPSE__SELFTEST_SMALL,
    COPSE__IN_FULL = 1 << COPSE__SELFTEST_FULL,
    COPSE__IN_MOST = COPSE__IN_SMALL | COPSE__IN_FULL,
    COPSE__IN_ALL = COPSE__IN_QUICK | COPSE__IN_MOST
};

/* Where the builders send their cases. After a visit failed, further ones do nothing. */
typedef struct copse__case_sink {
    copse__selftest_level level;
    const bool *ops; /* NULL: all */
    copse_status (*visit)(const copse__case *made, void *user, copse_error *err);
    void *user;
    copse_status status;
    copse_error *err;
} copse__case_sink;

/* Whether a row of a table is wanted. */
static inline bool copse__case_wanted(const copse__case_sink *sink, unsigned levels) {
    return levels >> sink->level & 1u;
}

/* Sends a case on if its operation is wanted. name is printed into it. */
void copse__case_add(copse__case_sink *sink, copse__case *made, const char *name, ...)
    COPSE_PRINTF(3, 4);

/* Shapes; `batched`: the first dimension is COPSE__BATCH. */
copse__node_operand copse__case_operand(copse_dtype dtype, bool batched, size_t rank,
                                        const size_t *dims);
#define COPSE__CASE_DIMS(...)                                                            \
    sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), (size_t[]) {                       \
        __VA_ARGS__                                                                      \
    }
#define COPSE__CASE_ROWS(dtype, ...)                                                     \
    copse__case_operand((dtype), true, COPSE__CASE_DIMS(__VA_ARGS__))
#define COPSE__CASE_FIXED(dtype, ...)                                                    \
    copse__case_operand((dtype), false, COPSE__CASE_DIMS(__VA_ARGS__))

/* Runs at the full batch, a part of it, 1 and 0, as far as they differ. */
void copse__case_batches(copse__case *made, size_t planned);

static inline copse__fill copse__case_uniform(float low, float high) {
    return (copse__fill){.kind = COPSE__FILL_UNIFORM, .low = low, .high = high};
}

/* Fills `elements` of an operand; a pure function of its arguments. */
void copse__case_fill(void *to, const copse__case *made, size_t input, size_t elements,
                      uint64_t seed);

/* The families' builders. */
void copse__cases_dense(copse__case_sink *sink);
void copse__cases_conv(copse__case_sink *sink);
void copse__cases_pool(copse__case_sink *sink);
void copse__cases_norm(copse__case_sink *sink);
void copse__cases_elementwise(copse__case_sink *sink);
void copse__cases_loss(copse__case_sink *sink);
void copse__cases_update(copse__case_sink *sink);

#endif
