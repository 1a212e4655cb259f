/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the k-way sum for one instruction set: a template, hence no include
 * guard. sum.c includes it once for each, after defining SUM_(name), SUM_TARGET and the
 * two conversions of half precision, SUM_(from_half) and SUM_(to_half).
 *
 * SUM_BYTES is what a register of the target holds (of wider vectors compilers make a mess
 * outside plain sums). Loads are not aligned by promise. Nothing here contracts a*b+c, so every variant gives the same bits. */

#define SUM_LANES (SUM_BYTES / sizeof(float))
#define SUM_VEC SUM_(vec)
#define SUM_IVEC SUM_(ivec)

typedef float SUM_VEC __attribute__((vector_size(SUM_BYTES), aligned(4), may_alias));
typedef int32_t SUM_IVEC __attribute__((vector_size(SUM_BYTES), aligned(4), may_alias));

#define SUM_AT(i) (*(const SUM_VEC *)(const void *)(from[i] + e))
#define SUM_2(L, a, b) (L(a) + L(b))
#define SUM_4(L, a, b, c, d) (SUM_2(L, a, b) + SUM_2(L, c, d))
#define SUM_ONE(i) from[i][e]

#define SUM_KERNEL(n, expression)                                                        \
    SUM_TARGET static void SUM_(add##n)(float *to, const float *const *from,             \
                                        size_t count) {                                  \
        size_t e = 0;                                                                    \
        for (; e + SUM_LANES <= count; e += SUM_LANES)                                   \
            *(SUM_VEC *)(void *)(to + e) = expression(SUM_AT);                           \
        for (; e < count; e++)                                                           \
            to[e] = expression(SUM_ONE);                                                 \
    }

#define SUM_X1(L) (L(0))
#define SUM_X2(L) SUM_2(L, 0, 1)
#define SUM_X3(L) (SUM_2(L, 0, 1) + L(2))
#define SUM_X4(L) SUM_4(L, 0, 1, 2, 3)
#define SUM_X5(L) (SUM_4(L, 0, 1, 2, 3) + L(4))
#define SUM_X6(L) (SUM_4(L, 0, 1, 2, 3) + SUM_2(L, 4, 5))
#define SUM_X7(L) (SUM_4(L, 0, 1, 2, 3) + (SUM_2(L, 4, 5) + L(6)))
#define SUM_X8(L) (SUM_4(L, 0, 1, 2, 3) + SUM_4(L, 4, 5, 6, 7))

/* The same, which counts the sums that are not finite (exponents of all ones) on the way. */
#define SUM_CHECKED(n, expression)                                                       \
    SUM_TARGET static uint64_t SUM_(checked##n)(float *to, const float *const *from,     \
                                                size_t count) {                          \
        SUM_IVEC hits = {0};                                                             \
        size_t e = 0;                                                                    \
        for (; e + SUM_LANES <= count; e += SUM_LANES) {                                 \
            const SUM_VEC sum = expression(SUM_AT);                                      \
            hits -= ((SUM_IVEC)sum & 0x7fffffff) >= 0x7f800000;                          \
            *(SUM_VEC *)(void *)(to + e) = sum;                                          \
        }                                                                                \
        uint64_t total = SUM_(lanes)(hits);                                              \
        for (; e < count; e++) {                                                         \
            to[e] = expression(SUM_ONE);                                                 \
            total += isfinite(to[e]) ? 0u : 1u;                                          \
        }                                                                                \
        return total;                                                                    \
    }

SUM_TARGET static uint64_t SUM_(lanes)(SUM_IVEC hits) {
    uint64_t total = 0;
    for (size_t lane = 0; lane < SUM_LANES; lane++)
        total += (uint64_t)(uint32_t)hits[lane]; /* a true lane counted -1 */
    return total;
}

/* One block to two places, read once. */
SUM_TARGET static void SUM_(store2)(float *to, float *other, const float *from,
                                    size_t count) {
    size_t e = 0;
    for (; e + SUM_LANES <= count; e += SUM_LANES) {
        const SUM_VEC values = *(const SUM_VEC *)(const void *)(from + e);
        *(SUM_VEC *)(void *)(to + e) = values;
        *(SUM_VEC *)(void *)(other + e) = values;
    }
    for (; e < count; e++)
        to[e] = other[e] = from[e];
}

SUM_KERNEL(1, SUM_X1)
SUM_KERNEL(2, SUM_X2)
SUM_KERNEL(3, SUM_X3)
SUM_KERNEL(4, SUM_X4)
SUM_KERNEL(5, SUM_X5)
SUM_KERNEL(6, SUM_X6)
SUM_KERNEL(7, SUM_X7)
SUM_KERNEL(8, SUM_X8)
SUM_CHECKED(1, SUM_X1)
SUM_CHECKED(2, SUM_X2)
SUM_CHECKED(3, SUM_X3)
SUM_CHECKED(4, SUM_X4)
SUM_CHECKED(5, SUM_X5)
SUM_CHECKED(6, SUM_X6)
SUM_CHECKED(7, SUM_X7)
SUM_CHECKED(8, SUM_X8)

/* How many of the numbers are not finite: exponents of all ones. */
SUM_TARGET static uint64_t SUM_(nonfinite)(const float *values, size_t count) {
    SUM_IVEC hits = {0};
    size_t e = 0;
    for (; e + SUM_LANES <= count; e += SUM_LANES) {
        const SUM_IVEC bits = *(const SUM_IVEC *)(const void *)(values + e);
        hits -= (bits & 0x7fffffff) >= 0x7f800000; /* a true lane is -1 */
    }
    uint64_t total = SUM_(lanes)(hits);
    for (; e < count; e++)
        total += isfinite(values[e]) ? 0u : 1u;
    return total;
}

static const sum_kernels SUM_(kernels) = {
    {SUM_(add1), SUM_(add2), SUM_(add3), SUM_(add4), SUM_(add5), SUM_(add6), SUM_(add7),
     SUM_(add8)},
    {SUM_(checked1), SUM_(checked2), SUM_(checked3), SUM_(checked4), SUM_(checked5),
     SUM_(checked6), SUM_(checked7), SUM_(checked8)},
    SUM_(store2),
    SUM_(nonfinite),
    SUM_(from_half),
    SUM_(to_half),
};

#undef SUM_LANES
#undef SUM_VEC
#undef SUM_IVEC
#undef SUM_BYTES
#undef SUM_AT
#undef SUM_2
#undef SUM_4
#undef SUM_ONE
#undef SUM_KERNEL
#undef SUM_CHECKED
#undef SUM_X1
#undef SUM_X2
#undef SUM_X3
#undef SUM_X4
#undef SUM_X5
#undef SUM_X6
#undef SUM_X7
#undef SUM_X8
#undef SUM_
#undef SUM_TARGET
