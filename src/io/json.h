/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_JSON_H
#define COPSE_IO_JSON_H

#include "base/text.h"

/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so that every reader
 * takes the result. */
void copse__json_text(copse__text *out, const char *text);

#endif
