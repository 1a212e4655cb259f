/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalisation over the rows of x[rows, columns]. Reductions go over `parts` shares of the rows, whose results are
 * joined in order: the same bits at every run. First passes have parts * ceil(columns / LANES) items, kernels over
 * columns have `columns`, bn_apply kernels rows where chunked, else rows * columns. Reference: src/backend/host/norm.c.
 */
#include "common.clh"

#ifdef COPSE_CHUNKED
#define LANES COPSE_VEC
#else
#define LANES 1
#endif
#define BLOCK 64

#define BEGIN(rows, parts, part)                                                         \
    ((rows) / (parts) * (part) + min((ulong)((rows) % (parts)), (ulong)(part)))

/* T is float or copse_wide, AT(p) reads one: the part's mean and the sum of squared differences from it. The mean is
 * first estimated, then corrected by what the differences add up to. */
#define MOMENTS(T, AT, TO)                                                               \
    {                                                                                    \
        T sum = (T)(0.0f);                                                               \
        for (ulong row = begin; row < end;) {                                            \
            T block = (T)(0.0f);                                                         \
            for (ulong stop = min(end, row + BLOCK); row < stop; row++)                  \
                block += AT(x + row * columns + c);                                      \
            sum += block;                                                                \
        }                                                                                \
        float count = (float)(end - begin);                                              \
        T mean = end > begin ? sum / count : (T)(0.0f);                                  \
        T squares = (T)(0.0f), drift = (T)(0.0f);                                        \
        for (ulong row = begin; row < end;) {                                            \
            T block = (T)(0.0f), off = (T)(0.0f);                                        \
            for (ulong stop = min(end, row + BLOCK); row < stop; row++) {                \
                T d = AT(x + row * columns + c) - mean;                                  \
                block += d * d;                                                          \
                off += d;                                                                \
            }                                                                            \
            squares += block;                                                            \
            drift += off;                                                                \
        }                                                                                \
        if (end > begin) {                                                               \
            T step = drift / count;                                                      \
            squares = squares - drift * step;                                            \
            mean = mean + step;                                                          \
        }                                                                                \
        TO(partial + part * 2 * columns + c) = mean;                                     \
        TO(partial + (part * 2 + 1) * columns + c) = squares;                            \
    }

#define ONE(p) (*(p))
#define WIDE(p) (*(global const copse_wide_any *)(p))
#define WIDE_TO(p) (*(global copse_wide_any *)(p))

/* partial[part] = (mean[columns], squares[columns]) */
kernel void bn_moments_f32(global const float *restrict x, global float *restrict partial,
                           ulong rows, uint columns, uint parts) {
    uint blocks = (columns + LANES - 1) / LANES;
    COPSE_FOR(i, (size_t)parts * blocks) {
        uint c0 = (uint)(i % blocks) * LANES;
        size_t part = i / blocks;
        ulong begin = BEGIN(rows, parts, part), end = BEGIN(rows, parts, part + 1);
#ifdef COPSE_CHUNKED
        if (c0 + LANES <= columns) {
            uint c = c0;
            MOMENTS(copse_wide, WIDE, WIDE_TO)
            continue;
        }
#endif
        for (uint c = c0; c < min(c0 + LANES, columns); c++)
            MOMENTS(float, ONE, ONE)
    }
}

/* stats = (mean, biased variance) from the parts' (Chan, Golub and LeVeque's pairwise update); zero rows: 0, 0 */
kernel void bn_join_moments_f32(global const float *restrict partial,
                                global float *restrict stats, ulong rows, uint columns,
                                uint parts) {
    COPSE_FOR(c, columns) {
        float mean = 0.0f, squares = 0.0f, count = 0.0f;
        for (size_t part = 0; part < parts; part++) {
            float more = (float)(BEGIN(rows, parts, part + 1) - BEGIN(rows, parts, part));
            if (more == 0.0f)
                continue;
            float all = count + more;
            float d = partial[part * 2 * columns + c] - mean;
            mean += d * (more / all);
            squares +=
                partial[(part * 2 + 1) * columns + c] + d * d * (count * (more / all));
            count = all;
        }
        stats[c] = mean;
        stats[columns + c] = count > 0.0f ? squares / count : 0.0f;
    }
}

/* table = (center, scale, offset): y = (x - center) * scale + offset. flags: 1 gamma, 2 beta is there. */
kernel void bn_table_f32(global const float *restrict mean,
                         global const float *restrict variance,
                         global const float *restrict gamma,
                         global const float *restrict beta, global float *restrict table,
                         uint columns, uint variance_at, float epsilon, uint flags) {
    COPSE_FOR(c, columns) {
        float scale = 1.0f / sqrt(variance[variance_at + c] + epsilon);
        table[c] = mean[c];
        table[columns + c] = flags & 1 ? scale * gamma[c] : scale;
        table[2 * (size_t)columns + c] = flags & 2 ? beta[c] : 0.0f;
    }
}

/* y = act((x - center) * scale + offset); floor is 0 for relu, else -INFINITY; a NaN stays */
#define APPLY(AT, p, c) ((AT(p) - AT(table + (c))) * AT(scale + (c)) + AT(offset + (c)))
kernel void bn_apply_f32(global const float *restrict x,
                         global const float *restrict table, global float *restrict y,
                         ulong rows, uint columns, float floor) {
    global const float *scale = table + columns;
    global const float *offset = table + 2 * (size_t)columns;
#ifdef COPSE_CHUNKED
    COPSE_FOR(row, rows) {
        size_t at = row * columns;
        uint c = 0;
        for (; c + LANES <= columns; c += LANES) {
            copse_wide v = APPLY(WIDE, x + at + c, c);
            WIDE_TO(y + at + c) = v <= floor ? (copse_wide)(floor) : v;
        }
        for (; c < columns; c++) {
            float v = APPLY(ONE, x + at + c, c);
            y[at + c] = v <= floor ? floor : v;
        }
    }
#else
    COPSE_FOR(i, rows * columns) {
        uint c = (uint)(i % columns);
        float v = APPLY(ONE, x + i, c);
        y[i] = v <= floor ? floor : v;
    }
#endif
}

/* v = w * scale in `rows` rows, and behind them, as a row of its own, moved = (bias - center) * scale + offset; without a
 * bias it is 0 */
#define MOVED(T, AT, c)                                                                  \
    (((has_bias ? AT(bias + (c)) : (T)(0.0f)) - AT(table + (c))) * AT(scale + (c)) +     \
     AT(offset + (c)))
kernel void bn_fold_f32(global const float *restrict w, global const float *restrict bias,
                        global const float *restrict table, global float *restrict v,
                        global float *restrict moved, ulong rows, uint columns,
                        uint has_bias) {
    global const float *scale = table + columns;
    global const float *offset = table + 2 * (size_t)columns;
#ifdef COPSE_CHUNKED
    COPSE_FOR(row, rows + 1) {
        size_t at = row * columns;
        uint c = 0;
        if (row < rows) {
            for (; c + LANES <= columns; c += LANES)
                WIDE_TO(v + at + c) = WIDE(w + at + c) * WIDE(scale + c);
            for (; c < columns; c++)
                v[at + c] = w[at + c] * scale[c];
        } else {
            for (; c + LANES <= columns; c += LANES)
                WIDE_TO(moved + c) = MOVED(copse_wide, WIDE, c);
            for (; c < columns; c++)
                moved[c] = MOVED(float, ONE, c);
        }
    }
#else
    COPSE_FOR(i, (rows + 1) * columns) {
        uint c = (uint)(i % columns);
        if (i < rows * columns)
            v[i] = w[i] * scale[c];
        else
            moved[c] = MOVED(float, ONE, c);
    }
#endif
}

/* Where relu follows, the gradient passes what is above the floor: z is made as bn_apply_f32 makes it. */
#define GRAD_SUMS(T, AT, TO)                                                             \
    {                                                                                    \
        T mean = AT(stats + c);                                                          \
        T rstd = (T)(1.0f) / sqrt(AT(stats + columns + c) + epsilon);                    \
        T scale = flags & 1 ? rstd * AT(gamma + c) : rstd;                               \
        T offset = flags & 2 ? AT(beta + c) : (T)(0.0f);                                 \
        T first = (T)(0.0f), second = (T)(0.0f);                                         \
        for (ulong row = begin; row < end;) {                                            \
            T some = (T)(0.0f), more = (T)(0.0f);                                        \
            for (ulong stop = min(end, row + BLOCK); row < stop; row++) {                \
                T d = AT(x + row * columns + c) - mean;                                  \
                T slope = AT(dy + row * columns + c);                                    \
                slope = d * scale + offset <= floor ? (T)(0.0f) : slope;                 \
                some += slope;                                                           \
                more += slope * d;                                                       \
            }                                                                            \
            first += some;                                                               \
            second += more;                                                              \
        }                                                                                \
        TO(partial + part * 2 * columns + c) = first;                                    \
        TO(partial + (part * 2 + 1) * columns + c) = second * rstd;                      \
    }

/* partial[part] = (sum dy, sum dy xhat) over the part's rows */
kernel void bn_grad_sums_f32(global const float *restrict x,
                             global const float *restrict dy,
                             global const float *restrict stats,
                             global const float *restrict gamma,
                             global const float *restrict beta,
                             global float *restrict partial, ulong rows, uint columns,
                             uint parts, float epsilon, uint flags, float floor) {
    uint blocks = (columns + LANES - 1) / LANES;
    COPSE_FOR(i, (size_t)parts * blocks) {
        uint c0 = (uint)(i % blocks) * LANES;
        size_t part = i / blocks;
        ulong begin = BEGIN(rows, parts, part), end = BEGIN(rows, parts, part + 1);
#ifdef COPSE_CHUNKED
        if (c0 + LANES <= columns) {
            uint c = c0;
            GRAD_SUMS(copse_wide, WIDE, WIDE_TO)
            continue;
        }
#endif
        for (uint c = c0; c < min(c0 + LANES, columns); c++)
            GRAD_SUMS(float, ONE, ONE)
    }
}

/* sums = (sum dy, sum dy xhat) over the parts in order; dbeta = sums[0], dgamma = sums[1] where flags 2, 1 ask for them */
kernel void bn_grad_join_f32(global const float *restrict partial,
                             global float *restrict sums, global float *restrict dgamma,
                             global float *restrict dbeta, uint columns, uint parts,
                             uint flags) {
    COPSE_FOR(c, columns) {
        float first = 0.0f, second = 0.0f;
        for (size_t part = 0; part < parts; part++) {
            first += partial[part * 2 * columns + c];
            second += partial[(part * 2 + 1) * columns + c];
        }
        sums[c] = first;
        sums[columns + c] = second;
        if (flags & 1)
            dgamma[c] = second;
        if (flags & 2)
            dbeta[c] = first;
    }
}

/* table = (mean, a, b, d, offset): dx = a dy - b - d (x - mean) = gamma rstd / n (n dy - sums[0] - xhat sums[1]) */
kernel void bn_grad_table_f32(global const float *restrict stats,
                              global const float *restrict sums,
                              global const float *restrict gamma,
                              global const float *restrict beta,
                              global float *restrict table, ulong rows, uint columns,
                              float epsilon, uint flags) {
    COPSE_FOR(c, columns) {
        float rstd = 1.0f / sqrt(stats[columns + c] + epsilon);
        float a = flags & 1 ? rstd * gamma[c] : rstd;
        table[c] = stats[c];
        table[columns + c] = a;
        table[2 * (size_t)columns + c] = a * (sums[c] / (float)rows);
        table[3 * (size_t)columns + c] = a * rstd * (sums[columns + c] / (float)rows);
        table[4 * (size_t)columns + c] = flags & 2 ? beta[c] : 0.0f;
    }
}

/* dx = a dy - b - d (x - mean), where a (x - mean) + offset is what the activation saw */
#define GRAD_APPLY(T, AT, TO, i, c)                                                      \
    {                                                                                    \
        T off = AT(x + (i)) - AT(table + (c)), slope = AT(dy + (i));                     \
        slope = off * AT(a + (c)) + AT(offset + (c)) <= floor ? (T)(0.0f) : slope;       \
        TO(dx + (i)) = AT(a + (c)) * slope - AT(b + (c)) - AT(d + (c)) * off;            \
    }
kernel void bn_grad_apply_f32(global const float *restrict x,
                              global const float *restrict dy,
                              global const float *restrict table,
                              global float *restrict dx, ulong rows, uint columns,
                              float floor) {
    global const float *a = table + columns;
    global const float *b = table + 2 * (size_t)columns;
    global const float *d = table + 3 * (size_t)columns;
    global const float *offset = table + 4 * (size_t)columns;
#ifdef COPSE_CHUNKED
    COPSE_FOR(row, rows) {
        size_t at = row * columns;
        uint c = 0;
        for (; c + LANES <= columns; c += LANES)
            GRAD_APPLY(copse_wide, WIDE, WIDE_TO, at + c, c)
        for (; c < columns; c++)
            GRAD_APPLY(float, ONE, ONE, at + c, c)
    }
#else
    COPSE_FOR(i, rows * columns) {
        uint c = (uint)(i % columns);
        GRAD_APPLY(float, ONE, ONE, i, c)
    }
#endif
}
