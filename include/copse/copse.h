/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_COPSE_H
#define COPSE_COPSE_H

/* Everything of libcopse that a program may use. */
#include <copse/data.h>
#include <copse/device.h>
#include <copse/group.h>
#include <copse/status.h>
#include <copse/tensor.h>
#include <copse/types.h>

#endif
