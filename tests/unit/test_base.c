/* SPDX-License-Identifier: Apache-2.0 */
#include "support/check.h"

#include <philox.clh>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stages.h"
#include "base/text.h"

static copse_error error;

START_TEST(test_fail_long_text_is_cut_at_a_character) {
    char text[2000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    memcpy(text + sizeof error.text - 2, "\xC3\xA9", 2); /* its 2nd byte does not fit */
    ck_assert_int_eq(copse__fail(&error, COPSE_IO, 5, "here", "%s", text), COPSE_IO);
    ck_assert_int_eq(error.native, 5);
    ck_assert_str_eq(error.place, "here");
    ck_assert_uint_eq(strlen(error.text), sizeof error.text - 2);
}
END_TEST

START_TEST(test_fail_is_one_line) {
    copse__fail(&error, COPSE_FORMAT, 0, "a\nb", "the name '%s'", "x\ny\x1b[31m");
    ck_assert_str_eq(error.place, "a b");
    ck_assert_str_eq(error.text, "the name 'x y [31m'");
}
END_TEST

START_TEST(test_fail_may_pass_its_own_strings_on) {
    copse__fail(&error, COPSE_IO, 0, "a", "first");
    copse__fail(&error, COPSE_DEVICE, 0, error.place, "second after %s", error.text);
    ck_assert_str_eq(error.place, "a");
    ck_assert_str_eq(error.text, "second after first");
}
END_TEST

START_TEST(test_status_unknown_code_has_a_name) {
    ck_assert_str_eq(copse_status_name((copse_status)999), "unknown");
    ck_assert_str_eq(copse_status_name(COPSE_OK), "ok");
}
END_TEST

START_TEST(test_calloc_overflow_fails) {
    void *made = &error;
    ASSERT_FAILS(COPSE_NOMEM, copse__calloc(&made, SIZE_MAX / 2, 3, &error));
    ck_assert_ptr_null(made);
}
END_TEST

START_TEST(test_stages_follow_one_another) {
    copse__stages stages = {0};
    ck_assert(copse__stages_seconds(&stages) == 0);
    copse__stages_next(&stages, NULL); /* there is none to end */
    copse__stages_next(&stages, "first");
    for (int i = 0; i < 2 * COPSE__MAX_STAGES; i++)
        copse__stages_next(&stages, "next");
    copse__stages_next(&stages, NULL);
    ck_assert_uint_eq(stages.count, COPSE__MAX_STAGES);
    for (size_t i = 0; i < stages.count; i++) {
        ck_assert_str_eq(stages.of[i].name, i ? "next" : "first");
        ck_assert_uint_ge(stages.of[i].end_ns, stages.of[i].begin_ns);
        if (i > 0)
            ck_assert_uint_eq(stages.of[i].begin_ns, stages.of[i - 1].end_ns);
    }
    double seconds = copse__stages_seconds(&stages);
    ck_assert(seconds >= 0);
    ck_assert(copse__stages_seconds(&stages) == seconds); /* it has ended */
}
END_TEST

START_TEST(test_format_numbers) {
    char buffer[32];
    ck_assert_str_eq(copse__format_count(buffer, sizeof buffer, 693962), "693,962");
    ck_assert_str_eq(copse__format_count(buffer, sizeof buffer, 7), "7");
    ck_assert_str_eq(copse__format_bytes(buffer, sizeof buffer, 2775848), "2.6 MiB");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, 0.1), "0.1");
    ck_assert_str_eq(copse__format_float(buffer, sizeof buffer, 0.1f), "0.1");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, 10), "10");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, -0.0), "-0");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, 1e300), "1e+300");
    ck_assert_str_eq(copse__format_float(buffer, sizeof buffer, 250.0f), "250");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, 1.0 / 3.0),
                     "0.3333333333333333");
    ck_assert_str_eq(copse__format_double(buffer, sizeof buffer, 0.0 / 0.0), "null");
}
END_TEST

/* RFC 3720, B.4, and the check value of the CRC catalogue. */
START_TEST(test_crc32c_known_answers) {
    unsigned char bytes[32];
    memset(bytes, 0, 32);
    ck_assert_uint_eq(copse__crc32c(0, bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xFF, 32);
    ck_assert_uint_eq(copse__crc32c(0, bytes, 32), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    ck_assert_uint_eq(copse__crc32c(0, bytes, 32), 0x46DD794Eu);
    ck_assert_uint_eq(copse__crc32c(0, "123456789", 9), 0xE3069283u);
    ck_assert_uint_eq(copse__crc32c(copse__crc32c(0, "1234", 4), "56789", 5),
                      0xE3069283u);
    ck_assert_uint_eq(copse__crc32c_mask(0xE3069283u), 0xC78AB0E5u);
}
END_TEST

/* kat_vectors of Random123 1.14, philox4x32 10. */
START_TEST(test_philox_known_answers) {
    copse_philox4 zero = copse_philox((copse_philox4){{0, 0, 0, 0}}, 0, 0);
    ck_assert_uint_eq(zero.v[0], 0x6627e8d5u);
    ck_assert_uint_eq(zero.v[1], 0xe169c58du);
    ck_assert_uint_eq(zero.v[2], 0xbc57ac4cu);
    ck_assert_uint_eq(zero.v[3], 0x9b00dbd8u);
    copse_philox4 pi = copse_philox(
        (copse_philox4){{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
        0xa4093822u, 0x299f31d0u);
    ck_assert_uint_eq(pi.v[0], 0xd16cfe09u);
    ck_assert_uint_eq(pi.v[1], 0x94fdcceb);
    ck_assert_uint_eq(pi.v[2], 0x5001e420u);
    ck_assert_uint_eq(pi.v[3], 0x24126ea1u);
}
END_TEST

/* Around whole sectors and blocks, in one piece and in odd ones. */
START_TEST(test_file_uncached_writes_are_whole) {
    static const size_t sizes[] = {0,       1,       4096,    4097,    1048575,
                                   1048576, 1048577, 2097152, 2101248, 3145728 + 17};
    char folder[] = "/tmp/copse-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    char *path, *made, *read;
    ASSERT_OK(copse__path_join(&path, folder, "file", &error));
    ASSERT_OK(copse__calloc(&made, 4 << 20, 1, &error));
    for (size_t i = 0; i < 4 << 20; i++)
        made[i] = (char)(i * 2654435761u >> 13);
    for (size_t s = 0; s < COPSE__COUNT(sizes); s++)
        for (size_t piece = 65537; piece <= 4 << 20; piece *= 63) {
            size_t bytes;
            copse__atomic_file *file;
            ASSERT_OK(copse__atomic_open(&file, path, &error));
            ASSERT_OK(copse__atomic_uncached(file, &error));
            for (size_t at = 0; at < sizes[s]; at += piece)
                ASSERT_OK(copse__atomic_write(
                    file, made + at, copse__min_size(piece, sizes[s] - at), &error));
            ASSERT_OK(copse__atomic_commit(file, &error));
            ASSERT_OK(copse__file_read(&read, &bytes, path, 4 << 20, &error));
            ck_assert_uint_eq(bytes, sizes[s]);
            ck_assert_int_eq(memcmp(read, made, bytes), 0);
            free(read);
        }
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
    free(made);
    free(path);
}
END_TEST

START_TEST(test_file_write_atomic_then_read) {
    char folder[] = "/tmp/copse-test-XXXXXX";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    char *path, *deep;
    ASSERT_OK(copse__path_join(&deep, folder, "a/b", &error));
    ASSERT_OK(copse__make_folders(deep, &error));
    ASSERT_OK(copse__path_join(&path, deep, "file", &error));
    ASSERT_OK(copse__file_write_atomic(path, "hello", 5, &error));
    char *data;
    size_t bytes;
    ASSERT_OK(copse__file_read(&data, &bytes, path, 5, &error));
    ck_assert_uint_eq(bytes, 5);
    ck_assert_str_eq(data, "hello");
    free(data);
    ASSERT_FAILS(COPSE_FORMAT, copse__file_read(&data, &bytes, path, 4, &error));
    ck_assert_ptr_null(data);
    ASSERT_FAILS(COPSE_IO, copse__file_read(&data, &bytes, deep, 4, &error));
    copse__atomic_file *file;
    ASSERT_OK(copse__atomic_open(&file, path, &error));
    ASSERT_OK(copse__atomic_write(file, "other", 5, &error));
    copse__atomic_abort(file);
    ASSERT_OK(copse__file_read(&data, &bytes, path, 5, &error));
    ck_assert_str_eq(data, "hello");
    free(data);
    ASSERT_FAILS(COPSE_IO, copse__make_folders(path, &error));
    unlink(path);
    ck_assert_int_eq(rmdir(deep), 0); /* so nothing temporary is left in it */
    free(path);
    free(deep);
}
END_TEST

static void keep_line(copse_log_level level, const char *line, void *user) {
    snprintf(user, 64, "%d %s", (int)level, line);
}

START_TEST(test_log_reaches_the_sink_by_level) {
    char seen[64] = "";
    copse__log(COPSE_LOG_ERROR, "nobody listens");
    copse_log_set(keep_line, COPSE_LOG_WARN, seen);
    copse__log(COPSE_LOG_INFO, "too quiet");
    ck_assert_str_eq(seen, "");
    copse__log(COPSE_LOG_WARN, "disk %d", 7);
    ck_assert_str_eq(seen, "1 disk 7");
    copse__log_lines(COPSE_LOG_ERROR, "one\ntwo\n");
    ck_assert_str_eq(seen, "0 two");
    copse_log_set(NULL, COPSE_LOG_WARN, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("base");
    ADD_TEST(suite, test_fail_long_text_is_cut_at_a_character);
    ADD_TEST(suite, test_fail_is_one_line);
    ADD_TEST(suite, test_fail_may_pass_its_own_strings_on);
    ADD_TEST(suite, test_status_unknown_code_has_a_name);
    ADD_TEST(suite, test_calloc_overflow_fails);
    ADD_TEST(suite, test_stages_follow_one_another);
    ADD_TEST(suite, test_format_numbers);
    ADD_TEST(suite, test_crc32c_known_answers);
    ADD_TEST(suite, test_philox_known_answers);
    ADD_TEST(suite, test_file_write_atomic_then_read);
    ADD_TEST(suite, test_file_uncached_writes_are_whole);
    ADD_TEST(suite, test_log_reaches_the_sink_by_level);
    return run_suite(suite);
}
