/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/clblast_sizes.h"

/* Positions of the names, in their order. */
enum {
    GEMMK,
    KREG,
    KWG,
    KWI,
    MDIMA,
    MDIMC,
    MWG,
    NDIMB,
    NDIMC,
    NWG,
    SA,
    SB,
    STRM,
    STRN,
    VWM,
    VWN
};
enum { KWID, MDIMAD, MDIMCD, NDIMBD, NDIMCD, PADA, PADB, VWMD, VWND, WGD };

enum { MOST = 1024 }; /* of any of them */

static bool is_width(size_t n) {
    return n == 1 || n == 2 || n == 4 || n == 8 || n == 16;
}

/* What CLBlast's kernels need of their parameters (its documentation of tuning). */
bool copse__clblast_xgemm_can_be(const size_t *v) {
    for (size_t i = KWG; i <= VWN; i++)
        if (i < SA || i > STRN ? v[i] == 0 || v[i] > MOST : v[i] > 1)
            return false;
    if (v[GEMMK] != 0 || v[KREG] != 1 || !is_width(v[VWM]) || !is_width(v[VWN]))
        return false;
    if (v[KWG] % v[KWI] || v[MWG] % (v[MDIMC] * v[VWM]) || v[NWG] % (v[NDIMC] * v[VWN]) ||
        v[MWG] % (v[MDIMA] * v[VWM]) || v[NWG] % (v[NDIMB] * v[VWN]))
        return false;
    size_t items = v[MDIMC] * v[NDIMC];
    if (items % v[MDIMA] || items % v[NDIMB] || items > 1024)
        return false;
    return v[KWG] % (items / v[MDIMA]) == 0 && v[KWG] % (items / v[NDIMB]) == 0 &&
           4 * v[KWG] * (v[SA] * v[MWG] + v[SB] * v[NWG]) <= 32768;
}

bool copse__clblast_direct_can_be(const size_t *v) {
    for (size_t i = KWID; i <= WGD; i++)
        if (i != PADA && i != PADB ? v[i] == 0 || v[i] > MOST : v[i] > 1)
            return false;
    if (!is_width(v[VWMD]) || !is_width(v[VWND]))
        return false;
    size_t items = v[MDIMCD] * v[NDIMCD];
    if (v[WGD] % v[KWID] || v[WGD] % (v[MDIMCD] * v[VWMD]) ||
        v[WGD] % (v[NDIMCD] * v[VWND]) || v[WGD] % (v[MDIMAD] * v[VWMD]) ||
        v[WGD] % (v[NDIMBD] * v[VWND]) || items % v[MDIMAD] || items % v[NDIMBD])
        return false;
    return v[WGD] % (items / v[MDIMAD]) == 0 && v[WGD] % (items / v[NDIMBD]) == 0 &&
           items <= 1024;
}
