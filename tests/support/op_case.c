/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topo/select.h"

enum { SKIPPED = 77 };

copse__device *test_device;

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* The first device that the selector names. */
static copse_status choose(copse__device_choice *out, copse_error *err) {
    copse__topo *topo = NULL;
    copse__device_choice *found = NULL;
    size_t count = 0;
    const char *selector = setting("COPSE_TEST_DEVICE", "host");
    if (strcmp(selector, "host") == 0) { /* without a look at any driver */
        *out = (copse__device_choice){
            .api = COPSE__API_HOST, .part_count = 1, .label = "host", .name = "host"};
        return COPSE_OK;
    }
    copse__topo_options options = {.isolate = COPSE__ISOLATE_NONE};
    copse_status status = copse__topo_open(&topo, &options, err);
    if (status == COPSE_OK)
        status = copse__select_devices(topo, selector, &found, &count, err);
    if (status == COPSE_OK)
        *out = found[0];
    free(found);
    copse__topo_close(topo);
    return status;
}

/* Operations of which a device may have more than one provider. */
static bool has_providers(copse__op op) {
    return op == COPSE__OP_DENSE || op == COPSE__OP_DENSE_GRAD_INPUT ||
           op == COPSE__OP_DENSE_GRAD_WEIGHT || op == COPSE__OP_CONV2D ||
           op == COPSE__OP_CONV2D_GRAD_INPUT || op == COPSE__OP_CONV2D_GRAD_FILTER ||
           op == COPSE__OP_CONV2D_MAX_POOL ||
           op == COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT ||
           op == COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER;
}

bool device_fuses_dense(void) {
    const copse__device_choice *choice = &copse__device_get(test_device)->choice;
    return choice->api == COPSE__API_HOST || strstr(choice->platform_name, "Portable");
}

void open_test_device(void) {
    copse_error error = {0};
    copse__device_choice choice;
    const char *pairs[COPSE__OP_COUNT + 1] = {NULL};
    char text[COPSE__OP_COUNT][64];
    size_t count = 0;
    const char *provider = setting("COPSE_TEST_PROVIDER", NULL);
    for (int op = 0; provider && op < COPSE__OP_COUNT; op++) {
        if (!has_providers((copse__op)op))
            continue;
        snprintf(text[count], sizeof text[count], "%s=%s", copse__op_name((copse__op)op),
                 provider);
        pairs[count] = text[count];
        count++;
    }
    copse__device_options options = {.cache_folder = setting("COPSE_TEST_CACHE", NULL),
                                     .providers = provider ? pairs : NULL};
    ASSERT_OK(choose(&choice, &error));
    ASSERT_OK(copse__device_open(&test_device, &choice, &options, &error));
}

void close_test_device(void) {
    copse__device_close(test_device);
    test_device = NULL;
}

TCase *device_case(Suite *suite, const char *name) {
    TCase *made = tcase_create(name);
    tcase_add_checked_fixture(made, open_test_device, close_test_device);
    tcase_set_timeout(made, 150);
    suite_add_tcase(suite, made);
    return made;
}

/* Asks for the device in a child: whether the suite must be skipped. */
static bool device_is_missing(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        copse_error error = {0};
        copse__device_choice choice;
        copse_status status = choose(&choice, &error);
        if (status == COPSE_OK)
            printf("on %s: %s (%s, driver %s)\n", choice.label, choice.name,
                   choice.platform_name, choice.driver);
        else
            printf("%s: %s\n", status == COPSE_NODEVICE ? "SKIPPED" : "no device",
                   error.text);
        fflush(stdout);
        _exit(status == COPSE_OK ? 0 : status == COPSE_NODEVICE ? SKIPPED : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == SKIPPED;
}

int run_device_suite(Suite *suite) {
    bool missing = device_is_missing();
    SRunner *runner = srunner_create(suite);
    if (!missing)
        srunner_run_all(runner, CK_ENV);
    int failed = missing ? 0 : srunner_ntests_failed(runner);
    srunner_free(runner);
    return missing ? SKIPPED : failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

typedef struct tally {
    size_t cases, wrong, left_out;
    double worst;
    char worst_name[96];
    char providers[256];
} tally;

static void add_provider(tally *t, const char *name) {
    size_t used = strlen(t->providers);
    if (!strstr(t->providers, name))
        snprintf(t->providers + used, sizeof t->providers - used, " %s", name);
}

/* A type that the device lacks is no fault of the backend, nor a node that one provider
 * leaves to others. */
static bool may_be_unsupported(const copse__selftest_result *result) {
    if (setting("COPSE_TEST_PROVIDER", NULL) && has_providers(result->op))
        return true;
    if (strstr(result->name, " fused ") && !device_fuses_dense())
        return true;
    return strncmp(result->name, "cast f64", 8) == 0 &&
           !copse__device_get(test_device)->caps.fp64;
}

static void count_result(const copse__selftest_result *result, void *user) {
    tally *t = user;
    t->cases++;
    if (result->status == COPSE_UNSUPPORTED && may_be_unsupported(result)) {
        printf("  left out: %s: %s\n", result->name, result->text);
        t->left_out++;
        return;
    }
    if (result->status != COPSE_OK) {
        t->wrong++;
        printf("  %s\n", result->text);
    }
    add_provider(t, result->provider);
    if (result->status == COPSE_OK && result->error >= t->worst) {
        t->worst = result->error;
        snprintf(t->worst_name, sizeof t->worst_name, "%s", result->name);
    }
}

static copse__selftest_level level(void) {
    const char *name = setting("COPSE_TEST_LEVEL", "full");
    return strcmp(name, "quick") == 0   ? COPSE__SELFTEST_QUICK
           : strcmp(name, "small") == 0 ? COPSE__SELFTEST_SMALL
                                        : COPSE__SELFTEST_FULL;
}

START_TEST(test_operation_agrees_with_the_host) {
    copse__op op = (copse__op)_i;
    bool ops[COPSE__OP_COUNT] = {false};
    tally t = {0};
    copse_error error = {0};
    copse__selftest_options options = {.level = level(), .seed = 1, .ops = ops};
    ops[op] = true;
    copse_status status =
        copse__selftest_run(test_device, &options, count_result, &t, &error);
    printf("  %s: %zu cases by%s, worst %.3f of the tolerance (%s)\n", copse__op_name(op),
           t.cases, t.providers, t.worst, t.worst_name);
    fflush(stdout);
    ck_assert_msg(status == COPSE_OK, "%s", error.text);
    ck_assert_msg(t.cases > t.left_out && t.wrong == 0,
                  "%zu of %zu cases of %s failed, %zu were left out", t.wrong, t.cases,
                  copse__op_name(op), t.left_out);
}
END_TEST

int run_op_suite(const char *family, const copse__op *ops, size_t count) {
    Suite *suite = suite_create(family);
    for (size_t i = 0; i < count; i++)
        tcase_add_loop_test(device_case(suite, copse__op_name(ops[i])),
                            test_operation_agrees_with_the_host, (int)ops[i],
                            (int)ops[i] + 1);
    return run_device_suite(suite);
}
