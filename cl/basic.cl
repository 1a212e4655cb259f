/* SPDX-License-Identifier: Apache-2.0
 *
 * What every training run needs, in one program: a driver takes tens of milliseconds for each that it builds or finds
 * in its cache (PoCL runs a preprocessor first), however small it is. Files that forbid contraction stand behind
 * those that do not, as that holds to the end.
 */
#include "elementwise.cl"
#include "reduce.cl"
#include "loss.cl"
#include "check.cl"
#include "update.cl"
/* of pixels; other types are programs of their own */
#define COPSE_FROM uchar
#include "cast.cl"
