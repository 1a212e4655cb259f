/* SPDX-License-Identifier: Apache-2.0 */
#include <hash.clh>
#include <math.h>
#include <string.h>
#include <update.clh>

#include "backend/host/host.h"

/* Constants are rounded to float once, from double, as the kernels get them. */
typedef struct update {
    copse__op op;
    float *w;
    const float *g;
    float *slot[3];
    const copse_scalars *scalars;
    float momentum, rho, one_minus_rho, one_minus_beta1, one_minus_beta2, epsilon;
    int nesterov, centered;
} update;

static void sgd_body(const void *context, size_t begin, size_t end) {
    const update *v = context;
    float scale = v->scalars->gradient_scale, lr = v->scalars->learning_rate;
    for (size_t i = begin; i < end; i++) {
        float g = v->g[i] * scale;
        if (v->slot[0])
            copse_update_momentum(&v->w[i], &v->slot[0][i], g, lr, v->momentum,
                                  v->nesterov);
        else
            copse_update_sgd(&v->w[i], g, lr);
    }
}

static void adam_body(const void *context, size_t begin, size_t end) {
    const update *v = context;
    float scale = v->scalars->gradient_scale, step_size = v->scalars->step_size;
    bool decays = v->op == COPSE__OP_UPDATE_ADAMW;
    for (size_t i = begin; i < end; i++) {
        if (decays)
            copse_update_decay(&v->w[i], v->scalars->weight_decay);
        copse_update_adam(&v->w[i], &v->slot[0][i], &v->slot[1][i], v->g[i] * scale,
                          step_size, v->one_minus_beta1, v->one_minus_beta2, v->epsilon);
    }
}

static void rmsprop_body(const void *context, size_t begin, size_t end) {
    const update *v = context;
    float scale = v->scalars->gradient_scale, lr = v->scalars->learning_rate;
    for (size_t i = begin; i < end; i++)
        copse_update_rmsprop(&v->w[i], &v->slot[0][i], v->slot[1] ? &v->slot[1][i] : NULL,
                             v->slot[2] ? &v->slot[2][i] : NULL, v->g[i] * scale, lr,
                             v->rho, v->one_minus_rho, v->momentum, v->epsilon,
                             v->centered);
}

void copse__host_update(const copse__host_call *call) {
    const copse__attrs *attrs = &call->node->attrs;
    const uint32_t *held = call->in[5];
    if (held && *held > 0)
        return;
    update v = {.op = call->node->op,
                .w = call->out[0],
                .g = call->in[1],
                .slot = {call->out[1], call->out[2], call->out[3]},
                .scalars = call->scalars,
                .momentum = (float)attrs->update.momentum,
                .rho = (float)attrs->update.rho,
                .one_minus_rho = (float)(1.0 - attrs->update.rho),
                .one_minus_beta1 = (float)(1.0 - attrs->update.beta1),
                .one_minus_beta2 = (float)(1.0 - attrs->update.beta2),
                .epsilon = (float)attrs->update.epsilon,
                .nesterov = attrs->update.nesterov,
                .centered = attrs->update.centered};
    copse__host_body *body = v.op == COPSE__OP_UPDATE_SGD       ? sgd_body
                             : v.op == COPSE__OP_UPDATE_RMSPROP ? rmsprop_body
                                                                : adam_body;
    copse__host_for(call, copse__host_output_elements(call, 0), 20, body, &v);
}

void copse__host_finite_check(const copse__host_call *call) {
    const float *g = call->in[0];
    size_t count = copse__tensor_elements(copse__host_input(call, 0), NULL);
    const uint32_t *before = call->in[1];
    uint32_t bad = before ? *before : 0;
    for (size_t i = 0; i < count; i++)
        bad += !isfinite(g[i]) && bad < UINT32_MAX;
    *(uint32_t *)call->out[0] = bad;
}

void copse__host_parameter_hash(const copse__host_call *call) {
    const float *w = call->in[0];
    size_t count = copse__tensor_elements(copse__host_input(call, 0), NULL);
    uint64_t *partial = call->out[0];
    memset(partial, 0, copse__tensor_bytes(copse__host_output(call, 0), NULL));
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], sizeof bits);
        partial[0] += copse_hash_mix(call->node->attrs.hash.base + i, bits);
    }
}
