/* SPDX-License-Identifier: Apache-2.0
 *
 * One output element from the input elements at the same place. n elements; an output may be an input's memory,
 * so no pointer is restrict. Launch: one dimension, any size (COPSE_FOR over n / COPSE_VEC).
 * Reference: src/backend/host.
 */
#include "act.clh"

#define UNARY(name, f)                                                                   \
    kernel void name(global const float *x, global float *y, ulong n) {                  \
        global const copse_wide *from = (global const copse_wide *)x;                    \
        global copse_wide *to = (global copse_wide *)y;                                  \
        COPSE_FOR(i, n / COPSE_VEC) {                                                    \
            to[i] = f##_v(from[i]);                                                      \
        }                                                                                \
        COPSE_REST(i, n) {                                                               \
            y[i] = f##_1(x[i]);                                                          \
        }                                                                                \
    }

#define BINARY(name, f)                                                                  \
    kernel void name(global const float *a, global const float *b, global float *y,      \
                     ulong n) {                                                          \
        global const copse_wide *left = (global const copse_wide *)a;                    \
        global const copse_wide *right = (global const copse_wide *)b;                   \
        global copse_wide *to = (global copse_wide *)y;                                  \
        COPSE_FOR(i, n / COPSE_VEC) {                                                    \
            to[i] = f##_v(left[i], right[i]);                                            \
        }                                                                                \
        COPSE_REST(i, n) {                                                               \
            y[i] = f##_1(a[i], b[i]);                                                    \
        }                                                                                \
    }

static inline float copy_1(float x) {
    return x;
}
static inline copse_wide copy_v(copse_wide x) {
    return x;
}
static inline float add_1(float a, float b) {
    return a + b;
}
static inline copse_wide add_v(copse_wide a, copse_wide b) {
    return a + b;
}
static inline float second_1(float a, float b) {
    return b;
}
static inline copse_wide second_v(copse_wide a, copse_wide b) {
    return b;
}

UNARY(act_none_f32, copy)
UNARY(act_relu_f32, copse_relu)
UNARY(act_sigmoid_f32, copse_sigmoid)
UNARY(act_tanh_f32, copse_tanh)
UNARY(act_gelu_f32, copse_gelu)
BINARY(act_none_grad_f32, second)
BINARY(act_relu_grad_f32, copse_relu_grad)
BINARY(act_sigmoid_grad_f32, copse_sigmoid_grad)
BINARY(act_tanh_grad_f32, copse_tanh_grad)
BINARY(act_gelu_grad_f32, copse_gelu_grad)
BINARY(add_f32, add)

/* y[row, c] = act(y[row, c] + bias[c]) in place: the epilogue of a product that could not take it along.
 * has_bias 0: bias is not read. One item a row on chunked devices, else an element. */
kernel void bias_act_f32(global float *y, global const float *restrict bias, ulong rows,
                         uint columns, uint has_bias, uint act) {
#ifdef COPSE_CHUNKED
    COPSE_FOR(row, rows) {
        global float *line = y + row * columns;
        uint c = 0;
        for (; c + COPSE_VEC <= columns; c += COPSE_VEC) {
            global copse_wide_any *at = (global copse_wide_any *)(line + c);
            copse_wide v = *at;
            if (has_bias)
                v += *(global const copse_wide_any *)(bias + c);
            *at = copse_act_v(v, act);
        }
        for (; c < columns; c++)
            line[c] = copse_act_1(line[c] + (has_bias ? bias[c] : 0.0f), act);
    }
#else
    COPSE_FOR(i, rows * columns) {
        y[i] = copse_act_1(y[i] + (has_bias ? bias[i % columns] : 0.0f), act);
    }
#endif
}
