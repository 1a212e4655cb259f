/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <copse/data.h>
#include <math.h>

static copse_error error;

START_TEST(test_shard_split_equal_weights_differ_by_one) {
    for (size_t n = 1; n <= 9; n++)
        for (size_t total = 0; total <= 300; total++) {
            size_t out[9], sum = 0;
            ASSERT_OK(copse_shard_split(total, n, NULL, out, &error));
            for (size_t i = 0; i < n; i++) {
                sum += out[i];
                ck_assert_uint_eq(out[i], total / n + (i < total % n));
            }
            ck_assert_uint_eq(sum, total);
        }
}
END_TEST

START_TEST(test_shard_split_weights_stay_within_one_of_their_share) {
    const double weights[] = {1, 0, 2.5, 0.125, 7};
    for (size_t total = 0; total <= 2000; total++) {
        size_t out[5], sum = 0;
        ASSERT_OK(copse_shard_split(total, 5, weights, out, &error));
        for (size_t i = 0; i < 5; i++) {
            sum += out[i];
            double share = (double)total * weights[i] / 10.625;
            ck_assert(fabs((double)out[i] - share) < 1);
        }
        ck_assert_uint_eq(sum, total);
        ck_assert_uint_eq(out[1], 0);
    }
}
END_TEST

START_TEST(test_shard_split_ties_go_to_the_lower_rank) {
    const double weights[] = {2, 2, 2};
    size_t out[3];
    ASSERT_OK(copse_shard_split(4, 3, weights, out, &error));
    ck_assert_uint_eq(out[0], 2);
    ck_assert_uint_eq(out[1], 1);
    ck_assert_uint_eq(out[2], 1);
}
END_TEST

START_TEST(test_shard_split_huge_total_is_exact) {
    size_t out[3];
    ASSERT_OK(copse_shard_split(SIZE_MAX, 3, NULL, out, &error));
    ck_assert_uint_eq(out[0], SIZE_MAX / 3);
    ck_assert_uint_eq(out[2], SIZE_MAX / 3);
}
END_TEST

START_TEST(test_shard_split_bad_weights_are_refused) {
    size_t out[2];
    const double negative[] = {1, -1}, none[] = {0, 0}, nan[] = {NAN, 1},
                 infinite[] = {INFINITY, 1};
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split(5, 2, negative, out, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split(5, 2, none, out, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split(5, 2, nan, out, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split(5, 2, infinite, out, &error));
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split(5, 0, NULL, out, &error));
}
END_TEST

START_TEST(test_shard_split_partial_never_grows_a_part) {
    const double weights[] = {3, 1.7, 1.7, 0.1, 5};
    for (size_t batch = 1; batch <= 130; batch++) {
        size_t full[5], out[5];
        ASSERT_OK(copse_shard_split(batch, 5, weights, full, &error));
        for (size_t total = 0; total <= batch; total++) {
            size_t sum = 0;
            ASSERT_OK(copse_shard_split_partial(total, 5, full, out, &error));
            for (size_t i = 0; i < 5; i++) {
                ck_assert_uint_le(out[i], full[i]);
                sum += out[i];
            }
            ck_assert_uint_eq(sum, total);
        }
    }
}
END_TEST

START_TEST(test_shard_split_partial_of_equal_shards_differs_by_one) {
    for (size_t n = 1; n <= 7; n++)
        for (size_t batch = 1; batch <= 64; batch++) {
            size_t full[7], out[7];
            ASSERT_OK(copse_shard_split(batch, n, NULL, full, &error));
            for (size_t total = 0; total <= batch; total++) {
                size_t least = SIZE_MAX, most = 0;
                ASSERT_OK(copse_shard_split_partial(total, n, full, out, &error));
                for (size_t i = 0; i < n; i++) {
                    least = out[i] < least ? out[i] : least;
                    most = out[i] > most ? out[i] : most;
                }
                ck_assert_uint_le(most - least, 1);
            }
        }
}
END_TEST

START_TEST(test_shard_split_partial_beyond_full_is_refused) {
    const size_t full[] = {2, 1};
    size_t out[2];
    ASSERT_FAILS(COPSE_INVALID, copse_shard_split_partial(4, 2, full, out, &error));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_shard");
    ADD_TEST(suite, test_shard_split_equal_weights_differ_by_one);
    ADD_TEST(suite, test_shard_split_weights_stay_within_one_of_their_share);
    ADD_TEST(suite, test_shard_split_ties_go_to_the_lower_rank);
    ADD_TEST(suite, test_shard_split_huge_total_is_exact);
    ADD_TEST(suite, test_shard_split_bad_weights_are_refused);
    ADD_TEST(suite, test_shard_split_partial_never_grows_a_part);
    ADD_TEST(suite, test_shard_split_partial_of_equal_shards_differs_by_one);
    ADD_TEST(suite, test_shard_split_partial_beyond_full_is_refused);
    return run_suite(suite);
}
