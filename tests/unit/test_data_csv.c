/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/dataset.h"

#include <locale.h>

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

static const char *file = "t.csv";

static copse_data_source table(const char *text, const char *label) {
    write_file(in_folder(folder, file), text, strlen(text));
    return (copse_data_source){.format = COPSE_DATA_CSV,
                               .folder = folder,
                               .paths = &file,
                               .path_count = 1,
                               .label_name = label};
}

static copse_dataset *open_table(const copse_data_source *source) {
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, source, &error));
    return set;
}

static copse_status refuse(const char *text) {
    copse_data_source source = table(text, NULL);
    copse_dataset *set;
    copse_status status = copse_dataset_open(&set, &source, &error);
    copse_dataset_close(set);
    return status;
}

START_TEST(test_csv_header_quotes_and_line_ends) {
    copse_data_source source = table("\xEF\xBB\xBF"
                                     "a,\"b, \"\"x\"\"\",y\r\n"
                                     "1,\"2.5\",0\r\n"
                                     "\n"
                                     " -3e2 ,+0.125,2",
                                     "y");
    copse_dataset *set = open_table(&source);
    float row[2];
    int32_t label;
    ck_assert_uint_eq(copse_dataset_count(set), 2);
    ASSERT_OK(copse_dataset_read(set, 0, row, &label, &error));
    ck_assert(row[0] == 1.0f && row[1] == 2.5f && label == 0);
    ASSERT_OK(copse_dataset_read(set, 1, row, &label, &error));
    ck_assert(row[0] == -300.0f && row[1] == 0.125f && label == 2);
    copse_dataset_close(set);
    static const char *const columns[] = {"b, \"x\"", "2", "a"};
    source.columns = columns;
    source.column_count = 3;
    set = open_table(&source);
    float three[3];
    ASSERT_OK(copse_dataset_read(set, 1, three, &label, &error));
    ck_assert(three[0] == 0.125f && three[1] == 2.0f && three[2] == -300.0f);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_csv_labels_are_classes_targets_or_names) {
    copse_data_source source = table("x,y\n1,0.5\n2,3\n", "y");
    copse_dataset *set = open_table(&source);
    float x, target;
    ck_assert_int_eq(copse_dataset_get_labels(set)->dtype, COPSE_F32);
    ASSERT_OK(copse_dataset_read(set, 0, &x, &target, &error));
    ck_assert(target == 0.5f);
    copse_dataset_close(set);

    source = table("x,y\n1,dog\n2,cat\n3,\"d,og\"\n4,dog\n", "y");
    set = open_table(&source);
    ck_assert_uint_eq(copse_dataset_classes(set), 3);
    ck_assert_str_eq(copse_dataset_get_class_name(set, 1), "d,og");
    static const int32_t expected[] = {2, 0, 1, 2};
    for (size_t i = 0; i < 4; i++) {
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, i, &x, &label, &error));
        ck_assert_int_eq(label, expected[i]);
    }
    copse_dataset_close(set);

    static const char *const names[] = {"dog", "cat"};
    source.class_names = names;
    source.class_count = 2;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "'d,og'"));
    ck_assert_ptr_nonnull(strstr(error.place, "sample 2"));
}
END_TEST

START_TEST(test_csv_without_header_and_with_a_shape) {
    copse_data_source source = table("1;2;3;4;9\n5;6;7;8;10\n", "4");
    source.without_header = true;
    source.delimiter = ';';
    source.feature.rank = 2;
    source.feature.shape[0] = source.feature.shape[1] = 2;
    copse_dataset *set = open_table(&source);
    ck_assert_uint_eq(copse_dataset_get_features(set)->rank, 2);
    float row[4];
    int32_t label;
    ASSERT_OK(copse_dataset_read(set, 1, row, &label, &error));
    ck_assert(row[0] == 5 && row[3] == 8 && label == 10);
    copse_dataset_close(set);
    source.feature.shape[1] = 3;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_csv_gzip_and_several_files) {
    const char *text = "x\n1\n2\n";
    write_gzip(in_folder(folder, "p-0"), text, strlen(text));
    write_file(in_folder(folder, "p-1"), "x\n3\n", 4);
    const char *pattern = "p-*";
    copse_data_source source = {
        .format = COPSE_DATA_CSV, .folder = folder, .paths = &pattern, .path_count = 1};
    copse_dataset *set = open_table(&source);
    ck_assert_uint_eq(copse_dataset_count(set), 3);
    float x;
    ASSERT_OK(copse_dataset_read(set, 2, &x, NULL, &error));
    ck_assert(x == 3.0f);
    copse_dataset_close(set);
}
END_TEST

START_TEST(test_csv_bad_rows_are_named_or_skipped) {
    static const char *const bad[] = {"nan", "inf", "", "1x", "x", "1e39", "--1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[64];
        snprintf(text, sizeof text, "a,b\n1,2\n3,%s\n4,5\n", bad[i]);
        ASSERT_FAILS(COPSE_FORMAT, refuse(text));
        ck_assert_ptr_nonnull(strstr(error.place, "t.csv:3"));
        ck_assert_ptr_nonnull(strstr(error.text, "field 2 ('b')"));
        copse_data_source source = table(text, NULL);
        source.skip_errors = true;
        copse_dataset *set = open_table(&source);
        ck_assert_uint_eq(copse_dataset_count(set), 2);
        ck_assert_uint_eq(copse_dataset_left_out(set), 1);
        copse_dataset_close(set);
    }
    copse_data_source bare = table("1,2\n3,x\n", NULL);
    copse_dataset *none;
    bare.without_header = true;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&none, &bare, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "field 2 is 'x'"));
    ASSERT_FAILS(COPSE_FORMAT, refuse("a,b\n1,2\n3\n"));
    ck_assert_ptr_nonnull(strstr(error.place, "t.csv:3"));
    ASSERT_FAILS(COPSE_FORMAT, refuse("a\n\"1\n2\n"));
    ASSERT_FAILS(COPSE_FORMAT, refuse("a\n\"1\"2\n"));
    ASSERT_FAILS(COPSE_FORMAT, refuse("a\n1\r2\n"));
    ASSERT_FAILS(COPSE_FORMAT, refuse(""));
    ASSERT_FAILS(COPSE_FORMAT, refuse("a,b\n"));
    write_file(in_folder(folder, file), "a\n1\0\n", 6);
    copse_data_source source = {
        .format = COPSE_DATA_CSV, .folder = folder, .paths = &file, .path_count = 1};
    copse_dataset *set;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "NUL"));
}
END_TEST

START_TEST(test_csv_unknown_columns_are_named) {
    copse_data_source source = table("alpha,beta\n1,2\n", "gamma");
    copse_dataset *set;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
    ck_assert_ptr_nonnull(strstr(error.text, "'gamma'"));
    ck_assert_ptr_nonnull(strstr(error.text, "alpha, beta"));
}
END_TEST

/* A point is a point where the program's locale has commas (if such a locale is installed). */
START_TEST(test_csv_does_not_follow_the_locale) {
    if (!setlocale(LC_ALL, "de_DE.UTF-8"))
        fprintf(stderr, "SKIPPED in part: the locale de_DE.UTF-8 is not installed\n");
    copse_data_source source = table("a\n1.5\n", NULL);
    copse_dataset *set = open_table(&source);
    float x;
    ASSERT_OK(copse_dataset_read(set, 0, &x, NULL, &error));
    ck_assert(x == 1.5f);
    copse_dataset_close(set);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_csv");
    TCase *tests = tcase_create("csv");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_csv_header_quotes_and_line_ends);
    tcase_add_test(tests, test_csv_labels_are_classes_targets_or_names);
    tcase_add_test(tests, test_csv_without_header_and_with_a_shape);
    tcase_add_test(tests, test_csv_gzip_and_several_files);
    tcase_add_test(tests, test_csv_bad_rows_are_named_or_skipped);
    tcase_add_test(tests, test_csv_unknown_columns_are_named);
    tcase_add_test(tests, test_csv_does_not_follow_the_locale);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
