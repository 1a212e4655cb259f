/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_DENSE, COPSE__OP_DENSE_GRAD_INPUT,
                                    COPSE__OP_DENSE_GRAD_WEIGHT, COPSE__OP_BIAS_GRAD};
    return run_op_suite("device_dense", ops, sizeof ops / sizeof ops[0]);
}
