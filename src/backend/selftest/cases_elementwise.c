/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/selftest/cases.h"
#include "base/mem.h"

static const struct {
    size_t rows, columns;
    unsigned levels;
} sizes[] = {
    {1, 1, COPSE__IN_MOST},       {5, 37, COPSE__IN_ALL},   {8, 8, COPSE__IN_FULL},
    {63, 1, COPSE__IN_FULL},      {16, 16, COPSE__IN_FULL}, {3, 343, COPSE__IN_MOST},
    {1031, 1031, COPSE__IN_FULL},
};

/* One or two planes to one plane, apart and in place on input `place` - 1. */
static void add(copse__case_sink *sink, const copse__node_spec *spec, size_t i,
                copse__fill first, copse__fill second, uint8_t place, const char *what) {
    copse__node_operand plane =
        COPSE__CASE_ROWS(COPSE_F32, sizes[i].rows, sizes[i].columns);
    for (int in_place = 0; in_place < 2; in_place++) {
        copse__case made = {.spec = *spec, .fill = {first, second}};
        made.spec.in[0] = made.spec.out[0] = plane;
        if (copse__op_arity_of(spec->op)->inputs > 1)
            made.spec.in[1] = plane;
        made.spec.in_place[0] = in_place ? place : 0;
        copse__case_batches(&made, sizes[i].rows);
        copse__case_add(sink, &made, "%zux%zu %s%s", sizes[i].rows, sizes[i].columns,
                        what, in_place ? " in place" : "");
    }
}

#define IN_(k) (k)
#define STEP_(k) (COPSE__MAX_INPUTS + (k))

/* Chains as fusing makes them: name, planes that they read and write. */
static const struct {
    const char *name;
    size_t inputs, outputs;
    copse__expression expression;
} chains[] = {
    {"relu(a + b)",
     2,
     1,
     {.term_count = 2,
      .results = {STEP_(1)},
      .terms = {{COPSE__OP_ADD, 0, IN_(0), IN_(1), 0, 0},
                {COPSE__OP_ACTIVATION, COPSE__ACT_RELU, STEP_(0), 0, 0, 0}}}},
    {"dropout(relu a), relu a",
     1,
     2,
     {.term_count = 2,
      .results = {STEP_(1), STEP_(0)},
      .terms = {{COPSE__OP_ACTIVATION, COPSE__ACT_RELU, IN_(0), 0, 0, 0},
                {COPSE__OP_DROPOUT, 0, STEP_(0), 0, 0.3f, 5}}}},
    {"gradients of two dropouts, tanh, a sum and gelu",
     4,
     1,
     {.term_count = 5,
      .results = {STEP_(4)},
      .terms = {{COPSE__OP_DROPOUT, 0, IN_(0), 0, 0.5f, 9},
                {COPSE__OP_ACTIVATION_GRAD, COPSE__ACT_TANH, IN_(1), STEP_(0), 0, 0},
                {COPSE__OP_ADD, 0, STEP_(1), IN_(2), 0, 0},
                {COPSE__OP_ACTIVATION_GRAD, COPSE__ACT_GELU, IN_(3), STEP_(2), 0, 0},
                {COPSE__OP_DROPOUT, 0, STEP_(3), 0, 0.25f, 3}}}},
    {"all of a kind",
     8,
     4,
     {.term_count = 8,
      .results = {STEP_(7), STEP_(0), STEP_(5), IN_(7)},
      .terms = {{COPSE__OP_ADD, 0, IN_(0), IN_(0), 0, 0},
                {COPSE__OP_ACTIVATION, COPSE__ACT_SIGMOID, IN_(1), 0, 0, 0},
                {COPSE__OP_ADD, 0, STEP_(0), STEP_(1), 0, 0},
                {COPSE__OP_ADD, 0, IN_(2), IN_(3), 0, 0},
                {COPSE__OP_ACTIVATION, COPSE__ACT_GELU, STEP_(3), 0, 0, 0},
                {COPSE__OP_ACTIVATION_GRAD, COPSE__ACT_RELU, IN_(4), IN_(5), 0, 0},
                {COPSE__OP_ADD, 0, STEP_(2), IN_(6), 0, 0},
                {COPSE__OP_ADD, 0, STEP_(6), STEP_(4), 0, 0}}}},
};

static void one_chain(copse__case_sink *sink, size_t i, size_t k) {
    copse__node_operand plane =
        COPSE__CASE_ROWS(COPSE_F32, sizes[i].rows, sizes[i].columns);
    for (size_t in_place = 0; in_place < 2; in_place++) {
        copse__case made = {.spec = {.op = COPSE__OP_ELEMENTWISE,
                                     .attrs = {.expression = chains[k].expression}},
                            .scalars = {.seed0 = 11, .step = 3, .sample_base = 7}};
        for (size_t in = 0; in < chains[k].inputs; in++) {
            made.spec.in[in] = plane;
            made.fill[in] = copse__case_uniform(-0.9f, 0.9f);
        }
        for (size_t out = 0; out < chains[k].outputs; out++)
            made.spec.out[out] = plane;
        made.spec.in_place[0] = in_place ? (uint8_t)chains[k].inputs : 0;
        copse__case_batches(&made, sizes[i].rows);
        copse__case_add(sink, &made, "%zux%zu %s%s", sizes[i].rows, sizes[i].columns,
                        chains[k].name, in_place ? " in place" : "");
    }
}

static void one_size(copse__case_sink *sink, size_t i) {
    copse__fill uniform = copse__case_uniform(-1, 1), wide = copse__case_uniform(-6, 6);
    copse__fill results = copse__case_uniform(0.01f, 0.99f);
    copse__fill holes = wide;
    holes.special = NAN;
    holes.special_every = 7;
    for (int act = COPSE__ACT_RELU; act < COPSE__ACT_COUNT; act++) {
        const char *name = copse__activation_name((copse__activation)act);
        bool huge = sizes[i].rows * sizes[i].columns > 100000;
        if (huge && act != COPSE__ACT_RELU)
            continue;
        copse__node_spec spec = {.op = COPSE__OP_ACTIVATION,
                                 .attrs.act = (copse__activation)act};
        add(sink, &spec, i, act == COPSE__ACT_RELU ? holes : wide, uniform, 1, name);
        spec.op = COPSE__OP_ACTIVATION_GRAD;
        copse__fill saved = act == COPSE__ACT_GELU   ? wide
                            : act == COPSE__ACT_RELU ? uniform
                                                     : results;
        add(sink, &spec, i, saved, uniform, 2, name);
    }
    copse__node_spec spec = {.op = COPSE__OP_ADD};
    add(sink, &spec, i, uniform, wide, 1, "");
    spec = (copse__node_spec){.op = COPSE__OP_SOFTMAX};
    add(sink, &spec, i, wide, uniform, 1, "");
    spec = (copse__node_spec){.op = COPSE__OP_SOFTMAX_GRAD};
    add(sink, &spec, i, results, uniform, 2, "");
}

/* Batches of images as dropout sees them; two rates. */
static void dropout(copse__case_sink *sink) {
    static const struct {
        size_t n, h, c;
        float rate;
        unsigned levels;
    } shapes[] = {
        {1, 1, 1, 0.5f, COPSE__IN_MOST},   {5, 3, 7, 0.25f, COPSE__IN_ALL},
        {3, 1, 128, 0.5f, COPSE__IN_FULL}, {2, 1, 63, 0, COPSE__IN_FULL},
        {67, 3, 65, 0.9f, COPSE__IN_MOST}, {1031, 1, 1031, 0.1f, COPSE__IN_FULL},
    };
    for (size_t i = 0; i < COPSE__COUNT(shapes); i++) {
        copse__node_operand x =
            COPSE__CASE_ROWS(COPSE_F32, shapes[i].n, shapes[i].h, 1, shapes[i].c);
        for (int in_place = 0; in_place < 2; in_place++) {
            copse__case made = {.spec = {.op = COPSE__OP_DROPOUT, .in = {x}, .out = {x}},
                                .fill = {copse__case_uniform(1, 2)},
                                .measure = {COPSE__MEASURE_PATTERN},
                                .scalars = {.seed0 = 0x12345678,
                                            .seed1 = 0x9ABCDEF0,
                                            .step = 1000003,
                                            .sample_base = 4000000000u}};
            made.spec.in_place[0] = (uint8_t)in_place;
            made.spec.attrs.dropout.rate = shapes[i].rate;
            made.spec.attrs.dropout.call = 77;
            copse__case_batches(&made, shapes[i].n);
            if (copse__case_wanted(sink, shapes[i].levels))
                copse__case_add(sink, &made, "%zux%zux1x%zu rate %g%s", shapes[i].n,
                                shapes[i].h, shapes[i].c, (double)shapes[i].rate,
                                in_place ? " in place" : "");
        }
    }
}

/* Odd numbers of odd-sized elements: rows start at any byte. */
static void casts(copse__case_sink *sink) {
    static const struct {
        copse_dtype dtype;
        copse__fill fill;
        unsigned levels;
    } types[] = {
        {COPSE_U8, {.kind = COPSE__FILL_BYTES}, COPSE__IN_ALL},
        {COPSE_I8, {.kind = COPSE__FILL_BYTES}, COPSE__IN_MOST},
        {COPSE_U16, {.kind = COPSE__FILL_BYTES}, COPSE__IN_MOST},
        {COPSE_I16, {.kind = COPSE__FILL_BYTES}, COPSE__IN_MOST},
        {COPSE_I32, {.kind = COPSE__FILL_BYTES}, COPSE__IN_MOST},
        {COPSE_F16, {.kind = COPSE__FILL_HALVES}, COPSE__IN_MOST},
        {COPSE_F32, {.kind = COPSE__FILL_UNIFORM, .low = -5, .high = 5}, COPSE__IN_MOST},
        {COPSE_F64, {.kind = COPSE__FILL_DOUBLES, .low = -5, .high = 5}, COPSE__IN_MOST},
    };
    static const struct {
        size_t rows, columns;
        unsigned levels;
    } planes[] = {{1, 1, COPSE__IN_FULL},
                  {7, 13, COPSE__IN_ALL},
                  {33, 31, COPSE__IN_FULL},
                  {1031, 257, COPSE__IN_FULL}};
    for (size_t t = 0; t < COPSE__COUNT(types); t++) {
        for (size_t i = 0; i < COPSE__COUNT(planes); i++) {
            if (!copse__case_wanted(sink, types[t].levels & planes[i].levels))
                continue;
            size_t rows = planes[i].rows, columns = planes[i].columns;
            copse__case made = {
                .spec = {.op = COPSE__OP_CAST,
                         .attrs.cast = {1.0f / 255, i % 2 ? -0.5f : 0},
                         .in = {COPSE__CASE_ROWS(types[t].dtype, rows, columns)},
                         .out = {COPSE__CASE_ROWS(COPSE_F32, rows, columns)}},
                .fill = {types[t].fill}};
            copse__case_batches(&made, rows);
            copse__case_add(sink, &made, "%s %zux%zu", copse_dtype_name(types[t].dtype),
                            rows, columns);
        }
    }
}

void copse__cases_elementwise(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++)
        if (copse__case_wanted(sink, sizes[i].levels))
            one_size(sink, i);
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++)
        for (size_t k = 0; k < COPSE__COUNT(chains); k++)
            if (copse__case_wanted(sink, sizes[i].levels) &&
                (sizes[i].rows * sizes[i].columns < 100000 || k == 1))
                one_chain(sink, i, k);
    dropout(sink);
    casts(sink);
}
