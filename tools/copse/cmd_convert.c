/* SPDX-License-Identifier: Apache-2.0 */
#include <copse/data.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "command.h"

enum {
    OPT_FROM = OPT_OWN,
    OPT_TO,
    OPT_IN_LABELS,
    OPT_OUT_LABELS,
    OPT_FEATURE,
    OPT_LABEL,
    OPT_OUT_FEATURE,
    OPT_OUT_LABEL,
    OPT_SHAPE,
    OPT_DTYPE,
    OPT_SIZE,
    OPT_CHANNELS,
    OPT_CROP,
    OPT_NO_HEADER,
    OPT_SKIP
};

static const tool_option options[] = {
    {OPT_FROM, "from", 0, "FORMAT",
     "idx, cifar10, cifar100, npy, tfrecord, folder or csv (else by the name)"},
    {OPT_TO, "to", 0, "FORMAT",
     "idx, cifar10, npy, tfrecord, folder or csv (else by the name)"},
    {OPT_IN_LABELS, "in-labels", 0, "FILE", "File of labels (idx, npy)"},
    {OPT_OUT_LABELS, "out-labels", 0, "FILE", "File of labels to write (idx, npy)"},
    {OPT_FEATURE, "feature", 0, "NAME", "Array or feature to read (npz, tfrecord)"},
    {OPT_LABEL, "label", 0, "NAME", "Array, feature or column of labels to read"},
    {OPT_OUT_FEATURE, "out-feature", 0, "NAME", "Name to write (npz, tfrecord, csv)"},
    {OPT_OUT_LABEL, "out-label", 0, "NAME", "Name of labels to write"},
    {OPT_SHAPE, "shape", 0, "AxBxC", "Shape of a sample's numbers (tfrecord, csv)"},
    {OPT_DTYPE, "dtype", 0, "TYPE", "Type of raw bytes (tfrecord): u8, f32, …"},
    {OPT_SIZE, "size", 0, "HxW", "Scale images to this size"},
    {OPT_CHANNELS, "channels", 0, "N", "1 (grey), 3 (RGB, the default) or 4"},
    {OPT_CROP, "crop", 0, NULL, "Keep the middle in --size's proportions"},
    {OPT_NO_HEADER, "no-header", 0, NULL, "The CSV file has no header"},
    {OPT_SKIP, "skip-errors", 0, NULL, "Leave out samples that cannot be read"},
    OPTION_QUIET,
};

static const tool_command command = {
    .program = "copse convert",
    .usage = "IN... OUT [options]",
    .summary =
        "Converts a dataset from one format to another. IN are files, patterns or a "
        "folder of\nclasses; OUT appears when it is whole. Names that end in .gz are "
        "compressed.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 2,
    .most_operands = SIZE_MAX,
};

typedef struct conversion {
    copse_data_source source;
    copse_data_target target;
    const char *in_labels;
    bool from_given, to_given, quiet;
    bool terminal;
    uint64_t drawn_ns, begun_ns;
} conversion;

/* ---- Options -------------------------------------------------------------------------- */

static bool parse_sizes(const char *text, size_t *out, size_t most, size_t *count) {
    *count = 0;
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || errno || value == 0 || *count == most)
            return false;
        out[(*count)++] = (size_t)value;
        if (*end == '\0')
            return true;
        if (*end != 'x')
            return false;
        at = end + 1;
    }
}

static bool parse_dtype(const char *name, copse_dtype *out) {
    for (int d = 0; copse_dtype_bytes((copse_dtype)d); d++)
        if (strcmp(copse_dtype_name((copse_dtype)d), name) == 0) {
            *out = (copse_dtype)d;
            return true;
        }
    return false;
}

/* Options that are a text and nothing more. */
static const char **text_option(conversion *c, int id) {
    switch (id) {
    case OPT_IN_LABELS:
        return &c->in_labels;
    case OPT_OUT_LABELS:
        return &c->target.label_path;
    case OPT_FEATURE:
        return &c->source.feature_name;
    case OPT_LABEL:
        return &c->source.label_name;
    case OPT_OUT_FEATURE:
        return &c->target.feature_name;
    case OPT_OUT_LABEL:
        return &c->target.label_name;
    default:
        return NULL;
    }
}

static bool take_flag(conversion *c, int id) {
    switch (id) {
    case OPT_CROP:
        c->source.image.resize = COPSE_RESIZE_CROP;
        return true;
    case OPT_NO_HEADER:
        c->source.without_header = true;
        return true;
    case OPT_SKIP:
        c->source.skip_errors = true;
        return true;
    case OPT_QUIET:
        c->quiet = true;
        return true;
    default:
        return false;
    }
}

static bool take_value(conversion *c, int id, const char *value) {
    size_t sizes[COPSE_MAX_RANK], count;
    switch (id) {
    case OPT_FROM:
        c->from_given = true;
        return copse_data_format_find(&c->source.format, value);
    case OPT_TO:
        c->to_given = true;
        return copse_data_format_find(&c->target.format, value);
    case OPT_SHAPE:
        if (!parse_sizes(value, sizes, COPSE_MAX_RANK, &count))
            return false;
        c->source.feature.rank = count;
        memcpy(c->source.feature.shape, sizes, count * sizeof *sizes);
        return true;
    case OPT_DTYPE:
        return parse_dtype(value, &c->source.feature.dtype);
    case OPT_SIZE:
        if (!parse_sizes(value, sizes, 2, &count) || count != 2)
            return false;
        c->source.image.height = sizes[0];
        c->source.image.width = sizes[1];
        return true;
    case OPT_CHANNELS:
        return parse_sizes(value, &c->source.image.channels, 1, &count);
    default:
        return false;
    }
}

static bool take(conversion *c, int id, const char *value) {
    const char **text = text_option(c, id);
    if (text)
        *text = value;
    if (text || take_flag(c, id) || take_value(c, id, value))
        return true;
    for (size_t i = 0; i < COPSE__COUNT(options); i++)
        if (options[i].id == id)
            tool_complain(&command, "--%s does not take '%s' (%s)", options[i].name,
                          value, options[i].help);
    return false;
}

/* ---- Formats by name ------------------------------------------------------------------ */

static bool ends_with(const char *name, const char *ending) {
    size_t n = strlen(name), e = strlen(ending);
    return n >= e && strcmp(name + n - e, ending) == 0;
}

static bool guess_format(const char *path, copse_data_format *out) {
    static const struct {
        const char *part;
        bool at_end;
        copse_data_format format;
    } hints[] = {
        {".npy", true, COPSE_DATA_NPY},
        {".npz", true, COPSE_DATA_NPY},
        {".tfrecord", false, COPSE_DATA_TFRECORD},
        {".tfrecords", false, COPSE_DATA_TFRECORD},
        {".csv", false, COPSE_DATA_CSV},
        {"-ubyte", false, COPSE_DATA_IDX},
        {".idx", false, COPSE_DATA_IDX},
        {".bin", true, COPSE_DATA_CIFAR10},
    };
    struct stat info;
    for (size_t i = 0; i < COPSE__COUNT(hints); i++)
        if (hints[i].at_end ? ends_with(path, hints[i].part)
                            : strstr(path, hints[i].part) != NULL) {
            *out = hints[i].format;
            return true;
        }
    *out = COPSE_DATA_FOLDER;
    if (ends_with(path, "/"))
        return true;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool find_formats(conversion *c) {
    if (!c->from_given && !guess_format(c->source.paths[0], &c->source.format)) {
        tool_complain(&command, "cannot tell the format of '%s'; say it with --from",
                      c->source.paths[0]);
        return false;
    }
    if (!c->to_given && !guess_format(c->target.path, &c->target.format)) {
        tool_complain(&command,
                      "cannot tell which format '%s' shall have; say it with --to",
                      c->target.path);
        return false;
    }
    return true;
}

/* ---- Doing it ------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void on_signal(int number) {
    (void)number;
    stopped = 1;
}

static void draw(const conversion *c, size_t done, size_t count, uint64_t now) {
    enum { WIDTH = 30 };
    char bar[WIDTH + 1], text[32], of[32];
    size_t full = (size_t)((double)done / (double)count * WIDTH);
    memset(bar, '-', WIDTH);
    memset(bar, '#', full);
    bar[WIDTH] = '\0';
    double seconds = (double)(now - c->begun_ns) * 1e-9;
    fprintf(stderr, "%s[%s] %s of %s  %.0f/s%s", c->terminal ? "\r" : "", bar,
            copse__format_count(text, sizeof text, done),
            copse__format_count(of, sizeof of, count),
            seconds > 0 ? (double)done / seconds : 0.0, c->terminal ? "\033[K" : "\n");
    fflush(stderr);
}

/* Ten times a second on a terminal, every five seconds elsewhere. */
static bool on_progress(void *user, size_t done, size_t count) {
    conversion *c = user;
    uint64_t now = copse__now_ns(), every = c->terminal ? 100000000u : 5000000000u;
    if (!c->quiet && now - c->drawn_ns >= every) {
        c->drawn_ns = now;
        draw(c, done, count, now);
    }
    return !stopped;
}

static int convert(conversion *c) {
    copse_error error = {0};
    copse_dataset *set;
    if (copse_dataset_open(&set, &c->source, &error) != COPSE_OK)
        return copse_report(&error);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    c->terminal = isatty(STDERR_FILENO);
    c->begun_ns = c->drawn_ns = copse__now_ns();
    c->target.progress = on_progress;
    c->target.progress_user = c;
    copse_status status = copse_dataset_save(set, &c->target, &error);
    copse_dataset_close(set);
    if (!c->quiet && c->terminal)
        fputs("\r\033[K", stderr);
    return status == COPSE_OK ? 0 : copse_report(&error);
}

int copse_cmd_convert(int argc, char **argv) {
    tool_parser parser;
    const char *value;
    conversion c = {0};
    int id, code = 2;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&c, id, value)) {
            id = TOOL_USAGE;
            break;
        }
    if (id == TOOL_END) {
        c.source.paths = parser.operands;
        c.source.path_count = parser.operand_count - 1;
        c.source.label_paths = &c.in_labels;
        c.source.label_path_count = c.in_labels != NULL;
        c.target.path = parser.operands[parser.operand_count - 1];
        if (find_formats(&c))
            code = convert(&c);
    }
    tool_end(&parser);
    return id == TOOL_DONE ? 0 : code;
}
