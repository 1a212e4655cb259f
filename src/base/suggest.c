/* SPDX-License-Identifier: Apache-2.0 */
#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Longer words are no typing mistakes of ours. */
#define WORD_MAX 48

/* Lower case, without separators. Returns the length, or WORD_MAX + 1 where too long. */
static size_t normalize(char out[WORD_MAX], const char *word) {
    size_t length = 0;
    for (; *word; word++) {
        if (*word == '_' || *word == '-' || *word == ' ')
            continue;
        if (length == WORD_MAX)
            return WORD_MAX + 1;
        out[length++] = (char)tolower((unsigned char)*word);
    }
    return length;
}

/* Optimal string alignment: insertions, deletions, replacements and swaps of neighbours,
 * each 1. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length) {
    size_t before[WORD_MAX + 1] = {0}, last[WORD_MAX + 1] = {0}, row[WORD_MAX + 1] = {0};
    for (size_t j = 0; j <= b_length; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            best = copse__min_size(best, copse__min_size(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = copse__min_size(best, before[j - 2] + 1);
            row[j] = best;
        }
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
    }
    return last[b_length];
}

const char *copse__suggest(const char *word, const char *const *known, size_t count) {
    char a[WORD_MAX], b[WORD_MAX];
    size_t a_length = normalize(a, word);
    if (a_length == 0 || a_length > WORD_MAX)
        return NULL;
    /* A third of the word may be wrong; of short words one letter. */
    size_t best = copse__max_size(1, a_length / 3) + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t b_length = normalize(b, known[i]);
        if (b_length > WORD_MAX)
            continue;
        size_t away = distance(a, a_length, b, b_length);
        if (away < best && away < b_length) {
            best = away;
            nearest = known[i];
        }
    }
    return nearest;
}

const char *copse__suggest_text(char *buffer, size_t capacity, const char *word,
                                const char *const *known, size_t count) {
    const char *nearest = copse__suggest(word, known, count);
    if (nearest)
        snprintf(buffer, capacity, " (did you mean '%s'?)", nearest);
    else
        buffer[0] = '\0';
    return buffer;
}
