/* SPDX-License-Identifier: Apache-2.0
 *
 * y = keep ? x / (1 - rate) : 0; element e of sample n is kept where
 * unit(philox({e / 4, sample_base + n, step, call}, seed)[e % 4]) >= rate. In place allowed. The same bits as the host's.
 * Launch: one dimension, COPSE_FOR.
 */
#include "common.clh"
#include "exact.clh"
#include "philox.clh"
#include "scalars.clh"

#ifdef COPSE_CHUNKED
/* Philox for sixteen neighbouring quads of one sample; draw[k] belongs to their elements k. */
static inline void draw_wide(uint16 *draw, uint quad, uint sample, uint step, uint call,
                             uint key0, uint key1) {
    uint16 c0 = quad + (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint16 c1 = (uint16)(sample), c2 = (uint16)(step), c3 = (uint16)(call);
    for (int round = 0; round < 10; round++) {
        ulong16 a = convert_ulong16(c0) * 0xD2511F53UL;
        ulong16 b = convert_ulong16(c2) * 0xCD9E8D57UL;
        c0 = convert_uint16(b >> 32) ^ c1 ^ key0;
        c1 = convert_uint16(b);
        c2 = convert_uint16(a >> 32) ^ c3 ^ key1;
        c3 = convert_uint16(a);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    draw[0] = c0;
    draw[1] = c1;
    draw[2] = c2;
    draw[3] = c3;
}
#endif

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
                uint16 d;
                for (uint k = 0; k < 16; k++)
                    ((uint *)&d)[k] = ((uint *)draw)[k % 4 * 16 + part * 4 + k / 4];
                copse_wide v = *(global const copse_wide_any *)(from + part * 16);
                float16 unit = convert_float16(d >> 8) * 5.9604644775390625e-8f;
#ifdef COPSE_HAS_EXACT_DIVIDE
                v = v / keep;
#else
                for (uint k = 0; k < 16; k++)
                    ((float *)&v)[k] = COPSE_DIV(((float *)&v)[k], keep);
#endif
                *(global copse_wide_any *)(to + part * 16) =
                    unit >= rate ? v : (copse_wide)(0.0f);
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
