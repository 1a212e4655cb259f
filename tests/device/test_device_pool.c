/* SPDX-License-Identifier: Apache-2.0 */
#include "support/op_case.h"

int main(void) {
    static const copse__op ops[] = {
        COPSE__OP_MAX_POOL2D,      COPSE__OP_MAX_POOL2D_GRAD,
        COPSE__OP_AVG_POOL2D,      COPSE__OP_AVG_POOL2D_GRAD,
        COPSE__OP_GLOBAL_AVG_POOL, COPSE__OP_GLOBAL_AVG_POOL_GRAD};
    return run_op_suite("device_pool", ops, sizeof ops / sizeof ops[0]);
}
