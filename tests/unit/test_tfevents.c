/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <glob.h>
#include <io/proto/event.pb-c.h>
#include <math.h>

#include "io/tfevents.h"
#include "io/tfrecord.h"

static copse_error error;
static char folder[600];

static void setup(void) {
    snprintf(folder, sizeof folder, "%s", make_folder());
}
static void teardown(void) {
    remove_folder(folder);
}

/* The events of the only file in the folder's train/. */
typedef struct events {
    Copse__Events__Event *items[16];
    size_t count;
} events;

static events read_events(void) {
    events found = {.count = 0};
    glob_t files;
    copse__input *input;
    unsigned char *buffer = NULL;
    size_t capacity = 0, bytes = 0;
    bool end = false, lost;
    ck_assert_int_eq(
        glob(in_folder(folder, "train/events.out.tfevents.*"), 0, NULL, &files), 0);
    ck_assert_uint_eq(files.gl_pathc, 1);
    ASSERT_OK(copse__input_open(&input, files.gl_pathv[0], COPSE__PACKING_PLAIN, &error));
    while (true) {
        ASSERT_OK(
            copse__tfrecord_next(input, &buffer, &capacity, &bytes, &end, &lost, &error));
        if (end)
            break;
        found.items[found.count] = copse__events__event__unpack(NULL, bytes, buffer);
        ck_assert_ptr_nonnull(found.items[found.count++]);
    }
    copse__input_close(input);
    free(buffer);
    globfree(&files);
    return found;
}

static void free_events(events *found) {
    for (size_t i = 0; i < found->count; i++)
        copse__events__event__free_unpacked(found->items[i], NULL);
}

START_TEST(test_scalars_are_in_the_layout_of_version_2) {
    copse__tfevents *writer;
    ASSERT_OK(copse__tfevents_open(&writer, in_folder(folder, "train"), 0, &error));
    ASSERT_OK(copse__tfevents_scalar(writer, "epoch_loss", 3, 0.5, &error));
    ASSERT_OK(copse__tfevents_scalar(writer, "epoch_loss", 4, NAN, &error));
    copse__tfevents_close(writer);
    events found = read_events();
    ck_assert_uint_eq(found.count, 4);
    ck_assert_int_eq(found.items[0]->what_case, COPSE__EVENTS__EVENT__WHAT_FILE_VERSION);
    ck_assert_str_eq(found.items[0]->file_version, "brain.Event:2");
    ck_assert_int_eq(found.items[1]->what_case, COPSE__EVENTS__EVENT__WHAT_SESSION_LOG);
    ck_assert_int_eq(found.items[1]->step, 0);
    const Copse__Events__SummaryValue *value = found.items[2]->summary->value[0];
    ck_assert_int_eq(found.items[2]->step, 3);
    ck_assert_double_gt(found.items[2]->wall_time, 1.6e9);
    ck_assert_str_eq(value->tag, "epoch_loss");
    ck_assert_str_eq(value->metadata->plugin_data->plugin_name, "scalars");
    ck_assert_int_eq(value->metadata->data_class, 1);
    ck_assert_int_eq(value->tensor->dtype, 1);
    ck_assert_ptr_nonnull(value->tensor->tensor_shape);
    ck_assert_uint_eq(value->tensor->tensor_shape->n_dim, 0);
    ck_assert_float_eq(value->tensor->float_val[0], 0.5f);
    ck_assert(isnan(found.items[3]->summary->value[0]->tensor->float_val[0]));
    free_events(&found);
}
END_TEST

START_TEST(test_file_starts_a_session_at_its_step) {
    copse__tfevents *writer;
    ASSERT_OK(copse__tfevents_open(&writer, in_folder(folder, "train"), 7, &error));
    copse__tfevents_close(writer);
    events found = read_events();
    ck_assert_uint_eq(found.count, 2);
    ck_assert_int_eq(found.items[1]->what_case, COPSE__EVENTS__EVENT__WHAT_SESSION_LOG);
    ck_assert_int_eq(found.items[1]->session_log->status, 1);
    ck_assert_int_eq(found.items[1]->step, 7);
    free_events(&found);
}
END_TEST

START_TEST(test_histogram_counts_every_finite_value_once) {
    float values[] = {-1, 2, 0.5f, NAN, INFINITY, -INFINITY, 2, 0.5f};
    const float constant[] = {3, 3, 3};
    copse__tfevents *writer;
    ASSERT_OK(copse__tfevents_open(&writer, in_folder(folder, "train"), 0, &error));
    ASSERT_OK(copse__tfevents_histogram(writer, "w/histogram", 1, values, 8, &error));
    ASSERT_OK(copse__tfevents_histogram(writer, "w/histogram", 2, constant, 3, &error));
    ASSERT_OK(copse__tfevents_histogram(writer, "w/histogram", 3, NULL, 0, &error));
    copse__tfevents_close(writer);
    events found = read_events();
    const Copse__Events__Tensor *tensor = found.items[2]->summary->value[0]->tensor;
    ck_assert_int_eq(tensor->dtype, 2);
    ck_assert_int_eq(tensor->tensor_shape->dim[0]->size, 30);
    ck_assert_int_eq(tensor->tensor_shape->dim[1]->size, 3);
    ck_assert_uint_eq(tensor->n_double_val, 90);
    double total = 0;
    for (size_t b = 0; b < 30; b++)
        total += tensor->double_val[3 * b + 2];
    ck_assert_double_eq(total, 5);
    ck_assert_double_eq(tensor->double_val[0], -1);
    ck_assert_double_eq(tensor->double_val[2], 1);
    ck_assert_double_eq(tensor->double_val[3 * 15 + 2], 2); /* 0.5 is the middle */
    ck_assert_double_eq(tensor->double_val[88], 2);
    ck_assert_double_eq(tensor->double_val[89], 2);
    tensor = found.items[3]->summary->value[0]->tensor;
    ck_assert_double_eq(tensor->double_val[87], 3);
    ck_assert_double_eq(tensor->double_val[88], 3);
    ck_assert_double_eq(tensor->double_val[89], 3);
    free_events(&found);
}
END_TEST

START_TEST(test_files_of_one_second_differ_and_errors_name_the_file) {
    copse__tfevents *a, *b;
    ASSERT_OK(copse__tfevents_open(&a, folder, 0, &error));
    ASSERT_OK(copse__tfevents_open(&b, folder, 0, &error));
    copse__tfevents_close(a);
    copse__tfevents_close(b);
    write_file(in_folder(folder, "file"), "x", 1);
    ASSERT_FAILS(COPSE_IO,
                 copse__tfevents_open(&a, in_folder(folder, "file/train"), 0, &error));
    ck_assert_ptr_null(a);
    ASSERT_OK(copse__tfevents_scalar(NULL, "x", 0, 0, &error));
    copse__tfevents_close(NULL);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("tfevents");
    ADD(test_scalars_are_in_the_layout_of_version_2);
    ADD(test_file_starts_a_session_at_its_step);
    ADD(test_histogram_counts_every_finite_value_once);
    ADD(test_files_of_one_second_differ_and_errors_name_the_file);
    return run_suite(suite);
}
