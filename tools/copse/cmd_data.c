/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/data.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "data/convert.h"
#include "data/image.h"
#include "open_data.h"

enum { OPT_SHEET = OPT_OWN, OPT_SAMPLES, OPT_EPOCH };

static const tool_option options[] = {
    {OPT_SHEET, "sheet", 0, "FILE.png",
     "Write a contact sheet of samples of the training\nset, augmented as in training"},
    {OPT_SAMPLES, "samples", 'n', "N", "Images on the sheet (default 64)"},
    {OPT_EPOCH, "epoch", 0, "N", "As epoch N sees them (default 0)"},
    OPTION_SET,
};

static const tool_command command = {
    .program = "copse data",
    .usage = "CONFIG [options]",
    .summary =
        "Reads all of a configuration's data once and prints what is in it: counts, "
        "shapes,\nthe balance of the classes, mean and deviation of each channel.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

typedef struct request {
    const char *sheet;
    size_t samples;
    uint64_t epoch;
    copse_overrides overrides;
} request;

/* ---- Statistics ----------------------------------------------------------------------- */

enum { CHANNELS_MOST = 16 };

typedef struct statistics {
    size_t samples, left_out, channels;
    double sum[CHANNELS_MOST], squares[CHANNELS_MOST]; /* of x - first */
    double first[CHANNELS_MOST], least, most;
    size_t values; /* of one channel */
    size_t *classes, class_count;
} statistics;

static void add_features(statistics *s, const copse_data_spec *spec, const void *sample) {
    size_t n = copse_data_spec_elements(spec), element = copse_dtype_bytes(spec->dtype);
    for (size_t i = 0; i < n; i++) {
        size_t c = i % s->channels;
        double x =
            copse__get_number(spec->dtype, (const unsigned char *)sample + i * element);
        if (s->samples == 0 && i < s->channels)
            s->first[c] = x;
        s->least = s->samples == 0 && i == 0 ? x : fmin(s->least, x);
        s->most = s->samples == 0 && i == 0 ? x : fmax(s->most, x);
        x -= s->first[c];
        s->sum[c] += x;
        s->squares[c] += x * x;
    }
    s->values += n / s->channels;
}

static copse_status add_label(statistics *s, int32_t label, copse_error *err) {
    if (label < 0)
        return COPSE_OK;
    copse_status status = copse__grow(&s->classes, &s->class_count, (size_t)label + 1,
                                      sizeof *s->classes, err);
    if (status == COPSE_OK)
        s->classes[label]++;
    return status;
}

static copse_status add_batch(statistics *s, copse_dataset *set, const copse_batch *batch,
                              copse_error *err) {
    const copse_data_spec *features = copse_dataset_get_features(set);
    const copse_data_spec *labels = copse_dataset_get_labels(set);
    const unsigned char *at = batch->parts[0].features;
    bool classes = labels && labels->dtype == COPSE_I32;
    size_t per_sample = classes ? copse_data_spec_elements(labels) : 0;
    const int32_t *label = batch->parts[0].labels;
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < batch->rows; i++, s->samples++) {
        add_features(s, features, at + i * copse_data_spec_bytes(features));
        for (size_t k = 0; k < per_sample && status == COPSE_OK; k++)
            status = add_label(s, label[i * per_sample + k], err);
    }
    return status;
}

static copse_status measure(statistics *s, copse_dataset *set, copse_error *err) {
    const copse_data_spec *spec = copse_dataset_get_features(set);
    size_t last = spec->rank ? spec->shape[spec->rank - 1] : 1;
    *s = (statistics){.channels = spec->rank == 3 && last <= CHANNELS_MOST ? last : 1};
    copse_pipeline_options reading = {.batch = 64, .epochs = 1, .prefetch = 4};
    copse_pipeline *pipeline;
    copse_status status = copse_pipeline_open(&pipeline, set, &reading, err);
    while (status == COPSE_OK) {
        const copse_batch *batch;
        status = copse_pipeline_next(pipeline, &batch, err);
        if (status != COPSE_OK || !batch)
            break;
        status = add_batch(s, set, batch, err);
        copse_pipeline_release(pipeline, batch);
    }
    copse_pipeline_stats read = {0};
    if (pipeline)
        copse_pipeline_get_stats(pipeline, &read);
    s->left_out = copse_dataset_left_out(set) + (size_t)read.skipped;
    copse_pipeline_close(pipeline);
    return status;
}

/* ---- Printing ------------------------------------------------------------------------- */

static void print_spec(const char *what, const copse_data_spec *spec) {
    printf("  %-9s %s", what, copse_dtype_name(spec->dtype));
    for (size_t i = 0; i < spec->rank; i++)
        printf("%s%zu", i ? " x " : " ", spec->shape[i]);
    printf("\n");
}

static void print_classes(const statistics *s, copse_dataset *set) {
    size_t total = 0, most = 0, known = copse_dataset_classes(set);
    size_t count = 0;
    for (size_t c = 0; c < s->class_count; c++) {
        total += s->classes[c];
        most = copse__max_size(most, s->classes[c]);
        if (s->classes[c])
            count = c + 1;
    }
    count = copse__max_size(count, known);
    printf("  classes   %zu%s\n", count, known ? "" : " (as far as labels show)");
    enum { SHOWN = 100, BAR = 30 };
    for (size_t c = 0; c < count && c < SHOWN; c++) {
        size_t n = c < s->class_count ? s->classes[c] : 0;
        const char *name = copse_dataset_get_class_name(set, c);
        char bar[BAR + 1];
        size_t full = most ? n * BAR / most : 0;
        memset(bar, '#', full);
        bar[full] = '\0';
        printf("    %4zu %-20.20s %9zu %5.1f %%  %s\n", c, name ? name : "", n,
               total ? 100.0 * (double)n / (double)total : 0.0, bar);
    }
    if (count > SHOWN)
        printf("    … %zu more\n", count - SHOWN);
}

static void print_channels(const statistics *s) {
    printf("  range     %g to %g\n", s->least, s->most);
    double n = (double)s->values;
    for (size_t c = 0; c < s->channels; c++) {
        double mean = s->sum[c] / n, variance = s->squares[c] / n - mean * mean;
        printf("  channel %zu mean %.6g  deviation %.6g\n", c, s->first[c] + mean,
               sqrt(variance > 0 ? variance : 0));
    }
}

static copse_status print_set(const char *name, copse_dataset *set, copse_error *err) {
    statistics s;
    char count[32];
    copse_status status = measure(&s, set, err);
    if (status == COPSE_OK) {
        const copse_data_spec *labels = copse_dataset_get_labels(set);
        printf("%s: %s samples\n", name,
               copse__format_count(count, sizeof count, s.samples));
        if (s.left_out > 0)
            printf("  left out  %zu\n", s.left_out);
        print_spec("features", copse_dataset_get_features(set));
        if (labels)
            print_spec("labels", labels);
        print_channels(&s);
        if (labels && labels->dtype == COPSE_I32)
            print_classes(&s, set);
    }
    free(s.classes);
    return status;
}

/* ---- Contact sheet -------------------------------------------------------------------- */

/* Any image as 8-bit pixels with 1 or 3 channels: u8 as it is, others over the sample's range. */
static void to_bytes(unsigned char *out, const copse_data_spec *spec,
                     const unsigned char *sample, size_t channels) {
    size_t pixels = spec->shape[0] * spec->shape[1], given = spec->shape[2];
    size_t element = copse_dtype_bytes(spec->dtype);
    double least = 0, most = 255;
    if (spec->dtype != COPSE_U8) {
        least = most = copse__get_number(spec->dtype, sample);
        for (size_t i = 0; i < pixels * given; i++) {
            double x = copse__get_number(spec->dtype, sample + i * element);
            least = fmin(least, x);
            most = fmax(most, x);
        }
    }
    double scale = most > least ? 255 / (most - least) : 0;
    for (size_t i = 0; i < pixels; i++)
        for (size_t c = 0; c < channels; c++) {
            size_t at = (i * given + copse__min_size(c, given - 1)) * element;
            double x = copse__get_number(spec->dtype, sample + at);
            out[i * channels + c] = (unsigned char)lround((x - least) * scale);
        }
}

typedef struct sheet {
    unsigned char *pixels;
    size_t columns, rows, height, width, channels, scale;
} sheet;

/* Each pixel scale x scale large, with a line between images. */
static void place(sheet *s, size_t number, const unsigned char *image, size_t height,
                  size_t width) {
    size_t top = number / s->columns * (height * s->scale + 1) + 1;
    size_t left = number % s->columns * (width * s->scale + 1) + 1;
    for (size_t y = 0; y < height * s->scale; y++)
        for (size_t x = 0; x < width * s->scale; x++)
            memcpy(s->pixels + ((top + y) * s->width + left + x) * s->channels,
                   image + (y / s->scale * width + x / s->scale) * s->channels,
                   s->channels);
}

static copse_status make_sheet(sheet *s, const copse_data_spec *spec, size_t count,
                               copse_error *err) {
    s->channels = spec->shape[2] >= 3 ? 3 : 1;
    s->columns = (size_t)ceil(sqrt((double)count));
    s->rows = (count + s->columns - 1) / s->columns;
    size_t edge = copse__max_size(spec->shape[0], spec->shape[1]);
    s->scale = edge < 64 ? 64 / edge : 1;
    s->height = s->rows * (spec->shape[0] * s->scale + 1) + 1;
    s->width = s->columns * (spec->shape[1] * s->scale + 1) + 1;
    size_t bytes;
    if (!copse__mul_size(s->height, s->width * s->channels, &bytes) ||
        bytes > COPSE__IMAGE_MOST)
        return copse__fail(err, COPSE_INVALID, 0, NULL,
                           "the sheet would be too large; ask for fewer samples");
    return copse__calloc(&s->pixels, bytes, 1, err);
}

static copse_status fill_sheet(sheet *s, copse_pipeline *pipeline, size_t count,
                               copse_error *err) {
    const copse_data_spec *spec = copse_pipeline_get_features(pipeline);
    const copse_batch *batch;
    unsigned char *image = NULL;
    copse_status status = copse_pipeline_next(pipeline, &batch, err);
    if (status == COPSE_OK)
        status = make_sheet(s, spec, count, err);
    if (status == COPSE_OK)
        status = copse__calloc(&image, spec->shape[0] * spec->shape[1], s->channels, err);
    for (size_t i = 0; status == COPSE_OK && batch && i < batch->rows && i < count; i++) {
        to_bytes(image, spec,
                 (const unsigned char *)batch->parts[0].features +
                     i * copse_data_spec_bytes(spec),
                 s->channels);
        place(s, i, image, spec->shape[0], spec->shape[1]);
    }
    free(image);
    return status;
}

static copse_status write_sheet(const request *r, const copse_open_data *data,
                                copse_error *err) {
    copse_pipeline *pipeline = NULL;
    sheet s = {0};
    size_t count = copse__min_size(r->samples, copse_dataset_count(data->sets.train));
    copse_pipeline_options reading = copse_open_data_reading(data, count, true);
    reading.start_epoch = r->epoch;
    reading.prefetch = 1;
    copse_status status;
    COPSE__TRY(copse_pipeline_open(&pipeline, data->sets.train, &reading, err), out);
    if (copse_pipeline_get_features(pipeline)->rank != 3) {
        status = copse__fail(err, COPSE_UNSUPPORTED, 0, r->sheet,
                             "samples are no images, so there is no sheet of them");
        goto out;
    }
    COPSE__TRY(fill_sheet(&s, pipeline, count, err), out);
    status = copse__png_save(r->sheet, s.pixels, s.height, s.width, s.channels, err);
out:
    copse_pipeline_close(pipeline);
    free(s.pixels);
    return status;
}

/* ---- The command ---------------------------------------------------------------------- */

static int show(const request *r, const char *path) {
    copse_error error = {0};
    copse_open_data data;
    if (copse_open_data_open(&data, path, &r->overrides, &error) != COPSE_OK)
        return copse_report(&error);
    const copse__datasets *sets = &data.sets;
    copse_status status = print_set("train", sets->train, &error);
    if (status == COPSE_OK && sets->validation && !sets->validation_is_test)
        status = print_set(sets->validation_name, sets->validation, &error);
    if (status == COPSE_OK && sets->test)
        status = print_set("test", sets->test, &error);
    if (status == COPSE_OK && r->sheet)
        status = write_sheet(r, &data, &error);
    copse_open_data_close(&data);
    return status == COPSE_OK ? 0 : copse_report(&error);
}

static bool parse_count(const char *text, uint64_t least, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && !*end && !errno && *out >= least &&
           *out <= 100000000;
}

static bool take(request *r, int id, const char *value) {
    uint64_t number;
    copse_error error = {0};
    switch (id) {
    case OPT_SHEET:
        r->sheet = value;
        return true;
    case OPT_SAMPLES:
        if (parse_count(value, 1, &number)) {
            r->samples = (size_t)number;
            return true;
        }
        tool_complain(&command, "--samples takes a number above 0, not '%s'", value);
        return false;
    case OPT_EPOCH:
        if (parse_count(value, 0, &r->epoch))
            return true;
        tool_complain(&command, "--epoch takes a number, not '%s'", value);
        return false;
    default:
        if (copse_overrides_add(&r->overrides, value, &error) == COPSE_OK)
            return true;
        copse_report(&error);
        return false;
    }
}

int copse_cmd_data(int argc, char **argv) {
    tool_parser parser;
    const char *value;
    request r = {.samples = 64};
    int id, code = 2;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&r, id, value)) {
            id = TOOL_USAGE;
            break;
        }
    if (id == TOOL_END)
        code = show(&r, parser.operands[0]);
    tool_end(&parser);
    free(r.overrides.items);
    return id == TOOL_DONE ? 0 : code;
}
