/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "open_data.h"

enum { OPT_THREADS = OPT_OWN, OPT_SECONDS, OPT_JSON, ROUNDS = 5 };

static const tool_option options[] = {
    {OPT_THREADS, "threads", 't', "N", "Worker threads (default: as in training)"},
    {OPT_SECONDS, "seconds", 0, "S", "Time to measure each stage for (default 2)"},
    {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},
    OPTION_SET,
};

static const tool_command command = {
    .program = "copse bench data",
    .usage = "CONFIG [options]",
    .summary =
        "Samples a second of a configuration's training data without any training: each "
        "stage\nwith those before it. read: decoded one by one, on one thread. batches: "
        "shuffled into\nbatches ahead of the reader. augmented: and augmented.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

typedef struct request {
    const char *config;
    size_t threads;
    double seconds;
    bool json;
    copse_overrides overrides;
} request;

typedef struct measured {
    double rates[ROUNDS]; /* samples a second, sorted */
    size_t sample_bytes;
    double waited; /* part of the time in which the reader waited, of batches */
} measured;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static size_t label_bytes(const copse_data_spec *labels) {
    return labels ? copse_data_spec_bytes(labels) : 0;
}

/* ---- Stages --------------------------------------------------------------------------- */

static copse_status measure_read(measured *out, copse_dataset *set, const request *r,
                                 copse_error *err) {
    size_t count = copse_dataset_count(set), at = 0;
    size_t features = copse_data_spec_bytes(copse_dataset_get_features(set));
    size_t labels = label_bytes(copse_dataset_get_labels(set));
    unsigned char *sample;
    copse_status status = copse__calloc(&sample, features + labels, 1, err);
    for (size_t round = 0; round < ROUNDS && status == COPSE_OK; round++) {
        uint64_t begun = copse__now_ns(), now = begun, done = 0;
        while (status == COPSE_OK && (double)(now - begun) * 1e-9 < r->seconds / ROUNDS) {
            for (size_t i = 0; i < 16 && status == COPSE_OK; i++, done++) {
                status = copse_dataset_read(set, at, sample,
                                            labels ? sample + features : NULL, err);
                at = (at + 1) % count;
            }
            now = copse__now_ns();
        }
        out->rates[round] = (double)done / ((double)(now - begun) * 1e-9);
    }
    out->sample_bytes = features + labels;
    free(sample);
    return status;
}

/* Reads on for one round. Each batch's first byte is looked at, as an upload would. */
static copse_status run_round(copse_pipeline *pipeline, double seconds, double *rate,
                              copse_error *err) {
    uint64_t begun = copse__now_ns(), now = begun, done = 0;
    volatile unsigned char seen = 0;
    while ((double)(now - begun) * 1e-9 < seconds || done == 0) {
        const copse_batch *batch;
        copse_status status = copse_pipeline_next(pipeline, &batch, err);
        if (status != COPSE_OK)
            return status;
        if (batch) {
            seen ^= *(const unsigned char *)batch->parts[0].features;
            done += batch->rows;
        }
        copse_pipeline_release(pipeline, batch);
        now = copse__now_ns();
    }
    *rate = (double)done / ((double)(now - begun) * 1e-9);
    return COPSE_OK;
}

static copse_status measure_batches(measured *out, const copse_open_data *data,
                                    const request *r, bool augmented, copse_error *err) {
    copse_dataset *set = data->sets.train;
    copse_pipeline_options reading =
        copse_open_data_reading(data, (size_t)data->config->train.batch, augmented);
    reading.drop_remainder = data->config->data.drop_remainder;
    reading.threads = r->threads;
    copse_pipeline *pipeline;
    double warm;
    copse_status status = copse_pipeline_open(&pipeline, set, &reading, err);
    if (status == COPSE_OK)
        status = run_round(pipeline, 0.1, &warm, err);
    uint64_t begun = copse__now_ns();
    copse_pipeline_stats before = {0}, after = {0};
    if (status == COPSE_OK)
        copse_pipeline_get_stats(pipeline, &before);
    for (size_t i = 0; i < ROUNDS && status == COPSE_OK; i++)
        status = run_round(pipeline, r->seconds / ROUNDS, &out->rates[i], err);
    if (status == COPSE_OK) {
        copse_pipeline_get_stats(pipeline, &after);
        out->waited =
            (double)(after.wait_ns - before.wait_ns) / (double)(copse__now_ns() - begun);
        out->sample_bytes = copse_data_spec_bytes(copse_pipeline_get_features(pipeline)) +
                            label_bytes(copse_pipeline_get_labels(pipeline));
    }
    copse_pipeline_close(pipeline);
    return status;
}

/* ---- Printing ------------------------------------------------------------------------- */

static void print(const request *r, const char *stage, measured *m) {
    qsort(m->rates, ROUNDS, sizeof *m->rates, by_value);
    double median = m->rates[ROUNDS / 2];
    if (r->json) {
        printf("{\"bench\":\"data\",\"config\":\"%s\",\"stage\":\"%s\",\"threads\":%zu,"
               "\"samples_per_s\":{\"median\":%.0f,\"min\":%.0f,\"max\":%.0f},"
               "\"bytes_per_s\":%.0f,\"waited\":%.3f}\n",
               r->config, stage, r->threads, median, m->rates[0], m->rates[ROUNDS - 1],
               median * (double)m->sample_bytes, m->waited);
    } else {
        printf("%-10s %12.0f samples/s (%.0f to %.0f)  %8.3f GB/s\n", stage, median,
               m->rates[0], m->rates[ROUNDS - 1],
               median * (double)m->sample_bytes * 1e-9);
    }
    fflush(stdout);
}

static copse_status bench(const request *r, const copse_open_data *data,
                          copse_error *err) {
    copse_dataset *set = data->sets.train;
    measured m = {0};
    copse_status status = COPSE_OK;
    if (copse_dataset_count(set) != COPSE_COUNT_UNKNOWN) {
        status = measure_read(&m, set, r, err);
        if (status == COPSE_OK)
            print(r, "read", &m);
    }
    if (status == COPSE_OK)
        status = measure_batches(&m, data, r, false, err);
    if (status == COPSE_OK)
        print(r, "batches", &m);
    if (status == COPSE_OK && data->augment_count > 0) {
        status = measure_batches(&m, data, r, true, err);
        if (status == COPSE_OK)
            print(r, "augmented", &m);
    }
    return status;
}

static int run(const request *r) {
    copse_error error = {0};
    copse_open_data data;
    if (copse_open_data_open(&data, r->config, &r->overrides, &error) != COPSE_OK)
        return copse_report(&error);
    copse_status status = bench(r, &data, &error);
    copse_open_data_close(&data);
    return status == COPSE_OK ? 0 : copse_report(&error);
}

static bool take(request *r, int id, const char *value) {
    char *end;
    copse_error error = {0};
    switch (id) {
    case OPT_THREADS:
        r->threads = (size_t)strtoul(value, &end, 10);
        if (!*end && r->threads >= 1 && r->threads <= 256)
            return true;
        tool_complain(&command, "--threads takes 1 to 256, not '%s'", value);
        return false;
    case OPT_SECONDS:
        r->seconds = strtod(value, &end);
        if (!*end && r->seconds > 0 && r->seconds <= 3600)
            return true;
        tool_complain(&command, "--seconds takes a time, not '%s'", value);
        return false;
    case OPT_JSON:
        r->json = true;
        return true;
    default:
        if (copse_overrides_add(&r->overrides, value, &error) == COPSE_OK)
            return true;
        copse_report(&error);
        return false;
    }
}

int copse_cmd_bench_data(int argc, char **argv) {
    tool_parser parser;
    const char *value;
    request r = {.seconds = 2, .json = !isatty(STDOUT_FILENO)};
    int id, code = 2;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&r, id, value)) {
            id = TOOL_USAGE;
            break;
        }
    if (id == TOOL_END) {
        r.config = parser.operands[0];
        code = run(&r);
    }
    tool_end(&parser);
    free(r.overrides.items);
    return id == TOOL_DONE ? 0 : code;
}
