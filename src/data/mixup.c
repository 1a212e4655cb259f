/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "data/augment.h"
#include "data/shuffle.h"

/* A sample's own sequence of random bits; the first block is the partner's. */
typedef struct sequence {
    const copse__augment_key *key;
    uint64_t next;
} sequence;

static copse_philox4 next_block(sequence *s) {
    const copse__augment_key *k = s->key;
    return copse__draw128(k->seed, k->epoch, k->sample ^ s->next++ << 48,
                          COPSE__DRAW_AUGMENT + k->place);
}

/* In (0, 1). */
static double open_unit(uint32_t bits) {
    return ((double)bits + 0.5) * 0x1p-32;
}

/* Gamma(shape, 1) for shape >= 1 by Marsaglia and Tsang (2000), whose loop ends at once nearly
 * always; below 1 by their Gamma(shape + 1) * U^(1 / shape). In logarithms: shares of tiny shapes
 * underflow. */
static double log_gamma_draw(double shape, sequence *s) {
    double log_boost = 0;
    if (shape < 1) {
        log_boost = log(open_unit(next_block(s).v[0])) / shape;
        shape += 1;
    }
    double d = shape - 1.0 / 3.0, c = 1 / sqrt(9 * d);
    for (int tries = 0; tries < 100; tries++) {
        copse_philox4 bits = next_block(s);
        double normal = sqrt(-2 * log(open_unit(bits.v[0]))) *
                        cos(6.283185307179586 * open_unit(bits.v[1]));
        double v = 1 + c * normal;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(open_unit(bits.v[2])) < 0.5 * normal * normal + d - d * v + d * log(v))
            return log(d * v) + log_boost;
    }
    return log(d) + log_boost;
}

double copse__mixup_share(double alpha, const copse__augment_key *key) {
    sequence s = {key, 1};
    double x = log_gamma_draw(alpha, &s), y = log_gamma_draw(alpha, &s);
    return 1 / (1 + exp(y - x));
}

size_t copse__mixup_partner(size_t rows, const copse__augment_key *key) {
    sequence s = {key, 0};
    if (rows < 2)
        return 0;
    copse_philox4 bits = next_block(&s);
    return 1 + (size_t)copse__bounded((uint64_t)bits.v[1] << 32 | bits.v[0], rows - 1);
}

void copse__mix(void *out, const void *other, copse_dtype dtype, size_t elements,
                double share) {
    float a = (float)share, b = (float)(1 - share);
    if (dtype == COPSE_U8) {
        uint8_t *to = out;
        const uint8_t *from = other;
        for (size_t i = 0; i < elements; i++)
            to[i] = (uint8_t)((float)to[i] * a + (float)from[i] * b + 0.5f);
    } else if (dtype == COPSE_U16) {
        uint16_t *to = out;
        const uint16_t *from = other;
        for (size_t i = 0; i < elements; i++)
            to[i] = (uint16_t)((float)to[i] * a + (float)from[i] * b + 0.5f);
    } else {
        float *to = out;
        const float *from = other;
        for (size_t i = 0; i < elements; i++)
            to[i] = to[i] * a + from[i] * b;
    }
}
