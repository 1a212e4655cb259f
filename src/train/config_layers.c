/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "train/config_private.h"

/* Lists whose items have kinds and keys that are not known here: layers, augmentations. */

static copse_status fail_value(const copse__yaml_node *node, copse_error *err) {
    char place[256], is[96];
    return copse__fail(err, COPSE_CONFIG, 0, copse__yaml_place(node, place, sizeof place),
                       "%s must be true, false, a number, text or a list of up to %d "
                       "numbers, not %s",
                       node->key ? node->key : "a value", COPSE_MAX_RANK,
                       copse__yaml_describe(node, is, sizeof is));
}

static copse_status read_value(const copse__schema_context *context,
                               const copse__yaml_node *node, copse__value *out,
                               copse_error *err) {
    const char *text;
    if (node->kind == COPSE__YAML_SEQUENCE) {
        out->kind = COPSE__VALUE_NUMBERS;
        if (node->count > COPSE_MAX_RANK)
            return fail_value(node, err);
        for (const copse__yaml_node *item = node->first; item; item = item->next)
            if (!copse__yaml_get_number(item, &out->numbers[out->count++]))
                return fail_value(item, err);
        return COPSE_OK;
    }
    if (node->kind == COPSE__YAML_MAPPING)
        return fail_value(node, err);
    if (copse__yaml_is_null(node))
        out->kind = COPSE__VALUE_NULL;
    else if (copse__yaml_get_bool(node, &out->boolean))
        out->kind = COPSE__VALUE_BOOL;
    else if (copse__yaml_get_number(node, &out->number))
        out->kind = COPSE__VALUE_NUMBER;
    else if (copse__yaml_get_text(node, &text)) {
        out->kind = COPSE__VALUE_TEXT;
        return copse__pool_strdup(context->pool, &out->text, text, err);
    } else
        return fail_value(node, err);
    return COPSE_OK;
}

static copse_status read_place(const copse__schema_context *context, const char *place,
                               char **out, copse_error *err) {
    return copse__pool_strdup(context->pool, out, place, err);
}

static copse_status read_inputs(const copse__schema_context *context,
                                const copse__yaml_node *node, copse__layer_spec *spec,
                                copse_error *err) {
    char place[256], is[96];
    bool list = node->kind == COPSE__YAML_SEQUENCE && node->count > 0;
    copse_status status = copse__pool_alloc(
        context->pool, &spec->inputs, list ? node->count : 1, sizeof *spec->inputs, err);
    const copse__yaml_node *item = list ? node->first : node;
    for (; status == COPSE_OK && item; item = list ? item->next : NULL) {
        const char *text;
        if (!copse__yaml_get_text(item, &text) || !text[0])
            return copse__fail(err, COPSE_CONFIG, 0,
                               copse__yaml_place(item, place, sizeof place),
                               "inputs must be a layer's name or a list of them, not %s",
                               copse__yaml_describe(item, is, sizeof is));
        status = copse__pool_strdup(context->pool, &spec->inputs[spec->input_count++],
                                    text, err);
    }
    return status;
}

static copse_status read_key(const copse__schema_context *context,
                             const copse__yaml_node *node, bool is_layer,
                             copse__layer_spec *spec, copse_error *err) {
    char place[256], is[96];
    const char *text;
    if (is_layer && strcmp(node->key, "inputs") == 0)
        return read_inputs(context, node, spec, err);
    if (is_layer && strcmp(node->key, "name") == 0) {
        if (!copse__yaml_get_text(node, &text) || !text[0])
            return copse__fail(err, COPSE_CONFIG, 0,
                               copse__yaml_place(node, place, sizeof place),
                               "a layer's name must be text, not %s",
                               copse__yaml_describe(node, is, sizeof is));
        return copse__pool_strdup(context->pool, &spec->name, text, err);
    }
    copse__layer_arg *arg = &spec->args[spec->arg_count++];
    copse_status status = copse__pool_strdup(context->pool, &arg->key, node->key, err);
    if (status == COPSE_OK)
        status = read_place(context, copse__yaml_key_place(node, place, sizeof place),
                            &arg->place, err);
    return status == COPSE_OK ? read_value(context, node, &arg->value, err) : status;
}

static copse_status fail_item(const copse__field *field, const copse__yaml_node *node,
                              copse_error *err) {
    char place[256], is[96];
    return copse__fail(
        err, COPSE_CONFIG, 0, copse__yaml_place(node, place, sizeof place),
        "an item of %s is written '- flatten' or '- dense: {units: 10}', "
        "one kind an item; this is %s%s",
        field->key, copse__yaml_describe(node, is, sizeof is),
        node->kind == COPSE__YAML_MAPPING && node->count > 1
            ? " of several keys (indent a layer's keys deeper than its kind)"
            : "");
}

static copse_status read_item(const copse__schema_context *context,
                              const copse__field *field, const copse__yaml_node *node,
                              copse__layer_spec *spec, copse_error *err) {
    char place[256];
    bool is_layer = strcmp(field->key, "model") == 0;
    const char *kind;
    const copse__yaml_node *keys = NULL;
    if (node->kind == COPSE__YAML_MAPPING && node->count == 1) {
        keys = node->first;
        kind = keys->key;
    } else if (!copse__yaml_get_text(node, &kind) || !kind[0]) {
        return fail_item(field, node, err);
    }
    copse_status status;
    COPSE__TRY(copse__pool_strdup(context->pool, &spec->kind, kind, err), out);
    COPSE__TRY(read_place(context,
                          keys ? copse__yaml_key_place(keys, place, sizeof place)
                               : copse__yaml_place(node, place, sizeof place),
                          &spec->place, err),
               out);
    if (!keys || copse__yaml_is_null(keys))
        return COPSE_OK;
    bool single = keys->kind != COPSE__YAML_MAPPING;
    if (single && is_layer)
        return copse__fail(
            err, COPSE_CONFIG, 0, copse__yaml_place(keys, place, sizeof place),
            "the keys of %.60s are written %.60s: {key: value}", kind, kind);
    size_t count = single ? 1 : keys->count;
    COPSE__TRY(
        copse__pool_alloc(context->pool, &spec->args, count, sizeof *spec->args, err),
        out);
    if (single) {
        copse__layer_arg *arg = &spec->args[spec->arg_count++];
        COPSE__TRY(copse__pool_strdup(context->pool, &arg->key, "", err), out);
        COPSE__TRY(read_place(context, copse__yaml_place(keys, place, sizeof place),
                              &arg->place, err),
                   out);
        return read_value(context, keys, &arg->value, err);
    }
    for (const copse__yaml_node *key = keys->first; key; key = key->next)
        COPSE__TRY(read_key(context, key, is_layer, spec, err), out);
out:
    return status;
}

copse_status copse__config_read_layers(const copse__schema_context *context,
                                       const copse__field *field,
                                       const copse__yaml_node *node, void *base,
                                       copse_error *err) {
    copse__layer_spec **out =
        (copse__layer_spec **)(void *)((char *)base + field->offset);
    size_t *count = (size_t *)(void *)((char *)base + field->count_offset);
    *out = NULL;
    *count = 0;
    if (!node)
        return COPSE_OK;
    if (node->kind != COPSE__YAML_SEQUENCE || (field->required && node->count == 0)) {
        char place[256], is[96];
        return copse__fail(err, COPSE_CONFIG, 0,
                           copse__yaml_place(node, place, sizeof place),
                           "%s must be a list with at least one item, not %s", field->key,
                           node->kind == COPSE__YAML_SEQUENCE
                               ? "an empty one"
                               : copse__yaml_describe(node, is, sizeof is));
    }
    copse_status status =
        copse__pool_alloc(context->pool, out, node->count, sizeof **out, err);
    for (const copse__yaml_node *item = node->first; status == COPSE_OK && item;
         item = item->next)
        status = read_item(context, field, item, &(*out)[(*count)++], err);
    return status;
}

static void write_value(const copse__value *value, copse__text *out) {
    char buffer[32];
    switch (value->kind) {
    case COPSE__VALUE_NULL:
        copse__text_add(out, "null");
        break;
    case COPSE__VALUE_BOOL:
        copse__text_add(out, "%s", value->boolean ? "true" : "false");
        break;
    case COPSE__VALUE_NUMBER:
        copse__text_add(out, "%s",
                        copse__format_double(buffer, sizeof buffer, value->number));
        break;
    case COPSE__VALUE_TEXT:
        copse__schema_write_text(out, value->text);
        break;
    case COPSE__VALUE_NUMBERS:
        copse__text_add(out, "[");
        for (size_t i = 0; i < value->count; i++)
            copse__text_add(
                out, "%s%s", i > 0 ? ", " : "",
                copse__format_double(buffer, sizeof buffer, value->numbers[i]));
        copse__text_add(out, "]");
        break;
    }
}

static void write_item(const copse__layer_spec *spec, copse__text *out) {
    copse__schema_write_text(out, spec->kind);
    if (!spec->name && spec->input_count == 0 && spec->arg_count == 0)
        return;
    copse__text_add(out, ": ");
    if (spec->arg_count == 1 && spec->args[0].key[0] == '\0') {
        write_value(&spec->args[0].value, out);
        return;
    }
    const char *joint = "";
    copse__text_add(out, "{");
    if (spec->name) {
        copse__text_add(out, "name: ");
        copse__schema_write_text(out, spec->name);
        joint = ", ";
    }
    for (size_t i = 0; i < spec->input_count; i++) {
        copse__text_add(out, "%s", i > 0 ? ", " : *joint ? ", inputs: [" : "inputs: [");
        copse__schema_write_text(out, spec->inputs[i]);
    }
    if (spec->input_count > 0) {
        copse__text_add(out, "]");
        joint = ", ";
    }
    for (size_t i = 0; i < spec->arg_count; i++) {
        copse__text_add(out, "%s", joint);
        copse__schema_write_text(out, spec->args[i].key);
        copse__text_add(out, ": ");
        write_value(&spec->args[i].value, out);
        joint = ", ";
    }
    copse__text_add(out, "}");
}

void copse__config_write_layers(const copse__field *field, const void *base,
                                copse__text *out) {
    const char *at = base;
    copse__layer_spec *const *specs =
        (copse__layer_spec *const *)(const void *)(at + field->offset);
    size_t count = *(const size_t *)(const void *)(at + field->count_offset);
    if (strcmp(field->key, "model") == 0) { /* long: one layer a line */
        for (size_t i = 0; i < count; i++) {
            copse__text_add(out, "\n  - ");
            write_item(&(*specs)[i], out);
        }
        return;
    }
    copse__text_add(out, "[");
    for (size_t i = 0; i < count; i++) {
        copse__text_add(out, "%s", i > 0 ? ", " : "");
        write_item(&(*specs)[i], out);
    }
    copse__text_add(out, "]");
}
