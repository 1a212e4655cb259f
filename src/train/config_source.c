/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "train/config_private.h"

/* data.train, data.validation and data.test. */

/* How a source's mapping is written, by format; formats without a line have {files: …}. */
typedef struct source_keys {
    const char *paths, *labels; /* labels NULL: labels lie in the data files */
    const char *feature_name, *label_name;
} source_keys;

static source_keys keys_of(const copse__config *config) {
    static const source_keys plain = {.paths = "files"};
    static const source_keys keys[COPSE_DATA_SYNTHETIC + 1] = {
        [COPSE_DATA_IDX] = {.paths = "images", .labels = "labels"},
        [COPSE_DATA_NPY] = {.paths = "features",
                            .labels = "labels",
                            .feature_name = "feature_name",
                            .label_name = "label_name"},
        [COPSE_DATA_FOLDER] = {.paths = "folder"},
        [COPSE_DATA_SYNTHETIC] = {.paths = "count"}};
    return keys[config->data.format].paths ? keys[config->data.format] : plain;
}

static copse_status fail_source(const copse__field *field, const copse__yaml_node *node,
                                const copse__config *config, copse_error *err) {
    char wanted[128];
    source_keys keys = keys_of(config);
    if (config->data.format == COPSE_DATA_SYNTHETIC)
        snprintf(wanted, sizeof wanted, "{count: N, seed: N}");
    else if (keys.labels)
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

/* {count: N, seed: N}: samples that are made, not read. */
static const copse__field synthetic_fields[] = {
    {.key = "count",
     .kind = COPSE__FIELD_COUNT,
     .required = true,
     .least = 1,
     .most = 1e12,
     .offset = offsetof(copse__config_source, count)},
    {.key = "seed",
     .kind = COPSE__FIELD_COUNT,
     .offset = offsetof(copse__config_source, seed)},
    {0}};
static const copse__section synthetic = {"a synthetic source", NULL, synthetic_fields};

copse_status copse__config_read_source(const copse__schema_context *context,
                                       const copse__field *field,
                                       const copse__yaml_node *node, void *base,
                                       copse_error *err) {
    const copse__config *config = base;
    copse__config_source *source =
        (copse__config_source *)(void *)((char *)base + field->offset);
    *source = (copse__config_source){0};
    if (!node || (copse__yaml_is_null(node) && !field->required))
        return COPSE_OK;
    source->given = true;
    if (config->data.format == COPSE_DATA_SYNTHETIC)
        return node->kind == COPSE__YAML_MAPPING
                   ? copse__section_read(context, &synthetic, node, source, err)
                   : fail_source(field, node, config, err);
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

void copse__config_write_source(const copse__field *field, const void *base,
                                copse__text *out) {
    const copse__config *config = base;
    const copse__config_source *source =
        (const copse__config_source *)(const void *)((const char *)base + field->offset);
    if (!source->given) {
        copse__text_add(out, "null");
        return;
    }
    if (config->data.format == COPSE_DATA_SYNTHETIC) {
        copse__section_write(&synthetic, source, COPSE__WRITE_FLOW, out);
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
