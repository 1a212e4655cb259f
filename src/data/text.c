/* SPDX-License-Identifier: Apache-2.0
 *
 * Text for language models: windows of tokens, and the token after each. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "data/dataset.h"
#include "io/input.h"

enum { PIECE = 64 << 10, CODES = 0x110000 };

typedef struct text {
    uint32_t *tokens;
    size_t count, capacity;
    size_t length, stride;
} text;

/* ---- Characters ----------------------------------------------------------------------- */

/* The next code point of UTF-8 (RFC 3629); 0 bytes used where it is none, or cut. */
static size_t decode_utf8(const unsigned char *at, size_t left, uint32_t *code) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (left == 0)
        return 0;
    size_t n = at[0] < 0x80 ? 1 : at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (n > left || at[0] >= 0xf8 || (at[0] >= 0x80 && at[0] < 0xc2))
        return 0;
    uint32_t made = n == 1 ? at[0] : at[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        made = made << 6 | (at[i] & 0x3fu);
    }
    if (made < least[n] || made >= CODES || (made >= 0xd800 && made < 0xe000))
        return 0;
    *code = made;
    return n;
}

static void encode_utf8(char out[5], uint32_t code) {
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    out[n] = '\0';
    for (size_t i = n; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[n] | code);
}

/* ---- Reading -------------------------------------------------------------------------- */

static copse_status add_tokens(text *t, const unsigned char *data, size_t bytes,
                               bool by_bytes, size_t *used, copse_error *err) {
    copse_status status =
        copse__grow(&t->tokens, &t->capacity, t->count + bytes, sizeof *t->tokens, err);
    if (status != COPSE_OK)
        return status;
    *used = 0;
    while (*used < bytes) {
        uint32_t code = data[*used];
        size_t n = by_bytes ? 1 : decode_utf8(data + *used, bytes - *used, &code);
        if (n == 0)
            break;
        t->tokens[t->count++] = code;
        *used += n;
    }
    return COPSE_OK;
}

static copse_status read_file(text *t, const char *path, const copse_data_source *source,
                              size_t limit, copse_error *err) {
    copse__input *input;
    unsigned char *piece = NULL;
    size_t kept = 0, got, used;
    copse_status status = copse__input_open(&input, path, COPSE__PACKING_AUTO, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__calloc(&piece, PIECE, 1, err), out);
    do {
        COPSE__TRY(copse__input_read(input, piece + kept, PIECE - kept, &got, err), out);
        COPSE__TRY(copse__check_memory((uint64_t)(t->count + got) * 4, limit, path, err),
                   out);
        size_t have = kept + got;
        COPSE__TRY(add_tokens(t, piece, have, source->by_bytes, &used, err), out);
        kept = have - used;
        if (kept >= 4 || (got == 0 && kept > 0)) {
            status = copse__fail(err, COPSE_FORMAT, 0, path,
                                 "it is no UTF-8 at byte %" PRIu64
                                 "; convert it, or read it by bytes",
                                 copse__input_offset(input) - kept);
            goto out;
        }
        memmove(piece, piece + used, kept);
    } while (got > 0);
out:
    free(piece);
    copse__input_close(input);
    return status;
}

/* ---- The vocabulary ------------------------------------------------------------------- */

/* ids[code] = number + 1, from the source's list. */
static copse_status given_ids(uint32_t *ids, const copse_data_source *source,
                              copse_error *err) {
    for (size_t i = 0; i < source->class_count; i++) {
        const char *name = source->class_names[i];
        size_t bytes = strlen(name);
        uint32_t code = 0; /* an empty name: the NUL character */
        bool one =
            bytes == 0 || decode_utf8((const unsigned char *)name, bytes, &code) == bytes;
        if (!one || ids[code] || (source->by_bytes && code > 255))
            return copse__fail(err, COPSE_CONFIG, 0, NULL,
                               "class %zu, '%s', of the text is not one character, or is "
                               "there twice",
                               i, name);
        ids[code] = (uint32_t)i + 1;
    }
    return COPSE_OK;
}

static size_t found_ids(uint32_t *ids, const text *t) {
    uint32_t next = 0;
    for (size_t i = 0; i < t->count; i++)
        ids[t->tokens[i]] = 1;
    for (size_t code = 0; code < CODES; code++)
        if (ids[code])
            ids[code] = ++next;
    return next;
}

static copse_status name_classes(copse_dataset *set, const uint32_t *ids, size_t n,
                                 copse_error *err) {
    char(*texts)[5];
    const char **names = NULL;
    copse_status status = copse__calloc(&texts, n, sizeof *texts, err);
    if (status == COPSE_OK)
        status = copse__calloc(&names, n, sizeof *names, err);
    for (uint32_t code = 0; code < CODES && status == COPSE_OK; code++)
        if (ids[code]) {
            encode_utf8(texts[ids[code] - 1], code);
            names[ids[code] - 1] = texts[ids[code] - 1];
        }
    if (status == COPSE_OK)
        status = copse__dataset_set_classes(set, n, names, err);
    free(names);
    free(texts);
    return status;
}

/* Characters to their numbers. */
static copse_status number_tokens(copse_dataset *set, const copse_data_source *source,
                                  copse_error *err) {
    text *t = set->state;
    uint32_t *ids;
    size_t classes = source->class_count;
    copse_status status = copse__calloc(&ids, CODES, sizeof *ids, err);
    if (status == COPSE_OK && classes)
        status = given_ids(ids, source, err);
    else if (status == COPSE_OK)
        classes = found_ids(ids, t);
    for (size_t i = 0; i < t->count && status == COPSE_OK; i++) {
        uint32_t id = ids[t->tokens[i]];
        if (id == 0)
            status = copse__fail(err, COPSE_FORMAT, 0, set->name,
                                 "its character %zu, U+%04X, is not in the vocabulary of "
                                 "%zu; build that from all of the text",
                                 i, (unsigned)t->tokens[i], classes);
        t->tokens[i] = id - 1;
    }
    if (status == COPSE_OK)
        status = name_classes(set, ids, classes, err);
    free(ids);
    return status;
}

/* ---- The dataset ---------------------------------------------------------------------- */

static copse_status text_read(copse_dataset *set, size_t index, copse__scratch *scratch,
                              void *features, void *labels, copse_error *err) {
    const text *t = set->state;
    (void)scratch;
    (void)err;
    const uint32_t *from = t->tokens + index * t->stride;
    memcpy(features, from, t->length * 4);
    if (labels)
        memcpy(labels, from + 1, t->length * 4);
    return COPSE_OK;
}

static void text_locate(const copse_dataset *set, size_t index, char *buffer,
                        size_t bytes) {
    const text *t = set->state;
    snprintf(buffer, bytes, "%s, character %zu", set->name, index * t->stride);
}

static void text_close(copse_dataset *set) {
    text *t = set->state;
    if (t)
        free(t->tokens);
    free(t);
}

static const copse__dataset_ops text_ops = {
    .read = text_read, .locate = text_locate, .close = text_close};

static copse_status set_windows(copse_dataset *set, const copse_data_source *source,
                                copse_error *err) {
    text *t = set->state;
    t->length = source->sequence_length;
    t->stride = source->stride ? source->stride : t->length;
    if (t->length == 0)
        return copse__fail(err, COPSE_CONFIG, 0, set->name,
                           "text data needs a sequence length of at least 1");
    if (t->count <= t->length)
        return copse__fail(err, COPSE_FORMAT, 0, set->name,
                           "its %zu characters are too few for sequences of %zu and the "
                           "one after",
                           t->count, t->length);
    set->count = (t->count - t->length - 1) / t->stride + 1;
    copse_data_spec spec = {COPSE_I32, 1, {t->length}};
    return copse__dataset_set_specs(set, &spec, &spec, err);
}

copse_status copse__text_open(copse_dataset **out, const copse_data_source *source,
                              const copse__found_files *files, copse_error *err) {
    copse_dataset *set;
    text *t;
    size_t limit = copse__memory_limit(source->memory_limit_bytes);
    copse_status status = copse__dataset_new(&set, &text_ops, files->paths.items[0], err);
    if (status != COPSE_OK)
        return status;
    set->resident = true;
    COPSE__TRY(copse__calloc(&t, 1, sizeof *t, err), fail);
    set->state = t;
    for (size_t i = 0; i < files->paths.count; i++)
        COPSE__TRY(read_file(t, files->paths.items[i], source, limit, err), fail);
    COPSE__TRY(set_windows(set, source, err), fail);
    COPSE__TRY(number_tokens(set, source, err), fail);
    *out = set;
    return COPSE_OK;
fail:
    copse_dataset_close(set);
    return status;
}
