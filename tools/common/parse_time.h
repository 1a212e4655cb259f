/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COMMON_PARSE_TIME_H
#define TOOLS_COMMON_PARSE_TIME_H

#include <stdbool.h>

/* "10s", "500ms", "2m", "3h50m", "1d12h"; seconds where no unit is given. False where it is no time, or
 * none above 0. */
bool tool_parse_time(const char *text, double *seconds);

#endif
