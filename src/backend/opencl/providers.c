/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/opencl/ops.h"

/* An operation's implementations, in the order in which equal costs are preferred. A new
 * provider is one more entry here. */
#define LIST(...)                                                                        \
    (const copse__cl_provider *const[]) {                                                \
        __VA_ARGS__, NULL                                                                \
    }

static const copse__cl_provider *const none[] = {NULL};

static const copse__cl_provider *const *const table[COPSE__OP_COUNT] = {
    [COPSE__OP_ACTIVATION] = LIST(&copse__cl_activation),
    [COPSE__OP_ACTIVATION_GRAD] = LIST(&copse__cl_activation_grad),
    [COPSE__OP_ADD] = LIST(&copse__cl_add),
    [COPSE__OP_ACCUMULATE] = LIST(&copse__cl_add),
    [COPSE__OP_DROPOUT] = LIST(&copse__cl_dropout),
    [COPSE__OP_CAST] = LIST(&copse__cl_cast),
    [COPSE__OP_UPDATE_SGD] = LIST(&copse__cl_update_sgd),
    [COPSE__OP_UPDATE_ADAM] = LIST(&copse__cl_update_adam),
    [COPSE__OP_UPDATE_ADAMW] = LIST(&copse__cl_update_adam),
    [COPSE__OP_UPDATE_RMSPROP] = LIST(&copse__cl_update_rmsprop),
    [COPSE__OP_FINITE_CHECK] = LIST(&copse__cl_finite_check),
    [COPSE__OP_PARAMETER_HASH] = LIST(&copse__cl_parameter_hash),
};

const copse__cl_provider *const *copse__cl_providers(copse__op op) {
    return (size_t)op < COPSE__OP_COUNT && table[op] ? table[op] : none;
}
