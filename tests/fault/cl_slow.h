/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FAULT_CL_SLOW_H
#define TESTS_FAULT_CL_SLOW_H

#include <CL/cl_icd.h>
#include <stddef.h>

/* Kernels that take longer. The device is slow, not the thread that calls it: what comes behind such a kernel
 * in its queue is held back, behind a barrier, until the kernel's time has passed `factor` times. */

#define SLOW_DEVICES 64

/* Behind the kernel that was enqueued last, whose event is `ran` (taken): *done, where it is not NULL, receives the
 * event of its late end. device: a small number that tells devices apart. */
cl_int slow_hold_back(const struct _cl_icd_dispatch *next, cl_command_queue queue,
                      cl_context context, cl_event ran, double factor, size_t device,
                      cl_event *done);

#endif
