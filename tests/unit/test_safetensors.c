/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"
#include "support/files.h"

#include <fcntl.h>
#include <math.h>

#include "base/hash.h"
#include "base/mem.h"
#include "io/safetensors.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}
static void teardown(void) {
    remove_folder(folder);
}

static const float weights[6] = {1, -2.5f, 0.1f, 3e38f, 1e-45f, -0.0f};
static const double wide[2] = {0.1, 1e300};
static const int64_t numbers[3] = {1, -1, INT64_MIN};
static const uint8_t pixels[5] = {0, 1, 2, 254, 255};

static const copse__safetensor tensors[] = {
    {"dense/kernel", COPSE_F32, 2, {2, 3}, weights},
    {"pixels", COPSE_U8, 1, {5}, pixels},
    {"step", COPSE_I64, 0, {0}, numbers},
    {"empty", COPSE_F32, 2, {0, 7}, NULL},
    {"numbers \"é\"\n", COPSE_I64, 1, {3}, numbers},
    {"wide", COPSE_F64, 1, {2}, wide}};
static const copse__safetensors_note notes[] = {{"format", "pt"}, {"copse.step", "12"}};

static const char *write_sample(void) {
    const char *path = in_folder(folder, "sample.safetensors");
    ASSERT_OK(copse__safetensors_write(path, tensors, COPSE__COUNT(tensors), notes,
                                       COPSE__COUNT(notes), &error));
    return path;
}

START_TEST(test_write_reads_back_to_the_same) {
    copse__safetensors *file;
    const char *path = write_sample();
    ASSERT_OK(copse__safetensors_open(&file, path, &error));
    ck_assert_uint_eq(copse__safetensors_count(file), COPSE__COUNT(tensors));
    ck_assert_str_eq(copse__safetensors_note_of(file, "copse.step"), "12");
    ck_assert_ptr_null(copse__safetensors_note_of(file, "nothing"));
    ck_assert_ptr_null(copse__safetensors_find(file, "dense"));
    for (size_t i = 0; i < COPSE__COUNT(tensors); i++) {
        const copse__safetensors_entry *entry =
            copse__safetensors_find(file, tensors[i].name);
        ck_assert_ptr_nonnull(entry);
        ck_assert_int_eq(entry->dtype, tensors[i].dtype);
        ck_assert_uint_eq(entry->rank, tensors[i].rank);
        ck_assert_uint_eq(entry->offset % copse_dtype_bytes(entry->dtype), 0);
        for (size_t d = 0; d < entry->rank; d++)
            ck_assert_uint_eq(entry->shape[d], tensors[i].shape[d]);
        unsigned char bytes[64];
        ASSERT_OK(copse__safetensors_read(file, entry, bytes, &error));
        if (entry->bytes > 0)
            ck_assert_int_eq(memcmp(bytes, tensors[i].data, entry->bytes), 0);
    }
    ck_assert_uint_eq(copse__safetensors_find(file, "empty")->bytes, 0);
    copse__safetensors_close(file);
}
END_TEST

START_TEST(test_write_nothing_is_a_file_too) {
    copse__safetensors *file;
    const char *path = in_folder(folder, "none.safetensors");
    ASSERT_OK(copse__safetensors_write(path, NULL, 0, NULL, 0, &error));
    ASSERT_OK(copse__safetensors_open(&file, path, &error));
    ck_assert_uint_eq(copse__safetensors_count(file), 0);
    copse__safetensors_close(file);
}
END_TEST

START_TEST(test_write_refuses_what_cannot_be_read) {
    const char *path = in_folder(folder, "no.safetensors");
    copse__safetensor twice[2] = {tensors[0], tensors[0]};
    ASSERT_FAILS(COPSE_INVALID,
                 copse__safetensors_write(path, twice, 2, NULL, 0, &error));
    twice[1].name = "__metadata__";
    ASSERT_FAILS(COPSE_INVALID,
                 copse__safetensors_write(path, twice, 2, NULL, 0, &error));
    twice[0].shape[0] = SIZE_MAX / 2;
    ASSERT_FAILS(COPSE_INVALID,
                 copse__safetensors_write(path, twice, 1, NULL, 0, &error));
    ck_assert_int_ne(access(path, F_OK), 0);
    ASSERT_FAILS(COPSE_IO, copse__safetensors_write(in_folder(folder, "a/b"), tensors, 1,
                                                    NULL, 0, &error));
}
END_TEST

START_TEST(test_read_float_from_other_types) {
    /* 1.5, -2, the smallest subnormal, infinity, NaN as half; 1.5 and -2 as bfloat16 */
    const uint16_t half[] = {0x3e00, 0xc000, 0x0001, 0x7c00, 0x7e01};
    const copse__safetensor made[] = {{"h", COPSE_F16, 1, {5}, half},
                                      {"w", COPSE_F64, 1, {2}, wide},
                                      {"b", COPSE_F16, 1, {5}, half},
                                      {"i", COPSE_I64, 1, {3}, numbers}};
    const char *path = in_folder(folder, "types.safetensors");
    ASSERT_OK(copse__safetensors_write(path, made, 4, NULL, 0, &error));
    float out[5];
    copse__safetensors *file;
    ASSERT_OK(copse__safetensors_open(&file, path, &error));
    ASSERT_OK(copse__safetensors_read_float(file, copse__safetensors_find(file, "h"), out,
                                            &error));
    ck_assert_float_eq(out[0], 1.5f);
    ck_assert_float_eq(out[1], -2.0f);
    ck_assert_float_eq(out[2], 0x1p-24f);
    ck_assert(isinf(out[3]) && isnan(out[4]));
    ASSERT_OK(copse__safetensors_read_float(file, copse__safetensors_find(file, "w"), out,
                                            &error));
    ck_assert_float_eq(out[0], 0.1f);
    ck_assert(isinf(out[1]));
    ASSERT_FAILS(COPSE_UNSUPPORTED,
                 copse__safetensors_read_float(file, copse__safetensors_find(file, "i"),
                                               out, &error));
    copse__safetensors_close(file);
}
END_TEST

/* Opens a file and reads all of it. */
static copse_status open_path(const char *path) {
    copse__safetensors *file = (copse__safetensors *)&error;
    memset(&error, 0, sizeof error);
    copse_status status = copse__safetensors_open(&file, path, &error);
    if (status == COPSE_OK) {
        for (size_t i = 0; i < copse__safetensors_count(file); i++) {
            const copse__safetensors_entry *entry = copse__safetensors_get(file, i);
            void *data = malloc(entry->bytes + 1);
            ck_assert_ptr_nonnull(data);
            ASSERT_OK(copse__safetensors_read(file, entry, data, &error));
            free(data);
        }
        copse__safetensors_close(file);
    } else {
        ck_assert_ptr_null(file);
        ck_assert_str_eq(error.place, path);
        ck_assert_uint_gt(strlen(error.text), 10);
    }
    return status;
}

static copse_status open_bytes(const void *bytes, size_t count) {
    const char *path = in_folder(folder, "made.safetensors");
    write_file(path, bytes, count);
    return open_path(path);
}

/* A file with this header and data bytes of data. */
static copse_status open_header(const char *header, size_t data) {
    size_t length = strlen(header);
    char *bytes = calloc(1, 8 + length + data);
    ck_assert_ptr_nonnull(bytes);
    uint64_t n = length;
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, length);
    copse_status status = open_bytes(bytes, 8 + length + data);
    free(bytes);
    return status;
}

START_TEST(test_open_truncated_at_every_byte_is_refused) {
    size_t bytes;
    const char *path = write_sample();
    unsigned char *whole = read_whole(path, &bytes);
    ck_assert_int_eq(open_path(path), COPSE_OK);
    for (size_t cut = bytes; cut-- > 0;) {
        ck_assert_int_eq(truncate(path, (off_t)cut), 0);
        ck_assert_msg(open_path(path) == COPSE_FORMAT, "cut at %zu", cut);
    }
    unsigned char *longer = realloc(whole, bytes + 1);
    ck_assert_ptr_nonnull(longer);
    longer[bytes] = 0;
    ck_assert_int_eq(open_bytes(longer, bytes + 1), COPSE_FORMAT);
    free(longer);
}
END_TEST

static void put_byte(int fd, size_t at, unsigned char byte) {
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
}

/* Not every flip can be seen (a name may become another one), but none may crash or hang. */
START_TEST(test_open_every_flipped_bit_is_refused_or_read) {
    size_t bytes, refused = 0;
    const char *path = write_sample();
    unsigned char *whole = read_whole(path, &bytes);
    uint64_t header;
    memcpy(&header, whole, 8);
    int fd = open(path, O_WRONLY);
    ck_assert_int_ge(fd, 0);
    for (size_t bit = 0; bit < 8 * (8 + (size_t)header); bit++) {
        put_byte(fd, bit / 8, whole[bit / 8] ^ (unsigned char)(1u << bit % 8));
        copse_status status = open_path(path);
        ck_assert(status == COPSE_OK || status == COPSE_FORMAT);
        refused += status != COPSE_OK;
        put_byte(fd, bit / 8, whole[bit / 8]);
    }
    ck_assert_uint_gt(refused, 4 * (8 + (size_t)header));
    close(fd);
    free(whole);
}
END_TEST

typedef struct hostile {
    const char *header;
    size_t data;
    const char *says;
} hostile;

static const hostile headers[] = {
    {"{}", 1, "belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3,
     "outside the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
     "belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8,
     "hole before it"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, "overlaps"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}",
     6, "hole before it"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
     2, "not JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
     "do not fit its bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4,
     "outside the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4,
     "impossible shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
     "impossible shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}"
     "}",
     0, "impossible shape"},
    {"{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
     0, "do not fit its bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}"
     "}",
     4, "not JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551616]}"
     "}",
     4, "not JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9223372036854775807]}}",
     4, "outside the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
     "more than 6"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "unknown type 'F33'"},
    {"{\"a\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
     "unknown type '(not text)'"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":3,\"data_offsets\":[0,4]}}", 4, "has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
     "outside the file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "not described by"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "not described by"},
    {"{\"a\":[]}", 0, "not described by"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "something else than text"},
    {"{\"a\\u0000b\":{}}", 0, "not JSON"},
    {"{\"\xff\":{}}", 0, "not JSON"},
    {"{\"a\":", 0, "not JSON"},
    {"[]", 0, "not a safetensors file"},
    {" {}", 0, "not a safetensors file"},
    {"", 0, "not a safetensors file"},
};

START_TEST(test_open_hostile_header_is_refused_with_the_reason) {
    for (size_t i = 0; i < COPSE__COUNT(headers); i++) {
        copse_status status = open_header(headers[i].header, headers[i].data);
        ck_assert_msg(status == COPSE_FORMAT, "%s: %s", headers[i].header,
                      copse_status_name(status));
        ck_assert_msg(strstr(error.text, headers[i].says) != NULL, "%s: %s",
                      headers[i].header, error.text);
    }
    ck_assert_int_eq(open_header("{}   ", 0), COPSE_OK);
    ck_assert_int_eq(open_header("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[2],"
                                 "\"data_offsets\":[0,2]}}",
                                 2),
                     COPSE_OK);
}
END_TEST

START_TEST(test_open_huge_header_is_refused_at_once) {
    const char *path = in_folder(folder, "huge.safetensors");
    copse__safetensors *file;
    uint64_t lengths[] = {UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63, 100000000,
                          17u << 20};
    for (size_t i = 0; i < COPSE__COUNT(lengths); i++) {
        write_file(path, &lengths[i], 8);
        ck_assert_int_eq(truncate(path, 200000000), 0); /* sparse */
        ASSERT_FAILS(COPSE_FORMAT, copse__safetensors_open(&file, path, &error));
    }
    /* Small in bytes, large in memory: a million empty lists. */
    size_t bytes = (size_t)4 << 20;
    char *text = malloc(bytes);
    ck_assert_ptr_nonnull(text);
    uint64_t length = bytes - 8;
    memcpy(text, &length, 8);
    memcpy(text + 8, "{\"a\":[", 6);
    for (size_t i = 14; i < bytes; i++)
        text[i] = "[],"[(i - 14) % 3];
    ck_assert_int_eq(open_bytes(text, bytes), COPSE_FORMAT);
    ck_assert_ptr_nonnull(strstr(error.text, "more than 100000"));
    memset(text + 8, '[', bytes - 8);
    text[8] = '{';
    ck_assert_int_eq(open_bytes(text, bytes), COPSE_FORMAT);
    free(text);
}
END_TEST

START_TEST(test_open_no_file_no_folder_no_pipe) {
    copse__safetensors *file;
    ASSERT_FAILS(COPSE_IO, copse__safetensors_open(&file, "/nonexistent/a", &error));
    ASSERT_FAILS(COPSE_IO, copse__safetensors_open(&file, folder, &error));
    ASSERT_FAILS(COPSE_IO, copse__safetensors_open(&file, "/dev/null", &error));
}
END_TEST

START_TEST(test_read_file_cut_after_opening_is_an_error) {
    copse__safetensors *file;
    const char *path = write_sample();
    ASSERT_OK(copse__safetensors_open(&file, path, &error));
    ck_assert_int_eq(truncate(path, 100), 0);
    float out[6];
    ASSERT_FAILS(COPSE_FORMAT,
                 copse__safetensors_read(
                     file, copse__safetensors_find(file, "dense/kernel"), out, &error));
    copse__safetensors_close(file);
}
END_TEST

/* Written by Python's safetensors 0.8.0 and NumPy 2.4.6 (tests/data/safetensors.md). */
START_TEST(test_open_file_of_the_python_package) {
    copse__safetensors *file;
    ASSERT_OK(copse__safetensors_open(&file, "tests/data/python.safetensors", &error));
    ck_assert_uint_eq(copse__safetensors_count(file), 4);
    ck_assert_str_eq(copse__safetensors_note_of(file, "origin"), "python");
    float out[6];
    const copse__safetensors_entry *entry = copse__safetensors_find(file, "a.weight");
    ck_assert_uint_eq(entry->rank, 2);
    ck_assert_uint_eq(entry->shape[1], 3);
    ASSERT_OK(copse__safetensors_read_float(file, entry, out, &error));
    for (int i = 0; i < 6; i++)
        ck_assert_float_eq(out[i], (float)i / 3);
    ASSERT_OK(copse__safetensors_read_float(file, copse__safetensors_find(file, "half"),
                                            out, &error));
    ck_assert_float_eq(out[1], 0.333251953125f);
    copse__safetensors_close(file);
}
END_TEST

#define ADD(test) ADD_FIXTURE_TEST(suite, test, setup, teardown, 60)

int main(void) {
    Suite *suite = suite_create("safetensors");
    ADD(test_write_reads_back_to_the_same);
    ADD(test_write_nothing_is_a_file_too);
    ADD(test_write_refuses_what_cannot_be_read);
    ADD(test_read_float_from_other_types);
    ADD(test_open_truncated_at_every_byte_is_refused);
    ADD(test_open_every_flipped_bit_is_refused_or_read);
    ADD(test_open_hostile_header_is_refused_with_the_reason);
    ADD(test_open_huge_header_is_refused_at_once);
    ADD(test_open_no_file_no_folder_no_pipe);
    ADD(test_read_file_cut_after_opening_is_an_error);
    ADD(test_open_file_of_the_python_package);
    return run_suite(suite);
}
