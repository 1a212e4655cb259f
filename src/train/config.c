/* SPDX-License-Identifier: Apache-2.0 */
#include "train/config.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "train/augment.h"
#include "train/config_private.h"

/* ---- init ---- */

static const char *const layouts[] = {"auto", "keras", "pytorch", NULL};

static const copse__field init_fields[] = {
    {.key = "file",
     .kind = COPSE__FIELD_TEXT,
     .offset = offsetof(copse__config, init.file),
     .required = true},
    {.key = "partial",
     .kind = COPSE__FIELD_BOOL,
     .offset = offsetof(copse__config, init.partial)},
    {.key = "layout",
     .kind = COPSE__FIELD_CHOICE,
     .offset = offsetof(copse__config, init.layout),
     .words = layouts},
    {0}};
static const copse__section init = {"init", NULL, init_fields};

static copse_status read_init(const copse__schema_context *context,
                              const copse__field *field, const copse__yaml_node *node,
                              void *base, copse_error *err) {
    copse__config *config = base;
    const char *text;
    (void)field;
    if (!node || copse__yaml_is_null(node))
        return COPSE_OK;
    if (copse__yaml_get_text(node, &text) && text[0])
        return copse__config_path(context, node, text, &config->init.file, err);
    if (node->kind != COPSE__YAML_MAPPING)
        return copse__schema_wrong(
            &init, NULL, node, "a file of weights, or {file: FILE, partial: true}", err);
    copse_status status = copse__section_read(context, &init, node, base, err);
    if (status != COPSE_OK)
        return status;
    const copse__yaml_node *file = copse__yaml_find(node, "file");
    if (!config->init.file || !config->init.file[0])
        return copse__schema_wrong(&init, "file", file, "a file of weights", err);
    return copse__config_path(context, file, config->init.file, &config->init.file, err);
}

static void write_init(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    if (((const copse__config *)base)->init.file)
        copse__section_write(&init, base, COPSE__WRITE_FLOW, out);
    else
        copse__text_add(out, "null");
}

enum { MODEL_FIELD = 1 }; /* its index in the table */

static const copse__field top_fields[] = {
    {.key = "data",
     .kind = COPSE__FIELD_SECTION,
     .required = true,
     .section = &copse__config_data_section},
    [MODEL_FIELD] = {.key = "model",
                     .kind = COPSE__FIELD_CUSTOM,
                     .required = true,
                     .offset = offsetof(copse__config, layers),
                     .count_offset = offsetof(copse__config, layer_count),
                     .read = copse__config_read_layers,
                     .write = copse__config_write_layers},
    {.key = "train",
     .kind = COPSE__FIELD_SECTION,
     .required = true,
     .section = &copse__config_train_section},
    {.key = "devices",
     .kind = COPSE__FIELD_SECTION,
     .section = &copse__config_devices_section},
    {.key = "checkpoint",
     .kind = COPSE__FIELD_SWITCH,
     .number = 1,
     .offset = offsetof(copse__config, checkpoint.enabled),
     .section = &copse__config_checkpoint_section},
    {.key = "log", .kind = COPSE__FIELD_SECTION, .section = &copse__config_log_section},
    {.key = "init", .kind = COPSE__FIELD_CUSTOM, .read = read_init, .write = write_init},
    {0}};

static const copse__section top = {"", NULL, top_fields};

/* ---- Loading ---- */

copse_status copse__config_path(const copse__schema_context *context,
                                const copse__yaml_node *node, const char *text,
                                char **out, copse_error *err) {
    char *joined = NULL, *working = NULL;
    copse_status status = COPSE_OK;
    *out = NULL;
    if (node->overridden && text[0] != '/') {
        working = getcwd(NULL, 0);
        if (!working)
            return copse__fail(err, COPSE_IO, errno, node->source,
                               "the working folder cannot be found: %s", strerror(errno));
    }
    COPSE__TRY(copse__path_join(&joined, working ? working : context->folder, text, err),
               out);
    status = copse__pool_strdup(context->pool, out, joined, err);
out:
    free(joined);
    free(working);
    return status;
}

/* The absolute folder of the configuration file. */
static copse_status find_folder(copse__config *config, copse_error *err) {
    char *folder = NULL, *absolute = NULL;
    copse_status status;
    COPSE__TRY(copse__path_folder(&folder, config->path, err), out);
    absolute = realpath(folder, NULL);
    if (!absolute)
        status = copse__fail(err, COPSE_CONFIG, errno, config->path,
                             "its folder cannot be opened: %s", strerror(errno));
    else
        status = copse__pool_strdup(&config->pool, &config->folder, absolute, err);
out:
    free(absolute);
    free(folder);
    return status;
}

/* Values that follow from others, and combinations that contradict themselves. */
static copse_status resolve(copse__config *config, const copse__yaml *yaml,
                            copse_error *err) {
    char place[256];
    copse__config_data *data = &config->data;
    const copse__yaml_node *node = copse__yaml_find(yaml->root, "data");
    if (!data->shuffle_seed_given)
        data->shuffle_seed = config->train.seed;
    if (data->shuffle == COPSE_SHUFFLE_NONE)
        data->shuffle_seed = 0;
    if (config->train.validate_batch == 0)
        config->train.validate_batch = config->train.batch;
    if (data->validation.given && data->validation_split > 0)
        return copse__fail(
            err, COPSE_CONFIG, 0,
            copse__yaml_key_place(copse__yaml_find(node, "validation_split"), place,
                                  sizeof place),
            "data has both validation and validation_split; remove one of the two");
    if (config->train.accumulate > config->train.batch)
        return copse__fail(
            err, COPSE_CONFIG, 0,
            copse__yaml_place(
                copse__yaml_find(copse__yaml_find(yaml->root, "train"), "accumulate"),
                place, sizeof place),
            "train.accumulate is %llu, but a batch has only %llu samples to cut up",
            (unsigned long long)config->train.accumulate,
            (unsigned long long)config->train.batch);
    copse_status status =
        copse__config_check_monitors(config, copse__yaml_find(yaml->root, "train"), err);
    return status == COPSE_OK ? copse__config_check_shapes(config, node, err) : status;
}

copse_status copse__config_parse(copse__config **out, const char *text, size_t bytes,
                                 const char *path, const char *const *overrides,
                                 size_t override_count, copse_error *err) {
    *out = NULL;
    copse__yaml *yaml = NULL;
    copse__config *config;
    copse_status status = copse__calloc(&config, 1, sizeof *config, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__pool_strdup(&config->pool, &config->path, path, err), out);
    COPSE__TRY(find_folder(config, err), out);
    COPSE__TRY(copse__yaml_parse(&yaml, text, bytes, path, err), out);
    for (size_t i = 0; i < override_count; i++)
        COPSE__TRY(copse__yaml_override(yaml, overrides[i], err), out);
    copse__schema_context context = {
        .pool = &config->pool, .folder = config->folder, .path = path};
    COPSE__TRY(copse__section_read(&context, &top, yaml->root, config, err), out);
    COPSE__TRY(resolve(config, yaml, err), out);
    *out = config;
    config = NULL;
out:
    copse__yaml_free(yaml);
    copse__config_free(config);
    return status;
}

/* What the schema does not know: layers and augmentations, as far as they can be judged without samples. */
static copse_status check_lists(const copse__config *config, copse_error *err) {
    copse_augment *augment;
    size_t count;
    copse_status status = copse__model_check(config->layers, config->layer_count, err);
    if (status != COPSE_OK)
        return status;
    status = copse__config_augment(&augment, &count, config, err);
    free(augment);
    return status;
}

copse_status copse__config_load(copse__config **out, const char *path,
                                const char *const *overrides, size_t override_count,
                                copse_error *err) {
    *out = NULL;
    char *text;
    size_t bytes;
    copse_error detail = {0};
    copse_status status =
        copse__file_read(&text, &bytes, path, COPSE__YAML_MAX_BYTES, &detail);
    /* Whatever is wrong with this file is an error of use (exit code 2), not of data. */
    if (status == COPSE_IO || status == COPSE_FORMAT)
        return copse__fail(err, COPSE_CONFIG, detail.native, path, "%s", detail.text);
    if (status != COPSE_OK)
        return copse__fail(err, status, detail.native, path, "%s", detail.text);
    status = copse__config_parse(out, text, bytes, path, overrides, override_count, err);
    free(text);
    if (status == COPSE_OK)
        status = check_lists(*out, err);
    if (status != COPSE_OK) {
        copse__config_free(*out);
        *out = NULL;
    }
    return status;
}

void copse__config_free(copse__config *config) {
    if (!config)
        return;
    copse__pool_free(&config->pool);
    free(config);
}

copse_status copse__config_hash(const copse__config *config, char out[33],
                                copse_error *err) {
    copse__text text = {0};
    copse__section_write(&copse__config_data_section, config, COPSE__WRITE_STRICT, &text);
    copse__config_write_layers(&top_fields[MODEL_FIELD], config, &text);
    copse__text_add(&text, "\n");
    copse__section_write(&copse__config_train_section, config, COPSE__WRITE_STRICT,
                         &text);
    copse_status status = copse__text_check(&text, err);
    if (status == COPSE_OK)
        copse__hash128_hex(out, copse__hash128_of(text.data, text.length));
    copse__text_free(&text);
    return status;
}

copse_status copse__config_write(const copse__config *config, copse__text *out,
                                 copse_error *err) {
    for (const copse__field *field = top_fields; field->key; field++) {
        if (field->kind == COPSE__FIELD_SECTION) {
            copse__text_add(out, "%s:\n", field->key);
            copse__section_write(field->section, config, COPSE__WRITE_BLOCK, out);
            continue;
        }
        copse__text_add(out, "%s: ", field->key);
        copse__field_write(field, config, out);
        copse__text_add(out, "\n");
    }
    return copse__text_check(out, err);
}
