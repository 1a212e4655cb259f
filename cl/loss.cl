/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of one row or sample at a time, and softmax. A group takes a row; its items take every L-th element (L =
 * get_local_size(0), a power of two, 1 where chunked) and join their results in `scratch`, L floats of local memory, in a
 * fixed order. Launch: {rows strided over groups * L}, local {L}. Reference: src/backend/host/loss.c.
 */
#include "common.clh"
#include "scalars.clh"

#define ROW_LOOP(row, rows)                                                              \
    for (ulong row = get_group_id(0); row < (rows); row += get_num_groups(0))

#ifdef COPSE_CHUNKED
/* One item a group has nothing to join. */
#define JOIN(name, add)                                                                  \
    static inline float name(float mine, local float *scratch) {                         \
        return mine;                                                                     \
    }
#else
#define JOIN(name, add)                                                                  \
    static inline float name(float mine, local float *scratch) {                         \
        uint l = get_local_id(0);                                                        \
        scratch[l] = mine;                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        for (uint reach = get_local_size(0) / 2; reach > 0; reach /= 2) {                \
            if (l < reach)                                                               \
                scratch[l] = add(scratch[l], scratch[l + reach]);                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                                \
        }                                                                                \
        float all = scratch[0];                                                          \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        return all;                                                                      \
    }
#endif
#define PLUS(a, b) ((a) + (b))
JOIN(join_sum, PLUS)
JOIN(join_max, fmax)

#define EACH(c) for (uint c = get_local_id(0); c < columns; c += get_local_size(0))

/* The row's largest number. */
static inline float row_max(global const float *x, uint columns, local float *scratch) {
    float most = -INFINITY;
    EACH(c) {
        most = fmax(most, x[c]);
    }
    return join_max(most, scratch);
}

/* Whether label is the first place of the row's largest number. A NaN is never the largest. */
static inline float row_hit(global const float *x, uint columns, uint label, float most,
                            local float *scratch) {
    float earlier = 0.0f;
    EACH(c) {
        if (c < label && x[c] == most)
            earlier = 1.0f;
    }
    earlier = join_max(earlier, scratch);
    return x[label] == most && earlier == 0.0f ? 1.0f : 0.0f;
}

/* metrics[row] = (loss, hit), dx (where has_dx) its gradient times loss_scale; dx may be x. Labels in [0, columns). */
kernel void cross_entropy_logits_f32(global const float *x,
                                     global const int *restrict label,
                                     global float *restrict metrics, global float *dx,
                                     global const copse_scalars *restrict scalars,
                                     ulong rows, uint columns, uint has_dx,
                                     local float *scratch) {
    float scale = has_dx ? scalars->loss_scale : 0.0f;
    ROW_LOOP(row, rows) {
        global const float *from = x + row * columns;
        uint chosen = min((uint)label[row], columns - 1);
        float most = row_max(from, columns, scratch);
        float hit = row_hit(from, columns, chosen, most, scratch);
        float logit = from[chosen];
        float others = 0.0f; /* apart from the chosen one, so that nothing cancels where it is near 1 */
        EACH(c) {
            others += c == chosen ? 0.0f : exp(from[c] - most);
        }
        others = join_sum(others, scratch);
        float sum = others + exp(logit - most);
        if (get_local_id(0) == 0) {
            metrics[2 * row] = logit == most ? log1p(others) : log(sum) + (most - logit);
            metrics[2 * row + 1] = hit;
        }
        if (has_dx) {
            global float *to = dx + row * columns;
            EACH(c) {
                float p = c == chosen ? -others : exp(from[c] - most);
                to[c] = p / sum * scale;
            }
        }
    }
}

/* The same from probabilities: p = clamp(x / sum(x), 1e-7, 1 - 1e-7); where it is clamped there is no gradient. */
kernel void cross_entropy_probabilities_f32(global const float *x,
                                            global const int *restrict label,
                                            global float *restrict metrics,
                                            global float *dx,
                                            global const copse_scalars *restrict scalars,
                                            ulong rows, uint columns, uint has_dx,
                                            local float *scratch) {
    const float least = 1e-7f, largest = 1.0f - 1e-7f;
    float scale = has_dx ? scalars->loss_scale : 0.0f;
    ROW_LOOP(row, rows) {
        global const float *from = x + row * columns;
        uint chosen = min((uint)label[row], columns - 1);
        float most = row_max(from, columns, scratch);
        float hit = row_hit(from, columns, chosen, most, scratch);
        float value = from[chosen];
        float sum = 0.0f;
        EACH(c) {
            sum += from[c];
        }
        sum = join_sum(sum, scratch);
        float p = value / sum;
        bool clamped = p < least || p > largest;
        if (get_local_id(0) == 0) {
            metrics[2 * row] = -log(p < least ? least : p > largest ? largest : p);
            metrics[2 * row + 1] = hit;
        }
        if (has_dx) {
            global float *to = dx + row * columns;
            EACH(c) {
                float slope = 1.0f / sum - (c == chosen ? 1.0f / value : 0.0f);
                to[c] = clamped ? 0.0f : slope * scale;
            }
        }
    }
}

/* metrics[n] = (mean over the sample's elements of (x - target)^2, 0); dx = 2 (x - target) / elements * loss_scale. */
kernel void mean_squared_error_f32(global const float *x,
                                   global const float *restrict target,
                                   global float *restrict metrics, global float *dx,
                                   global const copse_scalars *restrict scalars,
                                   ulong rows, uint columns, uint has_dx,
                                   local float *scratch) {
    float scale = has_dx ? scalars->loss_scale : 0.0f;
    ROW_LOOP(row, rows) {
        float sum = 0.0f;
        EACH(c) {
            float d = x[row * columns + c] - target[row * columns + c];
            sum += d * d;
            if (has_dx)
                dx[row * columns + c] = 2.0f * d / (float)columns * scale;
        }
        sum = join_sum(sum, scratch);
        if (get_local_id(0) == 0) {
            metrics[2 * row] = sum / (float)columns;
            metrics[2 * row + 1] = 0.0f;
        }
    }
}

/* y = exp(x - max) / sum(exp(x - max)); in place allowed */
kernel void softmax_f32(global const float *x, global float *y, ulong rows, uint columns,
                        local float *scratch) {
    ROW_LOOP(row, rows) {
        global const float *from = x + row * columns;
        global float *to = y + row * columns;
        float most = row_max(from, columns, scratch);
        float sum = 0.0f;
        EACH(c) {
            float e = exp(from[c] - most);
            to[c] = e;
            sum += e;
        }
        sum = join_sum(sum, scratch);
        EACH(c) {
            to[c] /= sum;
        }
    }
}

/* dx = y (dy - sum(dy y)); dx may be dy */
kernel void softmax_grad_f32(global const float *restrict y, global const float *dy,
                             global float *dx, ulong rows, uint columns,
                             local float *scratch) {
    ROW_LOOP(row, rows) {
        size_t at = row * columns;
        float sum = 0.0f;
        EACH(c) {
            sum += dy[at + c] * y[at + c];
        }
        sum = join_sum(sum, scratch);
        EACH(c) {
            dx[at + c] = y[at + c] * (dy[at + c] - sum);
        }
    }
}
