/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <jansson.h>
#include <pthread.h>

#include "base/clock.h"
#include "io/trace.h"

static copse_error error;

static json_t *load(const char *path) {
    json_error_t detail;
    json_t *root = json_load_file(path, 0, &detail);
    ck_assert_msg(root != NULL, "line %d: %s", detail.line, detail.text);
    return root;
}

static const char *text_of(const json_t *event, const char *key) {
    return json_string_value(json_object_get(event, key));
}

START_TEST(test_events_are_what_viewers_read) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "trace.json");
    copse__trace *trace;
    ASSERT_OK(copse__trace_open(&trace, path, &error));
    uint64_t now = copse__now_ns() + 5000000;
    copse__trace_name(trace, 2, "0:0 \"compute\"");
    copse__trace_span(trace, 2, "conv2d", now, now + 1234567);
    copse__trace_counter(trace, "loss", now, 0.25);
    copse__trace_span(trace, 2, "backwards", now, now - 1);
    ASSERT_OK(copse__trace_close(trace, &error));
    json_t *root = load(path);
    json_t *events = json_object_get(root, "traceEvents");
    ck_assert_uint_eq(json_array_size(events), 6);
    ck_assert_str_eq(text_of(json_object_get(json_array_get(events, 1), "args"), "name"),
                     "0:0 \"compute\"");
    const json_t *span = json_array_get(events, 3);
    ck_assert_str_eq(text_of(span, "ph"), "X");
    ck_assert_int_eq(json_integer_value(json_object_get(span, "tid")), 2);
    ck_assert_double_eq_tol(json_number_value(json_object_get(span, "dur")), 1234.567,
                            1e-9);
    ck_assert_double_ge(json_number_value(json_object_get(span, "ts")), 5000);
    const json_t *counter = json_array_get(events, 4);
    ck_assert_double_eq(
        json_number_value(json_object_get(json_object_get(counter, "args"), "value")),
        0.25);
    ck_assert_double_eq(
        json_number_value(json_object_get(json_array_get(events, 5), "dur")), 0);
    json_decref(root);
    remove_folder(folder);
}
END_TEST

enum { THREADS = 4, EACH = 500 };

static void *write_spans(void *user) {
    for (uint64_t i = 0; i < EACH; i++)
        copse__trace_span(user, 1, "span", i, i + 1);
    return NULL;
}

START_TEST(test_threads_do_not_mix_their_events) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "trace.json");
    copse__trace *trace;
    pthread_t threads[THREADS];
    ASSERT_OK(copse__trace_open(&trace, path, &error));
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_spans, trace), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ASSERT_OK(copse__trace_close(trace, &error));
    json_t *root = load(path);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "traceEvents")),
                      1 + THREADS * EACH);
    json_decref(root);
    remove_folder(folder);
}
END_TEST

START_TEST(test_errors_are_told_at_the_end) {
    copse__trace *trace;
    ASSERT_FAILS(COPSE_IO, copse__trace_open(&trace, "/nonexistent/t.json", &error));
    ck_assert_ptr_null(trace);
    copse__trace_span(NULL, 1, "x", 0, 1);
    ASSERT_OK(copse__trace_close(NULL, &error));
    if (access("/dev/full", W_OK) != 0)
        return;
    ASSERT_OK(copse__trace_open(&trace, "/dev/full", &error));
    write_spans(trace);
    ASSERT_FAILS(COPSE_IO, copse__trace_close(trace, &error));
    ck_assert_str_eq(error.place, "/dev/full");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("trace");
    ADD_TEST(suite, test_events_are_what_viewers_read);
    ADD_TEST(suite, test_threads_do_not_mix_their_events);
    ADD_TEST(suite, test_errors_are_told_at_the_end);
    return run_suite(suite);
}
