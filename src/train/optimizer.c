/* SPDX-License-Identifier: Apache-2.0 */
#include "train/optimizer.h"

#include <math.h>

copse__optimizer copse__optimizer_make(const copse__config_optimizer *config) {
    static const copse__op ops[] = {
        [COPSE__OPTIMIZER_SGD] = COPSE__OP_UPDATE_SGD,
        [COPSE__OPTIMIZER_ADAM] = COPSE__OP_UPDATE_ADAM,
        [COPSE__OPTIMIZER_ADAMW] = COPSE__OP_UPDATE_ADAMW,
        [COPSE__OPTIMIZER_RMSPROP] = COPSE__OP_UPDATE_RMSPROP,
    };
    return (copse__optimizer){
        .op = ops[config->kind],
        .attrs.update = {.momentum = config->momentum,
                         .nesterov = config->nesterov,
                         .beta1 = config->beta_1,
                         .beta2 = config->beta_2,
                         .epsilon = config->epsilon,
                         .rho = config->rho,
                         .centered = config->centered},
        .weight_decay = config->kind == COPSE__OPTIMIZER_ADAMW ? config->weight_decay : 0,
    };
}

size_t copse__optimizer_slots(const copse__optimizer *optimizer) {
    bool momentum = optimizer->attrs.update.momentum > 0;
    switch (optimizer->op) {
    case COPSE__OP_UPDATE_SGD:
        return momentum ? 1 : 0;
    case COPSE__OP_UPDATE_RMSPROP:
        return 1 + (size_t)optimizer->attrs.update.centered + (size_t)momentum;
    default:
        return 2;
    }
}

const char *copse__optimizer_slot_name(const copse__optimizer *optimizer, size_t slot) {
    switch (optimizer->op) {
    case COPSE__OP_UPDATE_SGD:
        return "momentum";
    case COPSE__OP_UPDATE_RMSPROP:
        if (slot == 0)
            return "velocity";
        return slot == 1 && optimizer->attrs.update.centered ? "average_gradient"
                                                             : "momentum";
    default:
        return slot == 0 ? "momentum" : "velocity";
    }
}

size_t copse__optimizer_slot_operand(const copse__optimizer *optimizer, size_t slot) {
    bool skips_average = optimizer->op == COPSE__OP_UPDATE_RMSPROP &&
                         !optimizer->attrs.update.centered && slot == 1;
    return skips_average ? 2 : slot;
}

void copse__optimizer_scalars(const copse__optimizer *optimizer, uint64_t step,
                              double learning_rate, copse_scalars *scalars) {
    double t = (double)step + 1;
    scalars->learning_rate = (float)learning_rate;
    scalars->weight_decay = (float)(learning_rate * optimizer->weight_decay);
    scalars->step_size = 0;
    if (optimizer->op == COPSE__OP_UPDATE_ADAM || optimizer->op == COPSE__OP_UPDATE_ADAMW)
        scalars->step_size =
            (float)(learning_rate * sqrt(1 - pow(optimizer->attrs.update.beta2, t)) /
                    (1 - pow(optimizer->attrs.update.beta1, t)));
}
