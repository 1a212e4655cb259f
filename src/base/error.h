/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_ERROR_H
#define COPSE_BASE_ERROR_H

#include <copse/status.h>

/* Fills err (may be NULL) and returns status, so that a caller writes
 * `return copse__fail(err, COPSE_IO, errno, path, "cannot open it: %s",
 * strerror(errno));`. place may be NULL. Texts too long for the struct are cut at a
 * character boundary; line breaks and other control characters become spaces. */
copse_status copse__fail(copse_error *err, copse_status status, int native,
                         const char *place, const char *format, ...) COPSE_PRINTF(5, 6);

/* COPSE_NOMEM with the number of bytes that could not be had. */
copse_status copse__fail_nomem(copse_error *err, uint64_t bytes);

/* Runs a fallible expression; on failure stores its status and jumps to the label.
 * Needs a `copse_status status` in scope. */
#define COPSE__TRY(expression, label)                                                    \
    do {                                                                                 \
        status = (expression);                                                           \
        if (status != COPSE_OK)                                                          \
            goto label;                                                                  \
    } while (0)

#endif
