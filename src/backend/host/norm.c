/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "backend/host/host.h"
#include "base/mem.h"

/* Columns summed together: neighbours in memory. */
enum { LANES = 64 };

typedef struct normalization {
    const float *x, *dy;
    const float *mean, *variance; /* [C] */
    const float *sums;            /* [2,C] */
    const float *gamma, *beta;    /* [C], may be NULL */
    float *y;
    float *stats;          /* [2,C] */
    float *dgamma, *dbeta; /* [C], may be NULL */
    size_t rows, columns;
    double epsilon;
    copse__activation act;
} normalization;

static double reciprocal_deviation(const normalization *v, size_t c) {
    return 1.0 / sqrt((double)v->variance[c] + v->epsilon);
}

/* The mean first, then the squares of what is left: no cancellation. */
static void moments_body(const void *context, size_t begin, size_t end) {
    const normalization *v = context;
    for (size_t c0 = begin; c0 < end; c0 += LANES) {
        size_t lanes = copse__min_size(LANES, end - c0);
        double mean[LANES] = {0}, square[LANES] = {0};
        for (size_t r = 0; r < v->rows; r++)
            for (size_t c = 0; c < lanes; c++)
                mean[c] += (double)v->x[r * v->columns + c0 + c];
        for (size_t c = 0; c < lanes && v->rows > 0; c++)
            mean[c] /= (double)v->rows;
        for (size_t r = 0; r < v->rows; r++) {
            for (size_t c = 0; c < lanes; c++) {
                double d = (double)v->x[r * v->columns + c0 + c] - mean[c];
                square[c] += d * d;
            }
        }
        for (size_t c = 0; c < lanes; c++) {
            v->stats[c0 + c] = (float)mean[c];
            v->stats[v->columns + c0 + c] =
                v->rows > 0 ? (float)(square[c] / (double)v->rows) : 0.0f;
        }
    }
}

void copse__host_bn_moments(const copse__host_call *call) {
    normalization v = {.x = call->in[0],
                       .stats = call->out[0],
                       .rows = copse__host_input_rows(call, 0),
                       .columns = copse__tensor_columns(copse__host_input(call, 0))};
    copse__host_for(call, v.columns, 4 * v.rows, moments_body, &v);
}

/* Row by row within a block of columns whose factors are made once. */
static void normalize_body(const void *context, size_t begin, size_t end) {
    const normalization *v = context;
    for (size_t c0 = 0; c0 < v->columns; c0 += LANES) {
        size_t lanes = copse__min_size(LANES, v->columns - c0);
        double mean[LANES], factor[LANES], shift[LANES];
        for (size_t c = 0; c < lanes; c++) {
            mean[c] = (double)v->mean[c0 + c];
            factor[c] = reciprocal_deviation(v, c0 + c) *
                        (v->gamma ? (double)v->gamma[c0 + c] : 1.0);
            shift[c] = v->beta ? (double)v->beta[c0 + c] : 0.0;
        }
        for (size_t r = begin; r < end; r++) {
            for (size_t c = 0; c < lanes; c++) {
                size_t at = r * v->columns + c0 + c;
                v->y[at] = (float)copse__host_activate(
                    v->act, ((double)v->x[at] - mean[c]) * factor[c] + shift[c]);
            }
        }
    }
}

void copse__host_bn_normalize(const copse__host_call *call) {
    size_t columns = copse__tensor_columns(copse__host_input(call, 0));
    const float *stats = call->in[1];
    normalization v = {.x = call->in[0],
                       .mean = stats,
                       .variance = stats + columns,
                       .gamma = call->in[2],
                       .beta = call->in[3],
                       .y = call->out[0],
                       .rows = copse__host_input_rows(call, 0),
                       .columns = columns,
                       .epsilon = (double)call->node->attrs.norm.epsilon,
                       .act = call->node->attrs.act};
    copse__host_for(call, v.rows, 3 * columns, normalize_body, &v);
}

void copse__host_bn_infer(const copse__host_call *call) {
    size_t columns = copse__tensor_columns(copse__host_input(call, 0));
    normalization v = {.x = call->in[0],
                       .mean = call->in[1],
                       .variance = call->in[2],
                       .gamma = call->in[3],
                       .beta = call->in[4],
                       .y = call->out[0],
                       .rows = copse__host_input_rows(call, 0),
                       .columns = columns,
                       .epsilon = (double)call->node->attrs.norm.epsilon,
                       .act = call->node->attrs.act};
    copse__host_for(call, v.rows, 3 * columns, normalize_body, &v);
}

void copse__host_bn_fold(const copse__host_call *call) {
    size_t columns = copse__tensor_columns(copse__host_input(call, 0));
    const float *bias = call->in[1], *mean = call->in[2];
    normalization v = {.variance = call->in[3],
                       .gamma = call->in[4],
                       .columns = columns,
                       .epsilon = (double)call->node->attrs.norm.epsilon};
    const float *w = call->in[0], *beta = call->in[5];
    float *folded = call->out[0], *moved = call->out[1];
    size_t rows = copse__host_input_rows(call, 0);
    for (size_t c = 0; c < columns; c++) {
        double factor =
            reciprocal_deviation(&v, c) * (v.gamma ? (double)v.gamma[c] : 1.0);
        double from_mean = (bias ? (double)bias[c] : 0.0) - (double)mean[c];
        for (size_t r = 0; r < rows; r++)
            folded[r * columns + c] = (float)((double)w[r * columns + c] * factor);
        moved[c] = (float)(from_mean * factor + (beta ? (double)beta[c] : 0.0));
    }
}

/* Column c's way from x to what relu saw. */
typedef struct line {
    double mean, factor, shift;
} line;

static line line_of(const normalization *v, size_t c) {
    return (line){(double)v->mean[c],
                  reciprocal_deviation(v, c) * (v->gamma ? (double)v->gamma[c] : 1.0),
                  v->beta ? (double)v->beta[c] : 0.0};
}

/* The gradient behind the activation. */
static double slope_at(const normalization *v, size_t at, const line *l) {
    double z = ((double)v->x[at] - l->mean) * l->factor + l->shift;
    return v->act == COPSE__ACT_RELU && !((float)z > 0) ? 0.0 : (double)v->dy[at];
}

static void grad_reduce_body(const void *context, size_t begin, size_t end) {
    const normalization *v = context;
    for (size_t c0 = begin; c0 < end; c0 += LANES) {
        size_t lanes = copse__min_size(LANES, end - c0);
        double deviation[LANES], plain[LANES] = {0}, scaled[LANES] = {0};
        line lines[LANES];
        for (size_t c = 0; c < lanes; c++) {
            lines[c] = line_of(v, c0 + c);
            deviation[c] = reciprocal_deviation(v, c0 + c);
        }
        for (size_t r = 0; r < v->rows; r++) {
            for (size_t c = 0; c < lanes; c++) {
                size_t at = r * v->columns + c0 + c;
                double dy = slope_at(v, at, &lines[c]);
                plain[c] += dy;
                scaled[c] += dy * (((double)v->x[at] - lines[c].mean) * deviation[c]);
            }
        }
        for (size_t c = 0; c < lanes; c++) {
            v->stats[c0 + c] = (float)plain[c];
            v->stats[v->columns + c0 + c] = (float)scaled[c];
            if (v->dgamma)
                v->dgamma[c0 + c] = (float)scaled[c];
            if (v->dbeta)
                v->dbeta[c0 + c] = (float)plain[c];
        }
    }
}

static normalization gradient_of(const copse__host_call *call) {
    size_t columns = copse__tensor_columns(copse__host_input(call, 0));
    const float *stats = call->in[2];
    return (normalization){.x = call->in[0],
                           .dy = call->in[1],
                           .mean = stats,
                           .variance = stats + columns,
                           .rows = copse__host_input_rows(call, 0),
                           .columns = columns,
                           .epsilon = (double)call->node->attrs.norm.epsilon,
                           .act = call->node->attrs.act};
}

void copse__host_bn_grad_reduce(const copse__host_call *call) {
    normalization v = gradient_of(call);
    v.gamma = call->in[3];
    v.beta = call->in[4];
    v.stats = call->out[0];
    v.dgamma = call->out[1];
    v.dbeta = call->out[2];
    copse__host_for(call, v.columns, 6 * v.rows, grad_reduce_body, &v);
}

static void grad_input_body(const void *context, size_t begin, size_t end) {
    const normalization *v = context;
    double n = (double)v->rows;
    for (size_t c0 = 0; c0 < v->columns; c0 += LANES) {
        size_t lanes = copse__min_size(LANES, v->columns - c0);
        double deviation[LANES], plain[LANES], scaled[LANES];
        line lines[LANES];
        for (size_t c = 0; c < lanes; c++) {
            lines[c] = line_of(v, c0 + c);
            deviation[c] = reciprocal_deviation(v, c0 + c);
            plain[c] = (double)v->sums[c0 + c] / n;
            scaled[c] = (double)v->sums[v->columns + c0 + c] / n;
        }
        for (size_t r = begin; r < end; r++) {
            for (size_t c = 0; c < lanes; c++) {
                size_t at = r * v->columns + c0 + c;
                double xhat = ((double)v->x[at] - lines[c].mean) * deviation[c];
                v->y[at] = (float)(lines[c].factor * (slope_at(v, at, &lines[c]) -
                                                      plain[c] - xhat * scaled[c]));
            }
        }
    }
}

void copse__host_bn_grad_input(const copse__host_call *call) {
    normalization v = gradient_of(call);
    v.sums = call->in[3];
    v.gamma = call->in[4];
    v.beta = call->in[5];
    v.y = call->out[0];
    copse__host_for(call, v.rows, 6 * v.columns, grad_input_body, &v);
}
