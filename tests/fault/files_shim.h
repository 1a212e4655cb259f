/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAULT_FILES_SHIM_H
#define TESTS_FAULT_FILES_SHIM_H

#include <stdbool.h>

/* Stands between a test and the system's file calls (linked with -Wl,--wrap=open,… as
 * tests/fault/CMakeLists.txt does): lets the n-th of them fail, writes arrive in pieces, and
 * watches that no file is renamed before its bytes are safe. */

/* From now on the call-th file call (from 1) fails with code, once (or, where sticky, so do all
 * after it). 0: none fails. Starts counting anew. */
void shim_fail(unsigned call, int code, bool sticky);
/* Every write takes at most this many bytes; 0: no limit. */
void shim_short_writes(unsigned bytes);
/* Calls counted since shim_fail. */
unsigned shim_calls(void);
/* Renames of files that had unsynced bytes, in all. */
unsigned shim_unsafe_renames(void);

#endif
