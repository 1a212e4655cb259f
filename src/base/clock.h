/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BASE_CLOCK_H
#define COPSE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic nanoseconds, from an arbitrary start. */
static inline uint64_t copse__now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
