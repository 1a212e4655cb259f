/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"

#include <string.h>

uint16_t copse__half_from_float(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits >=
        0x7f800000u) /* infinity stays; a NaN keeps its high payload, made quiet */
        return (uint16_t)(sign | 0x7c00u |
                          (bits > 0x7f800000u ? 0x200u | (bits >> 13 & 0x3ffu) : 0));
    if (bits >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (bits <
        0x38800000u) { /* below 2^-14: the sum aligns the subnormal's bits, rounded */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        uint32_t aligned;
        memcpy(&aligned, &magnitude, sizeof aligned);
        return (uint16_t)(sign | (aligned - 0x3f000000u));
    }
    const uint32_t odd = bits >> 13 & 1u;
    return (uint16_t)(sign | ((bits - 0x38000000u + 0xfffu + odd) >> 13));
}

float copse__half_to_float(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t rest = half & 0x7fffu;
    uint32_t bits;
    if (rest >= 0x7c00u) {
        bits = sign | 0x7f800000u | (rest & 0x3ffu) << 13 |
               ((rest & 0x3ffu) != 0 ? 0x400000u : 0);
    } else if (rest >= 0x400u) {
        bits = sign | ((rest << 13) + 0x38000000u);
    } else { /* zero or subnormal: an exact multiple of 2^-24 */
        const float magnitude = (float)rest * 0x1p-24f;
        memcpy(&bits, &magnitude, sizeof bits);
        bits |= sign;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
