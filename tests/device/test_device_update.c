/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_UPDATE_SGD,   COPSE__OP_UPDATE_ADAM,
                                    COPSE__OP_UPDATE_ADAMW, COPSE__OP_UPDATE_RMSPROP,
                                    COPSE__OP_FINITE_CHECK, COPSE__OP_PARAMETER_HASH,
                                    COPSE__OP_ACCUMULATE};
    return run_op_suite("device_update", ops, sizeof ops / sizeof ops[0]);
}
