/* SPDX-License-Identifier: Apache-2.0
 *
 * C[M,N] = act(A[M,K] B[K,N] + extra[N]) for products so small that starting them counts, on devices whose work-group of
 * one item is one core. gemm_small_nn_f32: A row-major [M,K], B row-major [K,N]; …_nt: B is stored [N,K]; …_tn: A is
 * stored [K,M], and sums[N] (where has_sums) are those of B's columns: a dense layer's bias gradient beside its weights'.
 * In …_nt extra is what an activation saved, [M,N]: C is that activation's gradient of the product. Without has_extra there
 * is neither bias nor activation's gradient. Must equal the host's dense operations within the tolerance of a float sum of
 * K terms.
 *
 * Only a panel of B, NR columns wide, is packed into local memory, KC rows at a time; A is read where it lies, so that
 * groups that share its rows copy nothing twice. Rows come in tiles of six and four, whichever leave less over.
 * Launch: groups of one item, (ceil(N/tile_n), ceil(M/tile_m)): many, as the threads of a driver come one by one.
 */
#include "packed.clh"

COPSE_PACK_B(local, __local)

/* One row of a tile of the gradient of an activation; saved may be null. */
INLINE void row_slope(const vec c[NV], __global float *to, int columns, int first, int last,
                      __global const float *saved, int act) {
    float t[NR] __attribute__((aligned(64)));
    if (columns >= NR && (!last || !saved || act == COPSE_ACT_RELU)) {
        UNROLL for (int j = 0; j < NV; j++) {
            vec v = c[j];
            if (!first)
                v += LOAD(__global, to + j * VW);
            if (last && saved)
                v = LOAD(__global, saved + j * VW) > 0 ? v : (vec)(0);
            STORE(__global, to + j * VW, v);
        }
        return;
    }
    UNROLL for (int j = 0; j < NV; j++) *(vec *)(t + j * VW) = c[j];
    for (int j = 0; j < min(columns, NR); j++) {
        float v = t[j];
        if (!first)
            v += to[j];
        to[j] = last && saved ? copse_slope_1(saved[j], v, (uint)act) : v;
    }
}

/* One row of a tile, as tile_out of packed.clh writes it. */
INLINE void row_out(const vec c[NV], __global float *to, int columns, int first, int last,
                    __global const float *bias, int act) {
    if (columns >= NR && (!last || act <= COPSE_ACT_RELU)) {
        vec low = last && act == COPSE_ACT_RELU ? (vec)(0) : (vec)(-INFINITY);
        UNROLL for (int j = 0; j < NV; j++) {
            vec v = c[j];
            if (!first)
                v += LOAD(__global, to + j * VW);
            if (last && bias)
                v += LOAD(__global, bias + j * VW);
            STORE(__global, to + j * VW, v <= low ? low : v); /* a NaN stays */
        }
        return;
    }
    float t[NR] __attribute__((aligned(64)));
    UNROLL for (int j = 0; j < NV; j++) *(vec *)(t + j * VW) = c[j];
    for (int j = 0; j < min(columns, NR); j++) {
        float v = t[j];
        if (!first)
            v += to[j];
        if (last) {
            if (bias)
                v += bias[j];
            v = copse_act_1(v, (uint)act);
        }
        to[j] = v;
    }
}

/* R rows, of which `rows` are there: the others repeat the last one, and are not written. */
#define SMALL_TILE(name, R, ROW_OUT, EXTRA_STEP)                                         \
    INLINE void name(__global const float *restrict a, ulong row_step, ulong k_step,     \
                     __local const float *restrict bp, int kc, __global float *to,       \
                     ulong N, int rows, int columns, int first, int last,                \
                     __global const float *extra, int act) {                             \
        vec c[R][NV];                                                                    \
        ulong at[R];                                                                     \
        UNROLL for (int i = 0; i < R; i++) {                                             \
            at[i] = (ulong)min(i, rows - 1) * row_step;                                  \
            UNROLL for (int j = 0; j < NV; j++) c[i][j] = 0;                             \
            PREFETCH(to + (ulong)i * N);                                                 \
        }                                                                                \
        UNROLL_4 for (int k = 0; k < kc; k++) {                                          \
            vec b[NV];                                                                   \
            UNROLL for (int j = 0; j < NV; j++)                                          \
                b[j] = LOAD(__local, bp + k * NR + j * VW);                              \
            UNROLL for (int i = 0; i < R; i++) {                                         \
                vec x = (vec)(a[at[i] + k * k_step]);                                    \
                UNROLL for (int j = 0; j < NV; j++)                                      \
                    c[i][j] = COPSE_MULTIPLY_ADD(x, b[j], c[i][j]);                      \
            }                                                                            \
        }                                                                                \
        if (rows >= R && columns >= NR && first && (!last || (!extra && act == 0))) {    \
            UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < NV; j++)       \
                STORE(__global, to + (ulong)i * N + j * VW, c[i][j]);                    \
            return;                                                                      \
        }                                                                                \
        UNROLL for (int i = 0; i < R; i++) if (i < rows)                                 \
            ROW_OUT(c[i], to + i * N, columns, first, last,                              \
                    extra ? extra + i * (EXTRA_STEP) : 0, act);                          \
    }

SMALL_TILE(tile_of_6, 6, row_out, 0)
SMALL_TILE(tile_of_4, 4, row_out, 0)
SMALL_TILE(slope_tile_of_6, 6, row_slope, N)
SMALL_TILE(slope_tile_of_4, 4, row_slope, N)

/* sums[0..columns) (+)= those of a packed panel's columns */
INLINE void add_sums(__global float *sums, __local const float *restrict bp, int columns,
                     int kc, int first) {
    vec s[NV];
    float t[NR] __attribute__((aligned(64)));
    UNROLL for (int j = 0; j < NV; j++) s[j] = 0;
    for (int k = 0; k < kc; k++)
        UNROLL for (int j = 0; j < NV; j++) s[j] += LOAD(__local, bp + k * NR + j * VW);
    UNROLL for (int j = 0; j < NV; j++) *(vec *)(t + j * VW) = s[j];
    for (int j = 0; j < columns; j++)
        sums[j] = first ? t[j] : sums[j] + t[j];
}

#define SMALL(name, ROW_STEP, K_STEP, PACK_B, LDB, B_AT, SIX, FOUR, EXTRA_AT)            \
    __kernel ONE_ITEM void name(                                                         \
        uint M, uint N, uint K, uint tile_m, uint tile_n,                                \
        __global const float *restrict A, __global const float *restrict B,              \
        __global const float *restrict extra, __global float *restrict C,                \
        __global float *restrict sums, int act, int has_extra, int has_sums) {           \
        __local float bp[KC * NR] __attribute__((aligned(64)));                          \
        uint n0 = (uint)get_group_id(0) * tile_n, n1 = min(N, n0 + tile_n);              \
        uint m0 = (uint)get_group_id(1) * tile_m, m1 = min(M, m0 + tile_m);              \
        for (uint n = n0; n < n1; n += NR) {                                             \
            int columns = min((uint)NR, n1 - n);                                         \
            uint k = 0;                                                                  \
            do {                                                                         \
                int kc = min((uint)KC, K - k), first = k == 0, last = k + kc == K;       \
                PACK_B(bp, 0, B + (B_AT), LDB, columns, kc);                             \
                if (has_sums && m0 == 0)                                                 \
                    add_sums(sums + n, bp, columns, kc, first);                          \
                for (uint m = m0; m < m1;) {                                             \
                    int left = m1 - m, six = left == 5 || left == 6 || left > 8;         \
                    __global const float *a = A + (ulong)m * (ROW_STEP) +                \
                                              (ulong)k * (K_STEP);                       \
                    __global float *to = C + (ulong)m * N + n;                           \
                    __global const float *e = has_extra ? extra + (EXTRA_AT) : 0;        \
                    if (six)                                                             \
                        SIX(a, ROW_STEP, K_STEP, bp, kc, to, N, min(left, 6),            \
                                  columns, first, last, e, act);                         \
                    else                                                                 \
                        FOUR(a, ROW_STEP, K_STEP, bp, kc, to, N, min(left, 4),           \
                                  columns, first, last, e, act);                         \
                    m += six ? 6 : 4;                                                    \
                }                                                                        \
                k += KC;                                                                 \
            } while (k < K);                                                             \
        }                                                                                \
    }

SMALL(gemm_small_nn_f32, K, 1, pack_b_rows_local, N, (ulong)k *N + n, tile_of_6,
      tile_of_4, n)
SMALL(gemm_small_nt_f32, K, 1, pack_b_columns_local, K, (ulong)n *K + k, slope_tile_of_6,
      slope_tile_of_4, (ulong)m *N + n)
SMALL(gemm_small_tn_f32, 1, M, pack_b_rows_local, N, (ulong)k *N + n, tile_of_6,
      tile_of_4, n)
