/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "train/config_private.h"

/* train.early_stopping and train.reduce_lr_on_plateau: Keras' keys and defaults. */

#define AT(member) .offset = offsetof(copse__config, train.member)

const char *const copse__config_metrics[] = {"loss", "accuracy", "val_loss",
                                             "val_accuracy", NULL};
static const char *const modes[] = {"auto", "min", "max", NULL};

#define MONITOR(member, epochs, delta)                                                   \
    {.key = "monitor",                                                                   \
     .kind = COPSE__FIELD_TEXT,                                                          \
     AT(member.metric),                                                                  \
     .text = "val_loss",                                                                 \
     .words = copse__config_metrics},                                                    \
        {.key = "mode", .kind = COPSE__FIELD_CHOICE, AT(member.mode), .words = modes},   \
        {.key = "min_delta",                                                             \
         .kind = COPSE__FIELD_NUMBER,                                                    \
         AT(member.min_delta),                                                           \
         .number = (delta)},                                                             \
    {                                                                                    \
        .key = "patience", .kind = COPSE__FIELD_COUNT, AT(member.patience),              \
        .number = (epochs)                                                               \
    }

static bool has_baseline(const void *base) {
    return !isnan(((const copse__config *)base)->train.early_stopping.baseline);
}

static const copse__field early_stopping_fields[] = {
    MONITOR(early_stopping.monitor, 0, 0),
    {.key = "baseline",
     .kind = COPSE__FIELD_NUMBER,
     AT(early_stopping.baseline),
     .number = NAN,
     .shown = has_baseline},
    {.key = "restore_best_weights",
     .kind = COPSE__FIELD_BOOL,
     AT(early_stopping.restore_best_weights)},
    {.key = "start_from_epoch",
     .kind = COPSE__FIELD_COUNT,
     AT(early_stopping.start_from_epoch)},
    {0}};
const copse__section copse__config_early_stopping_section = {"train.early_stopping", NULL,
                                                             early_stopping_fields};

static const copse__field plateau_fields[] = {
    MONITOR(plateau.monitor, 10, 1e-4),
    {.key = "factor",
     .kind = COPSE__FIELD_NUMBER,
     AT(plateau.factor),
     .most = 1,
     .below = true,
     .number = 0.1},
    {.key = "cooldown", .kind = COPSE__FIELD_COUNT, AT(plateau.cooldown)},
    {.key = "min_lr", .kind = COPSE__FIELD_NUMBER, AT(plateau.min_lr)},
    {0}};
const copse__section copse__config_plateau_section = {"train.reduce_lr_on_plateau", NULL,
                                                      plateau_fields};

static copse_status check_validated(const copse__config *config,
                                    const copse__yaml_node *train, const char *key,
                                    const copse__config_monitor *monitor,
                                    copse_error *err) {
    char place[256];
    if (config->train.validate || strncmp(monitor->metric, "val_", 4) != 0)
        return COPSE_OK;
    return copse__fail(
        err, COPSE_CONFIG, 0,
        copse__yaml_key_place(copse__yaml_find(train, key), place, sizeof place),
        "train.%s monitors %s, but train.validation is false", key, monitor->metric);
}

static copse_status check_restoring(const copse__config *config,
                                    const copse__yaml_node *train, copse_error *err) {
    char place[256];
    const copse__config_early_stopping *stop = &config->train.early_stopping;
    const copse__config_checkpoint *checkpoint = &config->checkpoint;
    if (!stop->enabled || !stop->restore_best_weights)
        return COPSE_OK;
    copse__yaml_key_place(copse__yaml_find(train, "early_stopping"), place, sizeof place);
    if (!checkpoint->enabled)
        return copse__fail(err, COPSE_CONFIG, 0, place,
                           "restore_best_weights needs the checkpoint of the best epoch, "
                           "but checkpoint is false");
    if (checkpoint->best && strcmp(checkpoint->best, stop->monitor.metric) != 0)
        return copse__fail(err, COPSE_CONFIG, 0, place,
                           "restore_best_weights keeps the best %s, but checkpoint.best "
                           "is %s; remove it, or monitor the same",
                           stop->monitor.metric, checkpoint->best);
    return COPSE_OK;
}

copse_status copse__config_check_monitors(const copse__config *config,
                                          const copse__yaml_node *train,
                                          copse_error *err) {
    char place[256];
    copse_status status = COPSE_OK;
    const copse__config_schedule *rate = &config->train.optimizer.learning_rate;
    if (config->train.early_stopping.enabled)
        status = check_validated(config, train, "early_stopping",
                                 &config->train.early_stopping.monitor, err);
    if (status == COPSE_OK && config->train.plateau.enabled)
        status = check_validated(config, train, "reduce_lr_on_plateau",
                                 &config->train.plateau.monitor, err);
    if (status == COPSE_OK)
        status = check_restoring(config, train, err);
    bool fixed = rate->kind == COPSE__SCHEDULE_CONSTANT && rate->warmup_steps == 0;
    if (status == COPSE_OK && config->train.plateau.enabled && !fixed)
        return copse__fail(
            err, COPSE_CONFIG, 0,
            copse__yaml_key_place(copse__yaml_find(train, "reduce_lr_on_plateau"), place,
                                  sizeof place),
            "reduce_lr_on_plateau lowers a learning rate that is a number, not a "
            "schedule; remove one of the two");
    return status;
}
