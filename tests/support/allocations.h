/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_ALLOCATIONS_H
#define TESTS_SUPPORT_ALLOCATIONS_H

#include <stddef.h>

/* Counts and refuses allocations of the code under test. The linker sends them here, also those of blocks that
 * the C library gave (realpath, getline) and the code frees:
 *   target_link_options(TEST PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free)
 * Check's own assertions allocate: none may stand where allocations are refused. */

/* So many succeed, then all fail; SIZE_MAX: none does. */
void allocations_allow(size_t count);
/* What is left of those. */
size_t allocations_left(void);
/* Blocks given and not freed, modulo 2^64. */
size_t allocations_alive(void);

#endif
