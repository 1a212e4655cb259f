/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_SHIPPED_H
#define COPSE_TUNE_SHIPPED_H

#include <stddef.h>

/* Results that come with copse (cl/tune), each file as its text. A new file is one more line here and in
 * copse__tune_shipped_all. */
typedef struct copse__tune_shipped {
    const char *name;
    const char *text;
    size_t bytes;
} copse__tune_shipped;

extern const copse__tune_shipped copse__tune_shipped_pocl_x86_64;

/* NULL-terminated. */
extern const copse__tune_shipped *const copse__tune_shipped_all[];

#endif
