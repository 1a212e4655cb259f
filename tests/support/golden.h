/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_GOLDEN_H
#define TESTS_SUPPORT_GOLDEN_H

#include <stddef.h>

/* Numbers of another framework, from tests/data/golden; the format is described in
 * make_golden.py there. */
typedef struct golden golden;

/* name: "cifar". Fails the test where the file is missing or damaged. */
golden *golden_open(const char *name);
void golden_free(golden *file);

/* Fails the test unless got has exactly the tensor's count of elements and agrees with it:
 * listed elements within tolerance times the largest listed one, the norm within tolerance
 * of itself, the sum within tolerance times norm * sqrt(count). */
void golden_check(const golden *file, const char *tensor, const float *got, size_t count,
                  double tolerance);

#endif
