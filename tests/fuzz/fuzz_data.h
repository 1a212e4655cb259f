/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of the dataset formats share: the input becomes a file that is opened and read
 * through. */
#ifndef TESTS_FUZZ_DATA_H
#define TESTS_FUZZ_DATA_H

#include <copse/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* libFuzzer calls this; every target defines it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Reads up to 64 samples; a stream through a pipeline. Every failure must have a text. */
static inline copse_status fuzz_read_set(copse_dataset *set, copse_error *err) {
    size_t count = copse_dataset_count(set);
    if (count == COPSE_COUNT_UNKNOWN) {
        copse_pipeline_options options = {.batch = 4, .epochs = 1, .threads = 1};
        copse_pipeline *pipeline;
        copse_status status = copse_pipeline_open(&pipeline, set, &options, err);
        for (int i = 0; i < 16 && status == COPSE_OK; i++) {
            const copse_batch *batch;
            status = copse_pipeline_next(pipeline, &batch, err);
            copse_pipeline_release(pipeline, batch);
        }
        copse_pipeline_close(pipeline);
        return status;
    }
    const copse_data_spec *labels = copse_dataset_get_labels(set);
    void *features = malloc(copse_data_spec_bytes(copse_dataset_get_features(set)));
    void *label = labels ? malloc(copse_data_spec_bytes(labels)) : NULL;
    copse_status status = features ? COPSE_OK : COPSE_NOMEM;
    for (size_t i = 0; i < count && i < 64 && status == COPSE_OK; i++)
        status = copse_dataset_read(set, i, features, label, err);
    free(features);
    free(label);
    return status;
}

/* source's first path is the input. */
static inline int fuzz_dataset(const uint8_t *data, size_t bytes,
                               copse_data_source source) {
    char path[64];
    const char *paths = path;
    int fd = memfd_create("fuzz", 0);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    source.paths = &paths;
    source.path_count = 1;
    source.memory_limit_bytes = (size_t)64 << 20;
    copse_dataset *set;
    copse_error error = {0};
    copse_status status = copse_dataset_open(&set, &source, &error);
    if (status == COPSE_OK)
        status = fuzz_read_set(set, &error);
    if (status != COPSE_OK && (!error.text[0] || error.status != status))
        abort();
    copse_dataset_close(set);
    close(fd);
    return 0;
}

#endif
