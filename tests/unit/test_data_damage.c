/* SPDX-License-Identifier: Apache-2.0 */
/* The same damage to a small file of every format that is not images: cut at each byte, each bit turned over, empty,
 * a bomb. (PNG and JPEG: test_data_image.c.) The folder's name has a space and an é. */
#include "support/check.h"
#include "support/dataset.h"

static copse_error error;
static char *folder;

static void setup(void) {
    folder = make_folder();
}

static void teardown(void) {
    remove_folder(folder);
}

/* What a cut file is. A text whose lines are whole is a shorter table; what is text is text; a plain TFRecord file has
 * no end mark. */
typedef struct kind {
    const char *name; /* of the file; ".gz": compressed */
    copse_data_source source;
    bool may_be_shorter;         /* a cut file may be a good one with less in it */
    size_t flip_step;            /* every so many bits are turned over */
    size_t noticed_of_100_flips; /* at least */
} kind;

static const kind kinds[] = {
    {"t.idx", {.format = COPSE_DATA_IDX}, false, 1, 15},
    {"t.idx.gz", {.format = COPSE_DATA_IDX}, false, 1, 85},
    {"t.bin", {.format = COPSE_DATA_CIFAR10}, true, 61, 0},
    {"t.bin.gz", {.format = COPSE_DATA_CIFAR10}, false, 61, 90},
    {"t.npy", {.format = COPSE_DATA_NPY}, false, 1, 20},
    {"t.npz", {.format = COPSE_DATA_NPY, .label_name = "y"}, false, 1, 75},
    {"t.tfrecord", {.format = COPSE_DATA_TFRECORD, .label_name = "label"}, true, 1, 99},
    {"t.tfrecord.gz",
     {.format = COPSE_DATA_TFRECORD, .label_name = "label"},
     false,
     1,
     85},
    {"t.csv", {.format = COPSE_DATA_CSV, .label_name = "label"}, true, 1, 10},
    {"t.csv.gz", {.format = COPSE_DATA_CSV, .label_name = "label"}, false, 1, 85},
    {"t.txt", {.format = COPSE_DATA_TEXT, .sequence_length = 4}, true, 1, 5},
    {"t.txt.gz", {.format = COPSE_DATA_TEXT, .sequence_length = 4}, false, 1, 85},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static bool is_packed(const kind *k) {
    return strstr(k->name, ".gz") != NULL;
}

static void write_text(const kind *k, const char *text, size_t bytes) {
    if (is_packed(k))
        write_gzip(in_folder(folder, k->name), text, bytes);
    else
        write_file(in_folder(folder, k->name), text, bytes);
}

/* A few samples as copse writes them; free() it. */
static unsigned char *make_file(const kind *k, size_t *bytes) {
    static const char words[] = "the quick brown fox \xC3\xA9 jumps over the lazy dog\n";
    copse_data_format format = k->source.format;
    size_t side = format == COPSE_DATA_CIFAR10 ? 32 : 3;
    size_t channels = format == COPSE_DATA_CIFAR10 ? 3 : 1;
    copse_data_source synthetic = {
        .format = COPSE_DATA_SYNTHETIC,
        .feature = {.dtype = COPSE_U8, .rank = 3, .shape = {side, side, channels}},
        .class_count = 2,
        .count = 3,
        .seed = 1};
    copse_dataset *set;
    if (format == COPSE_DATA_TEXT) {
        write_text(k, words, sizeof words - 1);
        return read_whole(in_folder(folder, k->name), bytes);
    }
    ASSERT_OK(copse_dataset_open(&set, &synthetic, &error));
    copse_data_target target = {.format = format, .path = in_folder(folder, k->name)};
    if (format == COPSE_DATA_IDX || strcmp(k->name, "t.npy") == 0)
        target.label_path = in_folder(folder, "labels");
    ASSERT_OK(copse_dataset_save(set, &target, &error));
    copse_dataset_close(set);
    return read_whole(in_folder(folder, k->name), bytes);
}

static copse_status read_kind(const kind *k, size_t *rows) {
    copse_data_source source = k->source;
    const char *path = in_folder(folder, k->name);
    source.paths = &path;
    source.path_count = 1;
    error = (copse_error){0};
    return read_source(&source, rows, &error);
}

START_TEST(test_damage_whole_files_are_read) {
    for (size_t i = 0; i < KINDS; i++) {
        size_t bytes, rows;
        free(make_file(&kinds[i], &bytes));
        copse_status status = read_kind(&kinds[i], &rows);
        ck_assert_msg(status == COPSE_OK && rows >= 3, "%s: %s: %s", kinds[i].name,
                      error.place, error.text);
    }
}
END_TEST

static void assert_refused(const kind *k, copse_status status) {
    ck_assert_msg(status == COPSE_FORMAT && strstr(error.place, k->name),
                  "%s: %s, %s: %s", k->name, copse_status_name(status), error.place,
                  error.text);
}

START_TEST(test_damage_empty_files_are_named) {
    for (size_t i = 0; i < KINDS; i++) {
        size_t rows;
        write_file(in_folder(folder, kinds[i].name), "", 0);
        assert_refused(&kinds[i], read_kind(&kinds[i], &rows));
        write_gzip(in_folder(folder, kinds[i].name), "", 0);
        assert_refused(&kinds[i], read_kind(&kinds[i], &rows));
    }
}
END_TEST

START_TEST(test_damage_cut_at_every_byte) {
    for (size_t i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        size_t bytes, rows;
        unsigned char *data = make_file(k, &bytes);
        for (size_t n = 0; n<bytes; n += bytes> 5000 && n % 3073 > 4 ? 7 : 1) {
            write_file(in_folder(folder, k->name), data, n);
            copse_status status = read_kind(k, &rows);
            ck_assert_msg((status == COPSE_OK && k->may_be_shorter) ||
                              status == COPSE_FORMAT || status == COPSE_CONFIG,
                          "%s cut to %zu of %zu: %s", k->name, n, bytes,
                          copse_status_name(status));
            ck_assert_msg(status == COPSE_OK || strstr(error.place, k->name), "%s",
                          error.place);
        }
        free(data);
    }
}
END_TEST

START_TEST(test_damage_turned_bits) {
    for (size_t i = 0; i < KINDS; i++) {
        const kind *k = &kinds[i];
        size_t bytes;
        unsigned char *data = make_file(k, &bytes);
        size_t noticed = check_flipped(k->source, in_folder(folder, k->name), data, bytes,
                                       k->flip_step);
        size_t tried = (bytes * 8 + k->flip_step - 1) / k->flip_step;
        ck_assert_msg(noticed * 100 >= tried * k->noticed_of_100_flips,
                      "%s: %zu of %zu flips noticed", k->name, noticed, tried);
        free(data);
    }
}
END_TEST

/* 32 MiB that begin as a file of the format does, in a few KiB. */
START_TEST(test_damage_bombs_are_refused) {
    size_t bytes = (size_t)32 << 20;
    for (size_t i = 0; i < KINDS; i++) {
        kind k = kinds[i];
        if (!is_packed(&k))
            continue;
        char *bomb = calloc(bytes, 1);
        ck_assert_ptr_nonnull(bomb);
        if (k.source.format == COPSE_DATA_IDX)
            memcpy(bomb, "\0\0\x08\x01\x01\xff\xff\xf8", 8);
        if (k.source.format == COPSE_DATA_CSV)
            for (size_t at = 0; at + 8 <= bytes; at += 8)
                memcpy(bomb + at, at ? "1,2,3,4\n" : "a,b,c,l\n", 8);
        if (k.source.format == COPSE_DATA_CSV)
            k.source.label_name = "l";
        if (k.source.format == COPSE_DATA_TFRECORD)
            memcpy(bomb, "\0\0\0\1", 4); /* and a wrong checksum of that length */
        write_gzip(in_folder(folder, k.name), bomb, bytes);
        free(bomb);
        k.source.memory_limit_bytes = 1 << 20;
        size_t rows;
        copse_status status = read_kind(&k, &rows);
        ck_assert_msg(status == COPSE_NOMEM || status == COPSE_FORMAT, "%s: %s: %s",
                      k.name, copse_status_name(status), error.text);
        ck_assert_msg(strstr(error.place, k.name) != NULL, "%s", error.place);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("data_damage");
    TCase *tests = tcase_create("damage");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_damage_whole_files_are_read);
    tcase_add_test(tests, test_damage_empty_files_are_named);
    tcase_add_test(tests, test_damage_cut_at_every_byte);
    tcase_add_test(tests, test_damage_turned_bits);
    tcase_add_test(tests, test_damage_bombs_are_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
