/* SPDX-License-Identifier: Apache-2.0 */
#include "support/allocations.h"
#include "support/check.h"
#include "support/layers.h"

#include <string.h>

/* Check's own assertions allocate: none stands where allocations may fail.
 *
 * Builds a network again and again, each time with a later allocation failing: every
 * failure is COPSE_NOMEM, gives no graph and leaves nothing behind. The linker sends the
 * library's allocations here (--wrap). */

static copse_status build_and_summarize(copse_error *err) {
    copse__layer_spec net[] = {
        {.kind = "conv2d",
         .name = "stem",
         ARGS(NUMBER("filters", 4), NUMBER("kernel", 3), TEXT("activation", "relu"))},
        {.kind = "batch_norm"},
        {.kind = "max_pool2d"},
        {.kind = "dropout", .name = "d", ARGS(NUMBER("rate", 0.5))},
        {.kind = "add", INPUTS("d", "d", "max_pooling2d")},
        {.kind = "flatten"},
        {.kind = "dense", ARGS(NUMBER("units", 10), TEXT("activation", "softmax"))}};
    copse__model_options options = cifar_options();
    copse__graph *graph = (copse__graph *)&options;
    copse__text text = {0};
    copse_status status =
        copse__model_build(&graph, net, COPSE__COUNT(net), &options, err);
    if (status != COPSE_OK)
        return graph ? COPSE_INTERNAL : status; /* on failure outputs are NULL */
    status = copse__model_summary(graph, &text, err);
    copse__text_free(&text);
    copse__graph_free(graph);
    return status;
}

static copse_status build_unknown_input(copse_error *err) {
    copse__layer_spec net[] = {{.kind = "relu", .name = "stem"},
                               {.kind = "relu", INPUTS("steam")}};
    copse__model_options options = float_options(1, (size_t[]){3});
    copse__graph *graph;
    return copse__model_build(&graph, net, COPSE__COUNT(net), &options, err);
}

/* Returns how many allocations the whole takes. */
static size_t fail_each(copse_status (*run)(copse_error *), copse_status last) {
    for (size_t i = 0;; i++) {
        copse_error error = {0};
        size_t before = allocations_alive();
        allocations_allow(i);
        copse_status status = run(&error);
        bool done = allocations_left() > 0;
        allocations_allow(SIZE_MAX);
        ck_assert_uint_eq(allocations_alive(), before);
        if (done) {
            ck_assert_uint_eq(status, last);
            return i;
        }
        /* The last of them may have been granted as the last allowed one. */
        ck_assert_msg(status == COPSE_NOMEM || status == last, "allocation %zu: %s", i,
                      copse_status_name(status));
        if (status == COPSE_NOMEM)
            ck_assert_uint_eq(error.status, COPSE_NOMEM);
    }
}

START_TEST(test_nomem_anywhere_in_a_model) {
    ck_assert_uint_gt(fail_each(build_and_summarize, COPSE_OK), 100);
}
END_TEST

START_TEST(test_nomem_on_the_way_to_an_error) {
    ck_assert_uint_gt(fail_each(build_unknown_input, COPSE_CONFIG), 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("graph nomem");
    ADD_TEST(suite, test_nomem_anywhere_in_a_model);
    ADD_TEST(suite, test_nomem_on_the_way_to_an_error);
    return run_suite(suite);
}
