/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "backend/selftest/compare.h"
#include "support/op_run.h"

/* The self-test must see what is wrong: here the host is its own device, once honest and
 * once with operations that err a little. */

typedef struct tally {
    size_t seen[COPSE__OP_COUNT], wrong[COPSE__OP_COUNT], unsupported;
} tally;

static void count_result(const copse__selftest_result *result, void *user) {
    tally *t = user;
    t->seen[result->op]++;
    t->wrong[result->op] += result->status == COPSE_KERNEL;
    t->unsupported += result->status == COPSE_UNSUPPORTED;
    ck_assert_uint_eq(strlen(result->text) > 0, result->status != COPSE_OK);
}

START_TEST(test_selftest_host_agrees_with_itself_on_every_op) {
    copse__device *device = open_host(1);
    for (int level = COPSE__SELFTEST_QUICK; level <= COPSE__SELFTEST_SMALL; level++) {
        tally t = {0};
        copse_error error = {0};
        copse__selftest_options options = {.level = (copse__selftest_level)level,
                                           .seed = 5};
        ASSERT_OK(copse__selftest_run(device, &options, count_result, &t, &error));
        for (size_t op = 0; op < COPSE__OP_COUNT; op++)
            ck_assert_msg(t.seen[op] > 0, "no case of %s at level %d",
                          copse__op_name((copse__op)op), level);
        ck_assert_uint_eq(t.unsupported, 0);
    }
    copse__device_close(device);
}
END_TEST

START_TEST(test_selftest_runs_only_the_wanted_ops) {
    copse__device *device = open_host(1);
    bool ops[COPSE__OP_COUNT] = {[COPSE__OP_SOFTMAX] = true};
    tally t = {0};
    copse_error error = {0};
    copse__selftest_options options = {.ops = ops};
    ASSERT_OK(copse__selftest_run(device, &options, count_result, &t, &error));
    for (size_t op = 0; op < COPSE__OP_COUNT; op++)
        ck_assert((t.seen[op] > 0) == (op == COPSE__OP_SOFTMAX));
    copse__device_close(device);
}
END_TEST

/* A backend that lets the host compute and then spoils the output's last element, as a
 * kernel that forgets its tail does. */
typedef struct spoiled {
    copse__backend backend;
    copse__view last_output;
    size_t spoil_bytes;
} spoiled;

static spoiled *spoiler(copse__device *device) {
    return (spoiled *)(uintptr_t)copse__backend_of(device);
}

static copse_status spoil_launch(copse__launch **out, copse__device *device,
                                 const copse__graph *graph, const copse__node *node,
                                 const copse__operands *operands, copse_error *err) {
    spoiler(device)->last_output = operands->outputs[0];
    return copse__backend_host.launch_new(out, device, graph, node, operands, err);
}

static copse_status spoil_run(copse__device *device, copse__launch *const *launches,
                              size_t count, const copse__extents *extents,
                              copse_error *err) {
    copse__view view = spoiler(device)->last_output;
    copse_status status = copse__backend_host.run(device, launches, count, extents, err);
    if (status != COPSE_OK)
        return status;
    view.offset += view.bytes - 4 + spoiler(device)->spoil_bytes;
    view.bytes = 4;
    return copse__backend_host.fill(device, COPSE__QUEUE_COMPUTE, view, 0x7E123456, NULL,
                                    NULL, err);
}

static copse_status run_spoiled(size_t beyond, tally *t, copse_error *err) {
    copse__device *device = open_host(1);
    spoiled made = {.backend = copse__backend_host, .spoil_bytes = beyond};
    made.backend.launch_new = spoil_launch;
    made.backend.run = spoil_run;
    ((copse__device_base *)(void *)device)->backend = &made.backend;
    copse__selftest_options options = {.level = COPSE__SELFTEST_QUICK};
    copse_status status = copse__selftest_run(device, &options, count_result, t, err);
    copse__device_close(device);
    return status;
}

START_TEST(test_selftest_sees_one_wrong_element) {
    tally t = {0};
    copse_error error = {0};
    ASSERT_FAILS(COPSE_KERNEL, run_spoiled(0, &t, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "dense 9x17x33 bias relu by loops"));
    for (size_t op = 0; op < COPSE__OP_COUNT; op++)
        if (op != COPSE__OP_FINITE_CHECK) /* any count above 0 is right there */
            ck_assert_msg(t.wrong[op] > 0, "%s", copse__op_name((copse__op)op));
}
END_TEST

START_TEST(test_selftest_sees_a_write_behind_an_output) {
    tally t = {0};
    copse_error error = {0};
    ASSERT_FAILS(COPSE_KERNEL, run_spoiled(4, &t, &error));
    for (size_t op = 0; op < COPSE__OP_COUNT; op++)
        ck_assert_msg(t.wrong[op] == t.seen[op], "%s", copse__op_name((copse__op)op));
}
END_TEST

static double error_between(float got, float want, copse__tolerance tolerance) {
    copse__worst worst = {0};
    copse__compare_floats(&worst, "x", &got, &want, 1, tolerance);
    ck_assert_uint_eq(strlen(worst.text) > 0, worst.error > 1);
    return worst.error;
}

START_TEST(test_compare_floats_nan_and_infinity_never_pass) {
    const copse__tolerance loose = {1, 1, 0}, exact = {0, 0, 0};
    ck_assert(error_between(NAN, 1, loose) > 1);
    ck_assert(error_between(1, NAN, loose) > 1);
    ck_assert(error_between(INFINITY, 1, loose) > 1);
    ck_assert(error_between(1, INFINITY, loose) > 1);
    ck_assert(error_between(INFINITY, -INFINITY, loose) > 1);
    ck_assert(error_between(NAN, NAN, exact) == 0);
    ck_assert(error_between(INFINITY, INFINITY, exact) == 0);
    ck_assert(error_between(1, nextafterf(1, 2), exact) > 1);
    ck_assert(error_between(0.0f, -0.0f, exact) > 1);
    ck_assert(error_between(0.0f, -0.0f, loose) == 0);
    ck_assert(error_between(1.05f, 1, (copse__tolerance){0.1, 0, 0}) < 1);
    ck_assert(error_between(1.2f, 1, (copse__tolerance){0.1, 0, 0}) > 1);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("selftest");
    ADD_TEST(suite, test_selftest_host_agrees_with_itself_on_every_op);
    ADD_TEST(suite, test_selftest_runs_only_the_wanted_ops);
    ADD_TEST(suite, test_selftest_sees_one_wrong_element);
    ADD_TEST(suite, test_selftest_sees_a_write_behind_an_output);
    ADD_TEST(suite, test_compare_floats_nan_and_infinity_never_pass);
    return run_suite(suite);
}
