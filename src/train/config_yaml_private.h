/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_CONFIG_YAML_PRIVATE_H
#define COPSE_TRAIN_CONFIG_YAML_PRIVATE_H

#include "train/config_yaml.h"

/* Shared by config_yaml.c (parsing) and config_override.c only. */

/* A node of the tree's pool, with nothing but its source; counted against the limit. */
copse_status copse__yaml_node_new(copse__yaml *yaml, copse__yaml_node **out,
                                  const char *source, copse_error *err);
void copse__yaml_append(copse__yaml_node *parent, copse__yaml_node *child);

/* That a part of an override is text, as a file must be. */
copse_status copse__yaml_check_override(const char *text, const char *source,
                                        copse_error *err);

/* Parses one document into nodes of the tree's pool; *out is NULL where it is empty. source must
 * live as long as the tree. The tree's root stays what it was. */
copse_status copse__yaml_parse_into(copse__yaml *yaml, copse__yaml_node **out,
                                    const char *text, size_t bytes, const char *source,
                                    bool override, copse_error *err);

#endif
