/* SPDX-License-Identifier: Apache-2.0
 *
 * `augment: [random_flip: horizontal, random_crop: {padding: 4}]` to the data room's list. */
#include "train/augment.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/augment.h"

/* What a kind may be given: its number (as `kind: 0.1` or under a key), sizes, or a direction. */
typedef struct kind {
    const char *name;
    copse_augment_kind code;
    const char *amount; /* key of the number; NULL: none */
    bool direction, crop, size;
} kind;

static const kind kinds[] = {
    {"random_flip", COPSE_AUGMENT_FLIP_HORIZONTAL, "probability", true, false, false},
    {"random_crop", COPSE_AUGMENT_CROP, NULL, false, true, false},
    {"random_rotation", COPSE_AUGMENT_ROTATE, "factor", false, false, false},
    {"random_brightness", COPSE_AUGMENT_BRIGHTNESS, "factor", false, false, false},
    {"random_contrast", COPSE_AUGMENT_CONTRAST, "factor", false, false, false},
    {"cutout", COPSE_AUGMENT_CUTOUT, NULL, false, false, true},
    {"mixup", COPSE_AUGMENT_MIXUP, "alpha", false, false, false},
    {"center_crop", COPSE_AUGMENT_CENTER_CROP, NULL, false, true, false},
};

static copse_status unknown_kind(const copse__layer_spec *spec, copse_error *err) {
    char names[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < COPSE__COUNT(kinds) && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 kinds[i].name);
    return copse__fail(err, COPSE_CONFIG, 0, spec->place,
                       "'%s' is no augmentation; there are %s", spec->kind, names);
}

static copse_status wrong(const copse__layer_arg *arg, const char *name,
                          const char *wanted, copse_error *err) {
    return copse__fail(err, COPSE_CONFIG, 0, arg->place, "%s%s%s must be %s", name,
                       arg->key[0] ? "." : "", arg->key, wanted);
}

static bool is_size(const copse__value *value) {
    return value->kind == COPSE__VALUE_NUMBER && value->number >= 0 &&
           value->number <= 1e6 && (double)(size_t)value->number == value->number;
}

/* The place in *out of a size with this key; NULL where the kind has none. */
static size_t *size_slot(copse_augment *out, const kind *k, const char *key) {
    if (k->size && (!key[0] || strcmp(key, "size") == 0))
        return &out->size;
    if (!k->crop)
        return NULL;
    if (strcmp(key, "padding") == 0)
        return &out->padding;
    if (strcmp(key, "height") == 0)
        return &out->height;
    return strcmp(key, "width") == 0 ? &out->width : NULL;
}

static copse_status take_direction(const copse__layer_arg *arg, const kind *k,
                                   bool *horizontal, bool *vertical, copse_error *err) {
    const char *text = arg->value.kind == COPSE__VALUE_TEXT ? arg->value.text : "";
    bool both = strcmp(text, "horizontal_and_vertical") == 0;
    *horizontal = both || strcmp(text, "horizontal") == 0;
    *vertical = both || strcmp(text, "vertical") == 0;
    if (*horizontal || *vertical)
        return COPSE_OK;
    return wrong(arg, k->name, "horizontal, vertical or horizontal_and_vertical", err);
}

static copse_status take_arg(copse_augment *out, const kind *k,
                             const copse__layer_arg *arg, bool *horizontal,
                             bool *vertical, copse_error *err) {
    if (k->direction && (!arg->key[0] || strcmp(arg->key, "mode") == 0))
        return take_direction(arg, k, horizontal, vertical, err);
    size_t *size = size_slot(out, k, arg->key);
    if (size) {
        if (!is_size(&arg->value))
            return wrong(arg, k->name, "a number of pixels", err);
        *size = (size_t)arg->value.number;
        return COPSE_OK;
    }
    if (!k->amount || (arg->key[0] && strcmp(arg->key, k->amount) != 0))
        return copse__fail(err, COPSE_CONFIG, 0, arg->place, "%s has no '%s'", k->name,
                           arg->key);
    if (arg->value.kind != COPSE__VALUE_NUMBER || !(arg->value.number > 0))
        return wrong(arg, k->name, "a number above 0", err);
    out->amount = arg->value.number;
    return COPSE_OK;
}

/* Adds one change, or two where a flip goes both ways. */
static copse_status add(copse_augment *out, size_t *count, const copse__layer_spec *spec,
                        copse_error *err) {
    const kind *k = NULL;
    bool horizontal = true, vertical = false;
    for (size_t i = 0; i < COPSE__COUNT(kinds); i++)
        if (strcmp(kinds[i].name, spec->kind) == 0)
            k = &kinds[i];
    if (!k)
        return unknown_kind(spec, err);
    copse_augment made = {.kind = k->code};
    for (size_t i = 0; i < spec->arg_count; i++) {
        copse_status status =
            take_arg(&made, k, &spec->args[i], &horizontal, &vertical, err);
        if (status != COPSE_OK)
            return status;
    }
    if (!k->direction || horizontal)
        out[(*count)++] = made;
    if (k->direction && vertical) {
        made.kind = COPSE_AUGMENT_FLIP_VERTICAL;
        out[(*count)++] = made;
    }
    return COPSE_OK;
}

copse_status copse__config_augment(copse_augment **out, size_t *count,
                                   const copse__config *config, copse_error *err) {
    const copse__config_data *data = &config->data;
    *count = 0;
    copse_status status = copse__calloc(out, 2 * data->augment_count, sizeof **out, err);
    for (size_t i = 0; i < data->augment_count && status == COPSE_OK; i++) {
        status = add(*out, count, &data->augment[i], err);
        if (status == COPSE_OK && i + 1 < data->augment_count &&
            (*out)[*count - 1].kind == COPSE_AUGMENT_MIXUP)
            status = copse__fail(err, COPSE_CONFIG, 0, data->augment[i].place,
                                 "mixup must be the last augmentation");
    }
    if (status != COPSE_OK) {
        free(*out);
        *out = NULL;
        *count = 0;
    }
    return status;
}

/* What the changes that one item of the list stands for make of *spec. */
static copse_status change_spec(copse_data_spec *spec, const copse__layer_spec *item,
                                copse_error *err) {
    copse_augment changes[2];
    size_t count = 0;
    copse_error why = {0};
    copse_status status = add(changes, &count, item, err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        copse_data_spec before = *spec;
        if (copse__augment_spec(spec, &changes[i], &before, &why) != COPSE_OK)
            status = copse__fail(err, why.status, 0, item->place, "%s: %s", item->kind,
                                 why.text);
    }
    return status;
}

copse_status copse__config_augmented(copse_data_spec *out, const copse__config *config,
                                     const copse_data_spec *stored, copse_error *err) {
    copse_status status = COPSE_OK;
    *out = *stored;
    for (size_t i = 0; i < config->data.augment_count && status == COPSE_OK; i++)
        status = change_spec(out, &config->data.augment[i], err);
    return status;
}

size_t copse__augment_for_evaluation(copse_augment *out, const copse_augment *training,
                                     size_t count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool crops = training[i].kind == COPSE_AUGMENT_CROP ||
                     training[i].kind == COPSE_AUGMENT_CENTER_CROP;
        if (!crops || (training[i].height == 0 && training[i].width == 0))
            continue; /* of its own size: the middle is all of it */
        out[kept] = training[i];
        out[kept++].kind = COPSE_AUGMENT_CENTER_CROP;
    }
    return kept;
}
