/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_OP_CASE_H
#define TESTS_SUPPORT_OP_CASE_H

#include "backend/selftest.h"
#include "support/check.h"

/* Suites that run on the device which ctest names:
 *   COPSE_TEST_DEVICE  a selector as `--devices` takes it; "host" where it is not set
 *   COPSE_TEST_LEVEL   quick, small or full (the default): how many of the cases
 *   COPSE_TEST_CACHE   folder for compiled programs; none where it is not set
 *   COPSE_TEST_PROVIDER  which implementation must run the suite's products and
 *                      convolutions, and must run some case of each; the device's own
 *                      choice where it is not set
 *
 * Check forks for every test, and a driver that was loaded before a fork hangs in the
 * child: the parent makes no OpenCL call, and the device is opened in a checked fixture. */

/* The fixture's device: open within a test only. */
extern copse__device *test_device;
void open_test_device(void);
void close_test_device(void);

/* Whether gradients of small dense layers must take others along here: on the host and PoCL. Within a test. */
bool device_fuses_dense(void);

/* A case whose tests find test_device open. */
TCase *device_case(Suite *suite, const char *name);

/* Runs a suite as a program's main, or tells why there is no such device and returns 77,
 * which ctest shows as skipped. Frees the suite. */
int run_device_suite(Suite *suite);

/* A whole program: every case of these operations against the host, a test an operation. */
int run_op_suite(const char *family, const copse__op *ops, size_t count);

#endif
