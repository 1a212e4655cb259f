/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_THREAD_H
#define COPSE_BASE_THREAD_H

/* Tells the kernel that the calling thread runs for moments and should do so soon after it is woken, also where
 * devices that are CPUs keep every core busy. Its share of the processors, and threads that it starts, stay as
 * they are. Linux 6.12 and later can be told so (sched_setattr(2), the slice of SCHED_OTHER); elsewhere nothing
 * happens. */
void copse__thread_is_brief(void);

#endif
