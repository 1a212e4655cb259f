/* SPDX-License-Identifier: Apache-2.0
 *
 * C[M,N] = act(A[M,K] B[K,N] + bias[N]) on devices whose work-group of one item is one core.
 * gemm_packed_nn_f32: A row-major [M,K], B row-major [K,N]; …_nt: B is stored [N,K]; …_tn: A is stored
 * [K,M]; …_tt: both. Must equal the host's dense operations within the tolerance of a float sum of K terms.
 *
 * Launch: groups of one item, (ceil(N/tile_n), ceil(M/tile_m), ceil(K/tile_k)). A group computes its tile of
 * C over its range of k, in blocks of MC x NC x KC that it packs into local memory. With more than one
 * range of k, C is the workspace [ranges][M][N], without bias and activation; packed_sum_f32
 * then adds the ranges in their order. K = 0 gives act(bias). Nothing depends on timing.
 *
 * In …_nt, the gradient of a dense layer's input, bias is instead (where has_bias) what an activation saved, [M,N]: C is
 * that activation's gradient of the product. That has one range of k.
 */
#include "packed.clh"

#ifndef COPSE_MC
#define COPSE_MC 96 /* rows of A in a packed block */
#endif
#ifndef COPSE_NC
#define COPSE_NC 256 /* columns of B in a packed block */
#endif
#define MC COPSE_MC
#define NC COPSE_NC

/* Pitches that are no powers of two: rows of one tile must not share a cache set. */
#define A_PITCH (KC + 16)      /* A by rows: [row][A_PITCH] */
#define A_PANEL (KC * MR + 16) /* A by columns: [panel][k][MR] */
#define B_PANEL (KC * NR + 16)
#define A_FLOATS_ROWS (MC * A_PITCH)
#define A_FLOATS_COLUMNS (MC / MR * A_PANEL + 16)
#define A_FLOATS (A_FLOATS_ROWS > A_FLOATS_COLUMNS ? A_FLOATS_ROWS : A_FLOATS_COLUMNS)
#define B_FLOATS (NC / NR * B_PANEL)

COPSE_PACK_B(local, __local)

/* a(m, k) = a[m * lda + k] */
INLINE void pack_a_rows(__local float *restrict ap, __global const float *restrict a,
                        ulong lda, int rows, int kc) {
    int padded = (rows + MR - 1) / MR * MR;
    for (int r = 0; r < rows; r++) {
        prefetch_run(a + (r + AHEAD) * lda, kc);
        copy_run(ap + r * A_PITCH, a + r * lda, kc);
    }
    for (int r = rows; r < padded; r++)
        zero_run(ap + r * A_PITCH, kc);
}

/* a(m, k) = a[k * lda + m]. A panel's row is copied a vector wide, over its end: the next row, or the
 * next panel, is written after it. */
INLINE void pack_a_columns(__local float *restrict ap, __global const float *restrict a,
                           ulong lda, int rows, int kc) {
    int panels = (rows + MR - 1) / MR, whole = 0;
    if (MR <= VW && rows >= VW)
        whole = (rows - VW) / MR + 1;
    for (int k = 0; k < kc; k++) {
        __global const float *from = a + k * lda;
        prefetch_run(from + AHEAD * lda, rows);
        for (int p = 0; p < whole; p++)
            STORE(__local, ap + p * A_PANEL + k * MR, LOAD(__global, from + p * MR));
        for (int p = whole; p < panels; p++)
            for (int i = 0; i < MR; i++)
                ap[p * A_PANEL + k * MR + i] = p * MR + i < rows ? from[p * MR + i] : 0;
    }
}

INLINE void tile_rows(vec c[MR][NV], __local const float *restrict ap,
                      __local const float *restrict bp, int kc) {
    tile_zero(c);
    UNROLL_4 for (int k = 0; k < kc; k++)
        COPSE_TILE_STEP(c, ap[i * A_PITCH + k], __local, bp + k * NR)
}

INLINE void tile_columns(vec c[MR][NV], __local const float *restrict ap,
                         __local const float *restrict bp, int kc) {
    tile_zero(c);
    UNROLL_4 for (int k = 0; k < kc; k++)
        COPSE_TILE_STEP(c, ap[k * MR + i], __local, bp + k * NR)
}

/* A tile just written, whose rows lie N apart: becomes the activation's gradient by what it saved. */
INLINE void tile_slope(__global float *restrict to, __global const float *restrict saved,
                       ulong N, int rows, int columns, int act) {
    for (int i = 0; i < min(rows, MR); i++, to += N, saved += N) {
        int j = 0;
        if (act == COPSE_ACT_RELU)
            for (; j + VW <= min(columns, NR); j += VW) {
                vec v = LOAD(__global, to + j);
                STORE(__global, to + j, LOAD(__global, saved + j) > 0 ? v : (vec)(0));
            }
        for (; j < min(columns, NR); j++)
            to[j] = copse_slope_1(saved[j], to[j], (uint)act);
    }
}

/* The same of a whole tile and relu, while it lies in registers. */
INLINE void tile_relu_slope(vec c[MR][NV], __global const float *restrict saved,
                            const size_t at[MR]) {
    UNROLL for (int i = 0; i < MR; i++) UNROLL for (int j = 0; j < NV; j++)
        c[i][j] = LOAD(__global, saved + at[i] + j * VW) > 0 ? c[i][j] : (vec)(0);
}

/* What a tile does before its sums, and with them. */
#define BEFORE_BIAS
#define OUT_BIAS                                                                         \
    tile_out(c, to, at, rows - i, columns - j, first, last,                              \
             has_bias ? bias + n + j : 0, act)
#define BEFORE_SLOPE                                                                     \
    __global const float *saved = bias + (ulong)(m + i) * N + n + j;                     \
    int slopes = last && has_bias, whole = rows - i >= MR && columns - j >= NR;          \
    int at_once = slopes && first && whole && act == COPSE_ACT_RELU;                     \
    if (slopes)                                                                          \
        UNROLL for (int r = 0; r < MR; r++) PREFETCH(saved + at[r]);
#define OUT_SLOPE                                                                        \
    if (at_once)                                                                         \
        tile_relu_slope(c, saved, at);                                                   \
    tile_out(c, to, at, rows - i, columns - j, first, last, 0, COPSE_ACT_NONE);          \
    if (slopes && !at_once)                                                              \
        tile_slope(to, saved, N, rows - i, columns - j, act)

#define GEMM(name, LDA, A_AT, PACK_A, TILE, A_STEP, LDB, B_AT, PACK_B, BESIDE)           \
    __kernel ONE_ITEM void name(                                                         \
        uint M, uint N, uint K, uint tile_m, uint tile_n, uint tile_k,                   \
        __global const float *restrict A, __global const float *restrict B,              \
        __global const float *restrict bias, __global float *restrict C, int act,        \
        int has_bias) {                                                                  \
        __local float ap[A_FLOATS] __attribute__((aligned(64)));                         \
        __local float bp[B_FLOATS] __attribute__((aligned(64)));                         \
        uint n0 = (uint)get_group_id(0) * tile_n, n1 = min(N, n0 + tile_n);              \
        uint m0 = (uint)get_group_id(1) * tile_m, m1 = min(M, m0 + tile_m);              \
        uint k0 = (uint)get_group_id(2) * tile_k, k1 = min(K, k0 + tile_k);              \
        C += (ulong)get_group_id(2) * M * N;                                             \
        for (uint n = n0; n < n1; n += NC) {                                             \
            int columns = min((uint)NC, n1 - n);                                         \
            uint k = k0;                                                                 \
            do {                                                                         \
                int kc = min((uint)KC, k1 - k), first = k == k0, last = k + kc == k1;    \
                PACK_B(bp, B_PANEL, B + (B_AT), LDB, columns, kc);                       \
                for (uint m = m0; m < m1; m += MC) {                                     \
                    int rows = min((uint)MC, m1 - m);                                    \
                    PACK_A(ap, A + (A_AT), LDA, rows, kc);                               \
                    for (int j = 0; j < columns; j += NR)                                \
                        for (int i = 0; i < rows; i += MR) {                             \
                            vec c[MR][NV];                                               \
                            size_t at[MR];                                               \
                            __global float *to = C + (ulong)(m + i) * N + n + j;         \
                            UNROLL for (int r = 0; r < MR; r++) {                        \
                                at[r] = (size_t)N * r;                                   \
                                PREFETCH(to + at[r]);                                    \
                            }                                                            \
                            BEFORE_##BESIDE                                              \
                            TILE(c, ap + i / MR * (A_STEP), bp + j / NR * B_PANEL, kc);  \
                            OUT_##BESIDE;                                                \
                        }                                                                \
                }                                                                        \
                k += KC;                                                                 \
            } while (k < k1);                                                            \
        }                                                                                \
    }

GEMM(gemm_packed_nn_f32, K, (ulong)m *K + k, pack_a_rows, tile_rows, MR *A_PITCH, N,
     (ulong)k *N + n, pack_b_rows_local, BIAS)
GEMM(gemm_packed_nt_f32, K, (ulong)m *K + k, pack_a_rows, tile_rows, MR *A_PITCH, K,
     (ulong)n *K + k, pack_b_columns_local, SLOPE)
GEMM(gemm_packed_tn_f32, M, (ulong)k *M + m, pack_a_columns, tile_columns, A_PANEL, N,
     (ulong)k *N + n, pack_b_rows_local, BIAS)
GEMM(gemm_packed_tt_f32, M, (ulong)k *M + m, pack_a_columns, tile_columns, A_PANEL, K,
     (ulong)n *K + k, pack_b_columns_local, BIAS)

#include "packed_sum.clh"
