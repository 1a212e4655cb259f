/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "comm/sum.h"
#include "comm/tree.h"
#include "support/check.h"

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static float random_float(void) {
    return ldexpf((float)(int32_t)random_bits(), -31 + (int)(random_bits() % 17) - 8);
}

START_TEST(test_split_of_n_is_largest_power_below) {
    const size_t expected[] = {0, 0, 1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16};
    for (size_t n = 2; n < COPSE__COUNT(expected); n++)
        ck_assert_uint_eq(copse__tree_split(n), expected[n]);
    ck_assert_uint_eq(copse__tree_split(SIZE_MAX), SIZE_MAX / 2 + 1);
}
END_TEST

/* The definition, written once more: which leaves, in which association, as text. */
static void describe(char *out, size_t lo, size_t count, const bool *present) {
    size_t in = 0, split = 1;
    for (size_t i = 0; i < count; i++)
        in += present[lo + i];
    if (in == 0)
        return;
    if (count == 1) {
        sprintf(out + strlen(out), "%zu", lo);
        return;
    }
    while (split * 2 < count)
        split *= 2;
    size_t in_left = 0;
    for (size_t i = 0; i < split; i++)
        in_left += present[lo + i];
    const bool both = in_left > 0 && in > in_left;
    strcat(out, both ? "(" : "");
    describe(out, lo, split, present);
    strcat(out, both ? "+" : "");
    describe(out, lo + split, count - split, present);
    strcat(out, both ? ")" : "");
}

/* One element, added in float along the same definition. */
static bool reference(size_t lo, size_t count, const bool *present, const float *values,
                      float *sum) {
    if (count == 1) {
        *sum = values[lo];
        return present[lo];
    }
    size_t split = 1;
    while (split * 2 < count)
        split *= 2;
    float a = 0, b = 0;
    const bool left = reference(lo, split, present, values, &a);
    const bool right = reference(lo + split, count - split, present, values, &b);
    *sum = left && right ? a + b : left ? a : b;
    return left || right;
}

START_TEST(test_reference_follows_the_documented_shapes) {
    bool present[8];
    memset(present, 1, sizeof present);
    char text[128] = "";
    describe(text, 0, 4, present);
    ck_assert_str_eq(text, "((0+1)+(2+3))");
    text[0] = 0;
    describe(text, 0, 6, present);
    ck_assert_str_eq(text, "(((0+1)+(2+3))+(4+5))");
    present[1] = present[4] = false;
    text[0] = 0;
    describe(text, 0, 6, present);
    ck_assert_str_eq(text, "((0+(2+3))+5)");
}
END_TEST

#define MOST 24
#define ELEMENTS 1553

static float parts_of[MOST][ELEMENTS];

static void fill_parts(void) {
    for (size_t r = 0; r < MOST; r++)
        for (size_t e = 0; e < ELEMENTS; e++)
            parts_of[r][e] = e % 97 == 0 ? -0.0f : random_float();
}

static void check_sum(size_t ranks, const bool *present, copse__sum_isa isa, bool stream,
                      size_t elements) {
    static float out[ELEMENTS + 4], second[ELEMENTS + 4];
    copse__tree_range ranges[MOST];
    const void *sources[MOST];
    size_t count = 0;
    for (size_t r = 0; r < ranks; r++) {
        if (!present[r])
            continue;
        ranges[count] = (copse__tree_range){r, 1};
        sources[count++] = parts_of[r];
    }
    copse__sum_plan plan;
    copse_error error;
    ASSERT_OK(copse__sum_plan_make(&plan, ranks, ranges, count, &error));
    void *targets[] = {out, second + 1};
    memset(out, 0x7f, sizeof out);
    memset(second, 0x7f, sizeof second);
    copse__sum_found found = {0};
    copse__sum_run(&plan, isa, COPSE_F32, sources, targets, 2, elements, stream, &found);
    ck_assert_uint_eq(found.nonfinite, 0);
    for (size_t e = 0; e < elements; e++) {
        float values[MOST], sum = 0.0f;
        for (size_t r = 0; r < ranks; r++)
            values[r] = parts_of[r][e];
        if (!reference(0, ranks, present, values, &sum))
            sum = 0.0f;
        ck_assert_msg(memcmp(&sum, &out[e], 4) == 0 &&
                          memcmp(&sum, &second[e + 1], 4) == 0,
                      "ranks %zu, isa %d, element %zu: %a instead of %a", ranks, (int)isa,
                      e, (double)out[e], (double)sum);
    }
    uint32_t guard;
    memcpy(&guard, &out[elements], 4);
    ck_assert_uint_eq(guard, 0x7f7f7f7f);
}

START_TEST(test_sum_of_any_ranks_has_the_trees_bits) {
    fill_parts();
    const size_t sizes[] = {0, 1, 15, 16, 17, 511, 512, 513, ELEMENTS};
    for (int isa = 0; isa < COPSE__SUM_ISA_COUNT; isa++) {
        if (!copse__sum_isa_has((copse__sum_isa)isa))
            continue;
        for (size_t ranks = 1; ranks <= MOST; ranks++) {
            bool present[MOST];
            memset(present, 1, sizeof present);
            check_sum(ranks, present, (copse__sum_isa)isa, false,
                      sizes[ranks % COPSE__COUNT(sizes)]);
            for (int trial = 0; trial < 6; trial++) {
                for (size_t r = 0; r < ranks; r++)
                    present[r] = random_bits() % 3 != 0;
                check_sum(ranks, present, (copse__sum_isa)isa, trial % 2 != 0,
                          trial == 0 ? ELEMENTS : sizes[random_bits() % 8]);
            }
        }
    }
}
END_TEST

START_TEST(test_sum_in_place_over_a_source) {
    fill_parts();
    static float expected[ELEMENTS];
    const void *sources[] = {parts_of[0], parts_of[1], parts_of[2]};
    const copse__tree_range ranges[] = {{0, 1}, {1, 1}, {2, 1}};
    copse__sum_plan plan;
    copse_error error;
    ASSERT_OK(copse__sum_plan_make(&plan, 3, ranges, 3, &error));
    for (size_t e = 0; e < ELEMENTS; e++)
        expected[e] = (parts_of[0][e] + parts_of[1][e]) + parts_of[2][e];
    void *targets[] = {parts_of[0], parts_of[1], parts_of[2]};
    copse__sum_found found = {0};
    copse__sum_run(&plan, copse__sum_isa_best(), COPSE_F32, sources, targets, 3, ELEMENTS,
                   false, &found);
    for (size_t r = 0; r < 3; r++)
        ck_assert_int_eq(memcmp(parts_of[r], expected, sizeof expected), 0);
}
END_TEST

START_TEST(test_sum_of_nonfinite_names_the_parts) {
    for (int isa = 0; isa < COPSE__SUM_ISA_COUNT; isa++) {
        if (!copse__sum_isa_has((copse__sum_isa)isa))
            continue;
        fill_parts();
        static float out[ELEMENTS];
        parts_of[1][700] = INFINITY;
        parts_of[2][700] = -INFINITY;
        parts_of[2][1552] = NAN;
        parts_of[0][3] = parts_of[3][3] = 3e38f; /* finite parts, an infinite sum */
        const void *sources[] = {parts_of[0], parts_of[1], parts_of[2], parts_of[3]};
        const copse__tree_range ranges[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}};
        void *targets[] = {out};
        copse__sum_plan plan;
        copse_error error;
        ASSERT_OK(copse__sum_plan_make(&plan, 4, ranges, 4, &error));
        copse__sum_found found = {0};
        copse__sum_run(&plan, (copse__sum_isa)isa, COPSE_F32, sources, targets, 1,
                       ELEMENTS, false, &found);
        ck_assert_uint_eq(found.nonfinite, 3);
        ck_assert(!found.parts[0] && found.parts[1] && found.parts[2] && !found.parts[3]);
    }
}
END_TEST

/* The double nearest to a half's bits, by the format's definition. */
static double half_value(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                             : exponent == 0 ? ldexp(fraction, -24)
                                             : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

START_TEST(test_half_conversions_are_exact) {
    for (uint32_t h = 0; h < 65536; h++) {
        const float f = copse__half_to_float((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00) {
            ck_assert(isnan(f) && isnan(copse__half_to_float(copse__half_from_float(f))));
            continue;
        }
        ck_assert(half_value((uint16_t)h) == (double)f);
        ck_assert_uint_eq(copse__half_from_float(f), h);
        if ((h & 0x7fff) >= 0x7bff)
            continue;
        /* Between two neighbours: the middle goes to the even one. */
        const double next = half_value((uint16_t)(h + 1));
        const float middle = (float)(((double)f + next) / 2);
        ck_assert_uint_eq(copse__half_from_float(middle), h + (h & 1));
        ck_assert_uint_eq(copse__half_from_float(nextafterf(middle, f)), h);
        ck_assert_uint_eq(copse__half_from_float(nextafterf(middle, (float)next)), h + 1);
    }
    ck_assert_uint_eq(copse__half_from_float(65519.99f), 0x7bff);
    ck_assert_uint_eq(copse__half_from_float(65520.0f), 0x7c00);
    ck_assert_uint_eq(copse__half_from_float(1e-30f), 0);
    ck_assert_uint_eq(copse__half_from_float(-1e-30f), 0x8000);
}
END_TEST

START_TEST(test_sum_of_halves_is_added_in_float) {
    static uint16_t halves[5][ELEMENTS], out[ELEMENTS];
    for (size_t r = 0; r < 5; r++)
        for (size_t e = 0; e < ELEMENTS; e++)
            halves[r][e] = (uint16_t)(random_bits() & 0xbfff); /* below 2 */
    const void *sources[] = {halves[0], halves[1], halves[2], halves[3], halves[4]};
    const copse__tree_range ranges[] = {{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}};
    copse__sum_plan plan;
    copse_error error;
    ASSERT_OK(copse__sum_plan_make(&plan, 5, ranges, 5, &error));
    for (int isa = 0; isa < COPSE__SUM_ISA_COUNT; isa++) {
        if (!copse__sum_isa_has((copse__sum_isa)isa))
            continue;
        void *targets[] = {out};
        copse__sum_found found = {0};
        copse__sum_run(&plan, (copse__sum_isa)isa, COPSE_F16, sources, targets, 1,
                       ELEMENTS, false, &found);
        ck_assert_uint_eq(found.nonfinite, 0);
        for (size_t e = 0; e < ELEMENTS; e++) {
            float f[5];
            for (size_t r = 0; r < 5; r++)
                f[r] = (float)half_value(halves[r][e]);
            const float sum = ((f[0] + f[1]) + (f[2] + f[3])) + f[4];
            ck_assert_uint_eq(out[e], copse__half_from_float(sum));
        }
    }
}
END_TEST

START_TEST(test_subtrees_cover_a_range_and_keep_the_bits) {
    fill_parts();
    for (size_t leaves = 1; leaves <= MOST; leaves++) {
        for (size_t first = 0; first < leaves; first++) {
            for (size_t count = 1; first + count <= leaves; count++) {
                copse__tree_range found[16];
                const size_t n = copse__tree_subtrees(
                    leaves, (copse__tree_range){first, count}, found);
                ck_assert_uint_ge(n, 1);
                ck_assert_uint_le(n, copse__tree_subtrees_max(count));
                size_t at = first;
                for (size_t i = 0; i < n; i++) {
                    ck_assert_uint_eq(found[i].first, at);
                    at += found[i].count;
                }
                ck_assert_uint_eq(at, first + count);
            }
        }
    }
    /* Three devices with 5, 3 and 5 of 13 leaves send 2, 2 and 2 partial sums. */
    const copse__tree_range devices[] = {{0, 5}, {5, 3}, {8, 5}};
    copse__tree_range ranges[16];
    static float partial[16][ELEMENTS], out[ELEMENTS];
    const void *sources[16];
    bool all[MOST];
    memset(all, 1, sizeof all);
    size_t n = 0;
    for (size_t d = 0; d < 3; d++)
        n += copse__tree_subtrees(13, devices[d], ranges + n);
    ck_assert_uint_eq(n, 5);
    for (size_t i = 0; i < n; i++) {
        sources[i] = partial[i];
        for (size_t e = 0; e < ELEMENTS; e++) {
            float values[MOST];
            for (size_t r = 0; r < ranges[i].count; r++)
                values[r] = parts_of[ranges[i].first + r][e];
            reference(0, ranges[i].count, all, values, &partial[i][e]);
        }
    }
    copse__sum_plan plan;
    copse_error error;
    ASSERT_OK(copse__sum_plan_make(&plan, 13, ranges, n, &error));
    void *targets[] = {out};
    copse__sum_found nonfinite = {0};
    copse__sum_run(&plan, copse__sum_isa_best(), COPSE_F32, sources, targets, 1, ELEMENTS,
                   false, &nonfinite);
    for (size_t e = 0; e < ELEMENTS; e++) {
        float values[MOST], sum;
        for (size_t r = 0; r < 13; r++)
            values[r] = parts_of[r][e];
        reference(0, 13, all, values, &sum);
        ck_assert_int_eq(memcmp(&sum, &out[e], 4), 0);
    }
}
END_TEST

START_TEST(test_sum_plan_of_wrong_parts_is_refused) {
    copse__sum_plan plan;
    copse_error error;
    const copse__tree_range straddling[] = {{0, 1}, {1, 2}, {3, 1}};
    ASSERT_FAILS(COPSE_INVALID, copse__sum_plan_make(&plan, 4, straddling, 3, &error));
    const copse__tree_range overlapping[] = {{0, 2}, {1, 1}};
    ASSERT_FAILS(COPSE_INVALID, copse__sum_plan_make(&plan, 4, overlapping, 2, &error));
    const copse__tree_range outside[] = {{3, 2}};
    ASSERT_FAILS(COPSE_INVALID, copse__sum_plan_make(&plan, 4, outside, 1, &error));
    const copse__tree_range empty[] = {{3, 0}};
    ASSERT_FAILS(COPSE_INVALID, copse__sum_plan_make(&plan, 4, empty, 1, &error));
}
END_TEST

START_TEST(test_tree_sum_skips_the_absent) {
    const double values[] = {1e300, 1.0, -1e300, 4.0, 5.0};
    const bool present[] = {false, true, false, true, true};
    ck_assert_double_eq(copse__tree_sum(5, values, present), 10.0);
    ck_assert_double_eq(copse__tree_sum(5, values, NULL),
                        ((1e300 + 1.0) + (-1e300 + 4.0)) + 5.0);
    const double negative_zero[] = {-0.0, 7.0};
    const bool first[] = {true, false}, none[] = {false, false};
    ck_assert(signbit(copse__tree_sum(2, negative_zero, first)));
    ck_assert(!signbit(copse__tree_sum(2, negative_zero, none)));
    ck_assert_double_eq(copse__tree_sum(0, NULL, NULL), 0.0);
}
END_TEST

START_TEST(test_merged_moments_are_those_of_the_whole) {
    enum { ranks = 5, channels = 3, most = 64 };
    const uint64_t counts[ranks] = {64, 0, 1, 17, 40};
    static double samples[ranks][channels][most];
    float stats[ranks][2 * channels], merged[2 * channels];
    const float *pointers[ranks];
    for (size_t r = 0; r < ranks; r++) {
        pointers[r] = counts[r] == 0 ? NULL : stats[r];
        for (size_t c = 0; c < channels; c++) {
            double mean = 0, squares = 0;
            for (size_t i = 0; i < counts[r]; i++) {
                samples[r][c][i] =
                    1000.0 * (double)c + (double)r + (double)random_float();
                mean += samples[r][c][i] / (double)counts[r];
            }
            for (size_t i = 0; i < counts[r]; i++)
                squares += (samples[r][c][i] - mean) * (samples[r][c][i] - mean);
            stats[r][c] = (float)mean;
            stats[r][channels + c] = counts[r] ? (float)(squares / (double)counts[r]) : 0;
        }
    }
    ck_assert_uint_eq(
        copse__tree_merge_moments(ranks, counts, pointers, channels, merged), 122);
    for (size_t c = 0; c < channels; c++) {
        double mean = 0, squares = 0;
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < counts[r]; i++)
                mean += samples[r][c][i] / 122;
        for (size_t r = 0; r < ranks; r++)
            for (size_t i = 0; i < counts[r]; i++)
                squares += (samples[r][c][i] - mean) * (samples[r][c][i] - mean);
        ck_assert_double_eq_tol((double)merged[c], mean, 1e-4 * (1 + fabs(mean)) / 100);
        ck_assert_double_eq_tol((double)merged[channels + c], squares / 122,
                                1e-3 * squares / 122);
    }
    /* One rank's moments pass through unchanged. */
    const uint64_t alone[ranks] = {0, 0, 0, 17, 0};
    ck_assert_uint_eq(copse__tree_merge_moments(ranks, alone, pointers, channels, merged),
                      17);
    ck_assert_int_eq(memcmp(merged, stats[3], sizeof merged), 0);
    const uint64_t nobody[ranks] = {0};
    ck_assert_uint_eq(
        copse__tree_merge_moments(ranks, nobody, pointers, channels, merged), 0);
    ck_assert_float_eq(merged[0], 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tree");
    ADD_TEST(suite, test_split_of_n_is_largest_power_below);
    ADD_TEST(suite, test_reference_follows_the_documented_shapes);
    ADD_TEST(suite, test_sum_of_any_ranks_has_the_trees_bits);
    ADD_TEST(suite, test_sum_in_place_over_a_source);
    ADD_TEST(suite, test_sum_of_nonfinite_names_the_parts);
    ADD_TEST(suite, test_half_conversions_are_exact);
    ADD_TEST(suite, test_sum_of_halves_is_added_in_float);
    ADD_TEST(suite, test_subtrees_cover_a_range_and_keep_the_bits);
    ADD_TEST(suite, test_sum_plan_of_wrong_parts_is_refused);
    ADD_TEST(suite, test_tree_sum_skips_the_absent);
    ADD_TEST(suite, test_merged_moments_are_those_of_the_whole);
    return run_suite(suite);
}
