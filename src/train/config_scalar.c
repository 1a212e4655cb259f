/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_yaml.h"

static bool is_one_of(const char *text, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

static bool is_plain(const copse__yaml_node *node) {
    return node->kind == COPSE__YAML_SCALAR && !node->quoted;
}

bool copse__yaml_is_null(const copse__yaml_node *node) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    return is_plain(node) && is_one_of(node->text, words, COPSE__COUNT(words));
}

bool copse__yaml_get_bool(const copse__yaml_node *node, bool *out) {
    static const char *const yes[] = {"true", "True", "TRUE"};
    static const char *const no[] = {"false", "False", "FALSE"};
    if (!is_plain(node))
        return false;
    *out = is_one_of(node->text, yes, COPSE__COUNT(yes));
    return *out || is_one_of(node->text, no, COPSE__COUNT(no));
}

static size_t digits(const char *text) {
    size_t count = 0;
    while (isdigit((unsigned char)text[count]))
        count++;
    return count;
}

bool copse__yaml_get_count(const copse__yaml_node *node, uint64_t *out) {
    if (!is_plain(node))
        return false;
    const char *text = node->text + (node->text[0] == '+');
    size_t count = digits(text);
    if (count == 0 || text[count] != '\0')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *out = value;
    return true;
}

/* [-+] digits [. digits] [e [-+] digits], with a digit before or after the point. */
static bool looks_decimal(const char *text) {
    const char *at = text + (text[0] == '-' || text[0] == '+');
    size_t whole = digits(at), fraction = 0;
    at += whole;
    if (*at == '.') {
        fraction = digits(++at);
        at += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '-' || at[1] == '+');
        size_t exponent = digits(at);
        at += exponent;
        if (exponent == 0)
            return false;
    }
    return *at == '\0';
}

bool copse__yaml_get_number(const copse__yaml_node *node, double *out) {
    if (!is_plain(node) || !looks_decimal(node->text))
        return false;
    *out = strtod(node->text, NULL);
    return isfinite(*out);
}

bool copse__yaml_get_text(const copse__yaml_node *node, const char **out) {
    bool boolean;
    if (node->kind != COPSE__YAML_SCALAR)
        return false;
    if (!node->quoted && (copse__yaml_is_null(node) || looks_decimal(node->text) ||
                          copse__yaml_get_bool(node, &boolean)))
        return false;
    *out = node->text;
    return true;
}

const char *copse__yaml_describe(const copse__yaml_node *node, char *buffer,
                                 size_t capacity) {
    bool boolean;
    if (node->kind == COPSE__YAML_MAPPING)
        snprintf(buffer, capacity, "a mapping");
    else if (node->kind == COPSE__YAML_SEQUENCE)
        snprintf(buffer, capacity, "a list");
    else if (copse__yaml_is_null(node))
        snprintf(buffer, capacity, "nothing");
    else if (copse__yaml_get_bool(node, &boolean))
        snprintf(buffer, capacity, "%s", boolean ? "true" : "false");
    else if (!node->quoted && looks_decimal(node->text))
        snprintf(buffer, capacity, "the number %.40s", node->text);
    else
        snprintf(buffer, capacity, "the text '%.40s'", node->text);
    return buffer;
}

static const char *place(const copse__yaml_node *node, unsigned line, unsigned column,
                         char *buffer, size_t capacity) {
    if (node->overridden || line == 0) {
        snprintf(buffer, capacity, "%s", node->source);
        return buffer;
    }
    /* A long path loses its front, never the line. */
    char tail[32];
    int tail_length = snprintf(tail, sizeof tail, ":%u:%u", line, column);
    size_t room =
        capacity > (size_t)tail_length + 1 ? capacity - (size_t)tail_length - 1 : 0;
    size_t length = strlen(node->source);
    const char *from = node->source + (length > room ? length - room : 0);
    snprintf(buffer, capacity, "%s%s", from, tail);
    return buffer;
}

const char *copse__yaml_place(const copse__yaml_node *node, char *buffer,
                              size_t capacity) {
    return place(node, node->line, node->column, buffer, capacity);
}

const char *copse__yaml_key_place(const copse__yaml_node *node, char *buffer,
                                  size_t capacity) {
    return place(node, node->key_line, node->key_column, buffer, capacity);
}

copse__yaml_node *copse__yaml_find(const copse__yaml_node *mapping, const char *key) {
    if (mapping->kind != COPSE__YAML_MAPPING)
        return NULL;
    for (copse__yaml_node *child = mapping->first; child; child = child->next)
        if (strcmp(child->key, key) == 0)
            return child;
    return NULL;
}
