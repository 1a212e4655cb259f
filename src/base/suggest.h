/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_SUGGEST_H
#define COPSE_BASE_SUGGEST_H

#include <stddef.h>

/* The known word that a mistyped one most probably means, or NULL where none is near.
 * Case and the separators "_", "-" and " " do not count; of equally near ones the first
 * wins. */
const char *copse__suggest(const char *word, const char *const *known, size_t count);

/* " (did you mean 'filters'?)", or "" where nothing is near: the tail of a message.
 * Returns buffer. */
const char *copse__suggest_text(char *buffer, size_t capacity, const char *word,
                                const char *const *known, size_t count);

#endif
