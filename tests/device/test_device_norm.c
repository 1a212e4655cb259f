/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_BN_MOMENTS,     COPSE__OP_BN_NORMALIZE,
                                    COPSE__OP_BN_INFER,       COPSE__OP_BN_FOLD,
                                    COPSE__OP_BN_GRAD_REDUCE, COPSE__OP_BN_GRAD_INPUT};
    return run_op_suite("device_norm", ops, sizeof ops / sizeof ops[0]);
}
