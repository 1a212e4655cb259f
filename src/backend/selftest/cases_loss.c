/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest/cases.h"
#include "base/mem.h"

static const struct {
    size_t rows, classes;
    unsigned levels;
} sizes[] = {
    {1, 2, COPSE__IN_MOST},    {7, 10, COPSE__IN_ALL},    {64, 10, COPSE__IN_FULL},
    {33, 257, COPSE__IN_MOST}, {5, 4099, COPSE__IN_FULL}, {70001, 3, COPSE__IN_FULL},
};

static void add(copse__case_sink *sink, size_t i, bool from_logits, bool gradient,
                bool in_place, bool ties) {
    size_t rows = sizes[i].rows, classes = sizes[i].classes;
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, rows, classes);
    copse__case made = {
        .spec = {.op = COPSE__OP_CROSS_ENTROPY,
                 .in = {x, COPSE__CASE_ROWS(COPSE_I32, rows)},
                 .out = {COPSE__CASE_ROWS(COPSE_F32, rows, 2), x}},
        .fill = {from_logits ? copse__case_uniform(-8, 8) : copse__case_uniform(0.1f, 1),
                 {.kind = COPSE__FILL_LABELS, .high = (float)classes}},
        .scalars = {.loss_scale = 2}};
    made.spec.attrs.loss.from_logits = from_logits;
    made.spec.out[1].present = gradient;
    made.spec.in_place[1] = in_place ? 1 : 0;
    if (ties)
        made.fill[0].kind = COPSE__FILL_STEPS;
    copse__case_batches(&made, rows);
    copse__case_add(sink, &made, "%zux%zu from %s%s%s%s", rows, classes,
                    from_logits ? "logits" : "probabilities", gradient ? " gradient" : "",
                    in_place ? " in place" : "", ties ? " ties" : "");
}

/* Against probabilities of the classes, which sum to about 1. */
static void add_soft(copse__case_sink *sink, size_t i, bool from_logits, bool gradient,
                     bool ties) {
    size_t rows = sizes[i].rows, classes = sizes[i].classes;
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, rows, classes);
    copse__case made = {
        .spec = {.op = COPSE__OP_CROSS_ENTROPY,
                 .attrs.loss.from_logits = from_logits,
                 .in = {x, x},
                 .out = {COPSE__CASE_ROWS(COPSE_F32, rows, 2), x}},
        .fill = {from_logits ? copse__case_uniform(-8, 8) : copse__case_uniform(0.1f, 1),
                 copse__case_uniform(0, 2 / (float)classes)},
        .scalars = {.loss_scale = 2}};
    made.spec.out[1].present = gradient;
    made.spec.in_place[1] = gradient ? 1 : 0;
    if (ties)
        made.fill[0].kind = COPSE__FILL_STEPS,
        made.fill[1] = (copse__fill){.kind = COPSE__FILL_STEPS, .low = 0, .high = 1};
    copse__case_batches(&made, rows);
    copse__case_add(sink, &made, "%zux%zu soft from %s%s%s", rows, classes,
                    from_logits ? "logits" : "probabilities", gradient ? " gradient" : "",
                    ties ? " ties" : "");
}

static void squared_error(copse__case_sink *sink, size_t i) {
    size_t rows = sizes[i].rows, columns = sizes[i].classes;
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, rows, columns);
    for (int gradient = 0; gradient < 2; gradient++) {
        copse__case made = {
            .spec = {.op = COPSE__OP_MEAN_SQUARED_ERROR,
                     .in = {x, x},
                     .out = {COPSE__CASE_ROWS(COPSE_F32, rows, 2), x}},
            .fill = {copse__case_uniform(-1, 1), copse__case_uniform(-1, 1)},
            .scalars = {.loss_scale = 3}};
        made.spec.out[1].present = gradient;
        copse__case_batches(&made, rows);
        copse__case_add(sink, &made, "%zux%zu%s", rows, columns,
                        gradient ? " gradient" : "");
    }
}

void copse__cases_loss(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++) {
        if (!copse__case_wanted(sink, sizes[i].levels))
            continue;
        add(sink, i, true, true, false, true);
        if (copse__case_wanted(sink, COPSE__IN_MOST)) {
            add(sink, i, true, false, false, false);
            add(sink, i, true, true, true, false);
            add(sink, i, false, true, false, false);
            add(sink, i, false, false, false, true);
            add_soft(sink, i, true, true, false);
            add_soft(sink, i, false, true, false);
            add_soft(sink, i, true, false, true);
        }
        squared_error(sink, i);
    }
}
