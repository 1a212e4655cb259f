/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_LOG_H
#define COPSE_BASE_LOG_H

#include <copse/status.h>
#include <stdbool.h>

/* One line to the caller's sink; nothing where none is set or the level is not wanted. */
void copse__log(copse_log_level level, const char *format, ...) COPSE_PRINTF(2, 3);

/* Whether a line of this level would be seen: ask before building an expensive one. */
bool copse__log_wanted(copse_log_level level);

/* Sends a text of many lines (a compiler's output) line by line. */
void copse__log_lines(copse_log_level level, const char *text);

#endif
