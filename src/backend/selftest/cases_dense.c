/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/selftest/cases.h"
#include "base/mem.h"

/* Rows, inputs, units; around tiles of 8, 16, 32, 64, 128 and depth blocks of 256. */
static const struct {
    size_t m, k, u;
    copse__activation act;
    bool bias;
    unsigned levels;
} sizes[] = {
    {1, 1, 1, COPSE__ACT_NONE, false, COPSE__IN_MOST},
    {9, 17, 33, COPSE__ACT_RELU, true, COPSE__IN_ALL},
    {8, 32, 32, COPSE__ACT_NONE, true, COPSE__IN_FULL},
    {7, 31, 31, COPSE__ACT_SIGMOID, true, COPSE__IN_MOST},
    {64, 64, 64, COPSE__ACT_TANH, true, COPSE__IN_FULL},
    {65, 63, 10, COPSE__ACT_GELU, true, COPSE__IN_MOST},
    {1, 257, 129, COPSE__ACT_NONE, true, COPSE__IN_MOST},
    {129, 255, 1, COPSE__ACT_RELU, false, COPSE__IN_FULL},
    {128, 256, 128, COPSE__ACT_RELU, true, COPSE__IN_FULL},
    {127, 1031, 67, COPSE__ACT_RELU, true, COPSE__IN_FULL},
    {70001, 3, 5, COPSE__ACT_RELU, true, COPSE__IN_FULL},
    {5, 3, 70001, COPSE__ACT_RELU, true, COPSE__IN_FULL},
    {3, 70001, 2, COPSE__ACT_NONE, false, COPSE__IN_FULL},
};

/* Bias gradients are fused into their weights' only where they are small; activations' gradients into those of inputs also
 * where their sums are too short to be cut. */
#define FUSED_SUMS ((size_t)1 << 22)
#define FUSED_DEPTH 16384
#define FUSED_UNITS 1024

static const char *act_text(copse__activation act) {
    return act == COPSE__ACT_NONE ? "" : copse__activation_name(act);
}

static void one_size(copse__case_sink *sink, size_t i) {
    size_t m = sizes[i].m, k = sizes[i].k, u = sizes[i].u;
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, m, k);
    copse__node_operand y = COPSE__CASE_ROWS(COPSE_F32, m, u);
    copse__node_operand w = COPSE__CASE_FIXED(COPSE_F32, k, u);
    copse__case made = {.spec = {.op = COPSE__OP_DENSE,
                                 .attrs.act = sizes[i].act,
                                 .in = {x, w},
                                 .out = {y}},
                        .fill = {uniform, uniform, uniform}};
    if (sizes[i].bias)
        made.spec.in[2] = COPSE__CASE_FIXED(COPSE_F32, u);
    copse__case_batches(&made, m);
    copse__case_add(sink, &made, "%zux%zux%zu%s %s", m, k, u,
                    sizes[i].bias ? " bias" : "", act_text(sizes[i].act));

    made = (copse__case){
        .spec = {.op = COPSE__OP_DENSE_GRAD_INPUT, .in = {y, w}, .out = {x}},
        .fill = {uniform, uniform}};
    copse__case_batches(&made, m);
    copse__case_add(sink, &made, "%zux%zux%zu", m, k, u);
    bool fuses = m * k * u <= FUSED_SUMS && m <= FUSED_DEPTH && u <= FUSED_DEPTH;
    if ((fuses || u < FUSED_UNITS) && sizes[i].act != COPSE__ACT_NONE) {
        made.spec.in[2] = x;
        made.spec.attrs.act = sizes[i].act;
        made.fill[2] = uniform;
        copse__case_add(sink, &made, "%zux%zux%zu fused %s", m, k, u,
                        act_text(sizes[i].act));
    }

    made = (copse__case){
        .spec = {.op = COPSE__OP_DENSE_GRAD_WEIGHT, .in = {x, y}, .out = {w}},
        .fill = {uniform, uniform}};
    copse__case_batches(&made, m);
    copse__case_add(sink, &made, "%zux%zux%zu", m, k, u);
    if (fuses) {
        made.spec.out[1] = COPSE__CASE_FIXED(COPSE_F32, u);
        copse__case_add(sink, &made, "%zux%zux%zu fused bias", m, k, u);
    }

    made = (copse__case){.spec = {.op = COPSE__OP_BIAS_GRAD,
                                  .in = {y},
                                  .out = {COPSE__CASE_FIXED(COPSE_F32, u)}},
                         .fill = {uniform}};
    copse__case_batches(&made, m);
    copse__case_add(sink, &made, "%zux%zu", m, u);
}

/* Two symbols at a time: x[batch, time, inputs], the rows being their product. */
static void sequence(copse__case_sink *sink) {
    copse__node_operand x = COPSE__CASE_ROWS(COPSE_F32, 5, 7, 12);
    copse__node_operand y = COPSE__CASE_ROWS(COPSE_F32, 5, 7, 20);
    x.dim[1].symbol = y.dim[1].symbol = COPSE__TIME;
    copse__fill uniform = copse__case_uniform(-1, 1);
    copse__case made = {.spec = {.op = COPSE__OP_DENSE,
                                 .attrs.act = COPSE__ACT_RELU,
                                 .in = {x, COPSE__CASE_FIXED(COPSE_F32, 12, 20),
                                        COPSE__CASE_FIXED(COPSE_F32, 20)},
                                 .out = {y}},
                        .fill = {uniform, uniform, uniform},
                        .runs = {{{0, 5, 7}}, {{0, 5, 3}}, {{0, 2, 7}}, {{0, 3, 0}}},
                        .run_count = 4};
    copse__case_add(sink, &made, "5x7x12x20 batch and time");
    made.spec = (copse__node_spec){.op = COPSE__OP_DENSE_GRAD_WEIGHT,
                                   .in = {x, y},
                                   .out = {COPSE__CASE_FIXED(COPSE_F32, 12, 20)}};
    copse__case_add(sink, &made, "5x7x12x20 batch and time");
}

void copse__cases_dense(copse__case_sink *sink) {
    for (size_t i = 0; i < COPSE__COUNT(sizes); i++)
        if (copse__case_wanted(sink, sizes[i].levels))
            one_size(sink, i);
    if (copse__case_wanted(sink, COPSE__IN_MOST))
        sequence(sink);
}
