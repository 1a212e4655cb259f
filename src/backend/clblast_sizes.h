/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COPSE_BACKEND_CLBLAST_SIZES_H
#define COPSE_BACKEND_CLBLAST_SIZES_H

#include <stdbool.h>
#include <stddef.h>

/* Whether CLBlast's kernel "Xgemm" is right with these parameters: values in the order of their names (GEMMK, KREG, KWG,
 * KWI, MDIMA, MDIMC, MWG, NDIMB, NDIMC, NWG, SA, SB, STRM, STRN, VWM, VWN). Of its two kinds the one of GEMMK=0. */
bool copse__clblast_xgemm_can_be(const size_t *values);

/* The same of "XgemmDirect": KWID, MDIMAD, MDIMCD, NDIMBD, NDIMCD, PADA, PADB, VWMD, VWND, WGD. */
bool copse__clblast_direct_can_be(const size_t *values);

#endif
