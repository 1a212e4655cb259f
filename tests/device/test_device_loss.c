/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_CROSS_ENTROPY,
                                    COPSE__OP_MEAN_SQUARED_ERROR};
    return run_op_suite("device_loss", ops, sizeof ops / sizeof ops[0]);
}
