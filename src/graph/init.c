/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <philox.clh>

#include "graph/layer.h"
#include "graph/model.h"

/* Standard deviation of a unit normal cut at two: what Keras divides by, so that the cut
 * draws have the deviation asked for. */
#define CUT_DEVIATION 0.87962566103423978

/* Each redraw misses with probability 0.0455: never reached, but a loop must end. */
#define MAX_REDRAWS 64

#define TWO_PI 6.283185307179586476925286766559

/* Variance scaling: scale / fan. */
typedef enum fan_mode { FAN_NONE, FAN_IN, FAN_AVERAGE } fan_mode;

static const struct scheme {
    const char *name;
    copse__init_kind kind;
    fan_mode fan;
    double scale; /* of the variance; without a fan the deviation, or half the range */
} schemes[COPSE__SCHEME_COUNT] = {
    [COPSE__SCHEME_GLOROT_UNIFORM] = {"glorot_uniform", COPSE__INIT_UNIFORM, FAN_AVERAGE,
                                      1},
    [COPSE__SCHEME_GLOROT_NORMAL] = {"glorot_normal", COPSE__INIT_TRUNCATED_NORMAL,
                                     FAN_AVERAGE, 1},
    [COPSE__SCHEME_HE_UNIFORM] = {"he_uniform", COPSE__INIT_UNIFORM, FAN_IN, 2},
    [COPSE__SCHEME_HE_NORMAL] = {"he_normal", COPSE__INIT_TRUNCATED_NORMAL, FAN_IN, 2},
    [COPSE__SCHEME_LECUN_UNIFORM] = {"lecun_uniform", COPSE__INIT_UNIFORM, FAN_IN, 1},
    [COPSE__SCHEME_LECUN_NORMAL] = {"lecun_normal", COPSE__INIT_TRUNCATED_NORMAL, FAN_IN,
                                    1},
    [COPSE__SCHEME_ZEROS] = {"zeros", COPSE__INIT_ZEROS, FAN_NONE, 0},
    [COPSE__SCHEME_ONES] = {"ones", COPSE__INIT_ONES, FAN_NONE, 0},
    [COPSE__SCHEME_CONSTANT] = {"constant", COPSE__INIT_CONSTANT, FAN_NONE, 0},
    [COPSE__SCHEME_RANDOM_UNIFORM] = {"random_uniform", COPSE__INIT_UNIFORM, FAN_NONE,
                                      0.05},
    [COPSE__SCHEME_RANDOM_NORMAL] = {"random_normal", COPSE__INIT_NORMAL, FAN_NONE, 0.05},
    [COPSE__SCHEME_TRUNCATED_NORMAL] = {"truncated_normal", COPSE__INIT_TRUNCATED_NORMAL,
                                        FAN_NONE, 0.05},
};

const char *copse__scheme_name(copse__scheme scheme) {
    return (unsigned)scheme < COPSE__SCHEME_COUNT ? schemes[scheme].name : "unknown";
}

/* keras/src/initializers/random_initializers.py, VarianceScaling. */
copse__init copse__initializer_resolve(copse__initializer initializer, double fan_in,
                                       double fan_out) {
    const struct scheme *scheme = &schemes[initializer.scheme];
    copse__init init = {.kind = scheme->kind};
    double deviation = scheme->scale, range = scheme->scale;
    if (scheme->fan != FAN_NONE) {
        double fan = scheme->fan == FAN_IN ? fan_in : (fan_in + fan_out) / 2;
        double variance = scheme->scale / fmax(1, fan);
        deviation = sqrt(variance) / CUT_DEVIATION;
        range = sqrt(3 * variance);
    }
    switch (init.kind) {
    case COPSE__INIT_CONSTANT:
        init.a = initializer.constant;
        break;
    case COPSE__INIT_UNIFORM:
        init.a = (float)-range;
        init.b = (float)range;
        break;
    case COPSE__INIT_NORMAL:
    case COPSE__INIT_TRUNCATED_NORMAL:
        init.b = (float)deviation;
        break;
    default:
        break;
    }
    return init;
}

/* Rounding may reach b, which does not belong to the range. */
static float uniform(const copse__init *init, uint32_t bits) {
    double a = init->a, b = init->b;
    float value = (float)(a + (b - a) * (double)copse_philox_unit(bits));
    return value < init->b || init->a >= init->b ? value : nextafterf(init->b, init->a);
}

/* Box and Muller: the words 0, 1 make the normals 0, 1 and the words 2, 3 the normals 2, 3.
 */
static double normal(const copse_philox4 *draw, unsigned lane) {
    double u = ((double)draw->v[lane & 2] + 1) * 0x1p-32; /* in (0, 1] */
    double angle = TWO_PI * ((double)draw->v[(lane & 2) + 1] * 0x1p-32);
    return sqrt(-2 * log(u)) * (lane & 1 ? sin(angle) : cos(angle));
}

/* The counter's second word counts the redraws, 0 being the first draw. */
static copse_philox4 draw_at(uint64_t element, uint32_t redraw, size_t index,
                             uint64_t seed) {
    copse_philox4 counter = {
        {(uint32_t)(element / 4), redraw, UINT32_MAX, (uint32_t)index}};
    return copse_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

static float cut_normal(const copse__init *init, uint64_t element, size_t index,
                        uint64_t seed) {
    double value = 0;
    for (uint32_t redraw = 0; redraw < MAX_REDRAWS; redraw++) {
        copse_philox4 draw = draw_at(element, redraw, index, seed);
        value = normal(&draw, element % 4);
        if (fabs(value) <= 2)
            break;
    }
    return (float)(init->a + init->b * fmax(-2, fmin(2, value)));
}

void copse__parameter_initialize(const copse__graph *graph, size_t index, uint64_t seed,
                                 float *values) {
    const copse__init *init = &graph->parameters[index].init;
    size_t count =
        copse__tensor_elements(&graph->tensors[graph->parameters[index].tensor], NULL);
    copse_philox4 draw = {{0}};
    bool drawn = init->kind == COPSE__INIT_UNIFORM || init->kind == COPSE__INIT_NORMAL;
    for (size_t i = 0; i < count; i++) {
        unsigned lane = i % 4;
        if (drawn && lane == 0)
            draw = draw_at(i, 0, index, seed);
        switch (init->kind) {
        case COPSE__INIT_ZEROS:
            values[i] = 0;
            break;
        case COPSE__INIT_ONES:
            values[i] = 1;
            break;
        case COPSE__INIT_CONSTANT:
            values[i] = init->a;
            break;
        case COPSE__INIT_UNIFORM:
            values[i] = uniform(init, draw.v[lane]);
            break;
        case COPSE__INIT_NORMAL:
            values[i] = (float)(init->a + init->b * normal(&draw, lane));
            break;
        case COPSE__INIT_TRUNCATED_NORMAL:
            values[i] = cut_normal(init, i, index, seed);
            break;
        }
    }
}

void copse__state_initialize(const copse__graph *graph, size_t index, float *moving_mean,
                             float *moving_variance) {
    size_t count =
        copse__tensor_elements(&graph->tensors[graph->states[index].moving_mean], NULL);
    for (size_t i = 0; i < count; i++) {
        moving_mean[i] = 0;
        moving_variance[i] = 1;
    }
}
