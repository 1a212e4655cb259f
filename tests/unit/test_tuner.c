/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/bench.h"
#include "support/check.h"
#include "support/choosy.h"
#include "support/files.h"
#include "tune/first_use.h"

/* The tuner over a device whose candidates are as fast and as wrong as they are told to be: the host's, or where
 * COPSE_TEST_DEVICE names one, an OpenCL device's. */

static copse__device *device;
static char log_text[8192];

static void note(copse_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static void set_up(void) {
    copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host"};
    const char *named = getenv("COPSE_TEST_DEVICE");
    unsigned platform = 0, index = 0;
    copse_error error = {0};
    if (named && sscanf(named, "%u:%u", &platform, &index) == 2) {
        choice.api = COPSE__API_OPENCL;
        choice.platform_index = platform;
        choice.device_index = index;
        snprintf(choice.label, sizeof choice.label, "%s", named);
    }
    log_text[0] = '\0';
    copse_log_set(note, COPSE_LOG_WARN, NULL);
    const copse__device_options options = {.backend = &choosy_backend};
    ASSERT_OK(copse__device_open(&device, &choice, &options, &error));
}

static void tear_down(void) {
    copse__device_close(device);
}

/* What a product of 12 x 9 x 16 is tuned to among these. */
static size_t tune(const char *const *offers, copse__tune_result *result,
                   copse__pool *pool, size_t *wrong) {
    static size_t last_wrong;
    copse__tune_list list = {0};
    copse__node_spec spec;
    copse_error error = {0};
    size_t count = 0;
    ck_assert(copse__bench_gemm_spec(&spec, "nn", 12, 9, 16));
    ASSERT_OK(
        copse__tune_list_spec(&list, "dense 12x16 16x9 - > 12x9", &spec, 1, &error));
    choosy_offer(offers);
    const copse__tune_options options = {.seconds = 20, .thorough = false};
    ASSERT_OK(copse__tune_run(result, &count, pool, device, &list, &options, &error));
    last_wrong = choosy_wrong_runs();
    if (wrong)
        *wrong = last_wrong;
    copse__tune_list_free(&list);
    return count;
}

START_TEST(test_tune_takes_the_fastest) {
    static const char *const offers[] = {"us=500", "us=2000", "us=100", "us=700", NULL};
    copse__tune_result result = {0};
    copse__pool pool = {0};
    ck_assert_uint_eq(tune(offers, &result, &pool, NULL), 1);
    ck_assert_str_eq(result.tuned.key, "dense 12x16 16x9 - > 12x9");
    ck_assert_str_eq(result.tuned.provider, "choosy");
    ck_assert_str_eq(result.tuned.parameters, "us=100");
    ck_assert_double_lt(result.us, result.default_us);
    ck_assert_str_eq(log_text, "");
    copse__pool_free(&pool);
}
END_TEST

START_TEST(test_tune_keeps_what_nobody_beats_clearly) {
    static const char *const offers[] = {"us=900", "us=1500", NULL};
    copse__tune_result result = {0};
    copse__pool pool = {0};
    ck_assert_uint_eq(tune(offers, &result, &pool, NULL), 1);
    ck_assert_str_eq(result.tuned.provider, "own");
    ck_assert_str_eq(result.tuned.parameters, "");
    copse__pool_free(&pool);
}
END_TEST

/* The fastest are wrong, each in its way: they run, are told of, and the fastest that is right is taken. */
START_TEST(test_tune_refuses_wrong_numbers) {
    static const char *const kinds[] = {"wrong=1", "wrong=2", "wrong=3", "wrong=4",
                                        "wrong=5"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        char fast[64], expected[128];
        snprintf(fast, sizeof fast, "us=10 %s", kinds[k]);
        const char *const offers[] = {fast, "us=200", NULL};
        copse__tune_result result = {0};
        copse__pool pool = {0};
        size_t wrong;
        log_text[0] = '\0';
        ck_assert_uint_eq(tune(offers, &result, &pool, &wrong), 1);
        ck_assert_str_eq(result.tuned.parameters, "us=200");
        ck_assert(wrong > 0 || k == 3);
        snprintf(expected, sizeof expected, "choosy %s is not chosen", fast);
        ck_assert_msg(strstr(log_text, expected) != NULL, "%s: %s", fast, log_text);
        copse__pool_free(&pool);
    }
}
END_TEST

/* Sums of the forward pooled convolution are exact in any order: which of a window's is the largest must not hang on the
 * last bit. Others see numbers of all kinds. */
START_TEST(test_tune_case_of_pooled_maps_has_exact_sums) {
    copse__node_spec spec = {.op = COPSE__OP_CONV2D_MAX_POOL};
    copse__case made;
    float values[512];
    for (size_t i = 0; i < 3; i++)
        spec.in[i] = (copse__node_operand){
            .present = true, .dtype = COPSE_F32, .rank = 1, .dim = {{.size = 512}}};
    copse__tune_case(&made, &spec);
    for (size_t i = 0; i < 3; i++) {
        copse__case_fill(values, &made, i, 512, 7);
        for (size_t j = 0; j < 512; j++) {
            ck_assert_float_eq(values[j] * 4, rintf(values[j] * 4));
            ck_assert_float_le(fabsf(values[j]), 1);
        }
    }
    size_t whole = 0;
    spec.op = COPSE__OP_CONV2D;
    copse__tune_case(&made, &spec);
    copse__case_fill(values, &made, 0, 512, 7);
    for (size_t j = 0; j < 512; j++)
        whole += values[j] * 4 == rintf(values[j] * 4);
    ck_assert_uint_lt(whole, 64);
}
END_TEST

static bool stop_at_once(void *user) {
    (void)user;
    return true;
}

START_TEST(test_tune_stopped_decides_nothing) {
    static const char *const offers[] = {"us=10", NULL};
    copse__tune_list list = {0};
    copse__node_spec spec;
    copse__tune_result result;
    copse__pool pool = {0};
    copse_error error = {0};
    size_t count = 7;
    choosy_offer(offers);
    copse__bench_gemm_spec(&spec, "nn", 12, 9, 16);
    ASSERT_OK(copse__tune_list_spec(&list, "dense", &spec, 1, &error));
    const copse__tune_options options = {.seconds = 20, .stop = stop_at_once};
    ASSERT_OK(copse__tune_run(&result, &count, &pool, device, &list, &options, &error));
    ck_assert_uint_eq(count, 0);
    copse__tune_list_free(&list);
    copse__pool_free(&pool);
}
END_TEST

/* Above the host's pace the numbers are compared with the device's own way. */
START_TEST(test_tune_refuses_wrong_numbers_of_a_large_product) {
    static const char *const offers[] = {"us=10 wrong=1", NULL};
    copse__tune_subject subject = {.key = "dense", .spec_count = 1};
    copse__node_spec spec;
    copse_error error = {0};
    copse__bench_gemm_spec(&spec, "nn", 512, 512, 640);
    subject.specs = &spec;
    choosy_offer(offers);
    const copse__tuned wrong = {"dense", "choosy", "us=10 wrong=1"};
    const copse__tuned right = {"dense", "choosy", "us=10"};
    ASSERT_OK(choosy_backend.tune(device, &right, 1, &error));
    ASSERT_OK(copse__tune_verify(device, &subject, &right, 1, false, &error));
    ASSERT_OK(choosy_backend.tune(device, &wrong, 1, &error));
    ASSERT_FAILS(COPSE_KERNEL,
                 copse__tune_verify(device, &subject, &wrong, 1, false, &error));
}
END_TEST

/* A candidate that asks for more than the device has is not chosen, and nothing else happens. */
START_TEST(test_tune_goes_on_behind_a_launch_that_fails) {
    static const char *const offers[] = {"us=10 wrong=6", "us=100", NULL};
    copse__tune_result result = {0};
    copse__pool pool = {0};
    ck_assert_uint_eq(tune(offers, &result, &pool, NULL), 1);
    ck_assert_str_eq(result.tuned.parameters, "us=100");
    copse__pool_free(&pool);
}
END_TEST

/* One launch says enough of a candidate that takes 20 ms where the other way takes one. */
START_TEST(test_tune_gives_a_slow_candidate_no_turns) {
    static const char *const offers[] = {"us=20000", NULL};
    copse__tune_result result = {0};
    copse__pool pool = {0};
    const size_t before = choosy_offered_runs();
    ck_assert_uint_eq(tune(offers, &result, &pool, NULL), 1);
    ck_assert_str_eq(result.tuned.provider, "own");
    ck_assert_uint_ge(choosy_offered_runs(), before + 1);
    ck_assert_uint_le(choosy_offered_runs(), before + 2);
    copse__pool_free(&pool);
}
END_TEST

static void list_products(copse__tune_list *list, size_t count) {
    copse_error error = {0};
    for (size_t i = 0; i < count; i++) {
        copse__node_spec spec;
        char key[64];
        ck_assert(copse__bench_gemm_spec(&spec, "nn", 12 + i, 9, 16));
        snprintf(key, sizeof key, "dense %zux16 16x9 - > %zux9", 12 + i, 12 + i);
        ASSERT_OK(copse__tune_list_spec(list, key, &spec, 1, &error));
    }
}

/* What a first run leaves is all that a second one follows, however little time there was: nothing is measured again.
 * Of those candidates one is always faster, so that each node decided later would be another choice. */
static void use_twice(double seconds, const char *const *offers, bool faster) {
    const char *folder = make_folder();
    copse__tune_list list = {0};
    copse__tune_known first, second;
    copse_error error = {0};
    list_products(&list, 6);
    choosy_offer(offers);
    ASSERT_OK(copse__tune_known_open(&first, device, "auto", folder, &error));
    ASSERT_OK(copse__tune_first_use(&first, device, &list, folder, seconds, &error));
    for (size_t i = 0; i < list.count; i++)
        ck_assert_ptr_nonnull(
            copse__tuned_find(first.entries, first.count, list.subjects[i].key));
    if (faster)
        ck_assert_str_eq(
            copse__tuned_find(first.entries, first.count, list.subjects[0].key)->provider,
            "choosy");
    choosy_offer(offers);
    ASSERT_OK(copse__tune_known_open(&second, device, "auto", folder, &error));
    ASSERT_OK(copse__tune_first_use(&second, device, &list, folder, 20, &error));
    ck_assert_uint_eq(choosy_runs(), 0);
    ck_assert_uint_eq(second.count, first.count);
    for (size_t i = 0; i < first.count; i++) {
        ck_assert_str_eq(first.entries[i].key, second.entries[i].key);
        ck_assert_str_eq(first.entries[i].provider, second.entries[i].provider);
        ck_assert_str_eq(first.entries[i].parameters, second.entries[i].parameters);
    }
    copse__tune_known_close(&first);
    copse__tune_known_close(&second);
    copse__tune_list_free(&list);
    remove_folder(folder);
}

START_TEST(test_first_use_is_the_only_one) {
    static const char *const offers[] = {"us=10", NULL}, *const slow[] = {"us=1500",
                                                                          NULL};
    use_twice(1e-6, offers, false);
    use_twice(0.05, offers, false);
    use_twice(20, offers, true);
    use_twice(20, slow, false);
}
END_TEST

/* Timing that fails is no reason for a run not to begin. */
START_TEST(test_first_use_outlives_a_failure) {
    static const char *const offers[] = {"us=10 wrong=7", NULL};
    use_twice(20, offers, false);
    ck_assert_msg(strstr(log_text, "nobody knows why") != NULL, "%s", log_text);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tuner");
    TCase *cases = tcase_create("device");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, test_tune_takes_the_fastest);
    tcase_add_test(cases, test_tune_keeps_what_nobody_beats_clearly);
    tcase_add_test(cases, test_tune_refuses_wrong_numbers);
    tcase_add_test(cases, test_tune_case_of_pooled_maps_has_exact_sums);
    tcase_add_test(cases, test_tune_stopped_decides_nothing);
    tcase_add_test(cases, test_tune_goes_on_behind_a_launch_that_fails);
    tcase_add_test(cases, test_tune_gives_a_slow_candidate_no_turns);
    tcase_add_test(cases, test_first_use_is_the_only_one);
    tcase_add_test(cases, test_first_use_outlives_a_failure);
    tcase_add_test(cases, test_tune_refuses_wrong_numbers_of_a_large_product);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
