/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAULT_FILES_SHIM_H
#define TESTS_FAULT_FILES_SHIM_H

#include <stdbool.h>

/* Stands between a program and the system's file calls: lets the n-th of them fail, writes arrive in pieces,
 * watches that no file is renamed before its bytes are safe, and lets the power go (tests/fault/power.h).
 * Two ways in: linked into a test with -Wl,--wrap=open,… as tests/fault/CMakeLists.txt does; or, compiled with
 * FILES_PRELOAD, loaded into any command by LD_PRELOAD and told by the environment (files_shim.c). */

/* From now on the call-th file call (from 1) fails with code, once (or, where sticky, so do all
 * after it). 0: none fails. Starts counting anew. */
void shim_fail(unsigned call, int code, bool sticky);
/* Every write takes at most this many bytes; 0: no limit. */
void shim_short_writes(unsigned bytes);
/* Calls counted since shim_fail. */
unsigned shim_calls(void);
/* Renames of files that had unsynced bytes, in all. */
unsigned shim_unsafe_renames(void);
/* Folders made whose own entry is not synced, in all. */
unsigned shim_unsynced_folders(void);

#endif
