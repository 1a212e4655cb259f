/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "backend/opencl/ops.h"

/* ELEMENTWISE: the expression becomes macro calls, cl/expression.cl with them a program of its own. */

static bool has_dropout(const copse__expression *e) {
    for (size_t s = 0; s < e->term_count; s++)
        if (e->terms[s].op == COPSE__OP_DROPOUT)
            return true;
    return false;
}

static const char *act_name(uint8_t act) {
    return copse__activation_name((copse__activation)act);
}

static void write_step(copse__text *out, size_t to, const copse__term *step) {
    uint32_t bits;
    switch ((copse__op)step->op) {
    case COPSE__OP_ADD:
        copse__text_add(out, "ADD(%zu,%u,%u)", to, step->a, step->b);
        break;
    case COPSE__OP_ACTIVATION:
        copse__text_add(out, "ACT(%zu,%s,%u)", to, act_name(step->act), step->a);
        break;
    case COPSE__OP_ACTIVATION_GRAD:
        copse__text_add(out, "SLOPE(%zu,%s,%u,%u)", to, act_name(step->act), step->a,
                        step->b);
        break;
    default: /* DROPOUT */
        memcpy(&bits, &step->rate, sizeof bits);
        copse__text_add(out, "DROP(%zu,%u,%uu)", to, step->a, bits);
    }
}

static void write_options(copse__text *out, const copse__launch *launch) {
    const copse__graph *graph = launch->graph;
    const copse__node *node = launch->node;
    const copse__expression *e = &node->attrs.expression;
    copse__text_add(out, "-DCOPSE_ARGUMENTS=");
    for (size_t i = 0; i < node->input_count; i++)
        if (copse__cl_input(graph, node, i))
            copse__text_add(out, "IN(%zu)", i);
    for (size_t o = 0; o < node->output_count; o++)
        if (copse__cl_output(graph, node, o))
            copse__text_add(out, "OUT(%zu)", o);
    copse__text_add(out, " -DCOPSE_LOADS=");
    for (size_t i = 0; i < node->input_count; i++)
        if (copse__cl_input(graph, node, i))
            copse__text_add(out, "LOAD(%zu)", i);
    copse__text_add(out, " -DCOPSE_DRAWS=");
    for (size_t s = 0; s < e->term_count; s++)
        if (e->terms[s].op == COPSE__OP_DROPOUT)
            copse__text_add(out, "DRAW(%zu,%uu)", COPSE__MAX_INPUTS + s,
                            e->terms[s].call);
    copse__text_add(out, " -DCOPSE_STEPS=");
    for (size_t s = 0; s < e->term_count; s++)
        write_step(out, COPSE__MAX_INPUTS + s, &e->terms[s]);
    copse__text_add(out, " -DCOPSE_STORES=");
    for (size_t o = 0; o < node->output_count; o++)
        if (copse__cl_output(graph, node, o))
            copse__text_add(out, "STORE(%zu,%u)", o, e->results[o]);
}

/* Views in the order of the kernel's arguments; *count is that of the views. */
static copse_status set_views(copse__launch *launch, unsigned *count, copse_error *err) {
    const copse__operands *o = &launch->operands;
    copse_status status = COPSE_OK;
    *count = 0;
    for (size_t i = 0; i < launch->node->input_count && status == COPSE_OK; i++)
        if (copse__cl_input(launch->graph, launch->node, i))
            status = copse__cl_args(launch, 0, (*count)++, err, "v", &o->inputs[i]);
    for (size_t k = 0; k < launch->node->output_count && status == COPSE_OK; k++)
        if (copse__cl_output(launch->graph, launch->node, k))
            status = copse__cl_args(launch, 0, (*count)++, err, "v", &o->outputs[k]);
    return status == COPSE_OK
               ? copse__cl_args(launch, 0, (*count)++, err, "v", &o->scalars)
               : status;
}

typedef struct state {
    unsigned sizes_at; /* the argument that follows the views */
} state;

static copse_status prepare(copse__launch *launch, copse_error *err) {
    copse__text options = {0};
    state *s;
    copse_status status = copse__calloc(&s, 1, sizeof *s, err);
    if (status != COPSE_OK)
        return status;
    launch->state = s;
    write_options(&options, launch);
    status = copse__text_check(&options, err);
    if (status == COPSE_OK)
        status = copse__cl_kernel_add(launch, NULL, &copse__cl_source_expression,
                                      options.data, "expression_f32", err);
    if (status == COPSE_OK)
        status = set_views(launch, &s->sizes_at, err);
    copse__text_free(&options);
    return status;
}

static copse_status enqueue(copse__launch *launch, const copse__extents *extents,
                            bool changed, copse_error *err) {
    const state *s = launch->state;
    const copse__tensor *y = copse__cl_output(launch->graph, launch->node, 0);
    size_t all = copse__tensor_elements(y, extents), samples = all > 0;
    if (has_dropout(&launch->node->attrs.expression))
        samples = copse__dim_at(y->dim[0], extents);
    size_t each = samples > 0 ? all / samples : 0;
    size_t block = launch->device->base.caps.cpu ? 16 : 1; /* quads an item */
    copse_status status = COPSE_OK;
    if (changed)
        status = copse__cl_args(launch, 0, s->sizes_at, err, "zz", samples, each);
    if (status != COPSE_OK)
        return status;
    return copse__cl_enqueue_flat(
        launch, 0, samples * ((each + 4 * block - 1) / (4 * block)), 16 * block, err);
}

const copse__cl_provider copse__cl_elementwise = {
    .name = "expression", .prepare = prepare, .enqueue = enqueue};
