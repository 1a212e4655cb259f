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
#define JOIN(name, type, add)                                                            \
    static inline type name(type mine, local float *memory) {                            \
        return mine;                                                                     \
    }
#else
#define JOIN(name, type, add)                                                            \
    static inline type name(type mine, local float *memory) {                            \
        local type *scratch = (local type *)memory;                                      \
        uint l = get_local_id(0);                                                        \
        scratch[l] = mine;                                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        for (uint reach = get_local_size(0) / 2; reach > 0; reach /= 2) {                \
            if (l < reach)                                                               \
                scratch[l] = add(scratch[l], scratch[l + reach]);                        \
            barrier(CLK_LOCAL_MEM_FENCE);                                                \
        }                                                                                \
        type all = scratch[0];                                                           \
        barrier(CLK_LOCAL_MEM_FENCE);                                                    \
        return all;                                                                      \
    }
#endif
#define PLUS(a, b) ((a) + (b))
JOIN(join_sum, float, PLUS)
JOIN(join_max, float, fmax)
JOIN(join_first, uint, min)

#define EACH(c) for (uint c = get_local_id(0); c < columns; c += get_local_size(0))

/* The row's largest number. */
static inline float row_max(global const float *x, uint columns, local float *scratch) {
    float most = -INFINITY;
    EACH(c) {
        most = fmax(most, x[c]);
    }
    return join_max(most, scratch);
}

/* The first place of `most`, the row's largest number; `columns` where there is none. */
static inline uint row_first(global const float *x, uint columns, float most,
                             local float *scratch) {
    uint first = columns;
    EACH(c) {
        first = x[c] == most ? min(first, c) : first;
    }
    return join_first(first, scratch);
}

/* Whether the largest number of a row is at `first`. A NaN is never the largest. */
static inline float row_hit(global const float *x, uint columns, uint first,
                            local float *scratch) {
    float most = row_max(x, columns, scratch);
    return first < columns && first == row_first(x, columns, most, scratch) ? 1.0f : 0.0f;
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
        float hit = row_first(from, columns, most, scratch) == chosen ? 1.0f : 0.0f;
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

/* cross_entropy_logits against probabilities of the classes instead of a label; a class that they rule out does not
 * count, however small its logit. */
kernel void cross_entropy_soft_logits_f32(global const float *x,
                                          global const float *restrict target,
                                          global float *restrict metrics,
                                          global float *dx,
                                          global const copse_scalars *restrict scalars,
                                          ulong rows, uint columns, uint has_dx,
                                          local float *scratch) {
    float scale = has_dx ? scalars->loss_scale : 0.0f;
    ROW_LOOP(row, rows) {
        global const float *from = x + row * columns;
        global const float *wanted = target + row * columns;
        float most = row_max(from, columns, scratch);
        uint first = row_first(from, columns, most, scratch);
        float hit = row_hit(wanted, columns, first, scratch);
        float others = 0.0f, weight = 0.0f, distance = 0.0f;
        EACH(c) {
            others += c == first ? 0.0f : exp(from[c] - most);
            weight += wanted[c];
            distance += wanted[c] == 0.0f ? 0.0f : wanted[c] * (most - from[c]);
        }
        others = join_sum(others, scratch);
        weight = join_sum(weight, scratch);
        distance = join_sum(distance, scratch);
        float sum = 1.0f + others;
        if (get_local_id(0) == 0) {
            metrics[2 * row] = distance + weight * log1p(others); /* nothing cancels */
            metrics[2 * row + 1] = hit;
        }
        if (has_dx) {
            global float *to = dx + row * columns;
            EACH(c) {
                to[c] = (weight * exp(from[c] - most) / sum - wanted[c]) * scale;
            }
        }
    }
}

/* cross_entropy_logits from probabilities: p = clamp(x / sum(x), 1e-7, 1 - 1e-7); where it is clamped there is no gradient. */
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
        float hit = row_first(from, columns, most, scratch) == chosen ? 1.0f : 0.0f;
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

/* cross_entropy_probabilities against probabilities of the classes: what is clamped has no gradient of its own. */
kernel void cross_entropy_soft_probabilities_f32(
    global const float *x, global const float *restrict target,
    global float *restrict metrics, global float *dx,
    global const copse_scalars *restrict scalars, ulong rows, uint columns, uint has_dx,
    local float *scratch) {
    const float least = 1e-7f, largest = 1.0f - 1e-7f;
    float scale = has_dx ? scalars->loss_scale : 0.0f;
    ROW_LOOP(row, rows) {
        global const float *from = x + row * columns;
        global const float *wanted = target + row * columns;
        float most = row_max(from, columns, scratch);
        uint first = row_first(from, columns, most, scratch);
        float hit = row_hit(wanted, columns, first, scratch);
        float sum = 0.0f;
        EACH(c) {
            sum += from[c];
        }
        sum = join_sum(sum, scratch);
        float weight = 0.0f, value = 0.0f;
        EACH(c) {
            float p = from[c] / sum;
            weight += p < least || p > largest ? 0.0f : wanted[c];
            value -= wanted[c] * log(p < least ? least : p > largest ? largest : p);
        }
        weight = join_sum(weight, scratch);
        value = join_sum(value, scratch);
        if (get_local_id(0) == 0) {
            metrics[2 * row] = value;
            metrics[2 * row + 1] = hit;
        }
        if (has_dx) {
            global float *to = dx + row * columns;
            EACH(c) {
                float p = from[c] / sum;
                float own = p < least || p > largest ? 0.0f : wanted[c] / from[c];
                to[c] = (weight / sum - own) * scale;
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
