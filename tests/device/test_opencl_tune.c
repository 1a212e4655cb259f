/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/bench.h"
#include "support/choosy.h"
#include "support/files.h"
#include "support/op_case.h"
#include "tune/first_use.h"

/* Tuning on the device that ctest names. */

static char log_text[8192];

static void note(copse_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

static copse__tune_result tune(copse__device *device, size_t m, size_t n, size_t k,
                               double seconds, copse__pool *pool) {
    copse__tune_list list = {0};
    copse__node_spec spec;
    copse__tune_result result = {0};
    copse_error error = {0};
    size_t count = 0;
    char key[64];
    ck_assert(copse__bench_gemm_spec(&spec, "nn", m, n, k));
    snprintf(key, sizeof key, "dense %zux%zu %zux%zu - > %zux%zu", m, k, k, n, m, n);
    ASSERT_OK(copse__tune_list_spec(&list, key, &spec, 1, &error));
    const copse__tune_options options = {.seconds = seconds};
    ASSERT_OK(copse__tune_run(&result, &count, pool, device, &list, &options, &error));
    ck_assert_uint_eq(count, 1);
    copse__tune_list_free(&list);
    return result;
}

/* A kernel of the driver's that is fast, and wrong in its last number's place: one that is right is chosen. */
START_TEST(test_tune_refuses_a_wrong_kernel_on_a_real_device) {
    static const char *const kinds[] = {"us=10 wrong=1", "us=10 wrong=2", "us=10 wrong=3",
                                        "us=10 wrong=5"};
    copse__device *device;
    copse_error error = {0};
    copse__device_choice here = copse__device_get(test_device)->choice;
    const copse__device_options options = {.backend = &choosy_backend};
    ASSERT_OK(copse__device_open(&device, &here, &options, &error));
    copse_log_set(note, COPSE_LOG_WARN, NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *const offers[] = {kinds[i], "us=300", NULL};
        copse__pool pool = {0};
        log_text[0] = '\0';
        choosy_offer(offers);
        copse__tune_result result = tune(device, 12, 9, 16, 60, &pool);
        ck_assert_uint_gt(choosy_wrong_runs(), 0);
        ck_assert_str_ne(result.tuned.parameters, kinds[i]);
        ck_assert_msg(strstr(log_text, "is not chosen") != NULL, "%s: %s", kinds[i],
                      log_text);
        copse__pool_free(&pool);
    }
    copse__device_close(device);
}
END_TEST

/* The real kernels: the result is followed, and nothing that was tried was wrong. */
START_TEST(test_tune_a_product_and_follow_it) {
    copse__pool pool = {0};
    copse__node_spec spec;
    copse__node_run *run;
    copse_error error = {0};
    const copse__backend *backend = copse__backend_of(test_device);
    log_text[0] = '\0';
    copse_log_set(note, COPSE_LOG_WARN, NULL);
    copse__tune_result result = tune(test_device, 48, 33, 65, 3, &pool);
    ck_assert_str_eq(log_text, "");
    ASSERT_OK(backend->tune(test_device, &result.tuned, 1, &error));
    copse__bench_gemm_spec(&spec, "nn", 48, 33, 65);
    ASSERT_OK(copse__node_run_new(&run, test_device, &spec, &error));
    ck_assert_str_eq(copse__node_run_provider(run), result.tuned.provider);
    ck_assert_str_eq(copse__node_run_parameters(run), result.tuned.parameters);
    ck_assert(backend->tuned_used(test_device, 0));
    copse__node_run_free(run);
    ASSERT_OK(backend->tune(test_device, NULL, 0, &error));
    copse__pool_free(&pool);
}
END_TEST

/* What comes with copse is right on the devices that it is for. */
START_TEST(test_shipped_results_are_right_here) {
    copse__tune_known known;
    copse_error error = {0};
    bool ops[COPSE__OP_COUNT] = {false};
    size_t tuned_ops = 0;
    ASSERT_OK(copse__tune_known_open(&known, test_device, "auto", NULL, &error));
    for (size_t i = 0; i < known.count; i++)
        for (int op = 0; op < COPSE__OP_COUNT; op++)
            if (strcmp(known.entries[i].key, copse__op_name((copse__op)op)) == 0) {
                ops[op] = true;
                tuned_ops++;
            }
    printf("%zu shipped results are for this device\n", known.count);
    ck_assert_uint_eq(tuned_ops, known.count);
    ASSERT_OK(copse__backend_of(test_device)
                  ->tune(test_device, known.entries, known.count, &error));
    const copse__selftest_options options = {
        .level = COPSE__SELFTEST_FULL, .seed = 3, .ops = ops};
    if (known.count > 0)
        ASSERT_OK(copse__selftest_run(test_device, &options, NULL, NULL, &error));
    for (size_t i = 0; i < known.count; i++)
        ck_assert_msg(strcmp(known.entries[i].provider, COPSE__TUNED_DEFAULT) == 0 ||
                          copse__backend_of(test_device)->tuned_used(test_device, i),
                      "%s", known.entries[i].key);
    copse__tune_known_close(&known);
}
END_TEST

/* Too little time for most: the second use finds a result for each of them and measures nothing. */
START_TEST(test_first_use_decides_all_on_a_real_device) {
    const char *folder = make_folder();
    copse__tune_list list = {0};
    copse__tune_known first = {0}, second;
    copse_error error = {0};
    for (size_t m = 40; m < 44; m++) {
        copse__node_spec spec;
        char key[64];
        ck_assert(copse__bench_gemm_spec(&spec, "nn", m, 33, 65));
        snprintf(key, sizeof key, "dense %zux65 65x33 - > %zux33", m, m);
        ASSERT_OK(copse__tune_list_spec(&list, key, &spec, 1, &error));
    }
    ASSERT_OK(copse__tune_first_use(&first, test_device, &list, folder, 0.05, &error));
    ASSERT_OK(copse__tune_known_open(&second, test_device, "auto", folder, &error));
    ck_assert_uint_eq(first.count, second.count);
    for (size_t i = 0; i < list.count; i++) {
        const copse__tuned *a =
            copse__tuned_find(first.entries, first.count, list.subjects[i].key);
        const copse__tuned *b =
            copse__tuned_find(second.entries, second.count, list.subjects[i].key);
        ck_assert_ptr_nonnull(a);
        ck_assert_str_eq(b->key, list.subjects[i].key);
        ck_assert_str_eq(a->provider, b->provider);
        ck_assert_str_eq(a->parameters, b->parameters);
    }
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, NULL, 0, &error));
    copse__tune_known_close(&first);
    copse__tune_known_close(&second);
    copse__tune_list_free(&list);
    remove_folder(folder);
}
END_TEST

/* A node's entry that it cannot follow, or that leaves the choice to the device, is found, and is to be recorded. */
START_TEST(test_what_is_not_followed_is_found) {
    static const copse__tuned entries[] = {
        {"dense 48x65 65x33 - > 48x33", "nonesuch", ""},
        {"dense 47x65 65x33 - > 47x33", "default", ""},
        {"dense 46x65 65x33 - > 46x33", "rows", ""}};
    const copse__backend *backend = copse__backend_of(test_device);
    copse_error error = {0};
    copse_log_set(note, COPSE_LOG_WARN, NULL);
    ASSERT_OK(backend->tune(test_device, entries, 3, &error));
    for (size_t m = 47; m <= 48; m++) {
        copse__node_spec spec;
        copse__node_run *run;
        copse__bench_gemm_spec(&spec, "nn", m, 33, 65);
        ASSERT_OK(copse__node_run_new(&run, test_device, &spec, &error));
        copse__node_run_free(run);
    }
    for (size_t i = 0; i < 3; i++) {
        ck_assert(!backend->tuned_used(test_device, i));
        ck_assert_int_eq(backend->tuned_found(test_device, i), i < 2);
    }
    ASSERT_OK(backend->tune(test_device, NULL, 0, &error));
}
END_TEST

typedef struct sizes {
    char texts[12][256];
    size_t count;
} sizes;

static void collect(const char *provider, const char *parameters, bool general,
                    void *user) {
    sizes *s = user;
    if (general && parameters[0] && strcmp(provider, "packed") == 0 && s->count < 12)
        snprintf(s->texts[s->count++], sizeof s->texts[0], "%s", parameters);
}

/* Whether the packed kernels run on the device at all. */
static bool has_packed(void) {
    static const copse__tuned entry = {"dense", "packed", ""};
    copse_error error = {0};
    copse__node_spec spec;
    copse__node_run *run;
    copse__bench_gemm_spec(&spec, "nn", 256, 256, 256);
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, &entry, 1, &error));
    ASSERT_OK(copse__node_run_new(&run, test_device, &spec, &error));
    bool has = strcmp(copse__node_run_provider(run), "packed") == 0;
    copse__node_run_free(run);
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, NULL, 0, &error));
    return has;
}

/* The self-test of these operations by the packed kernels with these parameters. */
static void check_packed(const copse__op *which, size_t count, const char *parameters) {
    copse__tuned entries[COPSE__OP_COUNT];
    bool ops[COPSE__OP_COUNT] = {false};
    copse_error error = {0};
    const copse__selftest_options options = {
        .level = COPSE__SELFTEST_SMALL, .seed = 5, .ops = ops};
    for (size_t i = 0; i < count; i++) {
        ops[which[i]] = true;
        entries[i] = (copse__tuned){copse__op_name(which[i]), "packed", parameters};
    }
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, entries, count, &error));
    copse_status status = copse__selftest_run(test_device, &options, NULL, NULL, &error);
    ck_assert_msg(status == COPSE_OK, "%s: %s", parameters, error.text);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(copse__backend_of(test_device)->tuned_used(test_device, i),
                      "%s: %s", entries[i].key, parameters);
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, NULL, 0, &error));
}

/* Register tiles and blocks that nobody measured to be fast here must be right as well. */
START_TEST(test_packed_kernels_of_other_sizes_are_right) {
    static const copse__op ops[] = {COPSE__OP_DENSE, COPSE__OP_DENSE_GRAD_INPUT,
                                    COPSE__OP_DENSE_GRAD_WEIGHT};
    copse_error error = {0};
    copse__node_spec spec;
    copse__node_run *run;
    sizes found = {.count = 0};
    bool has = has_packed();
    copse__bench_gemm_spec(&spec, "nn", 256, 256, 256);
    ASSERT_OK(copse__node_run_new(&run, test_device, &spec, &error));
    copse__node_run_candidates(run, COPSE__EFFORT_THOROUGH, collect, &found);
    copse__node_run_free(run);
    ck_assert_int_eq(found.count > 0, has);
    for (size_t i = 0; i < found.count; i++)
        check_packed(ops, sizeof ops / sizeof ops[0], found.texts[i]);
    printf("%zu other sizes of the packed kernels\n", found.count);
}
END_TEST

/* Also where windows of four pixels do not fill whole tiles. */
START_TEST(test_packed_convolutions_of_other_sizes_are_right) {
    static const copse__op ops[] = {COPSE__OP_CONV2D,
                                    COPSE__OP_CONV2D_GRAD_INPUT,
                                    COPSE__OP_CONV2D_GRAD_FILTER,
                                    COPSE__OP_CONV2D_MAX_POOL,
                                    COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT,
                                    COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER};
    static const char *const others[] = {"mr=5 mc=20", "mr=3 mc=24"};
    if (!has_packed())
        return;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        check_packed(ops, sizeof ops / sizeof ops[0], others[i]);
}
END_TEST

/* By these CLBlast would divide by zero, or compute wrong products. */
START_TEST(test_clblast_kernels_that_cannot_be_are_refused) {
    static const copse__tuned bad[] = {
        {"clblast Xgemm", "clblast",
         "GEMMK=0 KREG=1 KWG=32 KWI=2 MDIMA=16 MDIMC=16 MWG=0 NDIMB=16 NDIMC=16 NWG=64 "
         "SA=1 SB=1 STRM=0 STRN=0 VWM=4 VWN=4"},
        {"clblast XgemmDirect", "clblast",
         "KWID=2 MDIMAD=8 MDIMCD=32 NDIMBD=8 NDIMCD=8 PADA=1 PADB=1 VWMD=1 VWND=1 "
         "WGD=8"}};
    copse_error error = {0};
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, bad, 2, &error));
    for (size_t i = 0; i < 2; i++)
        ck_assert_msg(!copse__backend_of(test_device)->tuned_used(test_device, i), "%s",
                      bad[i].key);
    ASSERT_OK(copse__backend_of(test_device)->tune(test_device, NULL, 0, &error));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tuning on a device");
    TCase *cases = device_case(suite, "tune");
    tcase_set_timeout(cases, 240);
    tcase_add_test(cases, test_tune_refuses_a_wrong_kernel_on_a_real_device);
    tcase_add_test(cases, test_tune_a_product_and_follow_it);
    tcase_add_test(cases, test_first_use_decides_all_on_a_real_device);
    tcase_add_test(cases, test_what_is_not_followed_is_found);
    tcase_add_test(cases, test_shipped_results_are_right_here);
    tcase_add_test(cases, test_packed_kernels_of_other_sizes_are_right);
    tcase_add_test(cases, test_packed_convolutions_of_other_sizes_are_right);
    tcase_add_test(cases, test_clblast_kernels_that_cannot_be_are_refused);
    return run_device_suite(suite);
}
