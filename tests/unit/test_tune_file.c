/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "backend/selftest.h"
#include "support/check.h"
#include "support/choosy.h"
#include "support/files.h"
#include "tune/known.h"
#include "tune/shipped.h"

static const char good[] = "{\"schema\": \"copse-tune/1\", \"devices\": [\n"
                           "  {\"platform\": \"P\", \"name\": \"N\", \"units\": 2, "
                           "\"build\": \"b\", \"sources\": \"s\","
                           " \"results\": [{\"key\": \"dense\", \"provider\": "
                           "\"packed\", \"parameters\": \"mr=4\","
                           " \"us\": 12.5, \"default_us\": 13}]},\n"
                           "  {\"platform\": \"P\", \"results\": []}]}\n";

START_TEST(test_parse_reads_back_what_was_written) {
    copse__tune_file first = {0}, second = {0};
    copse__text text = {0}, again = {0};
    copse_error error = {0};
    ASSERT_OK(copse__tune_parse(&first, good, sizeof good - 1, "f", &error));
    ck_assert_uint_eq(first.device_count, 2);
    ck_assert_str_eq(first.devices[0].results[0].tuned.parameters, "mr=4");
    ck_assert_double_eq(first.devices[0].results[0].us, 12.5);
    copse__tune_write(&text, first.devices, first.device_count);
    ASSERT_OK(copse__tune_parse(&second, text.data, text.length, "f", &error));
    copse__tune_write(&again, second.devices, second.device_count);
    ck_assert_str_eq(text.data, again.data);
    copse__text_free(&text);
    copse__text_free(&again);
    copse__tune_file_free(&first);
    copse__tune_file_free(&second);
}
END_TEST

START_TEST(test_parse_refuses_what_is_damaged) {
    /* From, to: each makes the good file a damaged one. */
    static const char *const damages[][2] = {
        {"copse-tune/1", "copse-tune/2"},
        {"\"schema\"", "\"scheme\""},
        {"\"devices\": [", "\"devices\": {"},
        {"\"units\": 2", "\"units\": 0"},
        {"\"units\": 2", "\"units\": -2"},
        {"\"units\": 2", "\"units\": 2.5"},
        {"\"units\": 2", "\"units\": \"2\""},
        {"\"units\": 2", "\"unit\": 2"},
        {"\"platform\": \"P\", \"name\"", "\"name\": \"x\", \"name\""},
        {"\"platform\": \"P\", \"name\"", "\"name\""},
        {"\"key\": \"dense\"", "\"key\": \"\""},
        {"\"key\": \"dense\"", "\"key\": 5"},
        {"\"key\": \"dense\"", "\"key\": \"a\\u0007b\""},
        {"\"provider\": \"packed\", ", ""},
        {"\"parameters\": \"mr=4\"", "\"parameters\": null"},
        {"\"us\": 12.5", "\"us\": -1"},
        {"\"us\": 12.5", "\"us\": \"fast\""},
        {"\"us\": 12.5", "\"us\": 12.5, \"us\": 12.5"},
        {"]}]}\n", "]}]"},
        {"]}]}\n", "]}]} x"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        char text[1024];
        copse__tune_file file = {0};
        copse_error error = {0};
        const char *at = strstr(good, damages[i][0]);
        ck_assert_ptr_nonnull(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, damages[i][1],
                 at + strlen(damages[i][0]));
        copse_status status =
            copse__tune_parse(&file, text, strlen(text), "tune.json", &error);
        ck_assert_msg(status == COPSE_FORMAT, "%s: %d", damages[i][1], status);
        ck_assert_str_eq(error.place, "tune.json");
        ck_assert_msg(strstr(error.text, "copse tune") != NULL, "%s", error.text);
        copse__tune_file_free(&file);
    }
}
END_TEST

START_TEST(test_parse_refuses_two_results_for_one_key) {
    static const char twice[] =
        "{\"schema\": \"copse-tune/1\", \"devices\": [{\"platform\": \"P\", \"results\": "
        "["
        "{\"key\": \"a\", \"provider\": \"p\", \"parameters\": \"\"},"
        "{\"key\": \"a\", \"provider\": \"q\", \"parameters\": \"\"}]}]}";
    copse__tune_file file = {0};
    copse_error error = {0};
    ASSERT_FAILS(COPSE_FORMAT,
                 copse__tune_parse(&file, twice, sizeof twice - 1, "f", &error));
    copse__tune_file_free(&file);
}
END_TEST

START_TEST(test_match_asks_for_all_that_is_named) {
    copse__tune_device all[] = {
        {.platform = "P", .name = "N", .build = "b", .sources = "s", .units = 2},
        {.platform = "P", .vector = 8, .machine = "x86_64"}};
    copse__tune_file file = {.devices = all, .device_count = 2};
    copse__tune_device self = {.platform = "P",
                               .name = "N",
                               .driver = "1",
                               .machine = "x86_64",
                               .build = "b",
                               .sources = "s",
                               .units = 2,
                               .vector = 8};
    ck_assert_ptr_eq(copse__tune_match(&file, &self, true), &all[0]);
    ck_assert_ptr_eq(copse__tune_match(&file, &self, false), &all[0]);
    copse__tune_device grown[] = {{.platform = "P", .build = "old"},
                                  {.platform = "P", .build = "newer"},
                                  {.platform = "P", .build = "b"},
                                  {.platform = "P", .build = "newest"}};
    const copse__tune_file results = {.devices = grown, .device_count = 4};
    ck_assert_ptr_eq(copse__tune_match(&results, &self, false), &grown[2]);
    self.build = "another";
    ck_assert_ptr_eq(copse__tune_match(&results, &self, false), &grown[3]);
    ck_assert_ptr_null(copse__tune_match(&results, &self, true));
    ck_assert_ptr_null(copse__tune_match(&file, &self, true));
    self.sources = "others";
    ck_assert_ptr_eq(copse__tune_match(&file, &self, false), &all[1]);
    self.vector = 16;
    ck_assert_ptr_null(copse__tune_match(&file, &self, false));
    self.vector = 8;
    self.platform = "Q";
    ck_assert_ptr_null(copse__tune_match(&file, &self, false));
}
END_TEST

static copse__device *open_device(void) {
    copse__device *device;
    copse_error error = {0};
    const copse__device_choice choice = {
        .api = COPSE__API_HOST, .part_count = 1, .label = "host", .platform_name = "P"};
    const copse__device_options options = {.backend = &choosy_backend};
    ASSERT_OK(copse__device_open(&device, &choice, &options, &error));
    return device;
}

static char log_text[4096];

static void note(copse_log_level level, const char *line, void *user) {
    (void)level;
    (void)user;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%s\n", line);
}

/* What is kept is known afterwards, the newer of equal keys; other devices' stays in the file. */
START_TEST(test_keep_merges_and_known_finds_it) {
    const char *folder = make_folder();
    copse__device *device = open_device();
    copse__tune_known known;
    copse_error error = {0};
    const copse__tune_result first[] = {{{"dense", "choosy", "us=1"}, 1, 2},
                                        {{"conv2d", "choosy", "us=2"}, 1, 2}};
    const copse__tune_result second = {{"dense", "choosy", "us=3"}, 1, 2};
    ASSERT_OK(copse__tune_keep(device, folder, first, 2, true, &error));
    ASSERT_OK(copse__tune_keep(device, folder, &second, 1, true, &error));
    ASSERT_OK(copse__tune_known_open(&known, device, "auto", folder, &error));
    ck_assert_uint_eq(known.count, 2);
    const copse__tuned *found =
        copse__tuned_find(known.entries, known.count, "dense 1x1");
    ck_assert_str_eq(found->parameters, "us=3");
    ck_assert(copse__tune_known_has(&known, "conv2d 1x1"));
    ck_assert(!copse__tune_known_has(&known, "bias_grad 1x1"));
    copse__tune_known_close(&known);
    ASSERT_OK(copse__tune_known_open(&known, device, "off", folder, &error));
    ck_assert_uint_eq(known.count, 0);
    copse__tune_known_close(&known);
    copse__device_close(device);
    remove_folder(folder);
}
END_TEST

/* The user's own: told of, and left aside. A named file: an error. */
START_TEST(test_known_damaged_file_is_told_of) {
    const char *folder = make_folder();
    char path[512];
    copse__device *device = open_device();
    copse__tune_known known;
    copse_error error = {0};
    const copse__tune_result result = {{"dense", "choosy", "us=1"}, 1, 2};
    ASSERT_OK(copse__tune_keep(device, folder, &result, 1, true, &error));
    ASSERT_OK(copse__tune_known_open(&known, device, "auto", folder, &error));
    snprintf(path, sizeof path, "%s", known.path);
    copse__tune_known_close(&known);
    static const char half[] = "{\"schema\": \"copse-tune/1\", \"dev";
    write_file(path, half, sizeof half - 1);
    copse_log_set(note, COPSE_LOG_WARN, NULL);
    ASSERT_OK(copse__tune_known_open(&known, device, "auto", folder, &error));
    ck_assert_uint_eq(known.count, 0);
    ck_assert_msg(strstr(log_text, path) && strstr(log_text, "is not used"), "%s",
                  log_text);
    ck_assert_ptr_eq(strchr(log_text, '\n') + 1, log_text + strlen(log_text));
    copse__tune_known_close(&known);
    ASSERT_FAILS(COPSE_FORMAT,
                 copse__tune_known_open(&known, device, path, folder, &error));
    ASSERT_FAILS(COPSE_IO,
                 copse__tune_known_open(&known, device, in_folder(folder, "none.json"),
                                        folder, &error));
    copse__device_close(device);
    remove_folder(folder);
}
END_TEST

/* A named file that holds something else stays as it is; nor is a folder that is not there found out late. */
START_TEST(test_keep_in_leaves_other_files_alone) {
    const char *folder = make_folder();
    char path[512];
    copse__device *device = open_device();
    copse_error error = {0};
    const copse__tune_result result = {{"dense", "choosy", "us=1"}, 1, 2};
    static const char diary[] = "Dear diary,\n";
    snprintf(path, sizeof path, "%s", in_folder(folder, "diary.txt"));
    write_file(path, diary, sizeof diary - 1);
    ASSERT_FAILS(COPSE_FORMAT, copse__tune_check_target(path, &error));
    ASSERT_FAILS(COPSE_FORMAT, copse__tune_keep_in(path, device, &result, 1, &error));
    char back[64] = "";
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(back, sizeof back, file));
    fclose(file);
    ck_assert_str_eq(back, diary);
    ASSERT_FAILS(COPSE_IO,
                 copse__tune_check_target(in_folder(folder, "none/tuned.json"), &error));
    ASSERT_OK(copse__tune_check_target(in_folder(folder, "tuned.json"), &error));
    copse__device_close(device);
    remove_folder(folder);
}
END_TEST

/* Two processes at first use: who comes second follows what is there. What nobody measured gives way to a result for
 * the whole operation, which it would hide. */
START_TEST(test_keep_without_replacing_and_over_what_nobody_measured) {
    const char *folder = make_folder();
    copse__device *device = open_device();
    copse__tune_known known;
    copse_error error = {0};
    const copse__tune_result first[] = {{{"dense 1x1", "default", ""}, 0, 0},
                                        {{"dense 2x2", "choosy", "us=2"}, 1, 2}};
    const copse__tune_result second[] = {{{"dense 1x1", "choosy", "us=9"}, 1, 2},
                                         {{"dense 3x3", "choosy", "us=3"}, 1, 2}};
    const copse__tune_result whole = {{"dense", "choosy", "us=7"}, 1, 2};
    ASSERT_OK(copse__tune_keep(device, folder, first, 2, false, &error));
    ASSERT_OK(copse__tune_keep(device, folder, second, 2, false, &error));
    ASSERT_OK(copse__tune_known_open(&known, device, "auto", folder, &error));
    ck_assert_uint_eq(known.count, 3);
    ck_assert_str_eq(copse__tuned_find(known.entries, known.count, "dense 1x1")->provider,
                     "default");
    copse__tune_known_close(&known);
    ASSERT_OK(copse__tune_keep(device, folder, &whole, 1, true, &error));
    ASSERT_OK(copse__tune_known_open(&known, device, "auto", folder, &error));
    ck_assert_str_eq(
        copse__tuned_find(known.entries, known.count, "dense 1x1")->parameters, "us=7");
    ck_assert_str_eq(
        copse__tuned_find(known.entries, known.count, "dense 2x2")->parameters, "us=2");
    copse__tune_known_close(&known);
    copse__device_close(device);
    remove_folder(folder);
}
END_TEST

START_TEST(test_write_leaves_out_times_that_would_be_zero) {
    static const char tiny[] =
        "{\"schema\": \"copse-tune/1\", \"devices\": [{\"platform\": "
        "\"P\", \"results\": [{\"key\": \"a\", \"provider\": "
        "\"p\", \"parameters\": \"\", \"us\": 0.0001}]}]}";
    copse__tune_file file = {0};
    copse__text text = {0};
    copse_error error = {0};
    ASSERT_OK(copse__tune_parse(&file, tiny, sizeof tiny - 1, "f", &error));
    copse__tune_write(&text, file.devices, file.device_count);
    ck_assert_ptr_null(strstr(text.data, "\"us\""));
    copse__text_free(&text);
    copse__tune_file_free(&file);
}
END_TEST

START_TEST(test_shipped_results_are_whole) {
    for (size_t i = 0; copse__tune_shipped_all[i]; i++) {
        const copse__tune_shipped *s = copse__tune_shipped_all[i];
        copse__tune_file file = {0};
        copse_error error = {0};
        ASSERT_OK(copse__tune_parse(&file, s->text, s->bytes, s->name, &error));
        ck_assert_uint_ge(file.device_count, 1);
        for (size_t d = 0; d < file.device_count; d++) {
            /* They hold for a kind of device, and for these kernels: tests/device verifies them. */
            ck_assert_ptr_null(file.devices[d].build);
            ck_assert_ptr_null(file.devices[d].sources);
            ck_assert_uint_ge(file.devices[d].result_count, 1);
        }
        copse__tune_file_free(&file);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tune_file");
    ADD_TEST(suite, test_parse_reads_back_what_was_written);
    ADD_TEST(suite, test_parse_refuses_what_is_damaged);
    ADD_TEST(suite, test_parse_refuses_two_results_for_one_key);
    ADD_TEST(suite, test_match_asks_for_all_that_is_named);
    ADD_TEST(suite, test_keep_merges_and_known_finds_it);
    ADD_TEST(suite, test_keep_in_leaves_other_files_alone);
    ADD_TEST(suite, test_keep_without_replacing_and_over_what_nobody_measured);
    ADD_TEST(suite, test_write_leaves_out_times_that_would_be_zero);
    ADD_TEST(suite, test_known_damaged_file_is_told_of);
    ADD_TEST(suite, test_shipped_results_are_whole);
    return run_suite(suite);
}
