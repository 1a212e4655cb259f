/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/npy.h"
#include "session.h"

enum { OPT_CHECKPOINT = OPT_OWN, OPT_INPUT, OPT_OUTPUT };

static const tool_option options[] = {
    {OPT_INPUT, "input", 'i', "FILE",
     "Samples: .npy or .npz, or a file of the configuration's own format"},
    {OPT_OUTPUT, "output", 'o', "FILE", "Where to write: .npy (float32) or .csv"},
    {OPT_CHECKPOINT, "checkpoint", 'c', "FILE",
     "Weights to use: a file, or the run's latest (default) or best"},
    OPTION_DEVICES,
    OPTION_SET,
    OPTION_ISOLATE,
    OPTION_QUIET,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse predict",
    .usage = "RUN --input FILE --output FILE.npy|FILE.csv [options]",
    .summary =
        "Writes the network's output for every sample of a file, one row a sample, in "
        "the\nfile's order.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

typedef struct predict_options {
    const char *output;
    copse_session_options *opening;
} predict_options;

static bool take(void *user, int id, const char *value) {
    predict_options *o = user;
    if (id == OPT_OUTPUT)
        o->output = value;
    else if (id == OPT_INPUT)
        o->opening->predict_input = value;
    else
        o->opening->checkpoint = value;
    return true;
}

/* Rows as they arrive: into one .npy behind a header whose shape is known beforehand, or as lines. */
typedef struct writer {
    copse__atomic_file *file;
    bool csv;
    bool began;
    size_t total_rows;
    copse__text line;
} writer;

static copse_status begin_npy(writer *w, size_t columns, copse_error *err) {
    copse__text header = {0};
    const size_t shape[] = {w->total_rows, columns};
    copse__npy_format_header(&header, COPSE_F32, 2, shape);
    copse_status status = copse__text_check(&header, err);
    if (status == COPSE_OK)
        status = copse__atomic_write(w->file, header.data, header.length, err);
    copse__text_free(&header);
    return status;
}

static copse_status write_csv(writer *w, const float *values, size_t rows, size_t columns,
                              copse_error *err) {
    char number[32];
    w->line.length = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            copse__text_add(
                &w->line, "%s%c",
                copse__format_float(number, sizeof number, values[r * columns + c]),
                c + 1 < columns ? ',' : '\n');
    copse_status status = copse__text_check(&w->line, err);
    return status == COPSE_OK
               ? copse__atomic_write(w->file, w->line.data, w->line.length, err)
               : status;
}

static copse_status write_rows(void *user, const float *values, size_t rows,
                               size_t columns, copse_error *err) {
    writer *w = user;
    copse_status status = COPSE_OK;
    if (!w->began && !w->csv)
        status = begin_npy(w, columns, err);
    w->began = true;
    if (status != COPSE_OK)
        return status;
    return w->csv ? write_csv(w, values, rows, columns, err)
                  : copse__atomic_write(w->file, values, rows * columns * sizeof *values,
                                        err);
}

static copse_status predict(copse_session *s, const char *output, copse_error *err) {
    writer w = {.csv = strcmp(strrchr(output, '.'), ".csv") == 0,
                .total_rows = copse_dataset_count(s->sets.test)};
    copse_status status = copse__atomic_open(&w.file, output, err);
    if (status != COPSE_OK)
        return status;
    status = copse__trainer_predict(s->trainer, s->sets.test, write_rows, &w, err);
    if (status == COPSE_OK)
        status = copse__atomic_commit(w.file, err);
    else
        copse__atomic_abort(w.file);
    copse__text_free(&w.line);
    progress_clear(&s->progress);
    return status;
}

static bool is_writable_name(const char *output) {
    const char *dot = output ? strrchr(output, '.') : NULL;
    return dot && (strcmp(dot, ".npy") == 0 || strcmp(dot, ".csv") == 0);
}

static const copse__trainer_hooks hooks = {.on_evaluate = copse_session_on_evaluate,
                                           .on_hang = copse_session_on_hang,
                                           .on_prepare = copse_session_on_prepare};

int copse_cmd_predict(int argc, char **argv) {
    copse_error error = {0};
    copse_session session;
    copse_session_options opening = {
        .isolate = true, .selftest = true, .need_weights = true, .hooks = &hooks};
    predict_options o = {.opening = &opening};
    int code = copse_session_parse(&command, argc, argv, &opening, take, &o);
    if (code < 0 && (!opening.predict_input || !is_writable_name(o.output))) {
        tool_complain(&command, !opening.predict_input
                                    ? "--input FILE is missing: the samples"
                                    : "--output must name a .npy or .csv file");
        code = 2;
    }
    if (code < 0) {
        copse_status status = copse_session_open(&session, &opening, &error);
        if (status == COPSE_OK) {
            status = predict(&session, o.output, &error);
            code = status == COPSE_OK ? 0 : copse_report(&error);
            code = copse_session_leave(&session, code);
        } else {
            code = copse_report(&error);
        }
    }
    copse_session_options_free(&opening);
    return code;
}
