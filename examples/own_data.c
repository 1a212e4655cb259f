/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of one's own through copse's pipeline: shuffled batches, cut for two replicas, read ahead by several threads.
 *   cc own_data.c $(pkg-config --cflags --libs copse) -o own_data && ./own_data
 */
#include <copse/data.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Points on two lines, a class each; every 100th was lost. */
enum { POINTS = 1000, LOST = 100 };

/* Called by several threads at once, so it changes nothing but its outputs. */
static copse_status read_point(void *user, size_t index, void *features, void *labels,
                               copse_error *error) {
    const float *table = user;
    int32_t class = (int32_t)(index % 2);
    if (index % LOST == LOST - 1) {
        error->status = COPSE_FORMAT;
        snprintf(error->place, sizeof error->place, "lines, point %zu", index);
        snprintf(error->text, sizeof error->text, "it was lost; draw the points again");
        return COPSE_FORMAT;
    }
    memcpy(features, table + 2 * index, 2 * sizeof *table);
    memcpy(labels, &class, sizeof class);
    return COPSE_OK;
}

/* Two epochs; 0, or the code to leave with. */
static int read_epochs(copse_dataset *set, bool skip_errors, copse_error *error) {
    copse_pipeline_options options = {.batch = 64,
                                      .shuffle = COPSE_SHUFFLE_FULL,
                                      .seed = 7,
                                      .epochs = 2,
                                      .replica_count = 2,
                                      .skip_errors = skip_errors};
    copse_pipeline *pipeline;
    copse_pipeline_stats stats;
    uint64_t rows = 0, ends = 0;
    copse_status status = copse_pipeline_open(&pipeline, set, &options, error);
    while (status == COPSE_OK && ends < options.epochs) {
        const copse_batch *batch;
        status = copse_pipeline_next(pipeline, &batch, error);
        if (status != COPSE_OK)
            break;
        ends += batch == NULL;
        for (size_t r = 0; batch && r < batch->part_count; r++)
            rows += batch->parts[r].rows; /* features and labels lie there */
        copse_pipeline_release(pipeline, batch);
    }
    if (pipeline) {
        copse_pipeline_get_stats(pipeline, &stats);
        printf("%" PRIu64 " rows, %" PRIu64 " left out: %s%s%s\n", rows, stats.skipped,
               status == COPSE_OK ? "done" : error->place, status == COPSE_OK ? "" : ": ",
               status == COPSE_OK ? "" : error->text);
    }
    copse_pipeline_close(pipeline);
    return status == COPSE_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void) {
    float *table = calloc(2 * POINTS, sizeof *table);
    copse_dataset *set;
    copse_error error = {0};
    if (!table)
        return EXIT_FAILURE;
    for (size_t i = 0; i < POINTS; i++)
        table[2 * i] = (float)i / POINTS, table[2 * i + 1] = i % 2 ? 1.0f : -1.0f;
    copse_data_callbacks callbacks = {.read = read_point,
                                      .close = free, /* of the table, with the set */
                                      .user = table,
                                      .name = "lines",
                                      .count = POINTS,
                                      .features = {COPSE_F32, 1, {2}},
                                      .labels = {.dtype = COPSE_I32},
                                      .has_labels = true,
                                      .classes = 2};
    if (copse_dataset_from_callbacks(&set, &callbacks, &error) != COPSE_OK) {
        fprintf(stderr, "%s\n", error.text);
        return EXIT_FAILURE;
    }
    bool stopped = read_epochs(set, false, &error) != EXIT_SUCCESS;
    int code = read_epochs(set, true, &error);
    copse_dataset_close(set);
    return stopped ? code : EXIT_FAILURE;
}
