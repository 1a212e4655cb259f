/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/data/numpy was written by NumPy; make_numpy.py there says with which values. */
#include "support/check.h"
#include "support/dataset.h"

#include "data/convert.h"
#include "io/npy.h"
#include "io/zip.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

#define NUMPY "tests/data/numpy"

static copse_data_source npy_source(const char *const *path) {
    return (copse_data_source){
        .format = COPSE_DATA_NPY, .folder = NUMPY, .paths = path, .path_count = 1};
}

static double expected(copse_dtype dtype, bool boolean, size_t i) {
    double value = (double)(i * 37 % 251);
    if (boolean)
        return i % 3 == 0;
    switch (dtype) {
    case COPSE_U8:
    case COPSE_U16:
    case COPSE_U32:
    case COPSE_U64:
        return value;
    case COPSE_F16:
    case COPSE_F32:
    case COPSE_F64:
        return (value - 100) / 8;
    case COPSE_I8: /* wraps */
        return value - 100 > 127 ? value - 356 : value - 100;
    default:
        return value - 100;
    }
}

/* Every value of every type here is exact in a float. */
static void check_values(copse_dataset *set, copse_dtype dtype, bool boolean) {
    const copse_data_spec *spec = copse_dataset_get_features(set);
    size_t elements = copse_data_spec_elements(spec), bad;
    ck_assert_int_eq(spec->dtype, dtype);
    void *sample = malloc(copse_data_spec_bytes(spec));
    float *values = malloc(elements * sizeof *values);
    for (size_t s = 0; s < copse_dataset_count(set); s++) {
        ASSERT_OK(copse_dataset_read(set, s, sample, NULL, &error));
        ck_assert(copse__convert(COPSE_F32, values, dtype, sample, elements, &bad));
        for (size_t i = 0; i < elements; i++)
            ck_assert_double_eq((double)values[i],
                                expected(dtype, boolean, s * elements + i));
    }
    free(values);
    free(sample);
}

START_TEST(test_npy_every_numeric_type_of_numpy) {
    static const struct {
        const char *file;
        copse_dtype dtype;
    } cases[] = {
        {"u1.npy", COPSE_U8},         {"i1.npy", COPSE_I8},
        {"little-u2.npy", COPSE_U16}, {"big-u2.npy", COPSE_U16},
        {"little-i2.npy", COPSE_I16}, {"big-i2.npy", COPSE_I16},
        {"little-u4.npy", COPSE_U32}, {"big-u4.npy", COPSE_U32},
        {"little-i4.npy", COPSE_I32}, {"big-i4.npy", COPSE_I32},
        {"little-u8.npy", COPSE_U64}, {"big-u8.npy", COPSE_U64},
        {"little-i8.npy", COPSE_I64}, {"big-i8.npy", COPSE_I64},
        {"little-f2.npy", COPSE_F16}, {"big-f2.npy", COPSE_F16},
        {"little-f4.npy", COPSE_F32}, {"big-f4.npy", COPSE_F32},
        {"little-f8.npy", COPSE_F64}, {"big-f8.npy", COPSE_F64},
        {"bool.npy", COPSE_U8},       {"version2.npy", COPSE_F32},
        {"version3.npy", COPSE_F32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        copse_data_source source = npy_source(&cases[i].file);
        copse_dataset *set;
        ASSERT_OK(copse_dataset_open(&set, &source, &error));
        ck_assert_uint_eq(copse_dataset_count(set), 5);
        const copse_data_spec *spec = copse_dataset_get_features(set);
        ck_assert_uint_eq(spec->rank, 2);
        ck_assert_uint_eq(spec->shape[0], 2);
        ck_assert_uint_eq(spec->shape[1], 3);
        check_values(set, cases[i].dtype,
                     cases[i].file[0] == 'b' && cases[i].file[1] == 'o');
        copse_dataset_close(set);
    }
}
END_TEST

START_TEST(test_npy_fortran_order_becomes_row_major) {
    const char *path = "fortran.npy";
    copse_data_source source = npy_source(&path);
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, &source, &error));
    ck_assert_uint_eq(copse_dataset_count(set), 4);
    ck_assert_uint_eq(copse_dataset_get_features(set)->rank, 3);
    check_values(set, COPSE_F32, false);
    copse_dataset_close(set);
}
END_TEST

static void check_labelled(const copse_data_source *source) {
    static const int32_t labels[] = {3, 1, 4, 1, 5};
    copse_dataset *set;
    ASSERT_OK(copse_dataset_open(&set, source, &error));
    check_values(set, COPSE_F32, false);
    ck_assert_int_eq(copse_dataset_get_labels(set)->dtype, COPSE_I32);
    for (size_t i = 0; i < 5; i++) {
        float sample[6];
        int32_t label;
        ASSERT_OK(copse_dataset_read(set, i, sample, &label, &error));
        ck_assert_int_eq(label, labels[i]);
    }
    copse_dataset_close(set);
}

START_TEST(test_npy_labels_of_their_own_file) {
    const char *path = "little-f4.npy", *labels = "labels.npy";
    copse_data_source source = npy_source(&path);
    source.label_paths = &labels;
    source.label_path_count = 1;
    check_labelled(&source);
}
END_TEST

START_TEST(test_npz_stored_and_deflated) {
    static const char *const paths[] = {"stored.npz", "deflated.npz"};
    for (size_t i = 0; i < 2; i++) {
        copse_data_source source = npy_source(&paths[i]);
        source.label_name = "y";
        check_labelled(&source);
        source.feature_name = "y";
        source.label_name = NULL;
        copse_dataset *set;
        ASSERT_OK(copse_dataset_open(&set, &source, &error));
        ck_assert_int_eq(copse_dataset_get_features(set)->dtype, COPSE_I64);
        ck_assert_ptr_null(copse_dataset_get_labels(set));
        copse_dataset_close(set);
        source.feature_name = "images";
        ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
        ck_assert_ptr_nonnull(strstr(error.text, "'images'"));
        ck_assert_ptr_nonnull(strstr(error.text, "x, y"));
    }
}
END_TEST

START_TEST(test_npy_other_types_are_refused) {
    static const char *const paths[] = {"object.npy", "complex.npy", "record.npy",
                                        "scalar.npy"};
    for (size_t i = 0; i < 4; i++) {
        copse_data_source source = npy_source(&paths[i]);
        copse_dataset *set;
        ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
    }
    const char *path = "u1.npy";
    copse_data_source source = npy_source(&path);
    source.label_name = "y";
    copse_dataset *set;
    ASSERT_FAILS(COPSE_CONFIG, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_npy_damage_is_refused) {
    static const struct {
        const char *file;
        size_t least_noticed; /* flips: NPY has no checksum, zip's data has one */
    } cases[] = {{"little-f4.npy", 300}, {"stored.npz", 900}, {"deflated.npz", 700}};
    for (size_t i = 0; i < 3; i++) {
        size_t bytes;
        unsigned char *data = read_whole(in_folder(NUMPY, cases[i].file), &bytes);
        copse_data_source source = {.format = COPSE_DATA_NPY};
        if (i > 0)
            source.label_name = "y";
        const char *path = in_folder(folder, "damaged");
        check_truncated(source, path, data, bytes, 1);
        size_t noticed = check_flipped(source, path, data, bytes, i ? 3 : 1);
        ck_assert_uint_ge(noticed, cases[i].least_noticed);
        free(data);
    }
}
END_TEST

static copse_status open_header(const char *header) {
    unsigned char file[512] = "\x93NUMPY\x01";
    size_t n = strlen(header);
    file[8] = (unsigned char)n;
    file[9] = (unsigned char)(n >> 8);
    memcpy(file + 10, header, n);
    write_file(in_folder(folder, "h.npy"), file, 10 + n + 8);
    const char *path = in_folder(folder, "h.npy");
    copse_data_source source = npy_source(&path);
    copse_dataset *set;
    copse_status status = copse_dataset_open(&set, &source, &error);
    copse_dataset_close(set);
    return status;
}

START_TEST(test_npy_strange_headers) {
    ASSERT_OK(open_header("{'shape':(2,),'descr':'<f4','fortran_order':False}"));
    ASSERT_OK(open_header(
        "{\"descr\": \"<f4\", \"fortran_order\": True, \"shape\": (2L, 1)}\n"));
    static const char *const bad[] = {
        "",
        "{",
        "{}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'evil': 1}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0)}",
        "{'descr': '<f16', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': 'f4', 'fortran_order': False, 'shape': (2,)}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ASSERT_FAILS(COPSE_FORMAT, open_header(bad[i]));
}
END_TEST

START_TEST(test_npy_header_of_10_gb_is_refused) {
    const unsigned char file[16] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0, 0, 0, 0xff};
    write_file(in_folder(folder, "h.npy"), file, sizeof file);
    const char *path = in_folder(folder, "h.npy");
    copse_data_source source = npy_source(&path);
    copse_dataset *set;
    ASSERT_FAILS(COPSE_FORMAT, copse_dataset_open(&set, &source, &error));
}
END_TEST

START_TEST(test_npy_save_writes_numpys_bytes) {
    float values[30];
    for (size_t i = 0; i < 30; i++)
        values[i] = (float)expected(COPSE_F32, false, i);
    const size_t shape[] = {5, 2, 3}, flat[] = {5};
    const int64_t labels[] = {3, 1, 4, 1, 5};
    ASSERT_OK(
        copse__npy_save(in_folder(folder, "f"), COPSE_F32, 3, shape, values, &error));
    ASSERT_OK(
        copse__npy_save(in_folder(folder, "l"), COPSE_I64, 1, flat, labels, &error));
    static const char *const pairs[][2] = {{"f", "little-f4.npy"}, {"l", "labels.npy"}};
    for (size_t i = 0; i < 2; i++) {
        size_t ours_bytes, theirs_bytes;
        unsigned char *ours = read_whole(in_folder(folder, pairs[i][0]), &ours_bytes);
        unsigned char *theirs = read_whole(in_folder(NUMPY, pairs[i][1]), &theirs_bytes);
        ck_assert_uint_eq(ours_bytes, theirs_bytes);
        ck_assert_mem_eq(ours, theirs, ours_bytes);
        free(ours);
        free(theirs);
    }
}
END_TEST

START_TEST(test_zip_written_is_read_back) {
    const char *path = in_folder(folder, "made.npz");
    copse__zip_writer *writer;
    size_t x_bytes, y_bytes;
    unsigned char *x = read_whole(NUMPY "/little-f4.npy", &x_bytes);
    unsigned char *y = read_whole(NUMPY "/labels.npy", &y_bytes);
    ASSERT_OK(copse__zip_writer_open(&writer, path, &error));
    ASSERT_OK(copse__zip_writer_begin(writer, "x.npy", x_bytes, &error));
    ASSERT_OK(copse__zip_writer_write(writer, x, 100, &error));
    ASSERT_OK(copse__zip_writer_write(writer, x + 100, x_bytes - 100, &error));
    ASSERT_OK(copse__zip_writer_begin(writer, "y.npy", UINT64_MAX, &error));
    ASSERT_OK(copse__zip_writer_write(writer, y, y_bytes, &error));
    ASSERT_OK(copse__zip_writer_commit(writer, &error));
    free(x);
    free(y);
    copse_data_source source = npy_source(&path);
    source.label_name = "y";
    check_labelled(&source);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_npy");
    TCase *tests = tcase_create("npy");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_npy_every_numeric_type_of_numpy);
    tcase_add_test(tests, test_npy_fortran_order_becomes_row_major);
    tcase_add_test(tests, test_npy_labels_of_their_own_file);
    tcase_add_test(tests, test_npz_stored_and_deflated);
    tcase_add_test(tests, test_npy_other_types_are_refused);
    tcase_add_test(tests, test_npy_damage_is_refused);
    tcase_add_test(tests, test_npy_strange_headers);
    tcase_add_test(tests, test_npy_header_of_10_gb_is_refused);
    tcase_add_test(tests, test_npy_save_writes_numpys_bytes);
    tcase_add_test(tests, test_zip_written_is_read_back);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
