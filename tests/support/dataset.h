/* SPDX-License-Identifier: Apache-2.0
 *
 * Datasets in tests: read every sample, damage files systematically. */
#ifndef TESTS_SUPPORT_DATASET_H
#define TESTS_SUPPORT_DATASET_H

#include <copse/data.h>

#include "support/check.h"
#include "support/files.h"

static inline copse_status read_set(copse_dataset *set, size_t *rows, copse_error *err) {
    const copse_data_spec *labels = copse_dataset_get_labels(set);
    size_t count = copse_dataset_count(set);
    void *features = malloc(copse_data_spec_bytes(copse_dataset_get_features(set)));
    void *label = labels ? malloc(copse_data_spec_bytes(labels)) : NULL;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        status = copse_dataset_read(set, i, features, label, err);
        *rows += status == COPSE_OK;
    }
    free(features);
    free(label);
    return status;
}

static inline copse_status read_pipeline(copse_dataset *set, size_t *rows,
                                         copse_error *err) {
    copse_pipeline *pipeline;
    copse_pipeline_options options = {.batch = 3, .epochs = 1, .threads = 1};
    copse_status status = copse_pipeline_open(&pipeline, set, &options, err);
    while (status == COPSE_OK) {
        const copse_batch *batch;
        status = copse_pipeline_next(pipeline, &batch, err);
        if (!batch)
            break;
        *rows += batch->rows;
        copse_pipeline_release(pipeline, batch);
    }
    copse_pipeline_close(pipeline);
    return status;
}

/* Opens source, reads every sample once and closes: one by one, or through a pipeline where it is a
 * stream or leaves bad samples out. The first failure. */
static inline copse_status read_source(const copse_data_source *source, size_t *rows,
                                       copse_error *err) {
    copse_dataset *set;
    *rows = 0;
    copse_status status = copse_dataset_open(&set, source, err);
    if (status != COPSE_OK) {
        ck_assert_ptr_null(set);
        return status;
    }
    if (copse_dataset_count(set) == COPSE_COUNT_UNKNOWN || source->skip_errors)
        status = read_pipeline(set, rows, err);
    else
        status = read_set(set, rows, err);
    copse_dataset_close(set);
    return status;
}

/* source's first path is written anew as each shorter file; none may be read without a
 * COPSE_FORMAT (or COPSE_CONFIG) that names the file. step > 1 skips bytes in its middle. */
static inline void check_truncated(copse_data_source source, const char *path,
                                   const unsigned char *data, size_t bytes, size_t step) {
    source.paths = &path;
    source.path_count = 1;
    for (size_t n = 0; n < bytes; n += n < 64 || n + 64 + step > bytes ? 1 : step) {
        copse_error error = {0};
        size_t rows;
        write_file(path, data, n);
        copse_status status = read_source(&source, &rows, &error);
        ck_assert_msg(status == COPSE_FORMAT || status == COPSE_CONFIG,
                      "cut to %zu of %zu bytes: %s: %s", n, bytes,
                      copse_status_name(status), error.text);
        ck_assert_msg(strstr(error.place, path) != NULL, "place is '%s'", error.place);
        ck_assert_uint_gt(strlen(error.text), 0);
    }
}

/* Flips each bit in turn: a clear failure or success, never a crash or a hang. Returns how many
 * flips were noticed. */
static inline size_t check_flipped(copse_data_source source, const char *path,
                                   unsigned char *data, size_t bytes, size_t step) {
    size_t noticed = 0;
    source.paths = &path;
    source.path_count = 1;
    for (size_t bit = 0; bit < bytes * 8; bit += step) {
        copse_error error = {0};
        size_t rows;
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        write_file(path, data, bytes);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        copse_status status = read_source(&source, &rows, &error);
        if (status == COPSE_OK)
            continue;
        noticed++;
        ck_assert_msg(status == COPSE_FORMAT || status == COPSE_CONFIG ||
                          status == COPSE_NOMEM,
                      "bit %zu: %s", bit, copse_status_name(status));
        ck_assert_uint_gt(strlen(error.text), 0);
    }
    return noticed;
}

#endif
