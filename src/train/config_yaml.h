/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_CONFIG_YAML_H
#define COPSE_TRAIN_CONFIG_YAML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/pool.h"

/* A YAML document as a tree whose every node knows where it was read. Only what a
 * configuration needs: one document, text keys, no anchors, aliases, tags or directives. Hostile
 * input is bounded: COPSE__YAML_MAX_*. */

#define COPSE__YAML_MAX_BYTES ((size_t)1 << 20)
#define COPSE__YAML_MAX_DEPTH 16
#define COPSE__YAML_MAX_NODES 10000
#define COPSE__YAML_MAX_SCALAR 4096

typedef enum copse__yaml_kind {
    COPSE__YAML_SCALAR,
    COPSE__YAML_SEQUENCE,
    COPSE__YAML_MAPPING
} copse__yaml_kind;

typedef struct copse__yaml_node {
    copse__yaml_kind kind;
    bool quoted;      /* a scalar in quotes is text, whatever it looks like */
    bool overridden;  /* given by an override, not by the file */
    const char *text; /* of a scalar; else NULL */
    const char *key;  /* in a mapping; else NULL */
    struct copse__yaml_node *first, *last, *next; /* children, sister */
    size_t count;                                 /* of children */
    const char *source;                           /* file, or the override as given */
    unsigned line, column;                        /* from 1; 0 in an override */
    unsigned key_line, key_column;
} copse__yaml_node;

typedef struct copse__yaml {
    copse__pool pool;
    copse__yaml_node *root; /* never NULL once parsed; an empty document is a mapping */
    size_t node_count;
} copse__yaml;

/* Parses text of `bytes` bytes; source is its name in places. COPSE_CONFIG with file:line:column
 * where it is not acceptable. The caller frees *out with copse__yaml_free. */
copse_status copse__yaml_parse(copse__yaml **out, const char *text, size_t bytes,
                               const char *source, copse_error *err);
void copse__yaml_free(copse__yaml *yaml);

/* Applies "train.epochs=3": dots lead through mappings (made where they are missing) and, by
 * index from 0, through lists; the value is YAML. A scalar on the way that names its own next
 * part ("adam", then ".adam.beta_1") becomes a mapping. Errors have the override as place. */
copse_status copse__yaml_override(copse__yaml *yaml, const char *override,
                                  copse_error *err);

/* A mapping's value; NULL where it has no such key. */
copse__yaml_node *copse__yaml_find(const copse__yaml_node *mapping, const char *key);

/* "fashion.yaml:12:5", or "--set train.epochs=x". Returns buffer. */
const char *copse__yaml_place(const copse__yaml_node *node, char *buffer,
                              size_t capacity);
/* The same for the node's key. */
const char *copse__yaml_key_place(const copse__yaml_node *node, char *buffer,
                                  size_t capacity);

/* What a plain scalar means by YAML's core schema. A quoted one is text. */
bool copse__yaml_is_null(const copse__yaml_node *node);
bool copse__yaml_get_bool(const copse__yaml_node *node, bool *out);
/* Decimal digits only (one sign +), up to 2^64 - 1. */
bool copse__yaml_get_count(const copse__yaml_node *node, uint64_t *out);
/* Any decimal number that is finite in double. */
bool copse__yaml_get_number(const copse__yaml_node *node, double *out);
/* Text that is none of the above; a borrowed pointer. */
bool copse__yaml_get_text(const copse__yaml_node *node, const char **out);

/* "a mapping", "a list", "the text 'abc'", "the number 3", …: for messages. Returns buffer. */
const char *copse__yaml_describe(const copse__yaml_node *node, char *buffer,
                                 size_t capacity);

#endif
