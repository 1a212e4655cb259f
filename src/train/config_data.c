/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_private.h"

#define AT(member) .offset = offsetof(copse__config, data.member)

static const char *const formats[] = {"idx", "cifar10", "cifar100", NULL};

/* What a source's mapping calls its files, by format. */
static const char *paths_key(const copse__config *config) {
    return strcmp(config->data.format, "idx") == 0 ? "images" : "files";
}

static bool has_label_files(const copse__config *config) {
    return strcmp(config->data.format, "idx") == 0;
}

static copse_status read_format(const copse__schema_context *context,
                                const copse__field *field, const copse__yaml_node *node,
                                void *base, copse_error *err) {
    copse__config *config = base;
    unsigned index;
    const copse__field choice = {
        .key = field->key, .kind = COPSE__FIELD_CHOICE, .words = formats};
    copse_status status = copse__field_read(context, &copse__config_data_section, &choice,
                                            node, &index, err);
    return status == COPSE_OK ? copse__pool_strdup(context->pool, &config->data.format,
                                                   formats[index], err)
                              : status;
}

static void write_format(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->data.format);
}

/* ---- Sources ---- */

static copse_status fail_source(const copse__field *field, const copse__yaml_node *node,
                                const copse__config *config, copse_error *err) {
    char wanted[128];
    if (has_label_files(config))
        snprintf(wanted, sizeof wanted,
                 "{images: FILE, labels: FILE}, where FILE may be a list");
    else
        snprintf(wanted, sizeof wanted, "a file or a list of files");
    return copse__schema_wrong(&copse__config_data_section, field->key, node, wanted,
                               err);
}

/* A path or a list of paths. */
static copse_status read_paths(const copse__schema_context *context,
                               const copse__field *field, const copse__yaml_node *node,
                               const copse__config *config, char ***out, size_t *count,
                               copse_error *err) {
    bool list = node->kind == COPSE__YAML_SEQUENCE;
    if (list && node->count == 0)
        return fail_source(field, node, config, err);
    copse_status status =
        copse__pool_alloc(context->pool, out, list ? node->count : 1, sizeof **out, err);
    const copse__yaml_node *item = list ? node->first : node;
    for (; status == COPSE_OK && item; item = list ? item->next : NULL) {
        const char *text;
        if (!copse__yaml_get_text(item, &text) || !text[0])
            return fail_source(field, item, config, err);
        status = copse__config_path(context, item, text, &(*out)[(*count)++], err);
    }
    return status;
}

static copse_status read_source(const copse__schema_context *context,
                                const copse__field *field, const copse__yaml_node *node,
                                void *base, copse_error *err) {
    const copse__config *config = base;
    copse__config_source *source =
        (copse__config_source *)(void *)((char *)base + field->offset);
    *source = (copse__config_source){0};
    if (!node || (copse__yaml_is_null(node) && !field->required))
        return COPSE_OK;
    if (node->kind != COPSE__YAML_MAPPING)
        return read_paths(context, field, node, config, &source->paths,
                          &source->path_count, err);
    /* The keys are checked by a table made for the format; the values read here. */
    char name[64];
    snprintf(name, sizeof name, "data.%s", field->key);
    const char *key = paths_key(config);
    const copse__yaml_node *files = copse__yaml_find(node, key);
    const copse__yaml_node *labels =
        has_label_files(config) ? copse__yaml_find(node, "labels") : NULL;
    copse__field known[3] = {{.key = key, .kind = COPSE__FIELD_CUSTOM, .required = true},
                             {.key = "labels", .kind = COPSE__FIELD_CUSTOM}};
    if (!has_label_files(config))
        known[1] = (copse__field){0};
    const copse__section section = {name, NULL, known};
    copse_status status = copse__section_check(&section, node, err);
    if (status == COPSE_OK)
        status = read_paths(context, field, files, config, &source->paths,
                            &source->path_count, err);
    if (status == COPSE_OK && labels)
        status = read_paths(context, field, labels, config, &source->label_paths,
                            &source->label_path_count, err);
    return status;
}

static void write_paths(char *const *paths, size_t count, copse__text *out) {
    copse__text_add(out, "%s", count == 1 ? "" : "[");
    for (size_t i = 0; i < count; i++) {
        copse__text_add(out, "%s", i > 0 ? ", " : "");
        copse__schema_write_text(out, paths[i]);
    }
    copse__text_add(out, "%s", count == 1 ? "" : "]");
}

static void write_source(const copse__field *field, const void *base, copse__text *out) {
    const copse__config *config = base;
    const copse__config_source *source =
        (const copse__config_source *)(const void *)((const char *)base + field->offset);
    if (source->path_count == 0) {
        copse__text_add(out, "null");
        return;
    }
    copse__text_add(out, "{%s: ", paths_key(config));
    write_paths(source->paths, source->path_count, out);
    if (source->label_path_count > 0) {
        copse__text_add(out, ", labels: ");
        write_paths(source->label_paths, source->label_path_count, out);
    }
    copse__text_add(out, "}");
}

/* ---- Shuffling ---- */

/* Where no seed is given, train.seed takes its place once it is known (config.c). */
static const copse__field shuffle_fields[] = {
    {.key = "seed", .kind = COPSE__FIELD_COUNT, AT(shuffle_seed)},
    {.key = "buffer", .kind = COPSE__FIELD_COUNT, AT(shuffle_buffer), .most = 1e15},
    {0}};
static const copse__section shuffle = {"data.shuffle", NULL, shuffle_fields};

static copse_status read_shuffle(const copse__schema_context *context,
                                 const copse__field *field, const copse__yaml_node *node,
                                 void *base, copse_error *err) {
    copse__config_data *data = &((copse__config *)base)->data;
    bool on = true;
    bool mapping = node && node->kind == COPSE__YAML_MAPPING;
    if (node && !mapping && !copse__yaml_get_bool(node, &on))
        return copse__schema_wrong(&copse__config_data_section, field->key, node,
                                   "{seed: N}, {buffer: N}, true or false", err);
    copse_status status =
        copse__section_read(context, &shuffle, mapping ? node : NULL, base, err);
    if (status != COPSE_OK)
        return status;
    if (mapping && copse__yaml_find(node, "buffer") && data->shuffle_buffer == 0)
        return copse__schema_wrong(&shuffle, "buffer", copse__yaml_find(node, "buffer"),
                                   "at least 1", err);
    data->shuffle_seed_given = mapping && copse__yaml_find(node, "seed");
    data->shuffle = !on                        ? COPSE__SHUFFLE_NONE
                    : data->shuffle_buffer > 0 ? COPSE__SHUFFLE_BUFFER
                                               : COPSE__SHUFFLE_FULL;
    return COPSE_OK;
}

static void write_shuffle(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    const copse__config_data *data = &((const copse__config *)base)->data;
    if (data->shuffle == COPSE__SHUFFLE_NONE)
        copse__text_add(out, "false");
    else if (data->shuffle == COPSE__SHUFFLE_FULL)
        copse__text_add(out, "{seed: %llu}", (unsigned long long)data->shuffle_seed);
    else
        copse__text_add(out, "{seed: %llu, buffer: %llu}",
                        (unsigned long long)data->shuffle_seed,
                        (unsigned long long)data->shuffle_buffer);
}

/* ---- The cache ---- */

static copse_status read_cache(const copse__schema_context *context,
                               const copse__field *field, const copse__yaml_node *node,
                               void *base, copse_error *err) {
    char **out = &((copse__config *)base)->data.cache;
    const char *text = "none";
    bool on;
    if (node && copse__yaml_get_bool(node, &on) && !on)
        node = NULL;
    if (node && (!copse__yaml_get_text(node, &text) || !text[0]))
        return copse__schema_wrong(&copse__config_data_section, field->key, node,
                                   "memory, none or a file", err);
    if (strcmp(text, "none") == 0 || strcmp(text, "memory") == 0)
        return copse__pool_strdup(context->pool, out, text, err);
    return copse__config_path(context, node, text, out, err);
}

static void write_cache(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->data.cache);
}

#define SOURCE(name)                                                                     \
    .key = #name, .kind = COPSE__FIELD_CUSTOM, AT(name), .read = read_source,            \
    .write = write_source

static const copse__field fields[] = {
    {.key = "format",
     .kind = COPSE__FIELD_CUSTOM,
     .required = true,
     .read = read_format,
     .write = write_format},
    {SOURCE(train), .required = true},
    {SOURCE(validation)},
    {SOURCE(test)},
    {.key = "validation_split",
     .kind = COPSE__FIELD_NUMBER,
     AT(validation_split),
     .most = 1,
     .below = true},
    {.key = "scale",
     .kind = COPSE__FIELD_NUMBER,
     AT(scale),
     .least = -1e30,
     .most = 1e30,
     .number = 1},
    {.key = "offset",
     .kind = COPSE__FIELD_NUMBER,
     AT(offset),
     .least = -1e30,
     .most = 1e30},
    {.key = "shuffle",
     .kind = COPSE__FIELD_CUSTOM,
     .read = read_shuffle,
     .write = write_shuffle},
    {.key = "cache",
     .kind = COPSE__FIELD_CUSTOM,
     .read = read_cache,
     .write = write_cache},
    {.key = "prefetch",
     .kind = COPSE__FIELD_COUNT,
     AT(prefetch),
     .least = 1,
     .most = 1024,
     .number = 2},
    {.key = "augment",
     .kind = COPSE__FIELD_CUSTOM,
     AT(augment),
     .count_offset = offsetof(copse__config, data.augment_count),
     .read = copse__config_read_layers,
     .write = copse__config_write_layers},
    {.key = "drop_remainder", .kind = COPSE__FIELD_BOOL, AT(drop_remainder)},
    {.key = "classes", .kind = COPSE__FIELD_COUNT, AT(classes), .most = 2147483647},
    {.key = "coarse_labels", .kind = COPSE__FIELD_BOOL, AT(coarse_labels)},
    {0}};

const copse__section copse__config_data_section = {"data", NULL, fields};
