/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_ACTIVATION,  COPSE__OP_ACTIVATION_GRAD,
                                    COPSE__OP_SOFTMAX,     COPSE__OP_SOFTMAX_GRAD,
                                    COPSE__OP_DROPOUT,     COPSE__OP_ADD,
                                    COPSE__OP_ELEMENTWISE, COPSE__OP_CAST};
    return run_op_suite("device_elementwise", ops, sizeof ops / sizeof ops[0]);
}
