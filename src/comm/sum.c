/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/sum.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define SUM_X86 1
#endif

/* A block of floats: a few of them and the lines of the parts fit a first-level cache. */
#define BLOCK 512
#define BLOCKS 8 /* ceil(log2 COPSE__SUM_MAX_PARTS) + 1 */
#define FROM_BLOCK COPSE__SUM_MAX_PARTS

typedef struct sum_kernels {
    void (*add[8])(float *to, const float *const *from, size_t count);
    uint64_t (*checked[8])(float *to, const float *const *from, size_t count);
    void (*store2)(float *to, float *other, const float *from, size_t count);
    uint64_t (*nonfinite)(const float *values, size_t count);
    void (*from_half)(float *to, const uint16_t *from, size_t count);
    void (*to_half)(uint16_t *to, const float *from, size_t count);
} sum_kernels;

static void portable_from_half(float *to, const uint16_t *from, size_t count) {
    for (size_t e = 0; e < count; e++)
        to[e] = copse__half_to_float(from[e]);
}

static void portable_to_half(uint16_t *to, const float *from, size_t count) {
    for (size_t e = 0; e < count; e++)
        to[e] = copse__half_from_float(from[e]);
}

#define SUM_(name) portable_##name
#define SUM_BYTES 16
#define SUM_TARGET
#include "comm/sum_kernels.h"

#ifdef SUM_X86
#define SUM_TARGET __attribute__((target("avx2,f16c")))
SUM_TARGET static void avx2_from_half(float *to, const uint16_t *from, size_t count) {
    size_t e = 0;
    for (; e + 8 <= count; e += 8)
        _mm256_storeu_ps(to + e, _mm256_cvtph_ps(_mm_loadu_si128(
                                     (const __m128i *)(const void *)(from + e))));
    portable_from_half(to + e, from + e, count - e);
}

SUM_TARGET static void avx2_to_half(uint16_t *to, const float *from, size_t count) {
    size_t e = 0;
    for (; e + 8 <= count; e += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + e),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + e),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    portable_to_half(to + e, from + e, count - e);
}

#define SUM_(name) avx2_##name
#define SUM_BYTES 32
#include "comm/sum_kernels.h"

#define SUM_TARGET __attribute__((target("avx512f,avx2,f16c")))
SUM_TARGET static void avx512_from_half(float *to, const uint16_t *from, size_t count) {
    size_t e = 0;
    for (; e + 16 <= count; e += 16)
        _mm512_storeu_ps(to + e, _mm512_cvtph_ps(_mm256_loadu_si256(
                                     (const __m256i *)(const void *)(from + e))));
    portable_from_half(to + e, from + e, count - e);
}

SUM_TARGET static void avx512_to_half(uint16_t *to, const float *from, size_t count) {
    size_t e = 0;
    for (; e + 16 <= count; e += 16)
        _mm256_storeu_si256(
            (__m256i *)(void *)(to + e),
            _mm512_cvtps_ph(_mm512_loadu_ps(from + e),
                            _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    portable_to_half(to + e, from + e, count - e);
}

#define SUM_(name) avx512_##name
#define SUM_BYTES 64
#include "comm/sum_kernels.h"
#endif

static const sum_kernels *const isa_kernels[COPSE__SUM_ISA_COUNT] = {
    [COPSE__SUM_PORTABLE] = &portable_kernels,
#ifdef SUM_X86
    [COPSE__SUM_AVX2] = &avx2_kernels,
    [COPSE__SUM_AVX512] = &avx512_kernels,
#endif
};

#ifdef SUM_X86
/* clang 14's __builtin_cpu_supports does not know this one. */
static bool has_f16c(void) {
    unsigned a, b, c = 0, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

bool copse__sum_isa_has(copse__sum_isa isa) {
    if ((unsigned)isa >= COPSE__SUM_ISA_COUNT || isa_kernels[isa] == NULL)
        return false;
#ifdef SUM_X86
    __builtin_cpu_init();
    if (isa == COPSE__SUM_AVX2)
        return __builtin_cpu_supports("avx2") && has_f16c();
    if (isa == COPSE__SUM_AVX512)
        return __builtin_cpu_supports("avx512f") && has_f16c();
#endif
    return true;
}

copse__sum_isa copse__sum_isa_best(void) {
    if (copse__sum_isa_has(COPSE__SUM_AVX512))
        return COPSE__SUM_AVX512;
    return copse__sum_isa_has(COPSE__SUM_AVX2) ? COPSE__SUM_AVX2 : COPSE__SUM_PORTABLE;
}

/* ---- the plan ---- */

/* Parts [first, first + count) of the plan, all within the leaves [lo, lo + leaves). */
typedef struct node {
    size_t lo, leaves, first, count;
} node;

/* The children of a node that has more than one part; false where a part lies in both. */
static bool split_node(const copse__tree_range *parts, node of, node *left, node *right) {
    const size_t half = copse__tree_split(of.leaves), middle = of.lo + half;
    size_t in_left = 0;
    while (in_left < of.count && parts[of.first + in_left].first < middle) {
        const copse__tree_range part = parts[of.first + in_left];
        if (part.count > middle - part.first)
            return false;
        in_left++;
    }
    *left = (node){of.lo, half, of.first, in_left};
    *right = (node){middle, of.leaves - half, of.first + in_left, of.count - in_left};
    return true;
}

/* Whether the node's parts are added just as the tree over so many leaves would. */
static bool is_full(const copse__tree_range *parts, node of) {
    if (of.count <= 1)
        return true;
    node left, right;
    if (!split_node(parts, of, &left, &right))
        return false;
    if (left.count == 0 || right.count == 0)
        return is_full(parts, left.count == 0 ? right : left);
    return left.count == copse__tree_split(of.count) && is_full(parts, left) &&
           is_full(parts, right);
}

static void emit(copse__sum_plan *plan, size_t to, size_t count, size_t a, size_t b) {
    copse__sum_op *op = &plan->ops[plan->op_count++];
    *op = (copse__sum_op){.count = (uint8_t)count, .to = (uint8_t)to};
    op->from[0] = (uint8_t)a;
    op->from[1] = (uint8_t)b;
}

/* Emits what computes the node (of one part or more) into block `to` or a later one.
 * *operand: where its value is. */
static bool emit_node(copse__sum_plan *plan, const copse__tree_range *parts, node of,
                      size_t to, size_t *operand) {
    if (of.count == 1) {
        *operand = of.first;
        return true;
    }
    *operand = FROM_BLOCK + to;
    if (of.count <= 8 && is_full(parts, of)) {
        emit(plan, to, of.count, 0, 0);
        for (size_t i = 0; i < of.count; i++)
            plan->ops[plan->op_count - 1].from[i] = (uint8_t)(of.first + i);
        return true;
    }
    node left, right;
    if (!split_node(parts, of, &left, &right))
        return false;
    if (left.count == 0 || right.count == 0)
        return emit_node(plan, parts, left.count == 0 ? right : left, to, operand);
    size_t a, b;
    if (!emit_node(plan, parts, left, to, &a) ||
        !emit_node(plan, parts, right, a < FROM_BLOCK ? to : to + 1, &b))
        return false;
    emit(plan, to, 2, a, b);
    return true;
}

copse_status copse__sum_plan_make(copse__sum_plan *plan, size_t leaves,
                                  const copse__tree_range *parts, size_t part_count,
                                  copse_error *err) {
    *plan = (copse__sum_plan){.part_count = part_count};
    if (part_count > COPSE__SUM_MAX_PARTS)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "a sum of %zu parts; at most %d are possible", part_count,
                           COPSE__SUM_MAX_PARTS);
    size_t end = 0;
    for (size_t i = 0; i < part_count; i++) {
        if (parts[i].count == 0 || parts[i].first < end || parts[i].first >= leaves ||
            parts[i].count > leaves - parts[i].first)
            return copse__fail(err, COPSE_INVALID, 0, NULL,
                               "part %zu of a sum is empty, out of order or outside "
                               "its %zu leaves",
                               i, leaves);
        end = parts[i].first + parts[i].count;
    }
    if (part_count == 0)
        return COPSE_OK;
    size_t operand;
    if (!emit_node(plan, parts, (node){0, leaves, 0, part_count}, 0, &operand))
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "a part of a sum is not a subtree of the tree over %zu leaves",
                           leaves);
    if (operand < FROM_BLOCK) /* one part: a copy */
        emit(plan, 0, 1, operand, 0);
    return COPSE_OK;
}

/* ---- running it ---- */

static void store_stream(float *to, const float *from, size_t count) {
#ifdef SUM_X86
    if (((uintptr_t)to & 15u) == 0) {
        size_t e = 0;
        for (; e + 4 <= count; e += 4)
            _mm_stream_ps(to + e, _mm_load_ps(from + e));
        for (; e < count; e++)
            to[e] = from[e];
        return;
    }
#endif
    memcpy(to, from, count * sizeof *to);
}

static bool half_nonfinite(const uint16_t *values, size_t count) {
    for (size_t e = 0; e < count; e++)
        if ((values[e] & 0x7c00u) == 0x7c00u)
            return true;
    return false;
}

/* Rare: some of the block's sums are not finite, so its parts are looked at. */
static void find_parts(const copse__sum_plan *plan, const sum_kernels *with,
                       copse_dtype dtype, const void *const *sources, size_t at,
                       size_t count, copse__sum_found *found) {
    for (size_t i = 0; i < plan->part_count; i++) {
        if (found->parts[i])
            continue;
        if (dtype == COPSE_F16)
            found->parts[i] = half_nonfinite((const uint16_t *)sources[i] + at, count);
        else
            found->parts[i] = with->nonfinite((const float *)sources[i] + at, count) > 0;
    }
}

void copse__sum_run(const copse__sum_plan *plan, copse__sum_isa isa, copse_dtype dtype,
                    const void *const *sources, void *const *targets, size_t target_count,
                    size_t elements, bool stream, copse__sum_found *found) {
    const sum_kernels *with = isa_kernels[isa];
    const bool half = dtype == COPSE_F16;
    float blocks[BLOCKS][BLOCK] __attribute__((aligned(64)));
    float wide[8][BLOCK] __attribute__((aligned(64))); /* half precision, widened */
    for (size_t at = 0; at < elements; at += BLOCK) {
        const size_t count = elements - at < BLOCK ? elements - at : BLOCK;
        uint64_t bad = 0;
        if (plan->op_count == 0)
            memset(blocks[0], 0, sizeof blocks[0]);
        for (size_t o = 0; o < plan->op_count; o++) {
            const copse__sum_op *op = &plan->ops[o];
            const float *from[8];
            for (size_t i = 0; i < op->count; i++) {
                if (op->from[i] >= FROM_BLOCK) {
                    from[i] = blocks[op->from[i] - FROM_BLOCK];
                } else if (half) {
                    with->from_half(wide[i], (const uint16_t *)sources[op->from[i]] + at,
                                    count);
                    from[i] = wide[i];
                } else {
                    from[i] = (const float *)sources[op->from[i]] + at;
                }
            }
            if (half || o + 1 < plan->op_count)
                with->add[op->count - 1](blocks[op->to], from, count);
            else
                bad = with->checked[op->count - 1](blocks[op->to], from, count);
        }
        uint16_t narrow[BLOCK];
        if (half) {
            with->to_half(narrow, blocks[0], count);
            with->from_half(wide[0], narrow, count); /* overflow may come of rounding */
            bad = with->nonfinite(wide[0], count);
        }
        if (bad > 0) {
            found->nonfinite += bad;
            find_parts(plan, with, dtype, sources, at, count, found);
        }
        size_t j = 0;
        for (; !half && !stream && j + 2 <= target_count; j += 2)
            with->store2((float *)targets[j] + at, (float *)targets[j + 1] + at,
                         blocks[0], count);
        for (; j < target_count; j++) {
            if (half)
                memcpy((uint16_t *)targets[j] + at, narrow, count * sizeof *narrow);
            else if (stream)
                store_stream((float *)targets[j] + at, blocks[0], count);
            else
                memcpy((float *)targets[j] + at, blocks[0], count * sizeof(float));
        }
    }
#ifdef SUM_X86
    if (stream)
        _mm_sfence();
#endif
}
