/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_yaml_private.h"

typedef struct walk {
    copse__yaml *yaml;
    const char *source; /* "--set train.epochs=3" */
    const char *path;   /* "train.epochs", NUL-terminated */
    copse_error *err;
} walk;

/* The part of the path before position `end`, for messages. */
static copse_status fail_part(const walk *w, const char *end, const char *what) {
    int length = (int)(end - w->path);
    if (length == 0)
        return copse__fail(w->err, COPSE_CONFIG, 0, w->source, "the configuration %s",
                           what);
    return copse__fail(w->err, COPSE_CONFIG, 0, w->source, "%.*s %s", length, w->path,
                       what);
}

/* Turns a scalar into an empty mapping; one that names the next part becomes that part's
 * mapping: "adam" -> {adam: }. Anything else cannot be stepped into. */
static copse_status open_scalar(const walk *w, copse__yaml_node *node, const char *part,
                                const char *before) {
    if (copse__yaml_is_null(node)) {
        node->kind = COPSE__YAML_MAPPING;
        node->text = NULL;
        return COPSE_OK;
    }
    if (strcmp(node->text, part) != 0) {
        char what[640];
        snprintf(what, sizeof what,
                 "is the single value '%.60s', which has no key '%.60s'; write "
                 "%.*s%.60s.%.60s=… or replace the whole value",
                 node->text, part, (int)(before - w->path), w->path, node->text, part);
        return fail_part(w, before == w->path ? before : before - 1, what);
    }
    copse__yaml_node *child;
    copse_status status = copse__yaml_node_new(w->yaml, &child, w->source, w->err);
    if (status != COPSE_OK)
        return status;
    child->key = node->text;
    child->text = "";
    child->overridden = node->overridden;
    child->source = node->source;
    child->line = child->key_line = node->line;
    child->column = child->key_column = node->column;
    node->kind = COPSE__YAML_MAPPING;
    node->text = NULL;
    copse__yaml_append(node, child);
    return COPSE_OK;
}

static copse_status find_item(const walk *w, copse__yaml_node *list, const char *part,
                              const char *before, copse__yaml_node **out) {
    char *end;
    unsigned long long index = strtoull(part, &end, 10);
    bool digits = part[0] >= '0' && part[0] <= '9' && *end == '\0';
    if (!digits || index >= list->count) {
        char what[160];
        if (list->count == 0)
            snprintf(what, sizeof what, "is an empty list; replace it as a whole");
        else
            snprintf(what, sizeof what,
                     "is a list of %zu: name an item by its index, 0 to %zu, not '%.40s'",
                     list->count, list->count - 1, part);
        return fail_part(w, before == w->path ? before : before - 1, what);
    }
    copse__yaml_node *item = list->first;
    while (index-- > 0)
        item = item->next;
    *out = item;
    return COPSE_OK;
}

/* The child that `part` names; in a mapping it is made (empty) where it is missing. */
static copse_status step_into(const walk *w, copse__yaml_node *node, const char *part,
                              const char *before, copse__yaml_node **out) {
    copse_status status;
    if (node->kind == COPSE__YAML_SCALAR) {
        status = open_scalar(w, node, part, before);
        if (status != COPSE_OK)
            return status;
    }
    if (node->kind == COPSE__YAML_SEQUENCE)
        return find_item(w, node, part, before, out);
    *out = copse__yaml_find(node, part);
    if (*out)
        return COPSE_OK;
    char *key;
    status = copse__pool_strdup(&w->yaml->pool, &key, part, w->err);
    if (status == COPSE_OK)
        status = copse__yaml_node_new(w->yaml, out, w->source, w->err);
    if (status != COPSE_OK)
        return status;
    (*out)->overridden = true;
    (*out)->key = key;
    (*out)->text = "";
    copse__yaml_append(node, *out);
    return COPSE_OK;
}

/* value takes node's place among its sisters; node keeps its key. */
static void replace(copse__yaml_node *node, const copse__yaml_node *value) {
    copse__yaml_node *next = node->next;
    const char *key = node->key;
    *node = *value;
    node->next = next;
    node->key = key;
}

copse_status copse__yaml_override(copse__yaml *yaml, const char *override,
                                  copse_error *err) {
    size_t capacity = strlen(override) + sizeof "--set ";
    char *source, *path;
    copse_status status = copse__pool_alloc(&yaml->pool, &source, capacity, 1, err);
    if (status == COPSE_OK)
        status = copse__pool_strdup(&yaml->pool, &path, override, err);
    if (status != COPSE_OK)
        return status;
    snprintf(source, capacity, "--set %s", override);
    char *equals = strchr(path, '=');
    if (!equals || equals == path)
        return copse__fail(err, COPSE_CONFIG, 0, source,
                           "an override is written key=value, like train.epochs=3");
    *equals = '\0';
    status = copse__yaml_check_override(path, source, err);
    if (status != COPSE_OK)
        return status;
    copse__yaml_node *value;
    status = copse__yaml_parse_into(yaml, &value, equals + 1, strlen(equals + 1), source,
                                    true, err);
    if (status == COPSE_OK && !value)
        status = copse__yaml_node_new(yaml, &value, source, err);
    if (status != COPSE_OK)
        return status;
    if (value->kind == COPSE__YAML_SCALAR && !value->text)
        value->text = "";
    value->overridden = true;
    walk w = {.yaml = yaml, .source = source, .path = path, .err = err};
    copse__yaml_node *node = yaml->root;
    size_t depth = 0;
    for (char *at = path; at;) {
        char *dot = strchr(at, '.');
        size_t length = dot ? (size_t)(dot - at) : strlen(at);
        if (length == 0 || ++depth > COPSE__YAML_MAX_DEPTH)
            return copse__fail(err, COPSE_CONFIG, 0, source,
                               "'%.60s' is not a path of keys like train.epochs", path);
        char *part;
        status = copse__pool_text(&yaml->pool, &part, at, length, err);
        if (status == COPSE_OK)
            status = step_into(&w, node, part, at, &node);
        if (status != COPSE_OK)
            return status;
        at = dot ? dot + 1 : NULL;
    }
    replace(node, value);
    return COPSE_OK;
}
