/* SPDX-License-Identifier: Apache-2.0
 *
 * y = keep ? x / (1 - rate) : 0; element e of sample n is kept where
 * unit(philox({e / 4, sample_base + n, step, call}, seed)[e % 4]) >= rate. In place allowed. The same bits as the host's.
 * One item is four elements of one sample; launch: one dimension, COPSE_FOR over samples * ceil(elements / 4).
 */
#include "common.clh"
#include "exact.clh"
#include "philox.clh"
#include "scalars.clh"

kernel void dropout_f32(global const float *x, global float *y,
                        global const copse_scalars *restrict scalars, ulong samples,
                        ulong elements, float rate, uint call) {
    ulong quads = (elements + 3) / 4;
    float keep = 1.0f - rate;
    uint seed0 = scalars->seed0, seed1 = scalars->seed1;
    uint step = scalars->step, base = scalars->sample_base;
    COPSE_FOR(i, samples * quads) {
        ulong sample = i / quads, quad = i - sample * quads;
        copse_philox4 counter = {{(uint)quad, base + (uint)sample, step, call}};
        copse_philox4 draw = copse_philox(counter, seed0, seed1);
        ulong at = sample * elements + quad * 4;
        uint count = (uint)min((ulong)4, elements - quad * 4);
        for (uint k = 0; k < count; k++) {
            float v = COPSE_DIV(x[at + k], keep);
            y[at + k] = copse_philox_unit(draw.v[k]) >= rate ? v : 0.0f;
        }
    }
}
