/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_CONV2D, COPSE__OP_CONV2D_GRAD_INPUT,
                                    COPSE__OP_CONV2D_GRAD_FILTER};
    return run_op_suite("device_conv", ops, sizeof ops / sizeof ops[0]);
}
