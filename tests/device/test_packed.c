/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/op_run.h"

/* The packed providers against the host, on the device of COPSE_TEST_DEVICE ("0:0"). */

static const char *const packed[] = {
    "dense=packed",
    "dense_grad_input=packed",
    "dense_grad_weight=packed",
    "conv2d=packed",
    "conv2d_grad_input=packed",
    "conv2d_grad_filter=packed",
    NULL,
};
static const char *const winograd[] = {"conv2d=winograd", "conv2d_grad_input=winograd",
                                       "conv2d_grad_filter=winograd", NULL};
static const char *const winograd4[] = {"conv2d=winograd4", "conv2d_grad_input=winograd4",
                                        "conv2d_grad_filter=winograd4", NULL};

static copse__device *open_with(const char *const *providers) {
    copse_error error = {0};
    copse__device *device;
    const char *at = getenv("COPSE_TEST_DEVICE");
    copse__device_choice choice = {.api = COPSE__API_OPENCL, .part_count = 1};
    copse__device_options options = {.providers = providers};
    unsigned platform = 0, index = 0;
    if (at)
        ck_assert_int_eq(sscanf(at, "%u:%u", &platform, &index), 2);
    choice.platform_index = platform;
    choice.device_index = index;
    snprintf(choice.label, sizeof choice.label, "%u:%u", platform, index);
    ASSERT_OK(copse__backend_opencl.open(&device, &choice, &options, &error));
    return device;
}

/* Not every device has these providers: says so, where it is skipped. */
static bool is_supported(copse__device *device) {
    copse_error error = {0};
    copse__node_spec spec = {.op = COPSE__OP_DENSE,
                             .in = {BATCHED(COPSE_F32, 1, 1), FIXED(COPSE_F32, 1, 1)},
                             .out = {BATCHED(COPSE_F32, 1, 1)}};
    copse__node_run *run;
    copse_status status = copse__node_run_new(&run, device, &spec, &error);
    copse__node_run_free(run);
    if (status == COPSE_UNSUPPORTED)
        fprintf(stderr, "skipped: %s: %s\n", error.place, error.text);
    else
        ASSERT_OK(status);
    return status == COPSE_OK;
}

static double *as_double(const float *from, size_t count) {
    double *made = checked_malloc(count * sizeof *made);
    for (size_t i = 0; i < count; i++)
        made[i] = from[i];
    return made;
}

/* Runs a node on both devices at `batch`; fails where output 0 differs. */
static void compare(copse__device *device, copse__device *host,
                    const copse__node_spec *spec, size_t batch, const char *what) {
    copse_error error = {0};
    copse__extents extents = {{0, batch, 0}};
    const void *in[COPSE__MAX_INPUTS] = {0};
    float *data[COPSE__MAX_INPUTS] = {0};
    size_t count = copse__node_operand_elements(&spec->out[0], &extents);
    float *got = checked_malloc(count * sizeof *got);
    float *again = checked_malloc(count * sizeof *again);
    float *want = checked_malloc(count * sizeof *want);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        if (spec->in[i].present) {
            size_t n = copse__node_operand_elements(&spec->in[i], &extents);
            data[i] = checked_malloc(n * sizeof(float));
            fill_uniform(data[i], n, i + 7, -0.25f, 0.25f);
            in[i] = data[i];
        }
    void *out[COPSE__MAX_OUTPUTS] = {got}, *out_again[COPSE__MAX_OUTPUTS] = {again};
    void *out_host[COPSE__MAX_OUTPUTS] = {want};
    ASSERT_OK(run_op(device, spec, batch, NULL, in, out, &error));
    ASSERT_OK(run_op(device, spec, batch, NULL, in, out_again, &error));
    ASSERT_OK(run_op(host, spec, batch, NULL, in, out_host, &error));
    double *wanted = as_double(want, count);
    double error_of = worst_error(got, wanted, count);
    ck_assert_msg(error_of < 5e-6, "%s: worst error %g", what, error_of);
    ck_assert_msg(memcmp(got, again, count * sizeof *got) == 0, "%s: other bits", what);
    free(wanted);
    free(got);
    free(again);
    free(want);
    for (size_t i = 0; i < COPSE__MAX_INPUTS; i++)
        free(data[i]);
}

/* planned, rows of the moment, k, n: around the edges of tiles, panels and blocks, empty
 * batches, and sums that are cut into parts. */
static const size_t dense_sizes[][4] = {
    {1, 1, 1, 1},        {4, 0, 5, 3},       {6, 6, 16, 16},      {7, 5, 17, 15},
    {13, 13, 255, 17},   {12, 11, 257, 33},  {97, 95, 256, 31},   {64, 64, 300, 10},
    {40, 33, 129, 257},  {33, 32, 1500, 64}, {256, 100, 1030, 1}, {300, 299, 64, 128},
    {1100, 1029, 24, 9}, {2, 2, 2, 700},     {193, 193, 513, 80},
};

START_TEST(test_dense_all_sizes_equal_host) {
    copse__device *device = open_with(packed), *host = open_host(1);
    bool supported = is_supported(device);
    for (size_t i = 0; supported && i < sizeof dense_sizes / sizeof dense_sizes[0]; i++) {
        const size_t *s = dense_sizes[i];
        char what[96];
        copse__node_operand x = BATCHED(COPSE_F32, s[0], s[2]);
        copse__node_operand y = BATCHED(COPSE_F32, s[0], s[3]);
        copse__node_operand w = FIXED(COPSE_F32, s[2], s[3]);
        copse__node_operand b = FIXED(COPSE_F32, s[3]);
        for (int act = 0; act < COPSE__ACT_COUNT; act++) {
            copse__node_spec spec = {.op = COPSE__OP_DENSE, .in = {x, w}, .out = {y}};
            spec.attrs.act = (copse__activation)act;
            if (act % 2 == 1 || i % 2 == 1)
                spec.in[2] = b;
            snprintf(what, sizeof what, "dense %zux%zux%zu act %d", s[1], s[2], s[3],
                     act);
            compare(device, host, &spec, s[1], what);
        }
        snprintf(what, sizeof what, "gradients of dense %zux%zux%zu", s[1], s[2], s[3]);
        copse__node_spec input = {
            .op = COPSE__OP_DENSE_GRAD_INPUT, .in = {y, w}, .out = {x}};
        compare(device, host, &input, s[1], what);
        copse__node_spec weight = {
            .op = COPSE__OP_DENSE_GRAD_WEIGHT, .in = {x, y}, .out = {w}};
        compare(device, host, &weight, s[1], what);
    }
    copse__device_close(device);
    copse__device_close(host);
}
END_TEST

typedef struct shape {
    size_t planned, n, h, w, c, p, q, f;
    copse__window win; /* kernel, stride, dilation, pads of top and left */
} shape;

static const shape conv_shapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, {1, 1, 1, 1, 1, 1, 0, 0}},
    {3, 0, 5, 5, 2, 3, 3, 2, {3, 3, 1, 1, 1, 1, 0, 0}},
    {4, 3, 12, 11, 3, 10, 9, 32, {3, 3, 1, 1, 1, 1, 0, 0}},
    {2, 2, 9, 10, 33, 9, 10, 17, {3, 3, 1, 1, 1, 1, 1, 1}}, /* same */
    {3, 2, 8, 7, 20, 4, 4, 35, {3, 3, 2, 2, 1, 1, 0, 1}},   /* same, stride 2 */
    {2, 1, 13, 12, 5, 3, 4, 6, {4, 2, 3, 3, 2, 3, 0, 1}},   /* strides share no taps */
    {2, 2, 9, 9, 40, 3, 3, 24, {3, 3, 3, 3, 2, 2, 0, 0}},   /* dilation and stride */
    {2, 2, 6, 6, 3, 2, 3, 2, {2, 1, 3, 2, 1, 1, 0, 0}},     /* places never read */
    {1, 1, 7, 7, 300, 7, 7, 48, {3, 3, 1, 1, 1, 1, 1, 1}}, /* several slabs of channels */
    {1, 1, 3, 200, 130, 3, 200, 9, {3, 7, 1, 1, 1, 1, 1, 3}}, /* cut columns */
    {9, 8, 7, 7, 16, 7, 7, 33, {1, 1, 1, 1, 1, 1, 0, 0}},     /* many images a block */
    {2, 2, 30, 21, 12, 15, 11, 16, {7, 7, 2, 2, 1, 1, 2, 3}},
    {5, 4, 16, 15, 7, 16, 15, 96, {5, 3, 1, 1, 1, 2, 2, 2}},
    /* The last piece of channels alone is a multiple of 32: its pixels lie as far apart as those of the others. */
    {1, 1, 14, 14, 640, 7, 7, 16, {3, 3, 2, 2, 1, 1, 0, 0}},
    {1, 1, 28, 28, 640, 14, 14, 16, {3, 3, 2, 2, 1, 1, 0, 0}},
    {3, 2, 6, 6, 832, 6, 6, 16, {3, 3, 1, 1, 1, 1, 1, 1}},
};

static void conv_passes(copse__device *device, copse__device *host, const shape *s,
                        size_t i, int acts) {
    char what[96];
    copse__node_operand x = BATCHED(COPSE_F32, s->planned, s->h, s->w, s->c);
    copse__node_operand y = BATCHED(COPSE_F32, s->planned, s->p, s->q, s->f);
    copse__node_operand w =
        FIXED(COPSE_F32, s->win.kernel_h, s->win.kernel_w, s->c, s->f);
    copse__node_operand b = FIXED(COPSE_F32, s->f);
    for (int act = 0; act < acts; act++) {
        copse__node_spec spec = {.op = COPSE__OP_CONV2D, .in = {x, w}, .out = {y}};
        spec.attrs.window = s->win;
        spec.attrs.act = (copse__activation)act;
        if (act > 0)
            spec.in[2] = b;
        snprintf(what, sizeof what, "conv2d, shape %zu, act %d", i, act);
        compare(device, host, &spec, s->n, what);
    }
    snprintf(what, sizeof what, "gradients of conv2d, shape %zu", i);
    copse__node_spec input = {
        .op = COPSE__OP_CONV2D_GRAD_INPUT, .in = {y, w}, .out = {x}};
    input.attrs.window = s->win;
    compare(device, host, &input, s->n, what);
    copse__node_spec filter = {
        .op = COPSE__OP_CONV2D_GRAD_FILTER, .in = {x, y}, .out = {w}};
    filter.attrs.window = s->win;
    compare(device, host, &filter, s->n, what);
}

START_TEST(test_conv2d_all_shapes_equal_host) {
    copse__device *device = open_with(packed), *host = open_host(1);
    bool supported = is_supported(device);
    for (size_t i = 0; supported && i < sizeof conv_shapes / sizeof conv_shapes[0]; i++)
        conv_passes(device, host, &conv_shapes[i], i, 3);
    copse__device_close(device);
    copse__device_close(host);
}
END_TEST

/* Sizes of the moment around tiles of 2 and of 4, blocks and panels; all pads; an empty batch. */
static const shape winograd_shapes[] = {
    {1, 1, 1, 1, 16, 1, 1, 16, {3, 3, 1, 1, 1, 1, 1, 1}},
    {3, 0, 5, 5, 16, 3, 3, 16, {3, 3, 1, 1, 1, 1, 0, 0}},
    {4, 3, 12, 11, 32, 10, 9, 16, {3, 3, 1, 1, 1, 1, 0, 0}},
    {2, 2, 7, 6, 48, 9, 8, 80, {3, 3, 1, 1, 1, 1, 2, 2}},
    {5, 3, 8, 9, 16, 7, 8, 32, {3, 3, 1, 1, 1, 1, 0, 1}},
    {9, 8, 14, 14, 64, 14, 14, 96, {3, 3, 1, 1, 1, 1, 1, 1}},
    {40, 33, 13, 3, 208, 13, 3, 16, {3, 3, 1, 1, 1, 1, 1, 1}},
    /* 72 channels, then 64, whose pixels lie as far apart as those of the 72; for tiles of 2, and of 4 */
    {1, 1, 14, 16, 136, 14, 16, 16, {3, 3, 1, 1, 1, 1, 1, 1}},
    {1, 1, 16, 24, 136, 16, 24, 16, {3, 3, 1, 1, 1, 1, 1, 1}},
    {1, 1, 4, 5, 512, 4, 5, 512, {3, 3, 1, 1, 1, 1, 1, 1}}, /* too deep for tiles of 4 */
};

static void winograd_all_shapes(const char *const *providers, size_t count, int acts) {
    copse__device *device = open_with(providers), *host = open_host(1);
    bool supported = is_supported(device);
    for (size_t i = 0; supported && i < count; i++)
        conv_passes(device, host, &winograd_shapes[i], i, acts);
    copse__device_close(device);
    copse__device_close(host);
}

#define WINOGRAD_SHAPES (sizeof winograd_shapes / sizeof winograd_shapes[0])

START_TEST(test_winograd_all_shapes_equal_host) {
    winograd_all_shapes(winograd, WINOGRAD_SHAPES, 3);
}
END_TEST

START_TEST(test_winograd4_all_shapes_equal_host) {
    winograd_all_shapes(winograd4, WINOGRAD_SHAPES - 1,
                        2); /* sigmoid is left to others */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("packed");
    ADD_TEST(suite, test_dense_all_sizes_equal_host);
    ADD_TEST(suite, test_conv2d_all_shapes_equal_host);
    ADD_TEST(suite, test_winograd_all_shapes_equal_host);
    ADD_TEST(suite, test_winograd4_all_shapes_equal_host);
    return run_suite(suite);
}
