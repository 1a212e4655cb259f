/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_CONFIG_PRIVATE_H
#define COPSE_TRAIN_CONFIG_PRIVATE_H

#include "train/config.h"
#include "train/config_schema.h"

/* The sections of a configuration, each in a file of its own; all fill a copse__config. */
extern const copse__section copse__config_data_section;
extern const copse__section copse__config_train_section;
extern const copse__section copse__config_devices_section;
extern const copse__section copse__config_checkpoint_section;
extern const copse__section copse__config_log_section;

/* train.early_stopping and train.reduce_lr_on_plateau. */
extern const copse__section copse__config_early_stopping_section;
extern const copse__section copse__config_plateau_section;
/* The metrics that can be monitored. NULL-terminated. */
extern const char *const copse__config_metrics[];
/* That there will be such metrics, and that these sections fit the others. train: its node. */
copse_status copse__config_check_monitors(const copse__config *config,
                                          const copse__yaml_node *train,
                                          copse_error *err);

/* Custom field (number: the default): a number or a schedule, into the copse__config_schedule at
 * the field's offset. */
copse__field_read_fn copse__config_read_schedule;
copse__field_write_fn copse__config_write_schedule;

/* Custom fields: a list of `word`, `word: {key: value}` or `word: value`, into specs and count. */
copse__field_read_fn copse__config_read_layers;
copse__field_write_fn copse__config_write_layers;

/* Custom fields: a source of data, as data.format writes it, into the copse__config_source. */
copse__field_read_fn copse__config_read_source;
copse__field_write_fn copse__config_write_source;

/* That the shapes in the data section (its node) are whole numbers that fit. */
copse_status copse__config_check_shapes(const copse__config *config,
                                        const copse__yaml_node *data, copse_error *err);

/* An absolute path: text, starting at the working folder where the node is an override, else at
 * the context's folder. */
copse_status copse__config_path(const copse__schema_context *context,
                                const copse__yaml_node *node, const char *text,
                                char **out, copse_error *err);

#endif
