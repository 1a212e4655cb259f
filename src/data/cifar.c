/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary version of CIFAR-10 and CIFAR-100: records of one label (CIFAR-100: coarse,
 * then fine) and 32 x 32 pixels, all of the red, then the green, then the blue ones. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "data/table.h"
#include "io/input.h"

enum { PLANE = 32 * 32, PIXELS = 3 * PLANE, BLOCK = 256 };

typedef struct layout {
    size_t label_bytes; /* in front of the pixels */
    size_t label_at;
    int classes;
} layout;

static layout layout_of(const copse_data_source *source) {
    if (source->format == COPSE_DATA_CIFAR10)
        return (layout){1, 0, 10};
    return source->coarse_labels ? (layout){2, 0, 20} : (layout){2, 1, 100};
}

/* Planes to height, width, channels. */
static void interleave(unsigned char *out, const unsigned char *planes) {
    for (size_t i = 0; i < PLANE; i++) {
        out[3 * i] = planes[i];
        out[3 * i + 1] = planes[PLANE + i];
        out[3 * i + 2] = planes[2 * PLANE + i];
    }
}

typedef struct reader {
    copse_dataset *set;
    copse__table *table;
    layout layout;
    size_t limit;
    size_t features_capacity, labels_capacity;
} reader;

static copse_status take_records(reader *r, copse__input *input,
                                 const unsigned char *block, size_t records,
                                 size_t file_first, copse_error *err) {
    size_t count = r->set->count, bytes = r->layout.label_bytes + PIXELS;
    size_t total = count + records;
    copse_status status = copse__check_memory((uint64_t)total * (PIXELS + 4), r->limit,
                                              copse__input_path(input), err);
    if (status == COPSE_OK)
        status = copse__grow(&r->table->features, &r->features_capacity, total * PIXELS,
                             1, err);
    if (status == COPSE_OK)
        status = copse__grow(&r->table->labels, &r->labels_capacity, total * 4, 1, err);
    for (size_t i = 0; i < records && status == COPSE_OK; i++) {
        const unsigned char *record = block + i * bytes;
        int32_t label = record[r->layout.label_at];
        if (label >= r->layout.classes)
            return copse__fail(err, COPSE_FORMAT, 0, copse__input_path(input),
                               "sample %zu has label %d at byte %zu, but there are %d "
                               "classes; fetch the file again",
                               count + i - file_first, label,
                               (count + i - file_first) * bytes + r->layout.label_at,
                               r->layout.classes);
        memcpy(r->table->labels + (count + i) * 4, &label, 4);
        interleave(r->table->features + (count + i) * PIXELS,
                   record + r->layout.label_bytes);
    }
    if (status == COPSE_OK)
        r->set->count = total;
    return status;
}

static copse_status read_file(reader *r, const char *path, unsigned char *block,
                              copse_error *err) {
    copse__input *input;
    copse_status status = copse__input_open(&input, path, COPSE__PACKING_AUTO, err);
    if (status != COPSE_OK)
        return status;
    size_t first = r->set->count, bytes = r->layout.label_bytes + PIXELS, got;
    COPSE__TRY(copse__table_add_file(r->table, path, first, err), out);
    do {
        COPSE__TRY(copse__input_read(input, block, BLOCK * bytes, &got, err), out);
        if (got % bytes != 0 || (got == 0 && r->set->count == first)) {
            status = copse__fail(err, COPSE_FORMAT, 0, path,
                                 "its %llu bytes are not a whole number of %zu-byte "
                                 "records; fetch the file again or check the format",
                                 (unsigned long long)copse__input_offset(input), bytes);
            goto out;
        }
        COPSE__TRY(take_records(r, input, block, got / bytes, first, err), out);
    } while (got == BLOCK * bytes);
out:
    copse__input_close(input);
    return status;
}

/* Names stand in a text file beside the data, one a line; without it classes have none.
 */
static copse_status read_names(copse_dataset *set, size_t classes, const char *data_path,
                               const char *names_file, copse_error *err) {
    char *folder, *path = NULL, *text = NULL;
    const char *names[100];
    size_t bytes, found = 0;
    copse_status status = copse__path_folder(&folder, data_path, err);
    if (status != COPSE_OK)
        return status;
    COPSE__TRY(copse__path_join(&path, folder, names_file, err), out);
    if (copse__file_exists(path)) {
        COPSE__TRY(copse__file_read(&text, &bytes, path, 64 << 10, err), out);
        char *rest = text;
        for (char *line; (line = strsep(&rest, "\r\n")) && found < classes;)
            if (line[0])
                names[found++] = line;
    }
    status =
        copse__dataset_set_classes(set, classes, found == classes ? names : NULL, err);
out:
    free(text);
    free(path);
    free(folder);
    return status;
}

copse_status copse__cifar_open(copse_dataset **out, const copse_data_source *source,
                               const copse__found_files *files, copse_error *err) {
    reader r = {.layout = layout_of(source),
                .limit = copse__memory_limit(source->memory_limit_bytes)};
    unsigned char *block = NULL;
    const char *first = files->paths.items[0];
    copse_data_spec features = {COPSE_U8, 3, {32, 32, 3}}, labels = {.dtype = COPSE_I32};
    const char *names = source->format == COPSE_DATA_CIFAR10 ? "batches.meta.txt"
                        : source->coarse_labels              ? "coarse_label_names.txt"
                                                             : "fine_label_names.txt";
    copse_status status = copse__table_new(&r.set, first, err);
    if (status != COPSE_OK)
        return status;
    r.table = r.set->state;
    COPSE__TRY(copse__calloc(&block, BLOCK, r.layout.label_bytes + PIXELS, err), out);
    COPSE__TRY(copse__dataset_set_specs(r.set, &features, &labels, err), out);
    for (size_t i = 0; i < files->paths.count; i++)
        COPSE__TRY(read_file(&r, files->paths.items[i], block, err), out);
    COPSE__TRY(read_names(r.set, (size_t)r.layout.classes, first, names, err), out);
    *out = r.set;
    r.set = NULL;
out:
    free(block);
    copse_dataset_close(r.set);
    return status;
}
