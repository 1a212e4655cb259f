/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_CONFIG_SCHEMA_H
#define COPSE_TRAIN_CONFIG_SCHEMA_H

#include "base/text.h"
#include "train/config_yaml.h"

/* A section of a configuration as a table: what keys there are, their types, ranges and
 * defaults, and where in a struct a value goes. The same table reads and writes. */

typedef enum copse__field_kind {
    COPSE__FIELD_BOOL,    /* bool */
    COPSE__FIELD_COUNT,   /* uint64_t */
    COPSE__FIELD_NUMBER,  /* double */
    COPSE__FIELD_TEXT,    /* char *; NULL where absent without a default, or null */
    COPSE__FIELD_CHOICE,  /* an enum: one of words[] by index */
    COPSE__FIELD_NUMBERS, /* double *, and a size_t at count_offset */
    COPSE__FIELD_TEXTS, /* char **, and a size_t at count_offset; words[] where not NULL */
    COPSE__FIELD_SECTION, /* keys of `section`, whose fields lie in the same struct */
    COPSE__FIELD_SWITCH,  /* false, true or a section; a bool at offset tells which */
    COPSE__FIELD_VARIANT, /* "adam" or {adam: {…}}: an enum of variants[] by index */
    COPSE__FIELD_CUSTOM   /* read and write do it */
} copse__field_kind;

typedef struct copse__field copse__field;
typedef struct copse__section copse__section;

typedef struct copse__schema_context {
    copse__pool *pool;  /* for what the struct owns */
    const char *folder; /* where relative paths of the file start */
    const char *path;   /* of the file: a place for what is missing */
} copse__schema_context;

/* node is NULL where the key is absent: then the default is to be stored. base is the struct. */
typedef copse_status copse__field_read_fn(const copse__schema_context *context,
                                          const copse__field *field,
                                          const copse__yaml_node *node, void *base,
                                          copse_error *err);
/* Adds the value in flow style. */
typedef void copse__field_write_fn(const copse__field *field, const void *base,
                                   copse__text *out);
/* Whether the key is written at all; NULL: always. */
typedef bool copse__field_shown_fn(const void *base);

struct copse__field {
    const char *key;
    copse__field_kind kind;
    size_t offset, count_offset;
    bool required;
    bool loose;         /* has no influence on the numbers that training computes */
    bool below;         /* NUMBER: most itself is too large */
    double least, most; /* COUNT, NUMBER; most 0 with least 0: any that is not negative */
    double number;      /* default of BOOL, COUNT, NUMBER, CHOICE, SWITCH, VARIANT */
    const char *text;   /* default of TEXT */
    const char *const *words; /* CHOICE, TEXT, TEXTS: NULL-terminated */
    unsigned first;           /* CHOICE, VARIANT: the enum's value at index 0 */
    const copse__section *section;
    const copse__section *variants; /* VARIANT: ends with one without a name */
    copse__field_read_fn *read;
    copse__field_write_fn *write;
    copse__field_shown_fn *shown;
};

struct copse__section {
    const char *name;           /* "train", "train.optimizer.adam": for messages */
    const char *word;           /* VARIANT: "adam" */
    const copse__field *fields; /* ends with one without a key */
};

/* Reads a mapping (NULL or null: all defaults) into the struct at base. */
copse_status copse__section_read(const copse__schema_context *context,
                                 const copse__section *section,
                                 const copse__yaml_node *node, void *base,
                                 copse_error *err);

/* Only that a mapping has no unknown key and all that are required. */
copse_status copse__section_check(const copse__section *section,
                                  const copse__yaml_node *node, copse_error *err);

/* One field by itself, for custom ones that are partly like the others. */
copse_status copse__field_read(const copse__schema_context *context,
                               const copse__section *section, const copse__field *field,
                               const copse__yaml_node *node, void *base,
                               copse_error *err);
void copse__field_write(const copse__field *field, const void *base, copse__text *out);

typedef enum copse__write_style {
    COPSE__WRITE_FLOW,  /* {key: value, …} */
    COPSE__WRITE_BLOCK, /* lines "  key: value" */
    COPSE__WRITE_STRICT /* the same without loose fields: what fixes the numbers */
} copse__write_style;

void copse__section_write(const copse__section *section, const void *base,
                          copse__write_style style, copse__text *out);

/* COPSE_CONFIG at the node: "train.epochs must be …, not the text 'x'". key NULL: the whole
 * section. */
copse_status copse__schema_wrong(const copse__section *section, const char *key,
                                 const copse__yaml_node *node, const char *wanted,
                                 copse_error *err);

/* A scalar text in YAML, in quotes where it needs them. */
void copse__schema_write_text(copse__text *out, const char *text);

#endif
