/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "graph/graph.h"

static copse_error error;
static copse__graph *graph;

static void new_graph(void) {
    ASSERT_OK(copse__graph_new(&graph, &error));
}

static void free_graph(void) {
    copse__graph_free(graph);
}

static const copse__dim image[] = {{8, COPSE__BATCH}, {5, 0}, {7, 0}, {3, 0}};

static copse__tensor_id tensor(const char *name, size_t rank, const copse__dim *dim) {
    copse__tensor_id id;
    ASSERT_OK(copse__graph_tensor(graph, name, COPSE_F32, COPSE__ROLE_ACTIVATION, rank,
                                  dim, &id, &error));
    return id;
}

START_TEST(test_graph_tensor_sizes_follow_the_extents) {
    copse__tensor_id ids[] = {tensor("x", 4, image), tensor("scalar", 0, NULL)};
    const copse__tensor *x = &graph->tensors[ids[0]], *scalar = &graph->tensors[ids[1]];
    copse__extents three = {.of = {[COPSE__BATCH] = 3}}, none = {{0}};
    ck_assert_uint_eq(copse__tensor_elements(x, NULL), 840);
    ck_assert_uint_eq(copse__tensor_elements(x, &three), 315);
    ck_assert_uint_eq(copse__tensor_elements(x, &none), 0);
    ck_assert_uint_eq(copse__tensor_bytes(x, &three), 1260);
    ck_assert_uint_eq(copse__tensor_rows(x, NULL), 280);
    ck_assert_uint_eq(copse__tensor_rows(x, &three), 105);
    ck_assert_uint_eq(copse__tensor_columns(x), 3);

    ck_assert_uint_eq(copse__tensor_elements(scalar, NULL), 1);
    ck_assert_uint_eq(copse__tensor_rows(scalar, NULL), 1);
    ck_assert_uint_eq(copse__tensor_columns(scalar), 1);
}
END_TEST

START_TEST(test_graph_shape_text_is_as_keras_prints_it) {
    char text[64], tiny[8];
    copse__tensor of = {.rank = 4};
    memcpy(of.dim, image, sizeof image);
    ck_assert_str_eq(copse__tensor_shape_text(&of, text, sizeof text), "(None, 5, 7, 3)");
    ck_assert_str_eq(copse__tensor_shape_text(&of, tiny, sizeof tiny), "(None, ");
    of.rank = 1;
    ck_assert_str_eq(copse__tensor_shape_text(&of, text, sizeof text), "(None,)");
    of.rank = 0;
    ck_assert_str_eq(copse__tensor_shape_text(&of, text, sizeof text), "()");
}
END_TEST

START_TEST(test_graph_tensor_refuses_what_no_memory_holds) {
    copse__dim huge[] = {{SIZE_MAX / 8, 0}, {3, 0}};
    copse__dim wraps[] = {{(size_t)1 << 32, 0}, {(size_t)1 << 32, 0}};
    copse__dim many[COPSE_MAX_RANK + 1] = {{1, 0}};
    copse__tensor_id id;
    ASSERT_FAILS(COPSE_CONFIG,
                 copse__graph_tensor(graph, "x", COPSE_F32, COPSE__ROLE_ACTIVATION, 2,
                                     huge, &id, &error));
    ck_assert_uint_eq(id, COPSE__NO_TENSOR);
    ASSERT_FAILS(COPSE_CONFIG,
                 copse__graph_tensor(graph, "x", COPSE_F32, COPSE__ROLE_ACTIVATION, 2,
                                     wraps, &id, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "(4294967296, 4294967296)"));
    ASSERT_FAILS(COPSE_CONFIG,
                 copse__graph_tensor(graph, "x", COPSE_F32, COPSE__ROLE_ACTIVATION,
                                     COPSE_MAX_RANK + 1, many, &id, &error));
    ck_assert_uint_eq(graph->tensor_count, 0);
}
END_TEST

START_TEST(test_graph_view_shows_the_same_bytes) {
    copse__tensor_id x = tensor("x", 4, image), flat, back;
    copse__dim two[] = {{8, COPSE__BATCH}, {105, 0}};
    ASSERT_OK(copse__graph_view(graph, x, "flat", 2, two, &flat, &error));
    ASSERT_OK(copse__graph_view(graph, flat, "back", 4, image, &back, &error));
    ck_assert_uint_eq(graph->tensors[x].storage, x);
    ck_assert_uint_eq(graph->tensors[flat].storage, x);
    ck_assert_uint_eq(graph->tensors[back].storage, x); /* of a view: its storage */
    ck_assert(copse__tensor_same_shape(&graph->tensors[x], &graph->tensors[back]));
    ck_assert(!copse__tensor_same_shape(&graph->tensors[x], &graph->tensors[flat]));
}
END_TEST

START_TEST(test_graph_view_refuses_another_number_of_elements) {
    copse__tensor_id x = tensor("x", 4, image), view;
    copse__dim more[] = {{8, COPSE__BATCH}, {106, 0}};
    /* As many at the maximum, but not with fewer samples. */
    copse__dim fixed[] = {{8, COPSE__FIXED}, {105, 0}};
    ASSERT_FAILS(COPSE_CONFIG, copse__graph_view(graph, x, "v", 2, more, &view, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "(None, 5, 7, 3)"));
    ck_assert_ptr_nonnull(strstr(error.text, "(None, 106)"));
    ASSERT_FAILS(COPSE_CONFIG, copse__graph_view(graph, x, "v", 2, fixed, &view, &error));
    ck_assert_uint_eq(view, COPSE__NO_TENSOR);
}
END_TEST

START_TEST(test_graph_node_is_copied_and_padded) {
    copse__tensor_id x = tensor("x", 4, image), y = tensor("y", 4, image);
    char name[] = "act";
    copse__node node = {.name = name,
                        .op = COPSE__OP_ACTIVATION,
                        .call = 7,
                        .input_count = 1,
                        .output_count = 1,
                        .inputs = {x},
                        .outputs = {y}};
    ASSERT_OK(copse__graph_node(graph, &node, &error));
    name[0] = 'X';
    ck_assert_str_eq(graph->nodes[0].name, "act");
    ck_assert_uint_eq(graph->nodes[0].call, 7);
    for (size_t i = 1; i < COPSE__MAX_INPUTS; i++)
        ck_assert_uint_eq(graph->nodes[0].inputs[i], COPSE__NO_TENSOR);
    for (size_t i = 1; i < COPSE__MAX_OUTPUTS; i++)
        ck_assert_uint_eq(graph->nodes[0].outputs[i], COPSE__NO_TENSOR);
}
END_TEST

START_TEST(test_graph_node_refuses_missing_operands) {
    copse__tensor_id x = tensor("x", 4, image);
    copse__node node = {.name = "n",
                        .op = COPSE__OP_ADD,
                        .input_count = 2,
                        .output_count = 1,
                        .inputs = {x, COPSE__NO_TENSOR},
                        .outputs = {x}};
    ASSERT_FAILS(COPSE_INTERNAL, copse__graph_node(graph, &node, &error));
    node.inputs[1] = 99; /* no such tensor */
    ASSERT_FAILS(COPSE_INTERNAL, copse__graph_node(graph, &node, &error));
    node.inputs[1] = x;
    node.input_count = 3;
    ASSERT_FAILS(COPSE_INTERNAL, copse__graph_node(graph, &node, &error));
    node.input_count = 2;
    node.outputs[0] = COPSE__NO_TENSOR;
    ASSERT_FAILS(COPSE_INTERNAL, copse__graph_node(graph, &node, &error));
    ck_assert_uint_eq(graph->node_count, 0);
}
END_TEST

START_TEST(test_graph_every_operation_has_a_name_and_operands) {
    for (unsigned i = 0; i < COPSE__OP_COUNT; i++) {
        const copse__op_arity *arity = copse__op_arity_of((copse__op)i);
        ck_assert_str_ne(copse__op_name((copse__op)i), "unknown");
        ck_assert_uint_ge(arity->inputs, 1);
        ck_assert_uint_le(arity->inputs, COPSE__MAX_INPUTS);
        ck_assert_uint_ge(arity->outputs, 1);
        ck_assert_uint_le(arity->outputs, COPSE__MAX_OUTPUTS);
        ck_assert_uint_eq(arity->optional_inputs >> arity->inputs, 0);
        ck_assert_uint_eq(arity->optional_outputs >> arity->outputs, 0);
        ck_assert_uint_eq(arity->optional_outputs & 1, 0);
    }
    ck_assert_str_eq(copse__op_name(COPSE__OP_CONV2D_GRAD_FILTER), "conv2d_grad_filter");
    ck_assert_str_eq(copse__op_name(COPSE__OP_COUNT), "unknown");
}
END_TEST

/* Sizes chosen so that every wrong factor shows. */
START_TEST(test_graph_flops_are_the_usual_formulas) {
    copse__dim x_dim[] = {{8, COPSE__BATCH}, {9, 0}, {11, 0}, {3, 0}};
    copse__dim w_dim[] = {{5, 0}, {4, 0}, {3, 0}, {13, 0}};
    copse__dim y_dim[] = {{8, COPSE__BATCH}, {5, 0}, {7, 0}, {13, 0}};
    copse__tensor_id x = tensor("x", 4, x_dim), w = tensor("w", 4, w_dim);
    copse__tensor_id y = tensor("y", 4, y_dim), kernel = tensor("k", 2, &w_dim[2]);
    copse__extents two = {.of = {[COPSE__BATCH] = 2}};
    double conv = 2.0 * 2 * 5 * 7 * 13 * 5 * 4 * 3, dense = 2.0 * 2 * 5 * 7 * 3 * 13;
    copse__tensor_id none = COPSE__NO_TENSOR;
    const struct {
        copse__op op;
        copse__tensor_id in[3], out;
        double flops;
    } cases[] = {
        {COPSE__OP_CONV2D, {x, w, none}, y, conv},
        {COPSE__OP_CONV2D_GRAD_INPUT, {y, w, none}, x, conv},
        {COPSE__OP_CONV2D_GRAD_FILTER, {x, y, none}, w, conv},
        {COPSE__OP_DENSE, {x, kernel, none}, y, dense},
        {COPSE__OP_DENSE_GRAD_INPUT, {y, kernel, none}, x, dense},
        {COPSE__OP_DENSE_GRAD_WEIGHT, {x, y, none}, kernel, dense},
        {COPSE__OP_MAX_POOL2D, {x, none, none}, y, 2.0 * 5 * 7 * 13 * 6},
        {COPSE__OP_AVG_POOL2D_GRAD, {y, none, none}, x, 2.0 * 5 * 7 * 13 * 6},
        {COPSE__OP_ACTIVATION, {y, none, none}, y, 2.0 * 5 * 7 * 13},
        {COPSE__OP_BIAS_GRAD, {y, none, none}, w, 2.0 * 5 * 7 * 13},
    };
    for (size_t i = 0; i < COPSE__COUNT(cases); i++) {
        copse__node node = {.op = cases[i].op,
                            .outputs = {cases[i].out, none},
                            .attrs = {.window = {.kernel_h = 2, .kernel_w = 3}}};
        memcpy(node.inputs, cases[i].in, sizeof cases[i].in);
        ck_assert_msg(copse__node_flops(graph, &node, &two) == cases[i].flops,
                      "%s: %g instead of %g", copse__op_name(node.op),
                      copse__node_flops(graph, &node, &two), cases[i].flops);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph");
    TCase *cases = tcase_create("graph");
    tcase_add_checked_fixture(cases, new_graph, free_graph);
    tcase_add_test(cases, test_graph_tensor_sizes_follow_the_extents);
    tcase_add_test(cases, test_graph_shape_text_is_as_keras_prints_it);
    tcase_add_test(cases, test_graph_tensor_refuses_what_no_memory_holds);
    tcase_add_test(cases, test_graph_view_shows_the_same_bytes);
    tcase_add_test(cases, test_graph_view_refuses_another_number_of_elements);
    tcase_add_test(cases, test_graph_node_is_copied_and_padded);
    tcase_add_test(cases, test_graph_node_refuses_missing_operands);
    tcase_add_test(cases, test_graph_every_operation_has_a_name_and_operands);
    tcase_add_test(cases, test_graph_flops_are_the_usual_formulas);
    suite_add_tcase(suite, cases);
    return run_suite(suite);
}
