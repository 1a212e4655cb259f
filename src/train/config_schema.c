/* SPDX-License-Identifier: Apache-2.0 */
#include "train/config_schema.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"

/* Fields of enum type are read and written as unsigned. */
_Static_assert(sizeof(copse__field_kind) == sizeof(unsigned), "enums are unsigned here");

#define MAX_KEYS 64

static void *at(void *base, size_t offset) {
    return (char *)base + offset;
}

copse_status copse__schema_wrong(const copse__section *section, const char *key,
                                 const copse__yaml_node *node, const char *wanted,
                                 copse_error *err) {
    char place[256], is[96];
    return copse__fail(err, COPSE_CONFIG, 0, copse__yaml_place(node, place, sizeof place),
                       "%s%s%s must be %s, not %s",
                       section->name[0] || key ? section->name : "the configuration",
                       key && section->name[0] ? "." : "", key ? key : "", wanted,
                       copse__yaml_describe(node, is, sizeof is));
}

/* "a, b or c" */
static const char *list_words(const char *const *words, size_t count, char *buffer,
                              size_t capacity) {
    size_t used = 0;
    buffer[0] = '\0';
    for (size_t i = 0; i < count && used < capacity; i++) {
        const char *joint = i == 0 ? "" : i + 1 == count ? " or " : ", ";
        int length = snprintf(buffer + used, capacity - used, "%s%s", joint, words[i]);
        used += length > 0 ? (size_t)length : 0;
    }
    return buffer;
}

static copse_status fail_unknown(const char *what, const char *word, const char *where,
                                 const char *place, const char *const *known,
                                 size_t count, copse_error *err) {
    char list[512];
    const char *nearest = copse__suggest(word, known, count);
    if (nearest)
        return copse__fail(err, COPSE_CONFIG, 0, place,
                           "unknown %s '%.60s' in %s; did you mean '%s'?", what, word,
                           where, nearest);
    return copse__fail(err, COPSE_CONFIG, 0, place,
                       "unknown %s '%.60s' in %s; it knows %s", what, word, where,
                       list_words(known, count, list, sizeof list));
}

static const char *section_title(const copse__section *section) {
    return section->name[0] ? section->name : "the configuration";
}

static size_t section_words(const copse__section *section, const char **keys) {
    size_t count = 0;
    for (const copse__field *field = section->fields; field->key && count < MAX_KEYS;
         field++)
        keys[count++] = field->key;
    return count;
}

copse_status copse__section_check(const copse__section *section,
                                  const copse__yaml_node *node, copse_error *err) {
    const char *keys[MAX_KEYS];
    char place[256];
    size_t count = section_words(section, keys);
    for (const copse__yaml_node *child = node->first; child; child = child->next) {
        bool known = false;
        for (size_t i = 0; i < count && !known; i++)
            known = strcmp(keys[i], child->key) == 0;
        if (!known)
            return fail_unknown("key", child->key, section_title(section),
                                copse__yaml_key_place(child, place, sizeof place), keys,
                                count, err);
    }
    for (const copse__field *field = section->fields; field->key; field++)
        if (field->required && !copse__yaml_find(node, field->key))
            return copse__fail(
                err, COPSE_CONFIG, 0, copse__yaml_place(node, place, sizeof place),
                "%s has no '%s', which it needs", section_title(section), field->key);
    return COPSE_OK;
}

static copse_status read_bool(const copse__section *section, const copse__field *field,
                              const copse__yaml_node *node, void *base,
                              copse_error *err) {
    bool *out = at(base, field->offset);
    *out = field->number != 0;
    if (node && !copse__yaml_get_bool(node, out))
        return copse__schema_wrong(section, field->key, node, "true or false", err);
    return COPSE_OK;
}

static bool unlimited(const copse__field *field) {
    return field->least == 0 && field->most == 0;
}

static copse_status read_count(const copse__section *section, const copse__field *field,
                               const copse__yaml_node *node, void *base,
                               copse_error *err) {
    uint64_t *out = at(base, field->offset), value;
    *out = (uint64_t)field->number;
    if (!node)
        return COPSE_OK;
    char wanted[96];
    if (unlimited(field))
        snprintf(wanted, sizeof wanted, "a whole number, 0 or more");
    else if (field->most == 0)
        snprintf(wanted, sizeof wanted, "a whole number, %.0f or more", field->least);
    else
        snprintf(wanted, sizeof wanted, "a whole number from %.0f to %.0f", field->least,
                 field->most);
    if (!copse__yaml_get_count(node, &value) || (double)value < field->least ||
        (field->most != 0 && (double)value > field->most))
        return copse__schema_wrong(section, field->key, node, wanted, err);
    *out = value;
    return COPSE_OK;
}

static copse_status read_number(const copse__section *section, const copse__field *field,
                                const copse__yaml_node *node, void *base,
                                copse_error *err) {
    double *out = at(base, field->offset), value;
    *out = field->number;
    if (!node)
        return COPSE_OK;
    char wanted[96];
    if (unlimited(field))
        snprintf(wanted, sizeof wanted, "a number, 0 or more");
    else
        snprintf(wanted, sizeof wanted, "a number from %g to %s%g", field->least,
                 field->below ? "below " : "", field->most);
    if (!copse__yaml_get_number(node, &value) || value < field->least ||
        (!unlimited(field) &&
         (value > field->most || (field->below && value == field->most))))
        return copse__schema_wrong(section, field->key, node, wanted, err);
    *out = value;
    return COPSE_OK;
}

static void store_enum(const copse__field *field, void *base, unsigned index) {
    index += field->first;
    memcpy(at(base, field->offset), &index, sizeof index);
}

static copse_status fail_word(const copse__section *section, const copse__field *field,
                              const copse__yaml_node *node, const char *text,
                              copse_error *err) {
    char place[256], where[128];
    size_t count = 0;
    while (field->words[count])
        count++;
    snprintf(where, sizeof where, "%s.%s", section->name, field->key);
    return fail_unknown("value", text, where,
                        copse__yaml_place(node, place, sizeof place), field->words, count,
                        err);
}

static size_t find_word(const char *const *words, const char *text) {
    size_t i = 0;
    while (words[i] && strcmp(words[i], text) != 0)
        i++;
    return i;
}

static copse_status read_text(const copse__schema_context *context,
                              const copse__section *section, const copse__field *field,
                              const copse__yaml_node *node, void *base,
                              copse_error *err) {
    char **out = at(base, field->offset);
    const char *text = field->text;
    if (node && !copse__yaml_is_null(node) && !copse__yaml_get_text(node, &text))
        return copse__schema_wrong(section, field->key, node, "text", err);
    if (node && text && field->words && !field->words[find_word(field->words, text)])
        return fail_word(section, field, node, text, err);
    *out = NULL;
    return text ? copse__pool_strdup(context->pool, out, text, err) : COPSE_OK;
}

static copse_status read_choice(const copse__section *section, const copse__field *field,
                                const copse__yaml_node *node, void *base,
                                copse_error *err) {
    unsigned value = (unsigned)field->number;
    if (node) {
        const char *text;
        if (!copse__yaml_get_text(node, &text)) {
            char list[256];
            size_t count = 0;
            while (field->words[count])
                count++;
            return copse__schema_wrong(section, field->key, node,
                                       list_words(field->words, count, list, sizeof list),
                                       err);
        }
        value = (unsigned)find_word(field->words, text);
        if (!field->words[value])
            return fail_word(section, field, node, text, err);
    }
    store_enum(field, base, value);
    return COPSE_OK;
}

static copse_status read_numbers(const copse__schema_context *context,
                                 const copse__section *section, const copse__field *field,
                                 const copse__yaml_node *node, void *base,
                                 copse_error *err) {
    double *values = NULL;
    size_t count = 0;
    if (node) {
        if (node->kind != COPSE__YAML_SEQUENCE)
            return copse__schema_wrong(section, field->key, node, "a list of numbers",
                                       err);
        copse_status status =
            copse__pool_alloc(context->pool, &values, node->count, sizeof *values, err);
        if (status != COPSE_OK)
            return status;
        for (const copse__yaml_node *item = node->first; item; item = item->next)
            if (!copse__yaml_get_number(item, &values[count]) || values[count++] < 0)
                return copse__schema_wrong(section, field->key, item,
                                           "a list of numbers, 0 or more", err);
    }
    *(double **)at(base, field->offset) = values;
    *(size_t *)at(base, field->count_offset) = count;
    return COPSE_OK;
}

static copse_status read_texts(const copse__schema_context *context,
                               const copse__section *section, const copse__field *field,
                               const copse__yaml_node *node, void *base,
                               copse_error *err) {
    char **texts = NULL;
    size_t count = 0;
    if (node && !copse__yaml_is_null(node)) {
        bool list = node->kind == COPSE__YAML_SEQUENCE;
        copse_status status = copse__pool_alloc(
            context->pool, &texts, list ? node->count : 1, sizeof *texts, err);
        const copse__yaml_node *item = list ? node->first : node;
        for (; status == COPSE_OK && item; item = list ? item->next : NULL) {
            const char *text;
            if (!copse__yaml_get_text(item, &text))
                return copse__schema_wrong(section, field->key, item,
                                           "a word or a list of words", err);
            if (field->words && !field->words[find_word(field->words, text)])
                return fail_word(section, field, item, text, err);
            status = copse__pool_strdup(context->pool, &texts[count++], text, err);
        }
        if (status != COPSE_OK)
            return status;
    }
    *(char ***)at(base, field->offset) = texts;
    *(size_t *)at(base, field->count_offset) = count;
    return COPSE_OK;
}

static copse_status read_switch(const copse__schema_context *context,
                                const copse__section *section, const copse__field *field,
                                const copse__yaml_node *node, void *base,
                                copse_error *err) {
    bool *on = at(base, field->offset);
    *on = field->number != 0;
    if (!node || copse__yaml_get_bool(node, on))
        return copse__section_read(context, field->section, NULL, base, err);
    *on = true;
    if (node->kind != COPSE__YAML_MAPPING)
        return copse__schema_wrong(section, field->key, node,
                                   "true, false or a mapping with its keys", err);
    return copse__section_read(context, field->section, node, base, err);
}

static copse_status read_variant(const copse__schema_context *context,
                                 const copse__section *section, const copse__field *field,
                                 const copse__yaml_node *node, void *base,
                                 copse_error *err) {
    const char *words[MAX_KEYS], *word = NULL;
    const copse__yaml_node *keys = NULL;
    size_t count = 0;
    for (const copse__section *v = field->variants; v->name; v++)
        words[count++] = v->word;
    unsigned value = (unsigned)field->number;
    if (node) {
        char list[256], place[256], where[128], wanted[384];
        list_words(words, count, list, sizeof list);
        snprintf(wanted, sizeof wanted, "%s, alone or as the one key of a mapping", list);
        if (node->kind == COPSE__YAML_MAPPING && node->count == 1) {
            keys = node->first;
            word = keys->key;
        } else if (!copse__yaml_get_text(node, &word)) {
            return copse__schema_wrong(section, field->key, node, wanted, err);
        }
        for (value = 0; value < count; value++)
            if (strcmp(words[value], word) == 0)
                break;
        snprintf(where, sizeof where, "%s.%s", section->name, field->key);
        if (value == count)
            return fail_unknown("value", word, where,
                                keys ? copse__yaml_key_place(keys, place, sizeof place)
                                     : copse__yaml_place(node, place, sizeof place),
                                words, count, err);
    }
    store_enum(field, base, value);
    return copse__section_read(context, &field->variants[value], keys, base, err);
}

copse_status copse__field_read(const copse__schema_context *context,
                               const copse__section *section, const copse__field *field,
                               const copse__yaml_node *node, void *base,
                               copse_error *err) {
    switch (field->kind) {
    case COPSE__FIELD_BOOL:
        return read_bool(section, field, node, base, err);
    case COPSE__FIELD_COUNT:
        return read_count(section, field, node, base, err);
    case COPSE__FIELD_NUMBER:
        return read_number(section, field, node, base, err);
    case COPSE__FIELD_TEXT:
        return read_text(context, section, field, node, base, err);
    case COPSE__FIELD_CHOICE:
        return read_choice(section, field, node, base, err);
    case COPSE__FIELD_NUMBERS:
        return read_numbers(context, section, field, node, base, err);
    case COPSE__FIELD_TEXTS:
        return read_texts(context, section, field, node, base, err);
    case COPSE__FIELD_SECTION:
        return copse__section_read(context, field->section, node, base, err);
    case COPSE__FIELD_SWITCH:
        return read_switch(context, section, field, node, base, err);
    case COPSE__FIELD_VARIANT:
        return read_variant(context, section, field, node, base, err);
    case COPSE__FIELD_CUSTOM:
        return field->read(context, field, node, base, err);
    }
    return copse__fail(err, COPSE_INTERNAL, 0, field->key, "a field without a kind");
}

copse_status copse__section_read(const copse__schema_context *context,
                                 const copse__section *section,
                                 const copse__yaml_node *node, void *base,
                                 copse_error *err) {
    if (node && copse__yaml_is_null(node)) {
        const copse__field *field = section->fields;
        while (field->key && !field->required)
            field++;
        if (!field->key)
            node = NULL; /* "log:" with nothing after it is all defaults */
    }
    if (node && node->kind != COPSE__YAML_MAPPING)
        return copse__schema_wrong(section, NULL, node, "a mapping of keys and values",
                                   err);
    copse_status status = node ? copse__section_check(section, node, err) : COPSE_OK;
    for (const copse__field *field = section->fields; status == COPSE_OK && field->key;
         field++)
        status = copse__field_read(context, section, field,
                                   node ? copse__yaml_find(node, field->key) : NULL, base,
                                   err);
    return status;
}
