/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_CHOOSY_H
#define TESTS_SUPPORT_CHOOSY_H

#include "backend/backend.h"

/* Any backend's device with something to choose: a provider "choosy" whose parameters say how long a launch takes
 * and what is wrong with it, beside the device's own "own" way, which takes CHOOSY_OWN_US longer:
 *   us=N      it takes so long: while a device is open, launches are all that takes time by copse's own clock
 *   wrong=1   one number of its result is 1000
 *   wrong=2   one is a NaN      wrong=3   only where the batch is not full
 *   wrong=4   it cannot be built      wrong=5   it writes behind its output
 *   wrong=6   its launch asks for more than there is      wrong=7   the device fails */
extern const copse__backend choosy_backend;

#define CHOOSY_OWN_US 900

/* What candidates() offers, NULL-terminated, until the next call. */
void choosy_offer(const char *const *parameters);
/* Launches of wrong candidates that ran so far. */
size_t choosy_wrong_runs(void);
/* Launches of what was offered so far. */
size_t choosy_offered_runs(void);
/* All launches so far, of the device's own way as well. */
size_t choosy_runs(void);

#endif
