/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/selftest/cases.h"
#include "base/mem.h"

static const struct {
    size_t count;
    unsigned levels;
} sizes[] = {
    {1, COPSE__IN_MOST},       {7, COPSE__IN_FULL},  {255, COPSE__IN_FULL},
    {256, COPSE__IN_FULL},     {257, COPSE__IN_ALL}, {10007, COPSE__IN_MOST},
    {1048583, COPSE__IN_FULL},
};

static const struct {
    const char *name;
    copse__op op;
    copse__attrs attrs;
    bool slots[3];
} optimizers[] = {
    {"plain", COPSE__OP_UPDATE_SGD, {0}, {false, false, false}},
    {"momentum", COPSE__OP_UPDATE_SGD, {.update.momentum = 0.9}, {true, false, false}},
    {"nesterov",
     COPSE__OP_UPDATE_SGD,
     {.update.momentum = 0.9, .update.nesterov = true},
     {true, false, false}},
    {"",
     COPSE__OP_UPDATE_ADAM,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     {true, true, false}},
    {"",
     COPSE__OP_UPDATE_ADAMW,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     {true, true, false}},
    {"plain",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9, .update.epsilon = 1e-7},
     {true, false, false}},
    {"momentum",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9, .update.epsilon = 1e-7, .update.momentum = 0.5},
     {true, false, true}},
    {"centered",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9, .update.epsilon = 1e-5, .update.centered = true},
     {true, true, false}},
    {"centered momentum",
     COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9,
      .update.epsilon = 1e-5,
      .update.momentum = 0.5,
      .update.centered = true},
     {true, true, true}},
};

/* Slots are filled so that no square root is of a negative number: a mean square is at
 * least the square of the mean. */
static void update(copse__case_sink *sink, size_t o, size_t count, bool held) {
    copse__node_operand flat = COPSE__CASE_FIXED(COPSE_F32, count);
    copse__case made = {.spec = {.op = optimizers[o].op,
                                 .attrs = optimizers[o].attrs,
                                 .in = {flat, flat},
                                 .out = {flat},
                                 .in_place = {1}},
                        .fill = {copse__case_uniform(-1, 1), copse__case_uniform(-2, 2)},
                        .scalars = {.gradient_scale = 0.7f,
                                    .learning_rate = 0.013f,
                                    .step_size = 0.0031f,
                                    .weight_decay = 0.0007f}};
    for (uint8_t s = 0; s < 3; s++) {
        if (!optimizers[o].slots[s])
            continue;
        bool square = (optimizers[o].op == COPSE__OP_UPDATE_RMSPROP) == (s == 0);
        made.spec.in[2 + s] = made.spec.out[1 + s] = flat;
        made.spec.in_place[1 + s] = (uint8_t)(3 + s);
        made.fill[2 + s] = square && s < 2 ? copse__case_uniform(0.3f, 1)
                                           : copse__case_uniform(-0.5f, 0.5f);
        made.measure[1 + s] = COPSE__MEASURE_BITS;
    }
    if (held) {
        made.spec.in[5] = COPSE__CASE_FIXED(COPSE_U32, 1);
        made.fill[5] = copse__case_uniform(1, 2); /* bits that are not 0 */
    }
    copse__case_add(sink, &made, "%zu %s%s", count, optimizers[o].name,
                    held ? " held" : "");
}

static void finite_check(copse__case_sink *sink, size_t count) {
    static const struct {
        const char *name;
        float special;
        bool spread; /* else the last element alone */
    } specials[] = {{"clean", 0, false},
                    {"NaN last", NAN, false},
                    {"Inf last", -INFINITY, false},
                    {"NaN often", NAN, true}};
    for (size_t i = 0; i < COPSE__COUNT(specials); i++) {
        copse__case made = {.spec = {.op = COPSE__OP_FINITE_CHECK,
                                     .in = {COPSE__CASE_FIXED(COPSE_F32, count)},
                                     .out = {COPSE__CASE_FIXED(COPSE_U32, 1)}},
                            .fill = {{.kind = COPSE__FILL_UNIFORM,
                                      .low = -3e38f,
                                      .high = 0,
                                      .special = specials[i].special,
                                      .special_every = specials[i].spread ? 3 : count}},
                            .measure = {COPSE__MEASURE_TRUTH}};
        copse__case_add(sink, &made, "%zu %s", count, specials[i].name);
        made.spec.in[1] = COPSE__CASE_FIXED(COPSE_U32, 1);
        made.fill[1] = copse__case_uniform(0, 0);
        made.spec.in_place[0] = 2;
        copse__case_add(sink, &made, "%zu %s in place", count, specials[i].name);
        made.spec.in_place[0] = 0;
        if (count > 300)
            continue;
        copse__case_add(sink, &made, "%zu %s after none", count, specials[i].name);
        made.fill[1] = copse__case_uniform(1, 2);
        copse__case_add(sink, &made, "%zu %s after some", count, specials[i].name);
    }
}

static void flat(copse__case_sink *sink, size_t count) {
    copse__node_operand operand = COPSE__CASE_FIXED(COPSE_F32, count);
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__case made = {.spec = {.op = COPSE__OP_PARAMETER_HASH,
                                 .attrs.hash.base = 0x1FFFFFFF0ull,
                                 .in = {operand},
                                 .out = {COPSE__CASE_FIXED(COPSE_U64, 256)}},
                        .fill = {uniform},
                        .measure = {COPSE__MEASURE_SUM}};
    copse__case_add(sink, &made, "%zu", count);
    for (uint8_t in_place = 0; in_place < 2; in_place++) {
        made = (copse__case){.spec = {.op = COPSE__OP_ACCUMULATE,
                                      .in = {operand, operand},
                                      .out = {operand},
                                      .in_place = {in_place}},
                             .fill = {uniform, uniform}};
        copse__case_add(sink, &made, "%zu%s", count, in_place ? " in place" : "");
    }
}

void copse__cases_update(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++) {
        if (!copse__case_wanted(sink, sizes[i].levels))
            continue;
        for (size_t o = 0; o < COPSE__COUNT(optimizers); o++) {
            update(sink, o, sizes[i].count, false);
            if (sizes[i].count < 300)
                update(sink, o, sizes[i].count, true);
        }
        finite_check(sink, sizes[i].count);
        flat(sink, sizes[i].count);
    }
}
