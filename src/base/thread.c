/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS UINT64_C(100000) /* the shortest there is */
#define RESET_ON_FORK 1           /* threads that it starts are not brief */

void copse__thread_is_brief(void) {
#ifdef SYS_sched_setattr
    struct { /* the first version of the kernel's struct sched_attr */
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {0};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 ||
        attributes.policy != SCHED_OTHER || attributes.nice < 0)
        return; /* to reset would take their precedence from threads that it starts */
    attributes.size = sizeof attributes;
    attributes.flags |= RESET_ON_FORK;
    attributes.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}
