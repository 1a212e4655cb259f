/* SPDX-License-Identifier: Apache-2.0
 *
 * A chain of elementwise operations in one pass. The backend (src/backend/opencl/expression.c) writes the chain as
 * macro calls and gives them as build options; values are v0 .. v7 for the inputs, v8 .. for the steps' results:
 *   COPSE_ARGUMENTS  IN(0)IN(1)OUT(0)       inputs i0, i1, … and outputs o0, …, which may be an input's memory
 *   COPSE_DRAWS      DRAW(9,7)              for each dropout: its result and its call
 *   COPSE_LOADS      LOAD(0)LOAD(1)
 *   COPSE_STEPS      ADD(8,0,1)ACT(9,relu,8)SLOPE(10,tanh,0,9)DROP(11,10,1056964608u)   the rate as its bits
 *   COPSE_STORES     STORE(0,9)
 * An item is a block of BLOCK quads of one sample, as in dropout.cl; without dropout all is one sample.
 * Launch: one dimension, COPSE_FOR. Reference: src/backend/host/expression.c.
 */
#include "act.clh"
#include "dropout.clh"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define IN(k) global const float *i##k,
#define OUT(k) global float *o##k,
#define ADD(to, a, b) T v##to = v##a + v##b;
#define ACT(to, name, a) T v##to = JOIN(copse_##name##_, K)(v##a);
#define SLOPE(to, name, a, b) T v##to = JOIN(copse_##name##_grad_, K)(v##a, v##b);

#ifdef COPSE_CHUNKED
#define BLOCK 16
#else
#define BLOCK 1
#endif

kernel void expression_f32(COPSE_ARGUMENTS global const copse_scalars *restrict scalars,
                           ulong samples, ulong elements) {
    ulong quads = (elements + 3) / 4, blocks = (quads + BLOCK - 1) / BLOCK;
    uint seed0 = scalars->seed0, seed1 = scalars->seed1;
    uint step = scalars->step, base = scalars->sample_base;
    COPSE_FOR(i, samples * blocks) {
        ulong sample = i / blocks, quad = (i - sample * blocks) * BLOCK;
#ifdef COPSE_CHUNKED
        if ((quad + BLOCK) * 4 <= elements) {
#define DRAW(to, call)                                                                   \
    uint16 d##to[4];                                                                     \
    draw_wide(d##to, (uint)quad, base + (uint)sample, step, call, seed0, seed1);
            COPSE_DRAWS
#undef DRAW
            for (uint part = 0; part < 4; part++) {
                ulong at = sample * elements + quad * 4 + part * 16;
#define T copse_wide
#define K v
#define LOAD(k) T v##k = *(global const copse_wide_any *)(i##k + at);
#define STORE(k, value) *(global copse_wide_any *)(o##k + at) = v##value;
#define DROP(to, a, rate)                                                                \
    T v##to = dropout_wide(v##a, d##to, part, as_float(rate), 1.0f - as_float(rate));
                COPSE_LOADS
                COPSE_STEPS
                COPSE_STORES
#undef T
#undef K
#undef LOAD
#undef STORE
#undef DROP
            }
            continue;
        }
#endif
        for (ulong q = quad; q < min(quad + BLOCK, quads); q++) {
#define DRAW(to, call)                                                                   \
    copse_philox4 c##to = {{(uint)q, base + (uint)sample, step, call}};                  \
    copse_philox4 d##to = copse_philox(c##to, seed0, seed1);
            COPSE_DRAWS
            for (uint k = 0; k < 4 && q * 4 + k < elements; k++) {
                ulong at = sample * elements + q * 4 + k;
#define T float
#define K 1
#define LOAD(k) T v##k = i##k[at];
#define STORE(k, value) o##k[at] = v##value;
#define BITS(d) (k == 0 ? d.v[0] : k == 1 ? d.v[1] : k == 2 ? d.v[2] : d.v[3])
#define DROP(to, a, rate)                                                                \
    T v##to = copse_philox_unit(BITS(d##to)) >= as_float(rate)                           \
                  ? COPSE_DIV(v##a, 1.0f - as_float(rate))                               \
                  : 0.0f;
                COPSE_LOADS
                COPSE_STEPS
                COPSE_STORES
            }
        }
    }
}
