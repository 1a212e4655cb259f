/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <jansson.h>
#include <math.h>

#include "io/jsonl.h"

static copse_error error;

static void write_step(copse__jsonl *log, uint64_t step) {
    copse__jsonl_begin(log, "step");
    copse__jsonl_count(log, "step", step);
    copse__jsonl_float(log, "loss", 1.0f / (float)step);
    ASSERT_OK(copse__jsonl_end(log, &error));
}

static void assert_holds(const char *path, const char *wanted) {
    size_t bytes;
    char *text = (char *)read_whole(path, &bytes);
    ck_assert_uint_eq(bytes, strlen(wanted));
    ck_assert_int_eq(memcmp(text, wanted, bytes), 0);
    free(text);
}

#define STEP_1 "{\"kind\":\"step\",\"step\":1,\"loss\":1}\n"
#define STEP_2 "{\"kind\":\"step\",\"step\":2,\"loss\":0.5}\n"
#define STEP_3 "{\"kind\":\"step\",\"step\":3,\"loss\":0.33333334}\n"
#define EPOCH "{\"kind\":\"epoch\",\"epoch\":0}\n"
#define END "{\"kind\":\"end\",\"status\":\"done\"}\n"

START_TEST(test_end_writes_a_whole_line_at_once) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "log.jsonl");
    copse__jsonl *log;
    ASSERT_OK(copse__jsonl_create(&log, path, &error));
    write_step(log, 1);
    assert_holds(path, STEP_1);
    copse__jsonl_begin(log, "event");
    copse__jsonl_text(log, "what", "a \"b\" \n\xff");
    copse__jsonl_bool(log, "yes", true);
    copse__jsonl_double(log, "nan", NAN);
    copse__jsonl_json(log, "list", "[1,2]");
    assert_holds(path, STEP_1);
    ASSERT_OK(copse__jsonl_end(log, &error));
    assert_holds(path, STEP_1
                 "{\"kind\":\"event\",\"what\":\"a \\\"b\\\" \\u000a\xEF\xBF\xBD\","
                 "\"yes\":true,\"nan\":null,\"list\":[1,2]}\n");
    copse__jsonl_close(log);
    remove_folder(folder);
}
END_TEST

START_TEST(test_numbers_read_back_exactly) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "log.jsonl");
    const double values[] = {0.1,  1.0 / 3, 1e-308,        5e-324, 1.7976931348623157e308,
                             -2.5, 1e15,    123456789.125, 0};
    copse__jsonl *log;
    ASSERT_OK(copse__jsonl_create(&log, path, &error));
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        copse__jsonl_begin(log, "x");
        copse__jsonl_double(log, "v", values[i]);
        ASSERT_OK(copse__jsonl_end(log, &error));
    }
    copse__jsonl_close(log);
    FILE *file = fopen(path, "r");
    char line[256];
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
        json_t *object = json_loads(line, 0, NULL);
        ck_assert_double_eq(json_number_value(json_object_get(object, "v")), values[i]);
        json_decref(object);
    }
    fclose(file);
    remove_folder(folder);
}
END_TEST

static void resume_gives(const char *held, uint64_t step, uint64_t bytes,
                         const char *wanted) {
    char *folder = make_folder();
    const char *path = in_folder(folder, "log.jsonl");
    copse__jsonl *log;
    write_file(path, held, strlen(held));
    ASSERT_OK(copse__jsonl_resume(&log, path, step, bytes, &error));
    assert_holds(path, wanted);
    write_step(log, 3);
    copse__jsonl_close(log);
    char more[1024];
    snprintf(more, sizeof more, "%s%s", wanted, STEP_3);
    assert_holds(path, more);
    remove_folder(folder);
}

START_TEST(test_resume_neither_gap_nor_repeat) {
    resume_gives("", 2, 0, "");
    resume_gives(STEP_1 STEP_2, 2, 0, STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2 STEP_3, 2, 0, STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2 "{\"kind\":\"st", 2, 0, STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2 "{\"kind\":\"step\",\"step\":3}", 2, 0, STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2 EPOCH END, 2, 0, STEP_1 STEP_2 EPOCH);
    resume_gives(STEP_1 "not json\n" STEP_2, 2, 0, STEP_1);
    /* A known length is exact: before or behind the epoch's line as it was. */
    resume_gives(STEP_1 STEP_2 EPOCH STEP_3, 2, strlen(STEP_1 STEP_2), STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2 EPOCH STEP_3, 2, strlen(STEP_1 STEP_2 EPOCH),
                 STEP_1 STEP_2 EPOCH);
    /* One that cannot be right is not trusted. */
    resume_gives(STEP_1 STEP_2 STEP_3, 2, 5, STEP_1 STEP_2);
    resume_gives(STEP_1 STEP_2, 2, 100000, STEP_1 STEP_2);
}
END_TEST

START_TEST(test_resume_without_a_file_creates_it) {
    char *folder = make_folder();
    copse__jsonl *log;
    ASSERT_OK(copse__jsonl_resume(&log, in_folder(folder, "new"), 5, 7, &error));
    ck_assert_uint_eq(copse__jsonl_bytes(log), 0);
    write_step(log, 6);
    ck_assert_uint_gt(copse__jsonl_bytes(log), 10);
    ASSERT_OK(copse__jsonl_sync(log, &error));
    copse__jsonl_close(log);
    ASSERT_FAILS(COPSE_IO, copse__jsonl_create(&log, in_folder(folder, "a/b"), &error));
    ck_assert_ptr_null(log);
    remove_folder(folder);
}
END_TEST

START_TEST(test_no_log_is_a_log_without_lines) {
    copse__jsonl_begin(NULL, "step");
    copse__jsonl_count(NULL, "a", 1);
    copse__jsonl_text(NULL, "a", "b");
    copse__jsonl_double(NULL, "a", 1);
    ASSERT_OK(copse__jsonl_end(NULL, &error));
    ASSERT_OK(copse__jsonl_sync(NULL, &error));
    ck_assert_uint_eq(copse__jsonl_bytes(NULL), 0);
    copse__jsonl_close(NULL);
}
END_TEST

START_TEST(test_full_disk_is_an_error_and_the_log_stays_whole) {
    copse__jsonl *log;
    if (access("/dev/full", W_OK) != 0)
        return;
    ASSERT_OK(copse__jsonl_create(&log, "/dev/full", &error));
    copse__jsonl_begin(log, "step");
    ASSERT_FAILS(COPSE_IO, copse__jsonl_end(log, &error));
    ck_assert_str_eq(error.place, "/dev/full");
    copse__jsonl_close(log);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("jsonl");
    ADD_TEST(suite, test_end_writes_a_whole_line_at_once);
    ADD_TEST(suite, test_numbers_read_back_exactly);
    ADD_TEST(suite, test_resume_neither_gap_nor_repeat);
    ADD_TEST(suite, test_resume_without_a_file_creates_it);
    ADD_TEST(suite, test_no_log_is_a_log_without_lines);
    ADD_TEST(suite, test_full_disk_is_an_error_and_the_log_stays_whole);
    return run_suite(suite);
}
