/* SPDX-License-Identifier: Apache-2.0 */
#include "train/config_yaml.h"

#include <libfyaml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_yaml_private.h"

/* One parse in progress. `open` is the path of collections that are being filled. */
typedef struct builder {
    copse__yaml *yaml;
    const char *source;
    bool override;
    copse__yaml_node *open[COPSE__YAML_MAX_DEPTH];
    size_t depth;
    const char *key; /* read, its value not yet */
    unsigned key_line, key_column;
    bool done; /* the one document has ended */
} builder;

static copse_status fail_at(const builder *b, unsigned line, unsigned column,
                            copse_error *err, const char *what) {
    char place[256];
    if (b->override)
        snprintf(place, sizeof place, "%s", b->source);
    else
        snprintf(place, sizeof place, "%s:%u:%u", b->source, line, column);
    return copse__fail(err, COPSE_CONFIG, 0, place, "%s", what);
}

copse_status copse__yaml_node_new(copse__yaml *yaml, copse__yaml_node **out,
                                  const char *source, copse_error *err) {
    *out = NULL;
    if (yaml->node_count >= COPSE__YAML_MAX_NODES)
        return copse__fail(err, COPSE_CONFIG, 0, source,
                           "it has more than %d values; a configuration needs far fewer",
                           COPSE__YAML_MAX_NODES);
    copse_status status = copse__pool_alloc(&yaml->pool, out, 1, sizeof **out, err);
    if (status != COPSE_OK)
        return status;
    yaml->node_count++;
    (*out)->source = source;
    return COPSE_OK;
}

void copse__yaml_append(copse__yaml_node *parent, copse__yaml_node *child) {
    child->next = NULL;
    if (parent->last)
        parent->last->next = child;
    else
        parent->first = child;
    parent->last = child;
    parent->count++;
}

static unsigned one_based(int position) {
    return position < 0 ? 1 : (unsigned)position + 1;
}

static copse_status take_key(builder *b, struct fy_event *event, unsigned line,
                             unsigned column, copse_error *err) {
    if (event->type != FYET_SCALAR)
        return fail_at(b, line, column, err, "a key must be a word, not a collection");
    size_t length = 0;
    const char *text = fy_token_get_text(event->scalar.value, &length);
    if (!text || length == 0 || length > COPSE__YAML_MAX_SCALAR)
        return fail_at(b, line, column, err, "a key must be a word of 1 to 4096 bytes");
    char *key;
    copse_status status = copse__pool_text(&b->yaml->pool, &key, text, length, err);
    if (status != COPSE_OK)
        return status;
    copse__yaml_node *twin = copse__yaml_find(b->open[b->depth - 1], key);
    if (twin) {
        char what[160];
        snprintf(what, sizeof what, "the key '%.60s' is here a second time%s", key,
                 b->override ? "" : "; remove one of the two");
        return fail_at(b, line, column, err, what);
    }
    b->key = key;
    b->key_line = line;
    b->key_column = column;
    return COPSE_OK;
}

/* Adds a value (a scalar or an opening collection) where it belongs. */
static copse_status take_value(builder *b, struct fy_event *event, unsigned line,
                               unsigned column, copse_error *err) {
    copse__yaml_node *node;
    copse_status status = copse__yaml_node_new(b->yaml, &node, b->source, err);
    if (status != COPSE_OK)
        return status;
    node->overridden = b->override;
    if (!b->override) {
        node->line = line;
        node->column = column;
        node->key_line = b->key_line;
        node->key_column = b->key_column;
    }
    node->key = b->key;
    b->key = NULL;
    if (event->type == FYET_SCALAR) {
        size_t length = 0;
        const char *text = fy_token_get_text(event->scalar.value, &length);
        if (length > COPSE__YAML_MAX_SCALAR)
            return fail_at(b, line, column, err, "a value is longer than 4096 bytes");
        char *copy;
        status = copse__pool_text(&b->yaml->pool, &copy, text ? text : "", length, err);
        if (status != COPSE_OK)
            return status;
        if (strlen(copy) != length)
            return fail_at(b, line, column, err, "a value contains a NUL character");
        node->text = copy;
        node->quoted = fy_token_scalar_style(event->scalar.value) != FYSS_PLAIN;
    }
    if (b->depth > 0)
        copse__yaml_append(b->open[b->depth - 1], node);
    else
        b->yaml->root = node;
    if (event->type == FYET_SCALAR)
        return COPSE_OK;
    node->kind =
        event->type == FYET_MAPPING_START ? COPSE__YAML_MAPPING : COPSE__YAML_SEQUENCE;
    if (b->depth == COPSE__YAML_MAX_DEPTH)
        return fail_at(b, line, column, err,
                       "collections are nested more than 16 deep here");
    b->open[b->depth++] = node;
    return COPSE_OK;
}

static copse_status take_content(builder *b, struct fy_event *event, unsigned line,
                                 unsigned column, copse_error *err) {
    if (fy_event_get_tag_token(event))
        return fail_at(b, line, column, err, "tags (!…) are not used in configurations");
    if (fy_event_get_anchor_token(event))
        return fail_at(b, line, column, err,
                       "anchors and aliases (&, *) are not used in configurations; "
                       "write the value out, or in quotes where it is text");
    if (b->depth > 0 && b->open[b->depth - 1]->kind == COPSE__YAML_MAPPING && !b->key)
        return take_key(b, event, line, column, err);
    return take_value(b, event, line, column, err);
}

static copse_status take_event(builder *b, struct fy_event *event, copse_error *err) {
    /* A value that is not there ("log:") has no place of its own, or one behind the colon, as the
     * library's version goes: its key's stands for it. */
    bool absent = event->type == FYET_SCALAR && b->key &&
                  (!event->scalar.value ||
                   (fy_token_scalar_style(event->scalar.value) == FYSS_PLAIN &&
                    fy_token_get_text_length(event->scalar.value) == 0));
    const struct fy_mark *mark = absent ? NULL : fy_event_start_mark(event);
    unsigned line = mark ? one_based(mark->line) : b->key ? b->key_line : 1;
    unsigned column = mark ? one_based(mark->column) : b->key ? b->key_column : 1;
    if (event->type == FYET_SCALAR && !absent &&
        column > 1) { /* the mark is behind the quote */
        enum fy_scalar_style style = fy_token_scalar_style(event->scalar.value);
        column -= style == FYSS_SINGLE_QUOTED || style == FYSS_DOUBLE_QUOTED;
    }
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (b->done)
            return fail_at(b, line, column, err, "a second document starts here");
        return COPSE_OK;
    case FYET_DOCUMENT_END:
        b->done = true;
        return COPSE_OK;
    case FYET_ALIAS:
        return fail_at(b, line, column, err,
                       "anchors and aliases (&, *) are not used in configurations; "
                       "write the value out, or in quotes where it is text");
    case FYET_SCALAR:
    case FYET_MAPPING_START:
    case FYET_SEQUENCE_START:
        return take_content(b, event, line, column, err);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        b->depth--;
        return COPSE_OK;
    default:
        return COPSE_OK;
    }
}

/* The parser's own complaint, or a general one. */
static copse_status fail_syntax(const builder *b, struct fy_diag *diag,
                                copse_error *err) {
    void *position = NULL;
    struct fy_diag_error *found = fy_diag_errors_iterate(diag, &position);
    if (!found)
        return fail_at(b, 1, 1, err, "this is not YAML");
    char what[256];
    snprintf(what, sizeof what, "this is not YAML: %.200s",
             found->msg ? found->msg : "unknown cause");
    for (char *at = what; *at; at++)
        if (*at == '\n')
            *at = ' ';
    return fail_at(b, found->line > 0 ? (unsigned)found->line : 1,
                   found->column > 0 ? (unsigned)found->column : 1, err, what);
}

static void say_nothing(struct fy_diag *diag, void *user, const char *text, size_t size) {
    (void)diag;
    (void)user;
    (void)text;
    (void)size;
}

/* Errors are collected, and printed nowhere. */
static struct fy_diag *silent_diag(void) {
    struct fy_diag_cfg options;
    fy_diag_cfg_default(&options);
    options.fp = NULL;
    options.output_fn = say_nothing;
    options.colorize = false;
    struct fy_diag *diag = fy_diag_create(&options);
    if (diag)
        fy_diag_set_collect_errors(diag, true);
    return diag;
}

static copse_status take_events(builder *b, struct fy_parser *parser,
                                struct fy_diag *diag, copse_error *err) {
    copse_status status = COPSE_OK;
    struct fy_event *event;
    bool ended = false;
    while (status == COPSE_OK && !ended && (event = fy_parser_parse(parser)) != NULL) {
        ended = event->type == FYET_STREAM_END;
        status = take_event(b, event, err);
        fy_parser_event_free(parser, event);
    }
    if (status == COPSE_OK && (!ended || fy_parser_get_stream_error(parser)))
        status = fail_syntax(b, diag, err);
    return status;
}

static copse_status run(builder *b, const char *text, size_t bytes, copse_error *err) {
    copse_status status = COPSE_OK;
    struct fy_parse_cfg options = {.search_path = "",
                                   .flags = FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
                                   .diag = silent_diag()};
    struct fy_parser *parser = options.diag ? fy_parser_create(&options) : NULL;
    if (!parser || fy_parser_set_string(parser, text, bytes) != 0)
        status = copse__fail_nomem(err, bytes);
    else
        status = take_events(b, parser, options.diag, err);
    if (parser)
        fy_parser_destroy(parser);
    if (options.diag)
        fy_diag_destroy(options.diag);
    return status;
}

/* Length of the UTF-8 character at p (of at most `left` bytes); 0 where it is none or not
 * allowed in a text file. */
static size_t character_bytes(const unsigned char *p, size_t left) {
    if (p[0] < 0x80)
        return p[0] >= 0x20 || p[0] == '\t' || p[0] == '\n' || p[0] == '\r';
    size_t length = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || left < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool outside = (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF4 && p[1] > 0x8F);
    return overlong || outside ? 0 : length;
}

static copse_status check_text(const builder *b, const char *text, size_t bytes,
                               copse_error *err) {
    const unsigned char *at = (const unsigned char *)text;
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < bytes;) {
        size_t length = character_bytes(at + i, bytes - i);
        if (length == 0)
            return fail_at(b, line, column, err,
                           "this is not UTF-8 text; is it a configuration at all?");
        column++;
        if (at[i] == '\n') {
            line++;
            column = 1;
        }
        i += length;
    }
    return COPSE_OK;
}

copse_status copse__yaml_check_override(const char *text, const char *source,
                                        copse_error *err) {
    builder b = {.source = source, .override = true};
    return check_text(&b, text, strlen(text), err);
}

copse_status copse__yaml_parse_into(copse__yaml *yaml, copse__yaml_node **out,
                                    const char *text, size_t bytes, const char *source,
                                    bool override, copse_error *err) {
    *out = NULL;
    builder b = {.yaml = yaml, .source = source, .override = override};
    if (bytes > COPSE__YAML_MAX_BYTES)
        return copse__fail(err, COPSE_CONFIG, 0, source,
                           "it is larger than 1 MiB; a configuration is far smaller");
    copse__yaml_node *kept = yaml->root;
    yaml->root = NULL;
    copse_status status = check_text(&b, text, bytes, err);
    if (status == COPSE_OK)
        status = run(&b, text, bytes, err);
    copse__yaml_node *parsed = status == COPSE_OK ? yaml->root : NULL;
    yaml->root = kept;
    *out = parsed; /* last: out may be &yaml->root */
    return status;
}

copse_status copse__yaml_parse(copse__yaml **out, const char *text, size_t bytes,
                               const char *source, copse_error *err) {
    *out = NULL;
    copse__yaml *yaml;
    copse_status status = copse__calloc(&yaml, 1, sizeof *yaml, err);
    if (status != COPSE_OK)
        return status;
    char *name;
    COPSE__TRY(copse__pool_strdup(&yaml->pool, &name, source, err), fail);
    COPSE__TRY(copse__yaml_parse_into(yaml, &yaml->root, text, bytes, name, false, err),
               fail);
    if (!yaml->root || copse__yaml_is_null(yaml->root)) {
        COPSE__TRY(copse__yaml_node_new(yaml, &yaml->root, name, err), fail);
        yaml->root->kind = COPSE__YAML_MAPPING;
        yaml->root->line = yaml->root->column = 1;
    }
    *out = yaml;
    return COPSE_OK;
fail:
    copse__yaml_free(yaml);
    return status;
}

void copse__yaml_free(copse__yaml *yaml) {
    if (!yaml)
        return;
    copse__pool_free(&yaml->pool);
    free(yaml);
}
