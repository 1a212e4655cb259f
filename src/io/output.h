/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_IO_OUTPUT_H
#define COPSE_IO_OUTPUT_H

#include "base/file.h"

/* A file that is written from its start to its end, compressed on the way where asked, and that
 * appears whole or not at all. */
typedef struct copse__output copse__output;

copse_status copse__output_open(copse__output **out, const char *path, bool gzip,
                                copse_error *err);
copse_status copse__output_write(copse__output *output, const void *data, size_t bytes,
                                 copse_error *err);
/* Frees output whatever the outcome. */
copse_status copse__output_commit(copse__output *output, copse_error *err);
void copse__output_abort(copse__output *output); /* NULL is allowed */

/* Whether a name ends in ".gz". */
bool copse__is_gzip_name(const char *path);

#endif
