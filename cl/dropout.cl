/* SPDX-License-Identifier: Apache-2.0
 *
 * y = keep ? x / (1 - rate) : 0; element e of sample n is kept where
 * unit(philox({e / 4, sample_base + n, step, call}, seed)[e % 4]) >= rate. In place allowed. The same bits as the host's.
 * Launch: one dimension, COPSE_FOR.
 */
#include "dropout.clh"

/* A quad of one sample; count of its elements are there. */
static inline void dropout_quad(global const float *x, global float *y,
                                const copse_philox4 draw, uint count, float rate,
                                float keep) {
    for (uint k = 0; k < count; k++) {
        float v = COPSE_DIV(x[k], keep);
        uint bits = k == 0 ? draw.v[0] : k == 1 ? draw.v[1] : k == 2 ? draw.v[2] : draw.v[3];
        y[k] = copse_philox_unit(bits) >= rate ? v : 0.0f;
    }
}

/* An item is a block of BLOCK quads of one sample; items: samples * ceil(quads / BLOCK), quads = ceil(elements / 4). */
#ifdef COPSE_CHUNKED
#define BLOCK 16
#else
#define BLOCK 1
#endif
kernel void dropout_f32(global const float *x, global float *y,
                        global const copse_scalars *restrict scalars, ulong samples,
                        ulong elements, float rate, uint call) {
    ulong quads = (elements + 3) / 4, blocks = (quads + BLOCK - 1) / BLOCK;
    float keep = 1.0f - rate;
    uint seed0 = scalars->seed0, seed1 = scalars->seed1;
    uint step = scalars->step, base = scalars->sample_base;
    COPSE_FOR(i, samples * blocks) {
        ulong sample = i / blocks, quad = (i - sample * blocks) * BLOCK;
        global const float *from = x + sample * elements + quad * 4;
        global float *to = y + sample * elements + quad * 4;
#ifdef COPSE_CHUNKED
        if ((quad + BLOCK) * 4 <= elements) {
            uint16 draw[4];
            draw_wide(draw, (uint)quad, base + (uint)sample, step, call, seed0, seed1);
            for (uint part = 0; part < 4; part++) {
                copse_wide v = *(global const copse_wide_any *)(from + part * 16);
                *(global copse_wide_any *)(to + part * 16) =
                    dropout_wide(v, draw, part, rate, keep);
            }
            continue;
        }
#endif
        for (ulong q = quad; q < min(quad + BLOCK, quads); q++) {
            copse_philox4 counter = {{(uint)q, base + (uint)sample, step, call}};
            dropout_quad(from + (q - quad) * 4, to + (q - quad) * 4,
                         copse_philox(counter, seed0, seed1),
                         (uint)min((ulong)4, elements - q * 4), rate, keep);
        }
    }
}
