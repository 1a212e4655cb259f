/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COMM_BUDGET_H
#define COPSE_COMM_BUDGET_H

#include <stddef.h>

/* Bytes that this process may still take without others being pushed out: what the system calls
 * available, and what each memory cgroup of the process leaves below its limit, where file
 * pages that nobody used lately count as free (both cgroup versions). SIZE_MAX: nothing is
 * known. root: "" but for tests, which read their own /proc and /sys below it. */
size_t copse__free_memory(const char *root);

#endif
