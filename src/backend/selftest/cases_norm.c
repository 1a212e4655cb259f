/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest/cases.h"
#include "base/mem.h"

/* Rows and columns; `distant` values lie around 100, where E[x2] - E[x]2 fails. */
static const struct {
    size_t rows, columns;
    bool distant, affine;
    unsigned levels;
} sizes[] = {
    {1, 1, false, true, COPSE__IN_MOST},      {7, 3, true, true, COPSE__IN_ALL},
    {64, 64, false, true, COPSE__IN_FULL},    {33, 65, true, false, COPSE__IN_MOST},
    {257, 31, false, true, COPSE__IN_MOST},   {5, 1031, true, true, COPSE__IN_FULL},
    {70001, 3, true, true, COPSE__IN_FULL},   {4099, 33, false, true, COPSE__IN_FULL},
    {4, 70001, false, false, COPSE__IN_FULL},
};

static void add(copse__case_sink *sink, copse__case *made, size_t i) {
    made->spec.attrs.norm.epsilon = 1e-3f;
    copse__case_batches(made, sizes[i].rows);
    copse__case_add(sink, made, "%zux%zu%s%s%s", sizes[i].rows, sizes[i].columns,
                    sizes[i].distant ? " distant" : "", sizes[i].affine ? " affine" : "",
                    made->spec.attrs.act ? " relu" : "");
}

static void one_size(copse__case_sink *sink, size_t i) {
    float center = sizes[i].distant ? 100 : 0;
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, sizes[i].rows, sizes[i].columns);
    copse__node_operand column = COPSE__CASE_FIXED(COPSE_F32, sizes[i].columns);
    copse__node_operand pair = COPSE__CASE_FIXED(COPSE_F32, 2, sizes[i].columns);
    copse__node_operand optional = column;
    optional.present = sizes[i].affine;
    copse__fill values = copse__case_uniform(center - 1, center + 1);
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__fill moments = copse__case_uniform(0.25f, 1); /* means and variances */
    copse__fill around = copse__case_uniform(center - 0.1f, center + 0.1f);

    copse__case made = {.spec = {.op = COPSE__OP_BN_MOMENTS, .in = {x}, .out = {pair}},
                        .fill = {values}};
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_NORMALIZE,
                                  .in = {x, pair, optional, optional},
                                  .out = {x}},
                         .fill = {uniform, moments, uniform, uniform}};
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_INFER,
                                  .in = {x, column, column, optional, optional},
                                  .out = {x}},
                         .fill = {values, around, moments, uniform, uniform}};
    add(sink, &made, i);
    copse__node_operand w = COPSE__CASE_FIXED(COPSE_F32, sizes[i].rows, sizes[i].columns);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_FOLD,
                                  .in = {w, optional, column, column, optional, optional},
                                  .out = {w, column}},
                         .fill = {uniform, values, around, moments, uniform, uniform}};
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_GRAD_REDUCE,
                                  .in = {x, x, pair},
                                  .out = {pair, optional, optional}},
                         .fill = {uniform, uniform, moments}};
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_GRAD_INPUT,
                                  .in = {x, x, pair, pair, optional},
                                  .out = {x}},
                         .fill = {uniform, uniform, moments, uniform, uniform}};
    add(sink, &made, i);
}

/* With relu. Where beta is absent, and values lie in steps whose halves are the means, all devices agree on what relu lets
 * through, whatever they round; with beta in few elements only, so that none lies where they may not. */
static void with_relu(copse__case_sink *sink, size_t i) {
    bool few = sizes[i].rows * sizes[i].columns < 10000;
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, sizes[i].rows, sizes[i].columns);
    copse__node_operand column = COPSE__CASE_FIXED(COPSE_F32, sizes[i].columns);
    copse__node_operand pair = COPSE__CASE_FIXED(COPSE_F32, 2, sizes[i].columns);
    copse__node_operand gamma = column, beta = column;
    gamma.present = sizes[i].affine;
    beta.present = sizes[i].affine && few;
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__fill steps = {.kind = COPSE__FILL_STEPS, .low = -0.5f, .high = 0.75f};
    copse__fill moments = copse__case_uniform(0.1875f, 0.1876f);
    copse__case made = {
        .spec = {.op = COPSE__OP_BN_NORMALIZE, .in = {x, pair, gamma, beta}, .out = {x}},
        .fill = {steps, moments, uniform, uniform}};
    made.spec.attrs.act = COPSE__ACT_RELU;
    add(sink, &made, i);
    made.run_count = 0;
    made.spec = (copse__node_spec){.op = COPSE__OP_BN_INFER,
                                   .attrs = {.act = COPSE__ACT_RELU},
                                   .in = {x, column, column, gamma, beta},
                                   .out = {x}};
    made.fill[2] = moments;
    made.fill[3] = made.fill[4] = uniform;
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_GRAD_REDUCE,
                                  .attrs = {.act = COPSE__ACT_RELU},
                                  .in = {x, x, pair, gamma, beta},
                                  .out = {pair, column, column}},
                         .fill = {steps, uniform, moments, uniform, uniform}};
    add(sink, &made, i);
    made = (copse__case){.spec = {.op = COPSE__OP_BN_GRAD_INPUT,
                                  .attrs = {.act = COPSE__ACT_RELU},
                                  .in = {x, x, pair, pair, gamma, beta},
                                  .out = {x}},
                         .fill = {steps, uniform, moments, uniform, uniform, uniform}};
    add(sink, &made, i);
}

void copse__cases_norm(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++)
        if (copse__case_wanted(sink, sizes[i].levels))
            one_size(sink, i), with_relu(sink, i);
}
