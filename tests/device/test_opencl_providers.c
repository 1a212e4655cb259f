/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "backend/opencl/provider.h"
#include "support/op_case.h"

/* Every provider against the host, also those that this device would not choose. */

static const char *const names[] = {"rows",   "tiled",  "clblast",
                                    "direct", "packed", "small"};
#define NAME_COUNT (sizeof names / sizeof names[0])

static bool has(copse__op op, const char *name) {
    for (const copse__cl_provider *const *p = copse__cl_providers(op); *p; p++)
        if (strcmp((*p)->name, name) == 0)
            return true;
    return false;
}

typedef struct tally {
    const char *name;
    size_t right, other, refused;
} tally;

static void count(const copse__selftest_result *result, void *user) {
    tally *t = user;
    if (result->status == COPSE_UNSUPPORTED) { /* of this device, or of these sizes */
        ck_assert_str_ne(result->text, "");
        if (t->refused++ == 0)
            printf("refused: %s\n", result->text);
        return;
    }
    ck_assert_msg(result->status == COPSE_OK, "%s", result->text);
    if (strcmp(result->provider, t->name) == 0)
        t->right++;
    else
        t->other++;
}

START_TEST(test_every_provider_agrees_with_the_host) {
    copse_error error = {0};
    char pairs[COPSE__OP_COUNT][80];
    const char *table[COPSE__OP_COUNT + 1] = {NULL};
    bool ops[COPSE__OP_COUNT] = {false};
    tally t = {.name = names[_i]};
    size_t used = 0;
    for (size_t op = 0; op < COPSE__OP_COUNT; op++) {
        if (!has((copse__op)op, t.name))
            continue;
        ops[op] = true;
        snprintf(pairs[used], sizeof pairs[used], "%s=%s", copse__op_name((copse__op)op),
                 t.name);
        table[used] = pairs[used];
        used++;
    }
    ck_assert_uint_gt(used, 0);
    copse__device *device;
    copse__device_options options = {.providers = table};
    ASSERT_OK(copse__device_open(&device, &copse__device_get(test_device)->choice,
                                 &options, &error));
    const char *level = getenv("COPSE_TEST_LEVEL");
    copse__selftest_options how = {.level = level && strcmp(level, "quick") == 0
                                                ? COPSE__SELFTEST_QUICK
                                                : COPSE__SELFTEST_SMALL,
                                   .seed = 3,
                                   .ops = ops};
    ASSERT_OK(copse__selftest_run(device, &how, count, &t, &error));
    copse__device_close(device);
    ck_assert_uint_eq(t.other, 0);
    ck_assert_uint_gt(t.right + t.refused, 0);
    if (strcmp(t.name, "packed") != 0 && /* meant for whole cores with wide vectors */
        strcmp(t.name, "small") != 0)
        ck_assert_uint_gt(t.right, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("opencl providers");
    TCase *all = device_case(suite, "providers");
    tcase_add_loop_test(all, test_every_provider_agrees_with_the_host, 0,
                        (int)NAME_COUNT);
    return run_device_suite(suite);
}
