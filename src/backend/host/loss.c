/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/host/host.h"

typedef struct loss {
    const float *x;
    const int32_t *label;
    const float *target;
    float *metrics; /* [rows, 2] */
    float *dx;      /* may be NULL, may be x */
    size_t columns;
    bool from_logits;
    double scale;
} loss;

static size_t first_largest(const float *x, size_t count) {
    size_t best = 0;
    for (size_t c = 1; c < count; c++)
        if (x[c] > x[best])
            best = c;
    return best;
}

/* The loss is made before dx overwrites x. */
static double from_logits_row(const loss *v, const float *x, float *dx, size_t label) {
    double most = (double)x[first_largest(x, v->columns)], sum = 0;
    for (size_t c = 0; c < v->columns; c++)
        sum += exp((double)x[c] - most);
    double value = log(sum) + most - (double)x[label];
    for (size_t c = 0; dx && c < v->columns; c++) {
        double p = exp((double)x[c] - most) / sum;
        dx[c] = (float)((p - (c == label ? 1.0 : 0.0)) * v->scale);
    }
    return value;
}

/* Where the probability is clamped, the loss does not depend on x: no gradient. */
static double from_probabilities_row(const loss *v, const float *x, float *dx,
                                     size_t label) {
    const double least = 1e-7, most = 1.0 - 1e-7;
    double sum = 0, chosen = (double)x[label];
    for (size_t c = 0; c < v->columns; c++)
        sum += (double)x[c];
    double p = chosen / sum;
    bool clamped = p < least || p > most;
    double value = -log(p < least ? least : p > most ? most : p);
    for (size_t c = 0; dx && c < v->columns; c++) {
        double slope = clamped ? 0 : 1.0 / sum - (c == label ? 1.0 / chosen : 0.0);
        dx[c] = (float)(slope * v->scale);
    }
    return value;
}

static void cross_entropy_body(const void *context, size_t begin, size_t end) {
    const loss *v = context;
    for (size_t r = begin; r < end; r++) {
        const float *x = v->x + r * v->columns;
        float *dx = v->dx ? v->dx + r * v->columns : NULL;
        size_t label = (size_t)v->label[r];
        bool hit = first_largest(x, v->columns) == label;
        double value = v->from_logits ? from_logits_row(v, x, dx, label)
                                      : from_probabilities_row(v, x, dx, label);
        v->metrics[2 * r] = (float)value;
        v->metrics[2 * r + 1] = hit ? 1.0f : 0.0f;
    }
}

void copse__host_cross_entropy(const copse__host_call *call) {
    loss v = {.x = call->in[0],
              .label = call->in[1],
              .metrics = call->out[0],
              .dx = call->out[1],
              .columns = copse__tensor_columns(copse__host_input(call, 0)),
              .from_logits = call->node->attrs.loss.from_logits,
              .scale = call->scalars ? (double)call->scalars->loss_scale : 0};
    copse__host_for(call, copse__host_input_rows(call, 0), 50 * v.columns,
                    cross_entropy_body, &v);
}

static void squared_error_body(const void *context, size_t begin, size_t end) {
    const loss *v = context;
    double elements = (double)v->columns;
    for (size_t n = begin; n < end; n++) {
        double sum = 0;
        for (size_t i = n * v->columns; i < (n + 1) * v->columns; i++) {
            double d = (double)v->x[i] - (double)v->target[i];
            sum += d * d;
            if (v->dx)
                v->dx[i] = (float)(2.0 * d / elements * v->scale);
        }
        v->metrics[2 * n] = v->columns ? (float)(sum / elements) : 0.0f;
        v->metrics[2 * n + 1] = 0.0f;
    }
}

void copse__host_mean_squared_error(const copse__host_call *call) {
    const copse__tensor *x = copse__host_input(call, 0);
    size_t samples = copse__dim_at(x->dim[0], call->extents);
    size_t count = copse__tensor_elements(x, call->extents);
    loss v = {.x = call->in[0],
              .target = call->in[1],
              .metrics = call->out[0],
              .dx = call->out[1],
              .columns = samples ? count / samples : 0,
              .scale = call->scalars ? (double)call->scalars->loss_scale : 0};
    copse__host_for(call, samples, 5 * v.columns, squared_error_body, &v);
}
