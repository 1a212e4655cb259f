/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <stdint.h>
#include <string.h>

#include "graph/build.h"

static copse_error error;

/* What the definition says, by counting: valid windows begin at every stride-th pixel from
 * which the whole window lies inside. */
static size_t count_valid(size_t input, size_t kernel, size_t stride, size_t dilation) {
    size_t count = 0;
    for (size_t start = 0; start < input; start += stride)
        if (start + (kernel - 1) * dilation < input)
            count++;
    return count;
}

START_TEST(test_window_valid_counts_whole_windows) {
    for (size_t input = 1; input <= 17; input++)
        for (size_t kernel = 1; kernel <= 6; kernel++)
            for (size_t stride = 1; stride <= 4; stride++)
                for (size_t dilation = 1; dilation <= 3; dilation++) {
                    size_t want = count_valid(input, kernel, stride, dilation);
                    size_t output = 0, pad = 99;
                    bool fits = copse__window_axis(input, kernel, stride, dilation,
                                                   COPSE__PADDING_VALID, &output, &pad);
                    ck_assert_uint_eq(fits, want > 0);
                    if (fits) {
                        ck_assert_uint_eq(output, want);
                        ck_assert_uint_eq(pad, 0);
                    }
                }
}
END_TEST

/* As many windows as begin inside the image; the padding is the least that gives each
 * window its pixels, halved, the odd one after the image. */
START_TEST(test_window_same_pads_least_and_the_odd_pixel_last) {
    for (size_t input = 1; input <= 17; input++)
        for (size_t kernel = 1; kernel <= 6; kernel++)
            for (size_t stride = 1; stride <= 4; stride++)
                for (size_t dilation = 1; dilation <= 3; dilation++) {
                    size_t want = count_valid(input, 1, stride, 1);
                    size_t last = (want - 1) * stride + (kernel - 1) * dilation + 1;
                    size_t padding = 0, output, pad;
                    while (input + padding < last)
                        padding++;
                    ck_assert(copse__window_axis(input, kernel, stride, dilation,
                                                 COPSE__PADDING_SAME, &output, &pad));
                    ck_assert_uint_eq(output, want);
                    ck_assert_uint_eq(pad, padding / 2);
                }
}
END_TEST

START_TEST(test_window_survives_hostile_sizes) {
    size_t output, pad, most = SIZE_MAX;
    ck_assert(
        !copse__window_axis(32, most, 1, most, COPSE__PADDING_VALID, &output, &pad));
    ck_assert(!copse__window_axis(32, most, 1, 1, COPSE__PADDING_VALID, &output, &pad));
    ck_assert(!copse__window_axis(32, 3, 1, most, COPSE__PADDING_SAME, &output, &pad));
    ck_assert(!copse__window_axis(most, most, 1, 1, COPSE__PADDING_SAME, &output, &pad));
    ck_assert(!copse__window_axis(0, 1, 1, 1, COPSE__PADDING_SAME, &output, &pad));
    ck_assert(!copse__window_axis(3, 0, 1, 1, COPSE__PADDING_SAME, &output, &pad));
    ck_assert(!copse__window_axis(3, 1, 0, 1, COPSE__PADDING_SAME, &output, &pad));
    ck_assert(copse__window_axis(32, 3, most, 1, COPSE__PADDING_SAME, &output, &pad));
    ck_assert_uint_eq(output, 1);
    ck_assert(copse__window_axis(32, 3, most, 1, COPSE__PADDING_VALID, &output, &pad));
    ck_assert_uint_eq(output, 1);
}
END_TEST

static void check_shape(copse__layer_spec layer, size_t height, size_t width,
                        const char *shape, copse__window *window) {
    copse__model_options options = float_options(3, (size_t[]){height, width, 5});
    copse__graph *graph;
    char text[COPSE__SHAPE_TEXT];
    ASSERT_OK(copse__model_build(&graph, &layer, 1, &options, &error));
    ck_assert_str_eq(
        copse__tensor_shape_text(&graph->tensors[graph->output], text, sizeof text),
        shape);
    *window = graph->nodes[0].attrs.window;
    copse__graph_free(graph);
}

START_TEST(test_window_layers_have_keras_shapes) {
    copse__window window;
    check_shape((copse__layer_spec){.kind = "conv2d",
                                    ARGS(NUMBER("filters", 7), NUMBER("kernel", 3))},
                32, 31, "(None, 30, 29, 7)", &window);
    check_shape((copse__layer_spec){.kind = "conv2d",
                                    ARGS(NUMBER("filters", 7), PAIR("kernel", 4, 3),
                                         TEXT("padding", "same"))},
                32, 31, "(None, 32, 31, 7)", &window);
    ck_assert_uint_eq(window.pad_top, 1); /* of three */
    ck_assert_uint_eq(window.pad_left, 1);
    check_shape(
        (copse__layer_spec){.kind = "conv2d",
                            ARGS(NUMBER("filters", 7), PAIR("kernel_size", 3, 5),
                                 PAIR("strides", 2, 3), PAIR("dilation_rate", 3, 2),
                                 TEXT("padding", "same"))},
        33, 20, "(None, 17, 7, 7)", &window);
    ck_assert_uint_eq(window.kernel_h, 3);
    ck_assert_uint_eq(window.kernel_w, 5);
    ck_assert_uint_eq(window.stride_h, 2);
    ck_assert_uint_eq(window.stride_w, 3);
    ck_assert_uint_eq(window.dilation_h, 3);
    ck_assert_uint_eq(window.dilation_w, 2);
    ck_assert_uint_eq(window.pad_top, 3);  /* 16 * 2 + 7 - 33 = 6 */
    ck_assert_uint_eq(window.pad_left, 3); /* 6 * 3 + 9 - 20 = 7 */
    check_shape((copse__layer_spec){.kind = "max_pooling2d"}, 31, 32, "(None, 15, 16, 5)",
                &window); /* pool 2, strides as the pool */
    ck_assert_uint_eq(window.stride_h, 2);
    check_shape(
        (copse__layer_spec){.kind = "max_pool2d",
                            ARGS(PAIR("pool_size", 3, 2), TEXT("padding", "same"))},
        31, 33, "(None, 11, 17, 5)", &window);
    ck_assert_uint_eq(window.stride_h, 3);
    ck_assert_uint_eq(window.stride_w, 2);
    check_shape((copse__layer_spec){.kind = "avg_pool2d",
                                    ARGS(NUMBER("pool", 3), NUMBER("strides", 1))},
                9, 10, "(None, 7, 8, 5)", &window);
    check_shape((copse__layer_spec){.kind = "average_pooling2d",
                                    ARGS(NUMBER("pool", 3), NUMBER("strides", 2),
                                         TEXT("padding", "same"))},
                9, 10, "(None, 5, 5, 5)", &window);
    check_shape((copse__layer_spec){.kind = "global_average_pooling2d"}, 9, 10,
                "(None, 5)", &window);
}
END_TEST

START_TEST(test_window_too_large_names_both_shapes) {
    copse__layer_spec layer = {
        .kind = "conv2d",
        .place = "net.yaml:4:5",
        ARGS(NUMBER("filters", 7), PAIR("kernel", 5, 3), NUMBER("dilation", 2))};
    copse__model_options options = float_options(3, (size_t[]){8, 31, 5});
    copse__graph *graph;
    ASSERT_FAILS(COPSE_CONFIG, copse__model_build(&graph, &layer, 1, &options, &error));
    ck_assert_ptr_null(graph);
    ck_assert_str_eq(error.place, "net.yaml:4:5");
    ck_assert_ptr_nonnull(strstr(error.text, "(5, 3)"));
    ck_assert_ptr_nonnull(strstr(error.text, "dilated by (2, 2)"));
    ck_assert_ptr_nonnull(strstr(error.text, "(None, 8, 31, 5)"));

    copse__layer_spec pool = {
        .kind = "max_pool2d", .place = "net.yaml:9:5", ARGS(NUMBER("pool", 9))};
    ASSERT_FAILS(COPSE_CONFIG, copse__model_build(&graph, &pool, 1, &options, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "pool of (9, 9) does not fit"));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph window");
    ADD_TEST(suite, test_window_valid_counts_whole_windows);
    ADD_TEST(suite, test_window_same_pads_least_and_the_odd_pixel_last);
    ADD_TEST(suite, test_window_survives_hostile_sizes);
    ADD_TEST(suite, test_window_layers_have_keras_shapes);
    ADD_TEST(suite, test_window_too_large_names_both_shapes);
    return run_suite(suite);
}
