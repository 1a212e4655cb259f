/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/host/host.h"

typedef struct loss {
    const float *x;
    const int32_t *label;
    const float *target; /* cross-entropy: instead of label; NULL: none */
    float *metrics;      /* [rows, 2] */
    float *dx;           /* may be NULL, may be x */
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

/* log(sum(exp(x))) */
static double log_sum_exp(const float *x, size_t count) {
    double most = (double)x[first_largest(x, count)], sum = 0;
    for (size_t c = 0; c < count; c++)
        sum += exp((double)x[c] - most);
    return log(sum) + most;
}

/* The loss is made before dx overwrites x. */
static double from_logits_row(const loss *v, const float *x, float *dx, size_t label) {
    double all = log_sum_exp(x, v->columns), value = all - (double)x[label];
    for (size_t c = 0; dx && c < v->columns; c++) {
        double p = exp((double)x[c] - all);
        dx[c] = (float)((p - (c == label ? 1.0 : 0.0)) * v->scale);
    }
    return value;
}

/* Against probabilities t. A class that t rules out does not count, however small its logit. */
static double from_logits_soft_row(const loss *v, const float *x, float *dx,
                                   const float *t) {
    double all = log_sum_exp(x, v->columns), value = 0, weight = 0;
    for (size_t c = 0; c < v->columns; c++) {
        value += t[c] == 0 ? 0 : (double)t[c] * (all - (double)x[c]);
        weight += (double)t[c];
    }
    for (size_t c = 0; dx && c < v->columns; c++)
        dx[c] = (float)((weight * exp((double)x[c] - all) - (double)t[c]) * v->scale);
    return value;
}

/* A probability, clamped; *inside: it was not. */
static double clamped_probability(double x, double sum, bool *inside) {
    const double least = 1e-7, most = 1.0 - 1e-7;
    double p = x / sum;
    *inside = !(p < least || p > most);
    return p < least ? least : p > most ? most : p;
}

/* Where the probability is clamped, the loss does not depend on x: no gradient. */
static double from_probabilities_row(const loss *v, const float *x, float *dx,
                                     size_t label) {
    double sum = 0, chosen = (double)x[label];
    for (size_t c = 0; c < v->columns; c++)
        sum += (double)x[c];
    bool inside;
    double value = -log(clamped_probability(chosen, sum, &inside));
    for (size_t c = 0; dx && c < v->columns; c++) {
        double slope = inside ? 1.0 / sum - (c == label ? 1.0 / chosen : 0.0) : 0;
        dx[c] = (float)(slope * v->scale);
    }
    return value;
}

static double from_probabilities_soft_row(const loss *v, const float *x, float *dx,
                                          const float *t) {
    double sum = 0, value = 0, weight = 0; /* of what is not clamped */
    bool inside;
    for (size_t c = 0; c < v->columns; c++)
        sum += (double)x[c];
    for (size_t c = 0; c < v->columns; c++) {
        value -= (double)t[c] * log(clamped_probability((double)x[c], sum, &inside));
        weight += inside ? (double)t[c] : 0;
    }
    for (size_t c = 0; dx && c < v->columns; c++) {
        clamped_probability((double)x[c], sum, &inside);
        double slope = weight / sum - (inside ? (double)t[c] / (double)x[c] : 0);
        dx[c] = (float)(slope * v->scale);
    }
    return value;
}

static void cross_entropy_soft_body(const void *context, size_t begin, size_t end) {
    const loss *v = context;
    for (size_t r = begin; r < end; r++) {
        const float *x = v->x + r * v->columns, *t = v->target + r * v->columns;
        float *dx = v->dx ? v->dx + r * v->columns : NULL;
        bool hit = first_largest(x, v->columns) == first_largest(t, v->columns);
        double value = v->from_logits ? from_logits_soft_row(v, x, dx, t)
                                      : from_probabilities_soft_row(v, x, dx, t);
        v->metrics[2 * r] = (float)value;
        v->metrics[2 * r + 1] = hit ? 1.0f : 0.0f;
    }
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
    bool soft = copse__host_input(call, 1)->dtype == COPSE_F32;
    loss v = {.x = call->in[0],
              .label = soft ? NULL : call->in[1],
              .target = soft ? call->in[1] : NULL,
              .metrics = call->out[0],
              .dx = call->out[1],
              .columns = copse__tensor_columns(copse__host_input(call, 0)),
              .from_logits = call->node->attrs.loss.from_logits,
              .scale = call->scalars ? (double)call->scalars->loss_scale : 0};
    copse__host_for(call, copse__host_input_rows(call, 0), 50 * v.columns,
                    soft ? cross_entropy_soft_body : cross_entropy_body, &v);
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
