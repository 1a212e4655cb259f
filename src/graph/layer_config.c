/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "graph/layer.h"

/* Kernels count with 32-bit integers; no real layer comes near. */
#define MAX_COUNT 2147483647.0

/* One key being read: what its messages need. */
typedef struct reading {
    const copse__layer_arg *arg;
    const char *layer;
    copse_error *err;
} reading;

static const char *value_text(const copse__value *value, char *buffer, size_t capacity) {
    size_t used;
    switch (value->kind) {
    case COPSE__VALUE_NULL:
        snprintf(buffer, capacity, "null");
        break;
    case COPSE__VALUE_BOOL:
        snprintf(buffer, capacity, value->boolean ? "true" : "false");
        break;
    case COPSE__VALUE_NUMBER:
        snprintf(buffer, capacity, "%.17g", value->number);
        break;
    case COPSE__VALUE_TEXT:
        snprintf(buffer, capacity, "'%.48s'", value->text);
        break;
    default:
        used = (size_t)snprintf(buffer, capacity, "[");
        for (size_t i = 0;
             i < copse__min_size(value->count, COPSE_MAX_RANK) && used < capacity; i++)
            used += (size_t)snprintf(buffer + used, capacity - used, "%s%.17g",
                                     i == 0 ? "" : ", ", value->numbers[i]);
        if (used < capacity)
            snprintf(buffer + used, capacity - used, "]");
    }
    return buffer;
}

static copse_status refuse(const reading *r, const char *wanted) {
    char text[160];
    return copse__fail(r->err, COPSE_CONFIG, 0, r->arg->place,
                       "layer '%s': '%s' must be %s, not %s", r->layer, r->arg->key,
                       wanted, value_text(&r->arg->value, text, sizeof text));
}

static bool is_count(double number) {
    return number >= 1 && number <= MAX_COUNT && number == floor(number);
}

static copse_status read_count(const reading *r, size_t *out) {
    const copse__value *value = &r->arg->value;
    if (value->kind != COPSE__VALUE_NUMBER || !is_count(value->number))
        return refuse(r, "a whole number from 1 to 2147483647");
    *out = (size_t)value->number;
    return COPSE_OK;
}

static copse_status read_pair(const reading *r, size_t out[2]) {
    const copse__value *value = &r->arg->value;
    double pair[2];
    if (value->kind == COPSE__VALUE_NUMBER)
        pair[0] = pair[1] = value->number;
    else if (value->kind == COPSE__VALUE_NUMBERS && value->count == 2)
        memcpy(pair, value->numbers, sizeof pair);
    else
        return refuse(r, "a whole number or two of them, [height, width]");
    if (!is_count(pair[0]) || !is_count(pair[1]))
        return refuse(r, "whole numbers from 1 to 2147483647");
    out[0] = (size_t)pair[0];
    out[1] = (size_t)pair[1];
    return COPSE_OK;
}

/* A NaN is in no range. */
static copse_status read_fraction(const reading *r, copse__key_type type, double *out) {
    const copse__value *value = &r->arg->value;
    double number = value->kind == COPSE__VALUE_NUMBER ? value->number : NAN;
    if (type == COPSE__KEY_RATE && !(number >= 0 && (float)number < 1))
        return refuse(r, "a number of at least 0 and less than 1");
    if (type == COPSE__KEY_MOMENTUM && !(number >= 0 && number <= 1))
        return refuse(r, "a number from 0 to 1");
    if (type == COPSE__KEY_POSITIVE && !((float)number > 0 && isfinite((float)number)))
        return refuse(r, "a positive number");
    *out = number;
    return COPSE_OK;
}

static copse_status read_bool(const reading *r, bool *out) {
    if (r->arg->value.kind != COPSE__VALUE_BOOL)
        return refuse(r, "true or false");
    *out = r->arg->value.boolean;
    return COPSE_OK;
}

/* The position of the value's text in a list of words, which the refusal shows. */
static copse_status read_word(const reading *r, const char *const *words, size_t count,
                              const char *more, size_t *out) {
    const copse__value *value = &r->arg->value;
    const char *hint = "";
    char near[96], list[400] = "";
    size_t used = 0;
    if (value->kind == COPSE__VALUE_TEXT) {
        for (size_t i = 0; i < count; i++)
            if (strcmp(value->text, words[i]) == 0) {
                *out = i;
                return COPSE_OK;
            }
        hint = copse__suggest_text(near, sizeof near, value->text, words, count);
    }
    for (size_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                 i == 0 ? "" : ", ", words[i]);
    char text[160];
    return copse__fail(r->err, COPSE_CONFIG, 0, r->arg->place,
                       "layer '%s': '%s' must be one of %s%s, not %s%s", r->layer,
                       r->arg->key, list, more, value_text(value, text, sizeof text),
                       hint);
}

static copse_status read_padding(const reading *r, copse__padding *out) {
    static const char *const words[] = {"valid", "same"};
    size_t word;
    copse_status status = read_word(r, words, COPSE__COUNT(words), "", &word);
    if (status == COPSE_OK)
        *out = word == 0 ? COPSE__PADDING_VALID : COPSE__PADDING_SAME;
    return status;
}

static copse_status read_activation(const reading *r, copse__layer_activation *out) {
    const char *words[COPSE__ACT_COUNT + 2];
    for (size_t i = 0; i < COPSE__ACT_COUNT; i++)
        words[i] = copse__activation_name((copse__activation)i);
    words[COPSE__ACT_COUNT] = "softmax";
    words[COPSE__ACT_COUNT + 1] = "none";
    *out = (copse__layer_activation){.act = COPSE__ACT_NONE};
    if (r->arg->value.kind == COPSE__VALUE_NULL)
        return COPSE_OK;
    size_t word;
    copse_status status = read_word(r, words, COPSE__COUNT(words), "", &word);
    if (status != COPSE_OK)
        return status;
    if (word < COPSE__ACT_COUNT)
        out->act = (copse__activation)word;
    out->softmax = word == COPSE__ACT_COUNT;
    return COPSE_OK;
}

static copse_status read_initializer(const reading *r, copse__initializer *out) {
    const copse__value *value = &r->arg->value;
    if (value->kind == COPSE__VALUE_NUMBER) {
        float constant = (float)value->number;
        if (!isfinite(constant))
            return refuse(r, "a finite number where it is one");
        *out = (copse__initializer){COPSE__SCHEME_CONSTANT, constant};
        return COPSE_OK;
    }
    const char *words[COPSE__SCHEME_COUNT];
    copse__scheme schemes[COPSE__SCHEME_COUNT];
    size_t count = 0, word;
    for (size_t i = 0; i < COPSE__SCHEME_COUNT; i++)
        if (i != COPSE__SCHEME_CONSTANT) { /* which needs its number */
            schemes[count] = (copse__scheme)i;
            words[count++] = copse__scheme_name((copse__scheme)i);
        }
    copse_status status = read_word(r, words, count, " or a number (a constant)", &word);
    if (status == COPSE_OK)
        *out = (copse__initializer){schemes[word], 0};
    return status;
}

static copse_status read_axis(const reading *r, int64_t *out) {
    const copse__value *value = &r->arg->value;
    if (value->kind != COPSE__VALUE_NUMBER || value->number != floor(value->number) ||
        fabs(value->number) > COPSE_MAX_RANK)
        return refuse(r, "the number of an axis, such as -1 for the last");
    *out = (int64_t)value->number;
    return COPSE_OK;
}

static copse_status read_shape(const reading *r, copse__layer_config *out) {
    const copse__value *value = &r->arg->value;
    size_t open = 0;
    out->shape_rank = value->kind == COPSE__VALUE_NUMBERS ? value->count : 1;
    bool readable =
        value->kind == COPSE__VALUE_NUMBER || value->kind == COPSE__VALUE_NUMBERS;
    if (!readable || out->shape_rank == 0 || out->shape_rank > COPSE_MAX_RANK - 1)
        return refuse(r, "a list of 1 to 5 whole numbers (the shape without the batch)");
    for (size_t i = 0; i < out->shape_rank; i++) {
        double number =
            value->kind == COPSE__VALUE_NUMBER ? value->number : value->numbers[i];
        open += number == -1;
        if (number != -1 && !is_count(number))
            return refuse(r, "positive whole numbers, or -1 for what is left");
        out->shape[i] = (int64_t)number;
    }
    return open > 1 ? refuse(r, "a shape with at most one -1") : COPSE_OK;
}

static copse_status read_key(const reading *r, const copse__layer_key *key,
                             copse__layer_config *config) {
    void *field = (char *)config + key->offset;
    switch (key->type) {
    case COPSE__KEY_COUNT:
        return read_count(r, field);
    case COPSE__KEY_PAIR:
        return read_pair(r, field);
    case COPSE__KEY_RATE:
    case COPSE__KEY_MOMENTUM:
    case COPSE__KEY_POSITIVE:
        return read_fraction(r, key->type, field);
    case COPSE__KEY_BOOL:
        return read_bool(r, field);
    case COPSE__KEY_PADDING:
        return read_padding(r, field);
    case COPSE__KEY_ACTIVATION:
        return read_activation(r, field);
    case COPSE__KEY_INITIALIZER:
        return read_initializer(r, field);
    case COPSE__KEY_AXIS:
        return read_axis(r, field);
    case COPSE__KEY_SHAPE:
        return read_shape(r, config);
    }
    return COPSE_INTERNAL;
}

static bool is_key(const copse__layer_key *key, const char *text) {
    return strcmp(key->name, text) == 0 || (key->alias && strcmp(key->alias, text) == 0);
}

static copse_status unknown_key(const copse__layer_kind *kind,
                                const copse__layer_arg *arg, const char *name,
                                copse_error *err) {
    const char *known[32];
    char list[320] = "no keys", hint[96];
    size_t known_count = 0, used = 0;
    for (size_t i = 0; i < kind->key_count; i++) {
        known[known_count++] = kind->keys[i].name;
        if (kind->keys[i].alias)
            known[known_count++] = kind->keys[i].alias;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                     i == 0 ? "" : ", ", kind->keys[i].name);
    }
    return copse__fail(
        err, COPSE_CONFIG, 0, arg->place,
        "layer '%s' (%s) has no key '%.64s'%s; it has: %s", name, kind->name, arg->key,
        copse__suggest_text(hint, sizeof hint, arg->key, known, known_count), list);
}

copse_status copse__layer_config_read(copse__layer_config *out,
                                      const copse__layer_kind *kind,
                                      const copse__layer_spec *spec, const char *name,
                                      copse_error *err) {
    uint32_t seen = 0;
    *out = kind->defaults;
    for (size_t i = 0; i < spec->arg_count; i++) {
        const copse__layer_arg *arg = &spec->args[i];
        size_t k = 0;
        while (k < kind->key_count && !is_key(&kind->keys[k], arg->key))
            k++;
        if (k == kind->key_count)
            return unknown_key(kind, arg, name, err);
        if (seen >> k & 1)
            return copse__fail(err, COPSE_CONFIG, 0, arg->place,
                               "layer '%s': '%s' is given twice", name,
                               kind->keys[k].name);
        seen |= 1u << k;
        reading r = {.arg = arg, .layer = name, .err = err};
        copse_status status = read_key(&r, &kind->keys[k], out);
        if (status != COPSE_OK)
            return status;
    }
    for (size_t k = 0; k < kind->key_count; k++)
        if (kind->keys[k].required && !(seen >> k & 1))
            return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                               "layer '%s' (%s) needs the key '%s'", name, kind->name,
                               kind->keys[k].name);
    return COPSE_OK;
}
