/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {COPSE__OP_CONV2D_MAX_POOL,
                                    COPSE__OP_CONV2D_MAX_POOL_GRAD_INPUT,
                                    COPSE__OP_CONV2D_MAX_POOL_GRAD_FILTER};
    return run_op_suite("device_conv_pool", ops, sizeof ops / sizeof ops[0]);
}
