/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_TUNE_CLBLAST_H
#define COPSE_TUNE_CLBLAST_H

#include "tune/tuner.h"

/* CLBlast's own parameters, which it takes through an override for the whole process: its kernels for large
 * products ("Xgemm") and for small ones ("XgemmDirect"), one after the other. Each is a walk: a known setting
 * for every kind of device first, then neighbours of the best. As two settings cannot take turns, each takes
 * turns with a kernel of ours, and their shares of its time are compared. What is to be chosen is verified
 * as in tuner.h. */

enum { COPSE__TUNE_CLBLAST_KERNELS = 2 };

/* results: room for COPSE__TUNE_CLBLAST_KERNELS. Afterwards the device follows nothing but them. *spoilt: nothing beat a
 * kernel's own parameters, and as CLBlast's interface for C tells nobody what they are, one that was tried stays in
 * this process: its times are not to be believed from then on. */
COPSE_CHECKED copse_status copse__tune_clblast(copse__tune_result *results, size_t *count,
                                               copse__pool *pool, copse__device *device,
                                               const copse__tune_options *options,
                                               bool *spoilt, copse_error *err);

#endif
