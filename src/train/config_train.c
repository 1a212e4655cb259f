/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "train/config_private.h"

#define AT(member) .offset = offsetof(copse__config, member)
#define COUNT(member) .count_offset = offsetof(copse__config, member)
#define NUMBER .kind = COPSE__FIELD_NUMBER
#define END                                                                              \
    { 0 }

/* Largest count that is also exact as a double, as ranges are. */
#define MOST_STEPS 1e15

/* ---- train ---- */

#define LEARNING_RATE(value)                                                             \
    {                                                                                    \
        .key = "learning_rate", .kind = COPSE__FIELD_CUSTOM,                             \
        AT(train.optimizer.learning_rate), .number = value,                              \
        .read = copse__config_read_schedule, .write = copse__config_write_schedule       \
    }
#define FRACTION(name, member, value)                                                    \
    {                                                                                    \
        .key = name, NUMBER, AT(train.optimizer.member), .most = 1, .below = true,       \
        .number = value                                                                  \
    }
#define EPSILON                                                                          \
    { .key = "epsilon", NUMBER, AT(train.optimizer.epsilon), .number = 1e-7 }

static const copse__field sgd_fields[] = {
    LEARNING_RATE(0.01),
    FRACTION("momentum", momentum, 0),
    {.key = "nesterov", .kind = COPSE__FIELD_BOOL, AT(train.optimizer.nesterov)},
    END};

static const copse__field adam_fields[] = {
    LEARNING_RATE(0.001), FRACTION("beta_1", beta_1, 0.9),
    FRACTION("beta_2", beta_2, 0.999), EPSILON, END};

static const copse__field adamw_fields[] = {
    LEARNING_RATE(0.001),
    {.key = "weight_decay", NUMBER, AT(train.optimizer.weight_decay), .number = 0.004},
    FRACTION("beta_1", beta_1, 0.9),
    FRACTION("beta_2", beta_2, 0.999),
    EPSILON,
    END};

static const copse__field rmsprop_fields[] = {
    LEARNING_RATE(0.001),
    FRACTION("rho", rho, 0.9),
    FRACTION("momentum", momentum, 0),
    EPSILON,
    {.key = "centered", .kind = COPSE__FIELD_BOOL, AT(train.optimizer.centered)},
    END};

static const copse__section optimizers[] = {
    [COPSE__OPTIMIZER_SGD] = {"train.optimizer.sgd", "sgd", sgd_fields},
    [COPSE__OPTIMIZER_ADAM] = {"train.optimizer.adam", "adam", adam_fields},
    [COPSE__OPTIMIZER_ADAMW] = {"train.optimizer.adamw", "adamw", adamw_fields},
    [COPSE__OPTIMIZER_RMSPROP] = {"train.optimizer.rmsprop", "rmsprop", rmsprop_fields},
    END};

static const copse__field crossentropy_fields[] = {
    {.key = "from_logits", .kind = COPSE__FIELD_BOOL, AT(train.from_logits), .number = 1},
    END};
static const copse__field no_fields[] = {END};

static const copse__section losses[] = {
    {"train.loss.sparse_categorical_crossentropy", "sparse_categorical_crossentropy",
     crossentropy_fields},
    {"train.loss.mean_squared_error", "mean_squared_error", no_fields},
    END};

static const copse__field validation_fields[] = {{.key = "every",
                                                  .kind = COPSE__FIELD_COUNT,
                                                  AT(train.validate_every),
                                                  .least = 1,
                                                  .most = MOST_STEPS,
                                                  .number = 1},
                                                 {.key = "batch",
                                                  .kind = COPSE__FIELD_COUNT,
                                                  AT(train.validate_batch),
                                                  .most = 4294967295.0},
                                                 END};
static const copse__section validation = {"train.validation", NULL, validation_fields};

static const char *const metrics[] = {"accuracy", NULL};
static const char *const precisions[] = {"float32", "mixed_float16", NULL};
static const char *const strategies[] = {"mirrored", "central", "parameter_server",
                                         "pipeline", NULL};
static const char *const reproducible[] = {"run", "devices", NULL};
static const char *const on_loss[] = {"stop", "continue", NULL};
static const char *const on_nonfinite[] = {"stop", "skip", NULL};

static const copse__field train_fields[] = {
    {.key = "loss",
     .kind = COPSE__FIELD_VARIANT,
     AT(train.loss),
     .required = true,
     .variants = losses,
     .first = COPSE__LOSS_SPARSE_CATEGORICAL_CROSSENTROPY},
    {.key = "optimizer",
     .kind = COPSE__FIELD_VARIANT,
     AT(train.optimizer.kind),
     .variants = optimizers,
     .number = COPSE__OPTIMIZER_RMSPROP},
    {.key = "batch",
     .kind = COPSE__FIELD_COUNT,
     AT(train.batch),
     .least = 1,
     .most = 4294967295.0,
     .number = 32},
    {.key = "epochs",
     .loose = true,
     .kind = COPSE__FIELD_COUNT,
     AT(train.epochs),
     .least = 1,
     .most = MOST_STEPS,
     .number = 1},
    {.key = "steps",
     .loose = true,
     .kind = COPSE__FIELD_COUNT,
     AT(train.steps),
     .most = MOST_STEPS},
    {.key = "metrics",
     .loose = true,
     .kind = COPSE__FIELD_TEXTS,
     AT(train.metrics),
     COUNT(train.metric_count),
     .words = metrics},
    {.key = "precision",
     .kind = COPSE__FIELD_CHOICE,
     AT(train.precision),
     .words = precisions},
    {.key = "accumulate",
     .kind = COPSE__FIELD_COUNT,
     AT(train.accumulate),
     .least = 1,
     .most = 65536,
     .number = 1},
    {.key = "micro_shard",
     .kind = COPSE__FIELD_COUNT,
     AT(train.micro_shard),
     .least = 1,
     .most = 4294967295.0,
     .number = 32},
    {.key = "strategy",
     .kind = COPSE__FIELD_CHOICE,
     AT(train.strategy),
     .words = strategies},
    {.key = "seed", .kind = COPSE__FIELD_COUNT, AT(train.seed)},
    {.key = "hash_every",
     .loose = true,
     .kind = COPSE__FIELD_COUNT,
     AT(train.hash_every),
     .most = MOST_STEPS,
     .number = 100},
    {.key = "reproducible",
     .kind = COPSE__FIELD_CHOICE,
     AT(train.reproducible),
     .words = reproducible},
    {.key = "on_device_loss",
     .loose = true,
     .kind = COPSE__FIELD_CHOICE,
     AT(train.on_device_loss),
     .words = on_loss,
     .number = COPSE__ON_FAULT_CONTINUE},
    {.key = "on_nonfinite",
     .kind = COPSE__FIELD_CHOICE,
     AT(train.on_nonfinite),
     .words = on_nonfinite,
     .number = COPSE__ON_FAULT_STOP},
    {.key = "validation",
     .loose = true,
     .kind = COPSE__FIELD_SWITCH,
     AT(train.validate),
     .section = &validation,
     .number = 1},
    {.key = "early_stopping",
     .loose = true,
     .kind = COPSE__FIELD_SWITCH,
     AT(train.early_stopping.enabled),
     .section = &copse__config_early_stopping_section},
    {.key = "reduce_lr_on_plateau",
     .kind = COPSE__FIELD_SWITCH,
     AT(train.plateau.enabled),
     .section = &copse__config_plateau_section},
    END};

const copse__section copse__config_train_section = {"train", NULL, train_fields};

/* ---- devices ---- */

/* A selector, or a list of its terms. */
static copse_status read_select(const copse__schema_context *context,
                                const copse__field *field, const copse__yaml_node *node,
                                void *base, copse_error *err) {
    copse__config *config = base;
    copse__text joined = {0};
    copse_status status = COPSE_OK;
    if (node && !copse__yaml_is_null(node)) {
        bool list = node->kind == COPSE__YAML_SEQUENCE;
        const copse__yaml_node *item = list ? node->first : node;
        for (; item; item = list ? item->next : NULL) {
            const char *text;
            if (!copse__yaml_get_text(item, &text)) {
                status =
                    copse__schema_wrong(&copse__config_devices_section, field->key, item,
                                        "a selector like gpu or 0:0, or a list", err);
                goto out;
            }
            copse__text_add(&joined, "%s%s", joined.length > 0 ? "," : "", text);
        }
        COPSE__TRY(copse__text_check(&joined, err), out);
    }
    status = copse__pool_strdup(context->pool, &config->devices.select,
                                joined.data ? joined.data : "", err);
out:
    copse__text_free(&joined);
    return status;
}

static void write_select(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->devices.select);
}

static copse_status read_bench(const copse__schema_context *context,
                               const copse__field *field, const copse__yaml_node *node,
                               void *base, copse_error *err) {
    const char *text;
    char **out = &((copse__config *)base)->devices.bench;
    *out = NULL;
    if (!node || copse__yaml_is_null(node))
        return COPSE_OK;
    if (!copse__yaml_get_text(node, &text) || !text[0])
        return copse__schema_wrong(&copse__config_devices_section, field->key, node,
                                   "the file of a saved cltopo bench", err);
    return copse__config_path(context, node, text, out, err);
}

static void write_bench(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->devices.bench);
}

static bool shows_bench(const void *base) {
    return ((const copse__config *)base)->devices.bench != NULL;
}

static copse_status read_tune(const copse__schema_context *context,
                              const copse__field *field, const copse__yaml_node *node,
                              void *base, copse_error *err) {
    const char *text = "auto";
    char **out = &((copse__config *)base)->devices.tune;
    bool flag;
    if (node && copse__yaml_get_bool(node, &flag) && !flag)
        text = "off"; /* which YAML 1.1 takes for a false */
    else if (node && (!copse__yaml_get_text(node, &text) || !text[0]))
        return copse__schema_wrong(&copse__config_devices_section, field->key, node,
                                   "auto, off or the file of a saved copse tune", err);
    if (strcmp(text, "auto") == 0 || strcmp(text, "off") == 0)
        return copse__pool_strdup(context->pool, out, text, err);
    return copse__config_path(context, node, text, out, err);
}

static void write_tune(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__schema_write_text(out, ((const copse__config *)base)->devices.tune);
}

static const char *const shards[] = {"equal", "measured", NULL};

static const copse__field devices_fields[] = {
    {.key = "select",
     .kind = COPSE__FIELD_CUSTOM,
     .read = read_select,
     .write = write_select},
    {.key = "shards",
     .kind = COPSE__FIELD_CHOICE,
     AT(devices.shards),
     .words = shards,
     .number = COPSE__SHARDS_MEASURED},
    {.key = "stall_seconds",
     NUMBER,
     AT(devices.stall_seconds),
     .least = 0.1,
     .most = 86400,
     .number = 60},
    {.key = "bench",
     .kind = COPSE__FIELD_CUSTOM,
     .read = read_bench,
     .write = write_bench,
     .shown = shows_bench},
    {.key = "tune", .kind = COPSE__FIELD_CUSTOM, .read = read_tune, .write = write_tune},
    END};

const copse__section copse__config_devices_section = {"devices", NULL, devices_fields};

/* ---- checkpoint ---- */

static bool shows_steps(const void *base) {
    return ((const copse__config *)base)->checkpoint.every_steps > 0;
}
static bool shows_epochs(const void *base) {
    return ((const copse__config *)base)->checkpoint.every_epochs > 0;
}
static bool shows_minutes(const void *base) {
    return ((const copse__config *)base)->checkpoint.every_minutes > 0;
}

static const copse__field every_fields[] = {{.key = "steps",
                                             .kind = COPSE__FIELD_COUNT,
                                             AT(checkpoint.every_steps),
                                             .most = MOST_STEPS,
                                             .shown = shows_steps},
                                            {.key = "epochs",
                                             .kind = COPSE__FIELD_COUNT,
                                             AT(checkpoint.every_epochs),
                                             .most = MOST_STEPS,
                                             .shown = shows_epochs},
                                            {.key = "minutes",
                                             NUMBER,
                                             AT(checkpoint.every_minutes),
                                             .most = 525600,
                                             .shown = shows_minutes},
                                            END};
static const copse__section every = {"checkpoint.every", NULL, every_fields};

static copse_status read_every(const copse__schema_context *context,
                               const copse__field *field, const copse__yaml_node *node,
                               void *base, copse_error *err) {
    copse__config *config = base;
    if (node && node->kind != COPSE__YAML_MAPPING)
        return copse__schema_wrong(&copse__config_checkpoint_section, field->key, node,
                                   "{steps: N}, {epochs: N} or {minutes: N}", err);
    copse_status status = copse__section_read(context, &every, node, base, err);
    if (status != COPSE_OK)
        return status;
    int given = shows_steps(config) + shows_epochs(config) + shows_minutes(config);
    if (!node)
        config->checkpoint.every_epochs = 1;
    else if (given != 1) {
        char place[256];
        return copse__fail(err, COPSE_CONFIG, 0,
                           copse__yaml_place(node, place, sizeof place),
                           "checkpoint.every needs exactly one of steps, epochs and "
                           "minutes, greater than 0 (or write checkpoint: false)");
    }
    return COPSE_OK;
}

static void write_every(const copse__field *field, const void *base, copse__text *out) {
    (void)field;
    copse__section_write(&every, base, COPSE__WRITE_FLOW, out);
}

static const copse__field checkpoint_fields[] = {{.key = "every",
                                                  .kind = COPSE__FIELD_CUSTOM,
                                                  .read = read_every,
                                                  .write = write_every},
                                                 {.key = "keep",
                                                  .kind = COPSE__FIELD_COUNT,
                                                  AT(checkpoint.keep),
                                                  .most = MOST_STEPS,
                                                  .number = 3},
                                                 {.key = "best",
                                                  .kind = COPSE__FIELD_TEXT,
                                                  AT(checkpoint.best),
                                                  .words = copse__config_metrics},
                                                 END};

const copse__section copse__config_checkpoint_section = {"checkpoint", NULL,
                                                         checkpoint_fields};

/* ---- log ---- */

static const copse__field tensorboard_fields[] = {{.key = "update_freq",
                                                   .kind = COPSE__FIELD_COUNT,
                                                   AT(log.update_freq),
                                                   .most = MOST_STEPS},
                                                  {.key = "histogram_freq",
                                                   .kind = COPSE__FIELD_COUNT,
                                                   AT(log.histogram_freq),
                                                   .most = MOST_STEPS},
                                                  END};
static const copse__section tensorboard = {"log.tensorboard", NULL, tensorboard_fields};

static const copse__field log_fields[] = {
    {.key = "jsonl", .kind = COPSE__FIELD_BOOL, AT(log.jsonl), .number = 1},
    {.key = "tensorboard",
     .kind = COPSE__FIELD_SWITCH,
     AT(log.tensorboard),
     .section = &tensorboard},
    END};

const copse__section copse__config_log_section = {"log", NULL, log_fields};
