/* SPDX-License-Identifier: Apache-2.0
 *
 * c[m,n] = act(A B + bias[n]), all row-major and densely packed, m, n > 0, k >= 0 (k = 0: bias alone). The letters name
 * what is stored: nn a[m,k] b[k,n]; nt a[m,k] b[n,k]; tn a[k,m] b[k,n]. Without the flag WITH_BIAS bias is not read.
 * Reference: src/backend/host/gemm.c.
 *
 * gemm_rows_*: no local memory. One work-item makes ROWS x COPSE_VEC of c; launch: {ceil(n / COPSE_VEC), ceil(m / ROWS)}.
 *   For devices whose work-items are lanes of one core's vector unit.
 * gemm_tiled_*: work-groups of TILE x TILE items make 4 TILE x 4 TILE of c through local memory;
 *   launch: {ceil(n / 4 TILE) * TILE, ceil(m / 4 TILE) * TILE}, local {TILE, TILE}.
 */
#include "act.clh"

#define ROWS 6

/* What a launch is to do with c: a long k is cut into launches [l0, l1), of which the first starts from zero, and the
 * last adds the bias and applies act. */
#define WITH_BIAS 1u
#define ONTO_C 2u

#define A_ROWS(row, l) ((size_t)(row)*k + (l))
#define A_COLUMNS(row, l) ((size_t)(l)*m + (row))
#define B_ROWS(l, column) ((size_t)(l)*n + (column))
#define B_COLUMNS(l, column) ((size_t)(column)*k + (l))

/* The first `lanes` of a vector; the rest is not touched. */
static inline copse_wide load_lanes(global const float *from, uint lanes) {
    copse_wide v = (copse_wide)(0.0f);
    for (uint lane = 0; lane < lanes; lane++)
        ((float *)&v)[lane] = from[lane];
    return v;
}

static inline void store_lanes(global float *to, copse_wide v, uint lanes) {
    for (uint lane = 0; lane < lanes; lane++)
        to[lane] = ((float *)&v)[lane];
}

/* b's rows are read in vectors, a's elements spread over them. The last block of columns may be narrower than a vector:
 * its rows of b are read as vectors as long as those end inside b. */
#define GEMM_ROWS(name, A_AT)                                                            \
    kernel void name(global const float *restrict a, global const float *restrict b,     \
                     global float *restrict c, global const float *restrict bias,        \
                     uint m, uint n, uint k, uint l0, uint l1, uint flags, uint act) {   \
        uint j = get_global_id(0) * COPSE_VEC, i = get_global_id(1) * ROWS;              \
        uint lanes = min((uint)COPSE_VEC, n - j);                                        \
        copse_wide sum[ROWS];                                                            \
        size_t at[ROWS];                                                                 \
        _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {                              \
            sum[r] = (copse_wide)(0.0f);                                                 \
            at[r] = A_AT(min(i + r, m - 1), 0);                                          \
        }                                                                                \
        size_t step = A_AT(0, 1);                                                        \
        uint beyond = (COPSE_VEC - lanes + n - 1) / n; /* rows whose vector ends outside */ \
        uint safe = lanes == COPSE_VEC ? l1 : min(l1, k - min(k, beyond));               \
        uint l = l0;                                                                     \
        for (; l < safe; l++) {                                                          \
            copse_wide right = *(global const copse_wide_any *)(b + (size_t)l * n + j);  \
            _Pragma("unroll") for (uint r = 0; r < ROWS; r++)                            \
                sum[r] += a[at[r] + l * step] * right;                                   \
        }                                                                                \
        for (; l < l1; l++) {                                                            \
            copse_wide right = load_lanes(b + (size_t)l * n + j, lanes);                 \
            _Pragma("unroll") for (uint r = 0; r < ROWS; r++)                            \
                sum[r] += a[at[r] + l * step] * right;                                   \
        }                                                                                \
        copse_wide shift = (copse_wide)(0.0f);                                           \
        if (flags & WITH_BIAS)                                                           \
            shift = load_lanes(bias + j, lanes);                                         \
        _Pragma("unroll") for (uint r = 0; r < ROWS; r++) {                              \
            if (i + r < m) {                                                             \
                global float *to = c + (size_t)(i + r) * n + j;                          \
                copse_wide value = sum[r] + shift;                                       \
                if (flags & ONTO_C)                                                      \
                    value += load_lanes(to, lanes);                                      \
                value = copse_act_v(value, act);                                         \
                if (lanes == COPSE_VEC)                                                  \
                    *(global copse_wide_any *)to = value;                                \
                else                                                                     \
                    store_lanes(to, value, lanes);                                       \
            }                                                                            \
        }                                                                                \
    }

GEMM_ROWS(gemm_rows_nn_f32, A_ROWS)
GEMM_ROWS(gemm_rows_tn_f32, A_COLUMNS)

#if COPSE_VEC == 16
static inline float copse_lanes(copse_wide v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    float2 d = b.lo + b.hi;
    return d.x + d.y;
}
#else
static inline float copse_lanes(copse_wide v) {
    float2 d = v.lo + v.hi;
    return d.x + d.y;
}
#endif

/* Both are read along k. One work-item makes 4 x 4 of c; launch: {ceil(n / 4), ceil(m / 4)}. */
kernel void gemm_rows_nt_f32(global const float *restrict a, global const float *restrict b,
                             global float *restrict c, global const float *restrict bias,
                             uint m, uint n, uint k, uint l0, uint l1, uint flags,
                             uint act) {
    uint j = get_global_id(0) * 4, i = get_global_id(1) * 4;
    copse_wide sum[4][4];
    float rest[4][4];
    size_t left[4], right[4];
    for (uint r = 0; r < 4; r++) {
        left[r] = (size_t)min(i + r, m - 1) * k;
        right[r] = (size_t)min(j + r, n - 1) * k;
        for (uint s = 0; s < 4; s++) {
            sum[r][s] = (copse_wide)(0.0f);
            rest[r][s] = 0.0f;
        }
    }
    uint l = l0;
    for (; l + COPSE_VEC <= l1; l += COPSE_VEC) {
        copse_wide x[4], y[4];
        for (uint r = 0; r < 4; r++) {
            x[r] = *(global const copse_wide_any *)(a + left[r] + l);
            y[r] = *(global const copse_wide_any *)(b + right[r] + l);
        }
        for (uint r = 0; r < 4; r++)
            for (uint s = 0; s < 4; s++)
                sum[r][s] += x[r] * y[s];
    }
    for (; l < l1; l++)
        for (uint r = 0; r < 4; r++)
            for (uint s = 0; s < 4; s++)
                rest[r][s] += a[left[r] + l] * b[right[s] + l];
    for (uint r = 0; r < 4 && i + r < m; r++)
        for (uint s = 0; s < 4 && j + s < n; s++) {
            size_t at = (size_t)(i + r) * n + j + s;
            float value = copse_lanes(sum[r][s]) + rest[r][s];
            if (flags & WITH_BIAS)
                value += bias[j + s];
            if (flags & ONTO_C)
                value += c[at];
            c[at] = copse_act_1(value, act);
        }
}

#ifndef TILE
#define TILE 16
#endif
#define SIDE (4 * TILE)
#define DEPTH TILE
#define GROUP (TILE * TILE)

/* A tile is fetched along the direction in which it is stored, so that neighbouring items read neighbouring words.
 * Rows of the local tiles are one longer, against bank conflicts. Every item owns c's elements TILE apart. */
#define GEMM_TILED(name, A_AT, A_ALONG_K, B_AT, B_ALONG_K)                               \
    kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void name(               \
        global const float *restrict a, global const float *restrict b,                  \
        global float *restrict c, global const float *restrict bias, uint m, uint n,     \
        uint k, uint l0, uint l1, uint flags, uint act) {                                \
        local float left[DEPTH][SIDE + 1];                                               \
        local float right[DEPTH][SIDE + 1];                                              \
        uint x = get_local_id(0), y = get_local_id(1), item = y * TILE + x;              \
        uint i0 = get_group_id(1) * SIDE, j0 = get_group_id(0) * SIDE;                   \
        float sum[4][4];                                                                 \
        for (uint r = 0; r < 4; r++)                                                     \
            for (uint s = 0; s < 4; s++)                                                 \
                sum[r][s] = 0.0f;                                                        \
        for (uint l2 = l0; l2 < l1; l2 += DEPTH) {                                       \
            for (uint t = item; t < DEPTH * SIDE; t += GROUP) {                          \
                uint l = A_ALONG_K ? t % DEPTH : t / SIDE;                               \
                uint r = A_ALONG_K ? t / DEPTH : t % SIDE;                               \
                left[l][r] =                                                             \
                    i0 + r < m && l2 + l < l1 ? a[A_AT(i0 + r, l2 + l)] : 0.0f;          \
                l = B_ALONG_K ? t % DEPTH : t / SIDE;                                    \
                r = B_ALONG_K ? t / DEPTH : t % SIDE;                                    \
                right[l][r] =                                                            \
                    j0 + r < n && l2 + l < l1 ? b[B_AT(l2 + l, j0 + r)] : 0.0f;          \
            }                                                                            \
            barrier(CLK_LOCAL_MEM_FENCE);                                                \
            for (uint l = 0; l < DEPTH; l++) {                                           \
                float u[4], v[4];                                                        \
                for (uint r = 0; r < 4; r++) {                                           \
                    u[r] = left[l][y + r * TILE];                                        \
                    v[r] = right[l][x + r * TILE];                                       \
                }                                                                        \
                for (uint r = 0; r < 4; r++)                                             \
                    for (uint s = 0; s < 4; s++)                                         \
                        sum[r][s] += u[r] * v[s];                                        \
            }                                                                            \
            barrier(CLK_LOCAL_MEM_FENCE);                                                \
        }                                                                                \
        for (uint r = 0; r < 4; r++)                                                     \
            for (uint s = 0; s < 4; s++) {                                               \
                uint i = i0 + y + r * TILE, j = j0 + x + s * TILE;                       \
                if (i < m && j < n) {                                                    \
                    float value = sum[r][s];                                             \
                    if (flags & WITH_BIAS)                                               \
                        value += bias[j];                                                \
                    if (flags & ONTO_C)                                                  \
                        value += c[(size_t)i * n + j];                                   \
                    c[(size_t)i * n + j] = copse_act_1(value, act);                      \
                }                                                                        \
            }                                                                            \
    }

GEMM_TILED(gemm_tiled_nn_f32, A_ROWS, 1, B_ROWS, 0)
GEMM_TILED(gemm_tiled_nt_f32, A_ROWS, 1, B_COLUMNS, 1)
GEMM_TILED(gemm_tiled_tn_f32, A_COLUMNS, 0, B_ROWS, 0)
