/* SPDX-License-Identifier: Apache-2.0 */
#include <philox.clh>

#include "backend/host/host.h"
#include "base/mem.h"

/* ELEMENTWISE, step by step for each element; every value is rounded to a float as the operations by
 * themselves do it. */

enum { VALUES = COPSE__MAX_INPUTS + COPSE__MAX_TERMS };

typedef struct evaluation {
    const copse__host_call *call;
    const copse__expression *expression;
    size_t columns; /* elements of a sample */
} evaluation;

static bool keeps(const evaluation *v, const copse__term *step, size_t element) {
    const copse_scalars *s = v->call->scalars;
    uint32_t sample = (uint32_t)(element / v->columns);
    size_t at = element % v->columns;
    copse_philox4 counter = {
        {(uint32_t)(at / 4), s->sample_base + sample, s->step, step->call}};
    copse_philox4 draw = copse_philox(counter, s->seed0, s->seed1);
    return copse_philox_unit(draw.v[at % 4]) >= step->rate;
}

static float compute(const evaluation *v, const copse__term *step, const float *values,
                     size_t element) {
    float a = values[step->a], b = values[step->b];
    copse__activation act = (copse__activation)step->act;
    switch ((copse__op)step->op) {
    case COPSE__OP_ADD:
        return a + b;
    case COPSE__OP_ACTIVATION:
        return (float)copse__host_activate(act, (double)a);
    case COPSE__OP_ACTIVATION_GRAD:
        return (float)(copse__host_slope(act, (double)a) * (double)b);
    default: /* DROPOUT */
        return keeps(v, step, element)
                   ? (float)((double)a * (1.0 / (1.0 - (double)step->rate)))
                   : 0.0f;
    }
}

static void body(const void *context, size_t begin, size_t end) {
    const evaluation *v = context;
    const copse__expression *e = v->expression;
    float values[VALUES] = {0};
    for (size_t i = begin; i < end; i++) {
        for (size_t k = 0; k < COPSE__MAX_INPUTS; k++)
            if (v->call->in[k])
                values[k] = ((const float *)v->call->in[k])[i];
        for (size_t s = 0; s < e->term_count; s++)
            values[COPSE__MAX_INPUTS + s] = compute(v, &e->terms[s], values, i);
        for (size_t o = 0; o < COPSE__MAX_OUTPUTS; o++)
            if (v->call->out[o])
                ((float *)v->call->out[o])[i] = values[e->results[o]];
    }
}

void copse__host_elementwise(const copse__host_call *call) {
    size_t count = copse__host_output_elements(call, 0);
    size_t samples = copse__dim_at(copse__host_output(call, 0)->dim[0], call->extents);
    evaluation v = {.call = call,
                    .expression = &call->node->attrs.expression,
                    .columns = samples ? count / samples : 1};
    copse__host_for(call, count, 30 * (size_t)v.expression->term_count, body, &v);
}
