/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TRAIN_RUN_PLAN_H
#define COPSE_TRAIN_RUN_PLAN_H

#include "base/text.h"
#include "topo/select.h"
#include "train/run_folder.h"
#include "train/trainer.h"

/* A run's plan.json: on which devices with which shards it ran. */
typedef struct copse__run_plan copse__run_plan;

/* From plan.json, which may know of later changes than the checkpoint, or where the folder has none from `copy`, the
 * text in the checkpoint that is resumed. *out is NULL where both are missing (NULL or ""). COPSE_FORMAT where what is
 * read is damaged, or its shards are not those of its batch. */
copse_status copse__run_plan_load(copse__run_plan **out, const copse__run_folder *folder,
                                  const char *copy, copse_error *err);
/* From such a text; place names it in errors. */
copse_status copse__run_plan_parse(copse__run_plan **out, const char *place,
                                   const char *data, size_t bytes, copse_error *err);
void copse__run_plan_free(copse__run_plan *plan);

/* The recorded devices' labels, "0:0, 0:1". */
void copse__run_plan_devices(const copse__run_plan *plan, copse__text *out);

/* The recorded shards of `step`, by rank, where these are the recorded devices (label, name and driver, in
 * order); else NULL. Borrowed. */
const size_t *copse__run_plan_match(const copse__run_plan *plan,
                                    const copse__device_choice *choices,
                                    size_t choice_count, uint64_t step);
/* What those devices followed of what was tuned, by rank. Borrowed. */
const copse__tuned_list *copse__run_plan_tuned(const copse__run_plan *plan);
/* Whether the run has the kernels that are recorded, node by node, so that it has their bits: now is its plan's text. */
bool copse__run_plan_same_kernels(const copse__run_plan *plan, const char *now);
/* When they were changed, of those devices. Borrowed. */
const copse__cuts *copse__run_plan_cuts(const copse__run_plan *plan);

#endif
