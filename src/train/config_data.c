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

/* ---- What only some formats have ---- */

#define DTYPE_NAME(code, name, bytes) [code] = name,
static const char *const dtypes[] = {COPSE_DTYPE_MAP(DTYPE_NAME) NULL};
#undef DTYPE_NAME

static const char *const encodings[] = {"auto", "values", "raw", "image", NULL};
static const char *const resizes[] = {"stretch", "crop", NULL};
static const char *const on_errors[] = {"stop", "skip", NULL};
static const char *const tokens[] = {"characters", "bytes", NULL};

#define TEXT(name, member)                                                               \
    { .key = name, .kind = COPSE__FIELD_TEXT, AT(member) }
#define SIZE(name, member)                                                               \
    { .key = name, .kind = COPSE__FIELD_COUNT, AT(member), .most = 65536 }
#define NUMBERS(name, member, counter)                                                   \
    {                                                                                    \
        .key = name, .kind = COPSE__FIELD_NUMBERS, AT(member),                           \
        .count_offset = offsetof(copse__config, data.counter)                            \
    }
#define TEXTS(name, member, counter)                                                     \
    {                                                                                    \
        .key = name, .kind = COPSE__FIELD_TEXTS, AT(member),                             \
        .count_offset = offsetof(copse__config, data.counter)                            \
    }
#define WORDS(name, member, list)                                                        \
    { .key = name, .kind = COPSE__FIELD_CHOICE, AT(member), .words = list }

static const copse__field image_fields[] = {
    SIZE("height", image_height),
    SIZE("width", image_width),
    {.key = "channels",
     .kind = COPSE__FIELD_COUNT,
     AT(image_channels),
     .least = 1,
     .most = 4,
     .number = 3},
    WORDS("resize", image_resize, resizes),
    {.key = "sixteen_bits", .kind = COPSE__FIELD_BOOL, AT(image_sixteen_bits)},
    {0}};

static const copse__field csv_fields[] = {
    TEXT("label", label_name),
    TEXTS("columns", columns, column_count),
    NUMBERS("shape", row_shape, row_rank),
    {.key = "header", .kind = COPSE__FIELD_BOOL, AT(header), .number = 1},
    {.key = "delimiter", .kind = COPSE__FIELD_TEXT, AT(delimiter), .text = ","},
    {0}};

static const copse__field text_fields[] = {
    {.key = "sequence_length",
     .kind = COPSE__FIELD_COUNT,
     AT(sequence_length),
     .least = 1,
     .most = 16777216,
     .number = 64},
    {.key = "stride", .kind = COPSE__FIELD_COUNT, AT(stride), .most = 16777216},
    WORDS("tokens", tokens, tokens),
    {0}};

static const copse__field tfrecord_fields[] = {
    TEXT("feature", feature_name),
    WORDS("encoding", feature.encoding, encodings),
    WORDS("dtype", feature.dtype, dtypes),
    NUMBERS("shape", feature.shape, feature.rank),
    TEXT("label", label_name),
    WORDS("label_encoding", label.encoding, encodings),
    WORDS("label_dtype", label.dtype, dtypes),
    NUMBERS("label_shape", label.shape, label.rank),
    {0}};

static const copse__field synthetic_fields[] = {
    NUMBERS("shape", feature.shape, feature.rank),
    WORDS("dtype", feature.dtype, dtypes),
    {.key = "classes",
     .kind = COPSE__FIELD_COUNT,
     AT(synthetic_classes),
     .most = 2147483647},
    {0}};

static const copse__section image = {"data.image", NULL, image_fields};
static const copse__section csv = {"data.csv", NULL, csv_fields};
static const copse__section text = {"data.text", NULL, text_fields};
static const copse__section tfrecord = {"data.tfrecord", NULL, tfrecord_fields};
static const copse__section synthetic = {"data.synthetic", NULL, synthetic_fields};

static bool is_format(const void *base, copse_data_format format) {
    return ((const copse__config *)base)->data.format == format;
}
static bool has_images(const void *base) {
    return is_format(base, COPSE_DATA_FOLDER) || is_format(base, COPSE_DATA_TFRECORD);
}
static bool is_csv(const void *base) {
    return is_format(base, COPSE_DATA_CSV);
}
static bool is_text(const void *base) {
    return is_format(base, COPSE_DATA_TEXT);
}
static bool is_tfrecord(const void *base) {
    return is_format(base, COPSE_DATA_TFRECORD);
}
static bool is_synthetic(const void *base) {
    return is_format(base, COPSE_DATA_SYNTHETIC);
}

/* A section that only some formats have: refused with the others, instead of without effect. */
static copse_status read_option(const copse__schema_context *context,
                                const copse__field *field, const copse__yaml_node *node,
                                void *base, copse_error *err) {
    const copse__config *config = base;
    char place[256];
    if (!field->shown(base)) {
        if (!node || copse__yaml_is_null(node))
            return COPSE_OK;
        return copse__fail(err, COPSE_CONFIG, 0,
                           copse__yaml_key_place(node, place, sizeof place),
                           "data.%s has no meaning with format: %s; remove it",
                           field->key, formats[config->data.format]);
    }
    copse_status status = copse__section_read(context, field->section, node, base, err);
    if (status == COPSE_OK && is_csv(base) && strlen(config->data.delimiter) != 1)
        return copse__schema_wrong(&csv, "delimiter", copse__yaml_find(node, "delimiter"),
                                   "one character", err);
    if (status == COPSE_OK && is_synthetic(base) && config->data.feature.rank == 0)
        return copse__fail(err, COPSE_CONFIG, 0,
                           node ? copse__yaml_place(node, place, sizeof place)
                                : context->path,
                           "data.synthetic has no 'shape', which it needs");
    return status;
}

static void write_option(const copse__field *field, const void *base, copse__text *out) {
    copse__section_write(field->section, base, COPSE__WRITE_FLOW, out);
}

/* Shapes: whole numbers that fit, checked when everything is known. */
static copse_status check_shape(const copse__yaml_node *node, const double *shape,
                                size_t rank, const char *name, copse_error *err) {
    char place[256];
    bool good = rank <= COPSE_MAX_RANK;
    for (size_t d = 0; d < rank && good; d++)
        good = shape[d] >= 1 && shape[d] <= 1e9 && shape[d] == (double)(uint64_t)shape[d];
    if (good)
        return COPSE_OK;
    return copse__fail(
        err, COPSE_CONFIG, 0, node ? copse__yaml_place(node, place, sizeof place) : NULL,
        "%s must be up to %d whole numbers, each at least 1", name, COPSE_MAX_RANK);
}

copse_status copse__config_check_shapes(const copse__config *config,
                                        const copse__yaml_node *data, copse_error *err) {
    const copse__config_data *d = &config->data;
    const copse__yaml_node *node =
        copse__yaml_find(data, is_csv(config)        ? "csv"
                               : is_tfrecord(config) ? "tfrecord"
                                                     : "synthetic");
    copse_status status =
        check_shape(node, d->feature.shape, d->feature.rank, "shape", err);
    if (status == COPSE_OK)
        status = check_shape(node, d->label.shape, d->label.rank, "label_shape", err);
    if (status == COPSE_OK)
        status = check_shape(node, d->row_shape, d->row_rank, "shape", err);
    return status;
}

static copse_data_field to_field(const copse__config_field *from) {
    copse_data_field field = {
        .encoding = from->encoding, .dtype = from->dtype, .rank = from->rank};
    for (size_t d = 0; d < from->rank; d++)
        field.shape[d] = (size_t)from->shape[d];
    return field;
}

copse_data_source copse__config_data_source(const copse__config *config,
                                            const copse__config_source *source) {
    const copse__config_data *data = &config->data;
    copse_data_source made = {
        .format = data->format,
        .paths = (const char *const *)source->paths,
        .path_count = source->path_count,
        .label_paths = (const char *const *)source->label_paths,
        .label_path_count = source->label_path_count,
        .feature_name = source->feature_name ? source->feature_name : data->feature_name,
        .label_name = source->label_name ? source->label_name : data->label_name,
        .feature = to_field(&data->feature),
        .label = to_field(&data->label),
        .columns = (const char *const *)data->columns,
        .column_count = data->column_count,
        .without_header = is_csv(config) && !data->header,
        .delimiter = data->delimiter ? data->delimiter[0] : 0,
        .sequence_length = (size_t)data->sequence_length,
        .stride = (size_t)data->stride,
        .by_bytes = data->tokens == COPSE__TOKENS_BYTES,
        .count = (size_t)source->count,
        .seed = source->seed,
        .image = {.height = (size_t)data->image_height,
                  .width = (size_t)data->image_width,
                  .channels = (size_t)data->image_channels,
                  .resize = data->image_resize,
                  .sixteen_bits = data->image_sixteen_bits},
        .class_names = (const char *const *)data->class_names,
        .class_count = is_synthetic(config) ? (size_t)data->synthetic_classes
                                            : data->class_name_count,
        .skip_errors = data->on_error == COPSE__ON_ERROR_SKIP,
        .coarse_labels = data->coarse_labels};
    made.feature.rank = data->row_rank > 0 ? data->row_rank : made.feature.rank;
    for (size_t d = 0; d < data->row_rank; d++)
        made.feature.shape[d] = (size_t)data->row_shape[d];
    return made;
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
    data->shuffle = !on                        ? COPSE_SHUFFLE_NONE
                    : data->shuffle_buffer > 0 ? COPSE_SHUFFLE_BUFFER
                                               : COPSE_SHUFFLE_FULL;
    return COPSE_OK;
}

static void write_shuffle(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    const copse__config_data *data = &((const copse__config *)base)->data;
    if (data->shuffle == COPSE_SHUFFLE_NONE)
        copse__text_add(out, "false");
    else if (data->shuffle == COPSE_SHUFFLE_FULL)
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
    const char *where = "none";
    bool on;
    if (node && copse__yaml_get_bool(node, &on) && !on)
        node = NULL;
    if (node && (!copse__yaml_get_text(node, &where) || !where[0]))
        return copse__schema_wrong(&copse__config_data_section, field->key, node,
                                   "memory, none or a file", err);
    if (strcmp(where, "none") == 0 || strcmp(where, "memory") == 0)
        return copse__pool_strdup(context->pool, out, where, err);
    return copse__config_path(context, node, where, out, err);
}

static void write_cache(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->data.cache);
}

#define SOURCE(name)                                                                     \
    .key = #name, .kind = COPSE__FIELD_CUSTOM, AT(name),                                 \
    .read = copse__config_read_source, .write = copse__config_write_source

#define OPTION(name, when)                                                               \
    {                                                                                    \
        .key = #name, .kind = COPSE__FIELD_CUSTOM, .section = &name, .shown = when,      \
        .read = read_option, .write = write_option                                       \
    }

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
    OPTION(image, has_images),
    OPTION(csv, is_csv),
    OPTION(text, is_text),
    OPTION(tfrecord, is_tfrecord),
    OPTION(synthetic, is_synthetic),
    TEXTS("class_names", class_names, class_name_count),
    /* A run that met no bad sample so far may go on with the other choice. */
    {.key = "on_error",
     .kind = COPSE__FIELD_CHOICE,
     AT(on_error),
     .words = on_errors,
     .loose = true},
    {.key = "coarse_labels", .kind = COPSE__FIELD_BOOL, AT(coarse_labels)},
    {0}};

const copse__section copse__config_data_section = {"data", NULL, fields};
