/* SPDX-License-Identifier: Apache-2.0 */
#include <hash.clh>
#include <math.h>
#include <string.h>

#include "support/op_run.h"

enum { COUNT = 131, STEPS = 5 };

/* One optimizer written a second time, in double, straight from Keras' formulas. */
typedef struct reference {
    double w[COUNT], slot[3][COUNT];
} reference;

typedef void double_step(reference *r, const copse__attrs *a, const float *g, int step);

static const double lr = 0.01, weight_decay = 0.004;

static void step_sgd(reference *r, const copse__attrs *a, const float *g, int step) {
    (void)step;
    for (size_t i = 0; i < COUNT; i++) {
        double m = a->update.momentum * r->slot[0][i] - lr * (double)g[i];
        r->slot[0][i] = m;
        r->w[i] += a->update.nesterov ? a->update.momentum * m - lr * (double)g[i] : m;
    }
}

static void step_adam(reference *r, const copse__attrs *a, const float *g, int step) {
    double b1 = a->update.beta1, b2 = a->update.beta2;
    double alpha = lr * sqrt(1 - pow(b2, step + 1)) / (1 - pow(b1, step + 1));
    for (size_t i = 0; i < COUNT; i++) {
        r->slot[0][i] = b1 * r->slot[0][i] + (1 - b1) * (double)g[i];
        r->slot[1][i] = b2 * r->slot[1][i] + (1 - b2) * pow((double)g[i], 2);
        r->w[i] -= alpha * r->slot[0][i] / (sqrt(r->slot[1][i]) + a->update.epsilon);
    }
}

static void step_adamw(reference *r, const copse__attrs *a, const float *g, int step) {
    for (size_t i = 0; i < COUNT; i++)
        r->w[i] -= lr * weight_decay * r->w[i];
    step_adam(r, a, g, step);
}

static void step_rmsprop(reference *r, const copse__attrs *a, const float *g, int step) {
    (void)step;
    double rho = a->update.rho;
    for (size_t i = 0; i < COUNT; i++) {
        double gi = (double)g[i];
        r->slot[0][i] = rho * r->slot[0][i] + (1 - rho) * gi * gi;
        double denominator = r->slot[0][i] + a->update.epsilon;
        if (a->update.centered) {
            r->slot[1][i] = rho * r->slot[1][i] + (1 - rho) * gi;
            denominator -= r->slot[1][i] * r->slot[1][i];
        }
        double increment = lr * gi / sqrt(denominator);
        if (a->update.momentum > 0) {
            r->slot[2][i] = a->update.momentum * r->slot[2][i] + increment;
            increment = r->slot[2][i];
        }
        r->w[i] -= increment;
    }
}

static const struct {
    copse__op op;
    copse__attrs attrs;
    bool slots[3];
    double_step *step;
} optimizers[] = {
    {COPSE__OP_UPDATE_SGD, {0}, {false, false, false}, step_sgd},
    {COPSE__OP_UPDATE_SGD, {.update.momentum = 0.9}, {true, false, false}, step_sgd},
    {COPSE__OP_UPDATE_SGD,
     {.update.momentum = 0.9, .update.nesterov = true},
     {true, false, false},
     step_sgd},
    {COPSE__OP_UPDATE_ADAM,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     {true, true, false},
     step_adam},
    {COPSE__OP_UPDATE_ADAMW,
     {.update.beta1 = 0.9, .update.beta2 = 0.999, .update.epsilon = 1e-7},
     {true, true, false},
     step_adamw},
    {COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9, .update.epsilon = 1e-7},
     {true, false, false},
     step_rmsprop},
    {COPSE__OP_UPDATE_RMSPROP,
     {.update.rho = 0.9,
      .update.epsilon = 1e-3,
      .update.momentum = 0.5,
      .update.centered = true},
     {true, true, true},
     step_rmsprop},
};

static void check_optimizer(copse__device *device, size_t o) {
    copse__node_spec spec = {.op = optimizers[o].op,
                             .attrs = optimizers[o].attrs,
                             .in = {FIXED(COPSE_F32, COUNT), FIXED(COPSE_F32, COUNT)},
                             .out = {FIXED(COPSE_F32, COUNT)},
                             .in_place = {1}};
    float w[COUNT], g[COUNT], scaled[COUNT], slot[3][COUNT] = {{0}};
    reference r = {{0}, {{0}}};
    fill_uniform(w, COUNT, 1, -1, 1);
    for (size_t i = 0; i < COUNT; i++)
        r.w[i] = (double)w[i];
    for (uint8_t s = 0; s < 3; s++) {
        if (!optimizers[o].slots[s])
            continue;
        spec.in[2 + s] = spec.out[1 + s] = spec.in[0];
        spec.in_place[1 + s] = (uint8_t)(3 + s);
    }
    for (int step = 0; step < STEPS; step++) {
        copse_error error = {0};
        copse_scalars scalars = {
            .gradient_scale = 0.5f,
            .learning_rate = (float)lr,
            .step_size =
                (float)(lr * sqrt(1 - pow(0.999, step + 1)) / (1 - pow(0.9, step + 1))),
            .weight_decay = (float)(lr * weight_decay)};
        fill_uniform(g, COUNT, (uint64_t)step + 10, -1, 1);
        for (size_t i = 0; i < COUNT; i++)
            scaled[i] = g[i] * 2; /* gradient_scale halves it again */
        ASSERT_OK(run_op(device, &spec, 0, &scalars,
                         (const void *[8]){w, scaled, slot[0], slot[1], slot[2]},
                         (void *[4]){w, slot[0], slot[1], slot[2]}, &error));
        optimizers[o].step(&r, &spec.attrs, g, step);
    }
    ck_assert_msg(worst_error(w, r.w, COUNT) < 2e-6, "optimizer %zu", o);
    for (size_t s = 0; s < 3; s++)
        if (optimizers[o].slots[s])
            ck_assert_double_lt(worst_error(slot[s], r.slot[s], COUNT), 2e-6);
}

START_TEST(test_optimizers_match_keras_formulas_in_double) {
    copse__device *device = open_host(1);
    for (size_t o = 0; o < sizeof optimizers / sizeof optimizers[0]; o++)
        check_optimizer(device, o);
    copse__device_close(device);
}
END_TEST

START_TEST(test_finite_check_counts) {
    copse__device *device = open_host(1);
    float g[COUNT];
    uint32_t count;
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_FINITE_CHECK,
                             .in = {FIXED(COPSE_F32, COUNT)},
                             .out = {FIXED(COPSE_U32, 1)}};
    fill_uniform(g, COUNT, 1, -1, 1);
    ASSERT_OK(run_op(device, &spec, 0, NULL, (const void *[8]){g}, (void *[4]){&count},
                     &error));
    ck_assert_uint_eq(count, 0);
    g[0] = INFINITY, g[77] = NAN, g[COUNT - 1] = -INFINITY;
    ASSERT_OK(run_op(device, &spec, 0, NULL, (const void *[8]){g}, (void *[4]){&count},
                     &error));
    ck_assert_uint_eq(count, 3);
    copse__device_close(device);
}
END_TEST

static uint64_t hash_of(copse__device *device, const float *w, size_t count,
                        uint64_t base) {
    uint64_t partial[256], sum = 0;
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_PARAMETER_HASH,
                             .attrs.hash.base = base,
                             .in = {FIXED(COPSE_F32, count)},
                             .out = {FIXED(COPSE_U64, 256)}};
    ASSERT_OK(run_op(device, &spec, 0, NULL, (const void *[8]){w}, (void *[4]){partial},
                     &error));
    for (size_t i = 0; i < 256; i++)
        sum += partial[i];
    return sum;
}

/* Parts hashed with their bases add up to the whole; a swap and a flipped bit show. */
START_TEST(test_parameter_hash_adds_up_and_sees_changes) {
    copse__device *device = open_host(1);
    float w[COUNT];
    uint64_t want = 0;
    fill_uniform(w, COUNT, 1, -1, 1);
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits;
        memcpy(&bits, &w[i], 4);
        want += copse_hash_mix(i, bits);
    }
    ck_assert_uint_eq(hash_of(device, w, COUNT, 0), want);
    ck_assert_uint_eq(hash_of(device, w, 50, 0) + hash_of(device, w + 50, COUNT - 50, 50),
                      want);
    float kept = w[3];
    w[3] = w[4], w[4] = kept;
    ck_assert_uint_ne(hash_of(device, w, COUNT, 0), want);
    w[4] = w[3], w[3] = nextafterf(kept, 2);
    ck_assert_uint_ne(hash_of(device, w, COUNT, 0), want);
    copse__device_close(device);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("host_update");
    ADD_TEST(suite, test_optimizers_match_keras_formulas_in_double);
    ADD_TEST(suite, test_finite_check_counts);
    ADD_TEST(suite, test_parameter_hash_adds_up_and_sees_changes);
    return run_suite(suite);
}
