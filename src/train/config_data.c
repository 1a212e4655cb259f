/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_private.h"

#define AT(member) .offset = offsetof(copse__config, data.member)

#define FORMAT_NAME(code, name) [code] = name,
static const char *const formats[] = {COPSE_DATA_FORMAT_MAP(FORMAT_NAME) NULL};
#undef FORMAT_NAME

/* ---- Sources ---- */

/* How a source's mapping is written, by format; formats without a line have {files: …}. */
typedef struct source_keys {
    const char *paths, *labels; /* labels NULL: labels lie in the data files */
    const char *feature_name, *label_name;
} source_keys;

static source_keys keys_of(const copse__config *config) {
    static const source_keys plain = {.paths = "files"};
    static const source_keys keys[COPSE__COUNT(formats)] = {
        [COPSE_DATA_IDX] = {.paths = "images", .labels = "labels"},
        [COPSE_DATA_NPY] = {.paths = "features",
                            .labels = "labels",
                            .feature_name = "feature_name",
                            .label_name = "label_name"}};
    return keys[config->data.format].paths ? keys[config->data.format] : plain;
}

static copse_status fail_source(const copse__field *field, const copse__yaml_node *node,
                                const copse__config *config, copse_error *err) {
    char wanted[128];
    source_keys keys = keys_of(config);
    if (keys.labels)
        snprintf(wanted, sizeof wanted, "{%s: FILE, %s: FILE}, where FILE may be a list",
                 keys.paths, keys.labels);
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

/* {images: …, labels: …}: a table made for the format. */
static copse_status read_keys(const copse__schema_context *context,
                              const copse__field *field, const copse__yaml_node *node,
                              const copse__config *config, copse__config_source *source,
                              copse_error *err) {
    char name[64];
    source_keys keys = keys_of(config);
    copse__field known[5] = {{.key = keys.paths, .required = true}};
    size_t count = 1;
    if (keys.labels)
        known[count++].key = keys.labels;
    if (keys.feature_name) {
        known[count++] =
            (copse__field){.key = keys.feature_name,
                           .kind = COPSE__FIELD_TEXT,
                           .offset = offsetof(copse__config_source, feature_name)};
        known[count++] =
            (copse__field){.key = keys.label_name,
                           .kind = COPSE__FIELD_TEXT,
                           .offset = offsetof(copse__config_source, label_name)};
    }
    snprintf(name, sizeof name, "data.%s", field->key);
    const copse__section section = {name, NULL, known};
    copse_status status = copse__section_check(&section, node, err);
    if (status == COPSE_OK)
        status = read_paths(context, field, copse__yaml_find(node, keys.paths), config,
                            &source->paths, &source->path_count, err);
    const copse__yaml_node *labels =
        keys.labels ? copse__yaml_find(node, keys.labels) : NULL;
    if (status == COPSE_OK && labels)
        status = read_paths(context, field, labels, config, &source->label_paths,
                            &source->label_path_count, err);
    for (size_t i = keys.labels ? 2 : 1; status == COPSE_OK && i < count; i++)
        status = copse__field_read(context, &section, &known[i],
                                   copse__yaml_find(node, known[i].key), source, err);
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
    return read_keys(context, field, node, config, source, err);
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
    source_keys keys = keys_of(config);
    copse__text_add(out, "{%s: ", keys.paths);
    write_paths(source->paths, source->path_count, out);
    if (source->label_path_count > 0) {
        copse__text_add(out, ", %s: ", keys.labels);
        write_paths(source->label_paths, source->label_path_count, out);
    }
    if (source->feature_name) {
        copse__text_add(out, ", %s: ", keys.feature_name);
        copse__schema_write_text(out, source->feature_name);
    }
    if (source->label_name) {
        copse__text_add(out, ", %s: ", keys.label_name);
        copse__schema_write_text(out, source->label_name);
    }
    copse__text_add(out, "}");
}

copse_data_source copse__config_data_source(const copse__config *config,
                                            const copse__config_source *source) {
    return (copse_data_source){.format = config->data.format,
                               .paths = (const char *const *)source->paths,
                               .path_count = source->path_count,
                               .label_paths = (const char *const *)source->label_paths,
                               .label_path_count = source->label_path_count,
                               .feature_name = source->feature_name,
                               .label_name = source->label_name,
                               .coarse_labels = config->data.coarse_labels};
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
     .kind = COPSE__FIELD_CHOICE,
     AT(format),
     .required = true,
     .words = formats},
    {SOURCE(train), .required = true, .loose = true},
    {SOURCE(validation), .loose = true},
    {SOURCE(test), .loose = true},
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
     .loose = true,
     .kind = COPSE__FIELD_CUSTOM,
     .read = read_cache,
     .write = write_cache},
    {.key = "prefetch",
     .loose = true,
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
