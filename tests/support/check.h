/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <check.h>
#include <copse/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Asserts that a fallible expression succeeds, and shows its error where it does not.
 * Needs a `copse_error error` in scope. */
#define ASSERT_OK(expression)                                                            \
    do {                                                                                 \
        copse_status status_ = (expression);                                             \
        ck_assert_msg(status_ == COPSE_OK, "%s: %s: %s: %s", #expression,                \
                      copse_status_name(status_), error.place, error.text);              \
    } while (0)

/* Asserts that it fails with just this status. */
#define ASSERT_FAILS(expected, expression)                                               \
    do {                                                                                 \
        copse_status status_ = (expression);                                             \
        ck_assert_msg(status_ == (expected), "%s: %s instead of %s", #expression,        \
                      copse_status_name(status_), copse_status_name(expected));          \
    } while (0)

/* Adds one test function as a case of its own, named after it. */
#define ADD_TEST(suite, function)                                                        \
    do {                                                                                 \
        TCase *case_ = tcase_create(#function);                                          \
        tcase_set_timeout(case_, 60);                                                    \
        tcase_add_test(case_, function);                                                 \
        suite_add_tcase((suite), case_);                                                 \
    } while (0)

/* The same, with its fixture (either may be NULL) and so many seconds at most. */
static inline void add_fixture_test(Suite *suite, const char *name, const TTest *test,
                                    SFun setup, SFun teardown, double seconds) {
    TCase *made = tcase_create(name);
    tcase_set_timeout(made, seconds);
    tcase_add_checked_fixture(made, setup, teardown);
    tcase_add_test(made, test);
    suite_add_tcase(suite, made);
}
#define ADD_FIXTURE_TEST(suite, test, setup, teardown, seconds)                          \
    add_fixture_test((suite), #test, (test), (setup), (teardown), (seconds))

/* Runs a suite as a program's main; EXIT_FAILURE where a test failed. */
static inline int run_suite(Suite *suite) {
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* The suites that make(0) to make(parts - 1) return, each run by a process of its own, so many at a time:
 * for cases that mostly wait. EXIT_FAILURE where one failed. */
static inline int run_suites_at_once(Suite *(*make)(size_t part), size_t parts,
                                     size_t at_once) {
    size_t running = 0;
    int result = EXIT_SUCCESS;
    for (size_t part = 0; part < parts || running > 0;) {
        if (part < parts && running < at_once) {
            fflush(NULL);
            const pid_t child = fork();
            if (child == 0)
                exit(run_suite(make(part)));
            if (child < 0)
                return EXIT_FAILURE;
            part++;
            running++;
            continue;
        }
        int status = -1;
        if (wait(&status) < 0 || !WIFEXITED(status) ||
            WEXITSTATUS(status) != EXIT_SUCCESS)
            result = EXIT_FAILURE;
        running--;
    }
    return result;
}

#endif
