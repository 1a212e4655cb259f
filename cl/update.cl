/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer updates on flat buffers, in place: w, slots and g of n elements each. The formulas are update.clh's, the bits
 * the host's: no contraction, divisions and roots correctly rounded. scalars: gradient_scale, learning_rate, step_size, weight_decay.
 * Where held[0] is not 0 nothing is changed.
 * Launch: one dimension, COPSE_FOR over n / COPSE_VEC.
 */
#include "common.clh"
#include "exact.clh"
#include "scalars.clh"
#include "update.clh"

/* A vector at a time where the device divides exactly: the formulas of update.clh, lane by lane the same operations in
 * the same order. */
#ifdef COPSE_HAS_EXACT_DIVIDE
#define WIDE(body)                                                                       \
    COPSE_FOR(j, n / COPSE_VEC) {                                                        \
        body                                                                             \
    }
#define REST(i) COPSE_REST(i, n)
#else
#define WIDE(body)
#define REST(i) COPSE_FOR(i, n)
#endif

#define AT(p) (((global copse_wide *)(p))[j])

kernel void update_sgd_f32(global float *w, global const float *restrict g,
                           global const copse_scalars *restrict scalars,
                              global const uint *restrict held, ulong n) {
    if (held[0])
        return;
    float lr = scalars->learning_rate, scale = scalars->gradient_scale;
    WIDE({
        copse_wide gv = ((global const copse_wide *)g)[j] * scale;
        AT(w) = AT(w) - gv * lr;
    })
    REST(i) {
        float v = w[i];
        copse_update_sgd(&v, g[i] * scale, lr);
        w[i] = v;
    }
}

kernel void update_momentum_f32(global float *w, global const float *restrict g,
                                global float *restrict m,
                                global const copse_scalars *restrict scalars,
                              global const uint *restrict held, ulong n,
                                float momentum, uint nesterov) {
    if (held[0])
        return;
    float lr = scalars->learning_rate, scale = scalars->gradient_scale;
    WIDE({
        copse_wide gv = ((global const copse_wide *)g)[j] * scale;
        copse_wide gl = gv * lr;
        copse_wide next = AT(m) * momentum - gl;
        AT(m) = next;
        AT(w) = AT(w) + (nesterov ? next * momentum - gl : next);
    })
    REST(i) {
        float v = w[i], mi = m[i];
        copse_update_momentum(&v, &mi, g[i] * scale, lr, momentum, (int)nesterov);
        m[i] = mi;
        w[i] = v;
    }
}

/* decay: AdamW's, before Adam's own step; has_decay 0: Adam. */
kernel void update_adam_f32(global float *w, global const float *restrict g,
                            global float *restrict m, global float *restrict v,
                            global const copse_scalars *restrict scalars,
                              global const uint *restrict held, ulong n,
                            float one_minus_beta1, float one_minus_beta2, float epsilon,
                            uint has_decay) {
    if (held[0])
        return;
    float step_size = scalars->step_size, scale = scalars->gradient_scale;
    float decay = scalars->weight_decay;
    WIDE({
        copse_wide gv = ((global const copse_wide *)g)[j] * scale;
        copse_wide wv = AT(w);
        if (has_decay)
            wv = wv - wv * decay;
        copse_wide mv = AT(m);
        copse_wide vv = AT(v);
        mv = mv + (gv - mv) * one_minus_beta1;
        vv = vv + (gv * gv - vv) * one_minus_beta2;
        AT(m) = mv;
        AT(v) = vv;
        AT(w) = wv - COPSE_DIV(mv * step_size, COPSE_SQRT(vv) + epsilon);
    })
    REST(i) {
        float wi = w[i], mi = m[i], vi = v[i];
        if (has_decay)
            copse_update_decay(&wi, decay);
        copse_update_adam(&wi, &mi, &vi, g[i] * scale, step_size, one_minus_beta1,
                          one_minus_beta2, epsilon);
        m[i] = mi;
        v[i] = vi;
        w[i] = wi;
    }
}

/* average is read and written only where centered, m only where momentum > 0. */
kernel void update_rmsprop_f32(global float *w, global const float *restrict g,
                               global float *restrict v, global float *average,
                               global float *m,
                               global const copse_scalars *restrict scalars,
                              global const uint *restrict held, ulong n,
                               float rho, float one_minus_rho, float momentum,
                               float epsilon, uint centered) {
    if (held[0])
        return;
    float lr = scalars->learning_rate, scale = scalars->gradient_scale;
    COPSE_FOR(i, n) {
        float wi = w[i], vi = v[i];
        float ai = centered ? average[i] : 0.0f;
        float mi = momentum > 0 ? m[i] : 0.0f;
        copse_update_rmsprop(&wi, &vi, &ai, &mi, g[i] * scale, lr, rho, one_minus_rho,
                             momentum, epsilon, (int)centered);
        v[i] = vi;
        if (centered)
            average[i] = ai;
        if (momentum > 0)
            m[i] = mi;
        w[i] = wi;
    }
}
