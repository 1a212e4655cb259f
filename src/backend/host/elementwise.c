/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <philox.clh>

#include "backend/host/host.h"
#include "base/half.h"

/* One half of the elementwise operations' arguments suits all of them. */
typedef struct elements {
    const float *a, *b;
    float *y;
    copse__activation act;
    size_t columns;
    double scale, offset; /* cast; scale: dropout too */
    float rate;
    const void *raw; /* cast's input */
    copse_dtype dtype;
    uint32_t call;
    const copse_scalars *scalars;
} elements;

static double gelu(double x) {
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
}

static double gelu_slope(double x) {
    double density = exp(-0.5 * x * x) * 0.39894228040143267794;
    return 0.5 * (1.0 + erf(x * 0.70710678118654752440)) + x * density;
}

/* relu written so that a NaN passes: hidden here, it would never be found. */
double copse__host_activate(copse__activation act, double x) {
    switch (act) {
    case COPSE__ACT_RELU:
        return x <= 0 ? 0 : x;
    case COPSE__ACT_SIGMOID:
        return x < 0 ? exp(x) / (1.0 + exp(x)) : 1.0 / (1.0 + exp(-x));
    case COPSE__ACT_TANH:
        return tanh(x);
    case COPSE__ACT_GELU:
        return gelu(x);
    default:
        return x;
    }
}

double copse__host_slope(copse__activation act, double saved) {
    switch (act) {
    case COPSE__ACT_RELU:
        return saved > 0 ? 1 : 0;
    case COPSE__ACT_SIGMOID:
        return saved * (1.0 - saved);
    case COPSE__ACT_TANH:
        return 1.0 - saved * saved;
    case COPSE__ACT_GELU:
        return gelu_slope(saved);
    default:
        return 1;
    }
}

static void activation_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    for (size_t i = begin; i < end; i++)
        v->y[i] = (float)copse__host_activate(v->act, (double)v->a[i]);
}

void copse__host_activation(const copse__host_call *call) {
    elements v = {.a = call->in[0], .y = call->out[0], .act = call->node->attrs.act};
    copse__host_for(call, copse__host_output_elements(call, 0), 20, activation_body, &v);
}

static void activation_grad_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    for (size_t i = begin; i < end; i++)
        v->y[i] = (float)(copse__host_slope(v->act, (double)v->a[i]) * (double)v->b[i]);
}

void copse__host_slopes(const copse__host_call *call, const float *saved, const float *dy,
                        float *dx) {
    elements v = {.a = saved, .b = dy, .y = dx, .act = call->node->attrs.act};
    copse__host_for(call, copse__host_output_elements(call, 0), 20, activation_grad_body,
                    &v);
}

void copse__host_activation_grad(const copse__host_call *call) {
    copse__host_slopes(call, call->in[0], call->in[1], call->out[0]);
}

static void softmax_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    for (size_t r = begin; r < end; r++) {
        const float *x = v->a + r * v->columns;
        float *y = v->y + r * v->columns;
        double most = (double)x[0], sum = 0;
        for (size_t c = 1; c < v->columns; c++)
            most = (double)x[c] > most ? (double)x[c] : most;
        for (size_t c = 0; c < v->columns; c++)
            sum += exp((double)x[c] - most);
        for (size_t c = 0; c < v->columns; c++)
            y[c] = (float)(exp((double)x[c] - most) / sum);
    }
}

void copse__host_softmax(const copse__host_call *call) {
    elements v = {.a = call->in[0],
                  .y = call->out[0],
                  .columns = copse__tensor_columns(copse__host_output(call, 0))};
    copse__host_for(call, copse__host_output_rows(call, 0), 40 * v.columns, softmax_body,
                    &v);
}

static void softmax_grad_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    for (size_t r = begin; r < end; r++) {
        const float *y = v->a + r * v->columns, *dy = v->b + r * v->columns;
        float *dx = v->y + r * v->columns;
        double sum = 0;
        for (size_t c = 0; c < v->columns; c++)
            sum += (double)dy[c] * (double)y[c];
        for (size_t c = 0; c < v->columns; c++)
            dx[c] = (float)((double)y[c] * ((double)dy[c] - sum));
    }
}

void copse__host_softmax_grad(const copse__host_call *call) {
    elements v = {.a = call->in[0],
                  .b = call->in[1],
                  .y = call->out[0],
                  .columns = copse__tensor_columns(copse__host_output(call, 0))};
    copse__host_for(call, copse__host_output_rows(call, 0), 4 * v.columns,
                    softmax_grad_body, &v);
}

/* Items are groups of four elements of one sample: one draw of Philox each. */
static void dropout_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    size_t groups = (v->columns + 3) / 4;
    for (size_t i = begin; i < end; i++) {
        size_t sample = i / groups, group = i % groups;
        copse_philox4 counter = {{(uint32_t)group,
                                  v->scalars->sample_base + (uint32_t)sample,
                                  v->scalars->step, v->call}};
        copse_philox4 draw = copse_philox(counter, v->scalars->seed0, v->scalars->seed1);
        for (size_t e = 4 * group; e < 4 * group + 4 && e < v->columns; e++) {
            size_t at = sample * v->columns + e;
            bool keep = copse_philox_unit(draw.v[e % 4]) >= v->rate;
            v->y[at] = keep ? (float)((double)v->a[at] * v->scale) : 0.0f;
        }
    }
}

void copse__host_dropout(const copse__host_call *call) {
    size_t samples = copse__dim_at(copse__host_output(call, 0)->dim[0], call->extents);
    size_t count = copse__host_output_elements(call, 0);
    float rate = call->node->attrs.dropout.rate;
    elements v = {.a = call->in[0],
                  .y = call->out[0],
                  .columns = samples ? count / samples : 0,
                  .scale = 1.0 / (1.0 - (double)rate),
                  .rate = rate,
                  .call = call->node->attrs.dropout.call,
                  .scalars = call->scalars};
    copse__host_for(call, samples * ((v.columns + 3) / 4), 80, dropout_body, &v);
}

static void add_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    for (size_t i = begin; i < end; i++)
        v->y[i] = v->a[i] + v->b[i];
}

void copse__host_add(const copse__host_call *call) {
    elements v = {.a = call->in[0], .b = call->in[1], .y = call->out[0]};
    copse__host_for(call, copse__host_output_elements(call, 0), 2, add_body, &v);
}

#define CAST_LOOP(type, convert)                                                         \
    do {                                                                                 \
        const type *raw = v->raw;                                                        \
        for (size_t i = begin; i < end; i++)                                             \
            v->y[i] = (float)(convert(raw[i]) * v->scale + v->offset);                   \
    } while (0)

static void cast_body(const void *context, size_t begin, size_t end) {
    const elements *v = context;
    switch (v->dtype) {
    case COPSE_U8:
        CAST_LOOP(uint8_t, (double));
        break;
    case COPSE_I8:
        CAST_LOOP(int8_t, (double));
        break;
    case COPSE_U16:
        CAST_LOOP(uint16_t, (double));
        break;
    case COPSE_I16:
        CAST_LOOP(int16_t, (double));
        break;
    case COPSE_I32:
        CAST_LOOP(int32_t, (double));
        break;
    case COPSE_F16:
        CAST_LOOP(uint16_t, (double)copse__half_to_float);
        break;
    case COPSE_F64:
        CAST_LOOP(double, (double));
        break;
    default:
        CAST_LOOP(float, (double));
        break;
    }
}

void copse__host_cast(const copse__host_call *call) {
    elements v = {.raw = call->in[0],
                  .y = call->out[0],
                  .dtype = copse__host_input(call, 0)->dtype,
                  .scale = (double)call->node->attrs.cast.scale,
                  .offset = (double)call->node->attrs.cast.offset};
    copse__host_for(call, copse__host_output_elements(call, 0), 3, cast_body, &v);
}
