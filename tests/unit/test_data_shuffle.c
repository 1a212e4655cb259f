/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/shuffle.h"

START_TEST(test_permute_holds_each_index_once) {
    const size_t counts[] = {0, 1, 2, 3, 4, 17, 1000, 60000};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        size_t n = counts[c];
        uint64_t *order = calloc(n + 1, sizeof *order);
        char *seen = calloc(n + 1, 1);
        copse__permute(order, n, 42, 3);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_lt(order[i], n);
            ck_assert(!seen[order[i]]);
            seen[order[i]] = 1;
        }
        free(order);
        free(seen);
    }
}
END_TEST

START_TEST(test_permute_depends_on_seed_and_epoch_only) {
    uint64_t a[100], b[100];
    copse__permute(a, 100, 7, 5);
    copse__permute(b, 100, 7, 5);
    ck_assert_mem_eq(a, b, sizeof a);
    copse__permute(b, 100, 7, 6);
    ck_assert_mem_ne(a, b, sizeof a);
    copse__permute(b, 100, 8, 5);
    ck_assert_mem_ne(a, b, sizeof a);
    copse__permute(b, 100, 7 + (UINT64_C(1) << 40), 5);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

/* Computed by an independent Python program. A run that is resumed years later must see
 * the same order: fixed for all time. */
START_TEST(test_permute_known_answer) {
    uint64_t order[8];
    copse__permute(order, 8, 1, 0);
    const uint64_t expected[8] = {2, 4, 1, 3, 7, 5, 6, 0};
    ck_assert_mem_eq(order, expected, sizeof order);
}
END_TEST

/* Every order of 4 comes equally often: chi-square with 23 degrees of freedom, limit at
 * p = 1e-6. */
START_TEST(test_permute_orders_are_uniform) {
    size_t seen[256] = {0};
    const size_t draws = 24000;
    for (size_t epoch = 0; epoch < draws; epoch++) {
        uint64_t o[4];
        copse__permute(o, 4, 99, epoch);
        seen[o[0] << 6 | o[1] << 4 | o[2] << 2 | o[3]]++;
    }
    double chi = 0;
    size_t kinds = 0;
    for (size_t i = 0; i < 256; i++)
        if (seen[i]) {
            kinds++;
            chi += pow((double)seen[i] - 1000, 2) / 1000;
        }
    ck_assert_uint_eq(kinds, 24);
    ck_assert(chi < 70.6);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_shuffle");
    ADD_TEST(suite, test_permute_holds_each_index_once);
    ADD_TEST(suite, test_permute_depends_on_seed_and_epoch_only);
    ADD_TEST(suite, test_permute_known_answer);
    ADD_TEST(suite, test_permute_orders_are_uniform);
    return run_suite(suite);
}
