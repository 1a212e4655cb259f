/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "train/config_private.h"

#define AT(member) .offset = offsetof(copse__config_schedule, member)
#define RATE(name, word)                                                                 \
    { .key = word, .kind = COPSE__FIELD_NUMBER, AT(name), .required = true }
#define WARMUP                                                                           \
    { .key = "warmup_steps", .kind = COPSE__FIELD_COUNT, AT(warmup_steps) }
#define DECAY_STEPS                                                                      \
    {                                                                                    \
        .key = "decay_steps", .kind = COPSE__FIELD_COUNT, AT(decay_steps),               \
        .required = true, .least = 1                                                     \
    }

static const copse__field constant_fields[] = {
    RATE(initial, "learning_rate"), WARMUP, {0}};

static const copse__field cosine_fields[] = {
    RATE(initial, "initial_learning_rate"),
    DECAY_STEPS,
    {.key = "alpha", .kind = COPSE__FIELD_NUMBER, AT(alpha), .most = 1},
    WARMUP,
    {0}};

static const copse__field exponential_fields[] = {
    RATE(initial, "initial_learning_rate"),
    DECAY_STEPS,
    {.key = "decay_rate", .kind = COPSE__FIELD_NUMBER, AT(decay_rate), .required = true},
    {.key = "staircase", .kind = COPSE__FIELD_BOOL, AT(staircase)},
    WARMUP,
    {0}};

static const copse__field piecewise_fields[] = {
    {.key = "boundaries",
     .kind = COPSE__FIELD_NUMBERS,
     AT(boundaries),
     .count_offset = offsetof(copse__config_schedule, boundary_count),
     .required = true},
    {.key = "values",
     .kind = COPSE__FIELD_NUMBERS,
     AT(values),
     .count_offset = offsetof(copse__config_schedule, value_count),
     .required = true},
    {0}};

static const copse__section variants[] = {
    [COPSE__SCHEDULE_CONSTANT] = {"learning_rate.constant", "constant", constant_fields},
    [COPSE__SCHEDULE_COSINE_DECAY] = {"learning_rate.cosine_decay", "cosine_decay",
                                      cosine_fields},
    [COPSE__SCHEDULE_EXPONENTIAL_DECAY] = {"learning_rate.exponential_decay",
                                           "exponential_decay", exponential_fields},
    [COPSE__SCHEDULE_PIECEWISE_CONSTANT] = {"learning_rate.piecewise_constant",
                                            "piecewise_constant", piecewise_fields},
    {0}};

static const copse__section holder = {.name = "train.optimizer"};
static const copse__field inner = {
    .key = "learning_rate", .kind = COPSE__FIELD_VARIANT, AT(kind), .variants = variants};

static copse_status check_pieces(const copse__config_schedule *schedule,
                                 const copse__yaml_node *node, copse_error *err) {
    char place[256];
    copse__yaml_place(node, place, sizeof place);
    if (schedule->value_count != schedule->boundary_count + 1)
        return copse__fail(err, COPSE_CONFIG, 0, place,
                           "piecewise_constant needs one value more than boundaries, but "
                           "there are %zu values and %zu boundaries",
                           schedule->value_count, schedule->boundary_count);
    for (size_t i = 0; i < schedule->boundary_count; i++) {
        double step = schedule->boundaries[i];
        if (step != floor(step) || step > 9007199254740992.0 ||
            (i > 0 && step <= schedule->boundaries[i - 1]))
            return copse__fail(
                err, COPSE_CONFIG, 0, place,
                "the boundaries of piecewise_constant must be whole steps, "
                "each greater than the one before");
    }
    return COPSE_OK;
}

copse_status copse__config_read_schedule(const copse__schema_context *context,
                                         const copse__field *field,
                                         const copse__yaml_node *node, void *base,
                                         copse_error *err) {
    copse__config_schedule *schedule =
        (copse__config_schedule *)(void *)((char *)base + field->offset);
    *schedule = (copse__config_schedule){.initial = field->number};
    double number;
    if (!node)
        return COPSE_OK;
    if (copse__yaml_get_number(node, &number) && number >= 0) {
        schedule->initial = number;
        return COPSE_OK;
    }
    if (node->kind != COPSE__YAML_MAPPING)
        return copse__schema_wrong(&holder, field->key, node,
                                   "a number, 0 or more, or a schedule", err);
    copse_status status =
        copse__field_read(context, &holder, &inner, node, schedule, err);
    if (status == COPSE_OK && schedule->kind == COPSE__SCHEDULE_PIECEWISE_CONSTANT)
        status = check_pieces(schedule, node, err);
    return status;
}

void copse__config_write_schedule(const copse__field *field, const void *base,
                                  copse__text *out) {
    const copse__config_schedule *schedule =
        (const copse__config_schedule *)(const void *)((const char *)base +
                                                       field->offset);
    char buffer[32];
    if (schedule->kind == COPSE__SCHEDULE_CONSTANT && schedule->warmup_steps == 0)
        copse__text_add(out, "%s",
                        copse__format_double(buffer, sizeof buffer, schedule->initial));
    else
        copse__field_write(&inner, schedule, out);
}

double copse__config_learning_rate(const copse__config_schedule *schedule,
                                   uint64_t step) {
    if (schedule->kind == COPSE__SCHEDULE_PIECEWISE_CONSTANT) {
        size_t piece = 0;
        while (piece < schedule->boundary_count &&
               (double)step > schedule->boundaries[piece])
            piece++;
        return schedule->values[piece];
    }
    if (step < schedule->warmup_steps)
        return schedule->initial * ((double)step / (double)schedule->warmup_steps);
    double done = (double)(step - schedule->warmup_steps);
    double part = schedule->decay_steps ? done / (double)schedule->decay_steps : 0;
    if (schedule->kind == COPSE__SCHEDULE_COSINE_DECAY) {
        double cosine = 0.5 * (1 + cos(3.14159265358979323846 * fmin(part, 1)));
        return schedule->initial * ((1 - schedule->alpha) * cosine + schedule->alpha);
    }
    if (schedule->kind == COPSE__SCHEDULE_EXPONENTIAL_DECAY)
        return schedule->initial *
               pow(schedule->decay_rate, schedule->staircase ? floor(part) : part);
    return schedule->initial;
}
