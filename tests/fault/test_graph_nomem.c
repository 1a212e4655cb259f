/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/layers.h"

#include <string.h>

/* Check's own assertions allocate: none stands where allocations may fail.
 *
 * Builds a network again and again, each time with a later allocation failing: every
 * failure is COPSE_NOMEM, gives no graph and leaves nothing behind. The linker sends the
 * library's allocations here (--wrap). */

static size_t allowed = SIZE_MAX; /* allocations until one fails */
static size_t alive;              /* blocks given and not freed */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t bytes);
void __wrap_free(void *block);

static bool refused(void) {
    if (allowed == 0)
        return true;
    allowed--;
    return false;
}

void *__wrap_malloc(size_t bytes) {
    void *block = refused() ? NULL : __real_malloc(bytes);
    alive += block != NULL;
    return block;
}

void *__wrap_calloc(size_t count, size_t size) {
    void *block = refused() ? NULL : __real_calloc(count, size);
    alive += block != NULL;
    return block;
}

void *__wrap_realloc(void *old, size_t bytes) {
    void *block = refused() ? NULL : __real_realloc(old, bytes);
    alive += block != NULL && old == NULL;
    return block;
}

void __wrap_free(void *block) {
    alive -= block != NULL;
    __real_free(block);
}

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
        size_t before = alive;
        allowed = i;
        copse_status status = run(&error);
        bool done = allowed > 0;
        allowed = SIZE_MAX;
        ck_assert_uint_eq(alive, before);
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
