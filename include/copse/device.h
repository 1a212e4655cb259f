/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices: what a program computes on, of any vendor and driver.
 */
#ifndef COPSE_DEVICE_H
#define COPSE_DEVICE_H

#include <copse/status.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One open device, or part of one. Functions on different devices may run at the same time;
 * those on one device (and its tensors) are called by one thread at a time. */
typedef struct copse_device copse_device;

/* Open devices, in the order that ranks have: by NUMA node, PCI address and index. */
typedef struct copse_device_set copse_device_set;

/* Opens what a selector names, as `copse train --devices` does: "all", "gpu", "0:0",
 * "cpu/2" (two halves), "vendor=amd,host", …; NULL: every usable GPU and accelerator, else the CPU, else the host
 * backend. Looks at
 * the machine first, with drivers asked in a child process, so that a broken one is left
 * out: make no OpenCL call of your own before. COPSE_INVALID where the selector names what
 * is not there, COPSE_NODEVICE where nothing usable matches. */
COPSE_API COPSE_CHECKED copse_status copse_device_set_open(copse_device_set **out,
                                                           const char *selector,
                                                           copse_error *err);
/* NULL is allowed. Tensors and groups of its devices are freed before. */
COPSE_API void copse_device_set_close(copse_device_set *set);

COPSE_API size_t copse_device_set_count(const copse_device_set *set);
/* Borrowed from the set; index below the count. */
COPSE_API copse_device *copse_device_set_get(const copse_device_set *set, size_t index);

/* "0:0", "0:0/2#1", "host": unique within a set. Borrowed. */
COPSE_API const char *copse_device_label(const copse_device *device);
/* As the driver calls it. Borrowed. */
COPSE_API const char *copse_device_name(const copse_device *device);

#ifdef __cplusplus
}
#endif
#endif
