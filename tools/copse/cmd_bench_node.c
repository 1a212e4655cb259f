/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/bench.h"
#include "base/file.h"
#include "base/mem.h"
#include "command.h"
#include "topo/select.h"
#include "tune/known.h"

/* `copse bench gemm` and `copse bench conv`: single operations. */

enum {
    OPT_SIZE = OPT_OWN,
    OPT_FORM,
    OPT_PASS,
    OPT_SECONDS,
    OPT_PROVIDER,
    OPT_TUNE,
    OPT_JSON
};

#define OPTIONS_COMMON                                                                   \
    {OPT_SECONDS, "seconds", 0, "S", "Time to measure each for (default 0.5)"},          \
        {OPT_PROVIDER, "provider", 'p', "NAME",                                          \
         "Measure this implementation (default: what would be chosen)"},                 \
        {OPT_TUNE, "tune", 0, "auto|off|FILE",                                           \
         "What was tuned and is followed (default auto, as devices.tune)"},              \
        OPTION_DEVICES, {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},    \
        OPTION_ISOLATE

static const tool_option gemm_options[] = {
    {OPT_SIZE, "size", 's', "M,N,K",
     "One product, [M,K] times [K,N]; repeatable\n(default: squares from 256 to 2048)"},
    {OPT_FORM, "form", 'f', "nn|nt|tn",
     "How both are stored: y = x w, dx = dy wT, dw = xT dy\n(default: all three)"},
    OPTIONS_COMMON,
};

static const tool_option conv_options[] = {
    {OPT_SIZE, "size", 's', "N,H,W,C,F,K[,STRIDE[,same|valid]]",
     "One convolution of K x K; repeatable (default:\nthe 3 x 3 layers of ResNet-18 at "
     "batch 8)"},
    {OPT_PASS, "pass", 0, "forward|input|filter",
     "Forward, or a gradient (default: all three)"},
    OPTIONS_COMMON,
};

static const tool_command gemm_command = {
    .program = "copse bench gemm",
    .usage = "[options]",
    .summary =
        "Matrix products as dense layers make them: time, GFLOP/s, and their share "
        "of\nthe rate of multiply-adds in registers, measured in the same run.",
    .options = gemm_options,
    .option_count = COPSE__COUNT(gemm_options),
};

static const tool_command conv_command = {
    .program = "copse bench conv",
    .usage = "[options]",
    .summary =
        "Convolutions and their gradients: time and GFLOP/s of the direct "
        "algorithm,\nwhatever was used, and its share of the rate of multiply-adds "
        "in registers,\nmeasured in the same run.",
    .options = conv_options,
    .option_count = COPSE__COUNT(conv_options),
};

#define MOST_SIZES 64

typedef struct request {
    const tool_command *command;
    const char *selector, *provider, *tune;
    const char *only; /* form or pass; NULL: all */
    bool isolate, json;
    double seconds;
    size_t gemm[MOST_SIZES][3];
    copse__bench_conv conv[MOST_SIZES];
    size_t size_count;
} request;

static const char *const forms[] = {"nn", "nt", "tn"};
static const char *const passes[] = {"forward", "input", "filter"};
static const copse__op pass_ops[] = {COPSE__OP_CONV2D, COPSE__OP_CONV2D_GRAD_INPUT,
                                     COPSE__OP_CONV2D_GRAD_FILTER};

/* Up to `most` whole numbers above 0, between commas. Returns how many; *rest: what follows. */
static size_t read_numbers(const char *text, size_t *to, size_t most, const char **rest) {
    size_t count = 0;
    while (count < most && *text >= '1' && *text <= '9') {
        char *end;
        errno = 0;
        unsigned long long number = strtoull(text, &end, 10);
        if (errno || number > INT32_MAX)
            return 0;
        to[count++] = (size_t)number;
        text = end;
        if (*text != ',')
            break;
        text++;
    }
    *rest = text;
    return count;
}

static bool take_gemm_size(request *wanted, const char *value) {
    const char *rest;
    if (read_numbers(value, wanted->gemm[wanted->size_count], 3, &rest) != 3 || *rest)
        return false;
    wanted->size_count++;
    return true;
}

static bool take_conv_size(request *wanted, const char *value) {
    size_t n[7] = {0};
    const char *rest;
    size_t count = read_numbers(value, n, 7, &rest);
    copse__bench_conv made = {n[0], n[1], n[2], n[3], n[4], n[5], count == 7 ? n[6] : 1,
                              1,    true};
    copse__node_spec spec;
    if (count < 6 || (*rest && strcmp(rest, "same") != 0 && strcmp(rest, "valid") != 0))
        return false;
    made.same = strcmp(rest, "valid") != 0;
    if (!copse__bench_conv_spec(&spec, COPSE__OP_CONV2D, &made))
        return false;
    wanted->conv[wanted->size_count++] = made;
    return true;
}

static bool is_one_of(const char *value, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(value, names[i]) == 0)
            return true;
    return false;
}

static bool take(request *wanted, int id, const char *value) {
    char *end;
    switch (id) {
    case OPT_SIZE:
        if (wanted->size_count == MOST_SIZES)
            return false;
        return wanted->command == &gemm_command ? take_gemm_size(wanted, value)
                                                : take_conv_size(wanted, value);
    case OPT_FORM:
        wanted->only = value;
        return is_one_of(value, forms, COPSE__COUNT(forms));
    case OPT_PASS:
        wanted->only = value;
        return is_one_of(value, passes, COPSE__COUNT(passes));
    case OPT_SECONDS:
        wanted->seconds = strtod(value, &end);
        return *value && !*end && wanted->seconds > 0 && wanted->seconds <= 3600;
    case OPT_PROVIDER:
        wanted->provider = value;
        return *value != 0 && strlen(value) < 32;
    case OPT_TUNE:
        wanted->tune = value;
        return *value != 0;
    case OPT_DEVICES:
        wanted->selector = value;
        return true;
    case OPT_JSON:
        wanted->json = true;
        return true;
    default:
        return copse_parse_isolate(wanted->command, value, &wanted->isolate);
    }
}

/* What one line is about, as text for the table and as JSON fields. */
typedef struct subject {
    char row[64], json[160];
    copse__node_spec spec;
} subject;

static void gemm_subject(subject *out, const size_t size[3], const char *form) {
    copse__bench_gemm_spec(&out->spec, form, size[0], size[1], size[2]);
    snprintf(out->row, sizeof out->row, "%s %zu x %zu x %zu", form, size[0], size[1],
             size[2]);
    snprintf(out->json, sizeof out->json,
             "\"bench\":\"gemm\",\"form\":\"%s\",\"m\":%zu,\"n\":%zu,\"k\":%zu", form,
             size[0], size[1], size[2]);
}

static void conv_subject(subject *out, const copse__bench_conv *z, size_t pass) {
    copse__bench_conv_spec(&out->spec, pass_ops[pass], z);
    snprintf(out->row, sizeof out->row, "%-7s %zu,%zu,%zu,%zu,%zu,%zu,%zu,%s",
             passes[pass], z->images, z->h, z->w, z->c, z->f, z->kernel, z->stride,
             z->same ? "same" : "valid");
    snprintf(out->json, sizeof out->json,
             "\"bench\":\"conv\",\"pass\":\"%s\",\"n\":%zu,\"h\":%zu,\"w\":%zu,\"c\":%zu,"
             "\"f\":%zu,\"kernel\":%zu,\"stride\":%zu,\"padding\":\"%s\"",
             passes[pass], z->images, z->h, z->w, z->c, z->f, z->kernel, z->stride,
             z->same ? "same" : "valid");
}

static void print_result(const request *wanted, const copse__device_choice *choice,
                         const subject *about, const copse__bench *got, double peak,
                         bool table) {
    const copse__node_time *t = &got->time;
    double median = got->flops / t->median_us * 1e-3,
           most = got->flops / t->min_us * 1e-3;
    (void)wanted;
    if (table) {
        printf("%-8s %-40s %-9s %11.1f %9.1f %9.1f", choice->label, about->row,
               got->provider, t->median_us, median, most);
        if (peak > 0)
            printf(" %6.1f %%", 100 * median * 1e9 / peak);
        putchar('\n');
        return;
    }
    printf("{%s,\"device\":\"%s\",\"provider\":\"%s\",\"time_us\":{\"median\":%.3f,"
           "\"min\":%.3f,\"max\":%.3f},\"gflops\":{\"median\":%.3f,\"min\":%.3f,"
           "\"max\":%.3f}",
           about->json, choice->label, got->provider, t->median_us, t->min_us, t->max_us,
           median, got->flops / t->max_us * 1e-3, most);
    if (peak > 0)
        printf(",\"peak_gflops\":%.3f,\"of_peak\":%.4f", peak * 1e-9,
               median * 1e9 / peak);
    puts("}");
}

static copse_status bench_subject(const request *wanted, copse__device *device,
                                  const subject *about, double peak, bool table,
                                  copse_error *err) {
    copse__bench got;
    copse_status status =
        copse__bench_node(&got, device, &about->spec, wanted->seconds, err);
    if (status == COPSE_OK)
        print_result(wanted, &copse__device_get(device)->choice, about, &got, peak,
                     table);
    fflush(stdout);
    return status;
}

static copse_status bench_all(const request *wanted, copse__device *device, double peak,
                              bool table, copse_error *err) {
    copse_status status = COPSE_OK;
    bool gemm = wanted->command == &gemm_command;
    for (size_t i = 0; i < wanted->size_count; i++)
        for (size_t j = 0; j < 3 && status == COPSE_OK; j++) {
            subject about;
            if (wanted->only && strcmp(wanted->only, gemm ? forms[j] : passes[j]) != 0)
                continue;
            if (gemm)
                gemm_subject(&about, wanted->gemm[i], forms[j]);
            else
                conv_subject(&about, &wanted->conv[i], j);
            status = bench_subject(wanted, device, &about, peak, table, err);
        }
    return status;
}

static copse_status bench_device(const request *wanted,
                                 const copse__device_choice *choice, bool table,
                                 copse_error *err) {
    static const char *const ops[] = {
        "dense",  "dense_grad_input",  "dense_grad_weight",
        "conv2d", "conv2d_grad_input", "conv2d_grad_filter"};
    char pairs[COPSE__COUNT(ops)][64], *cache = NULL;
    const char *providers[COPSE__COUNT(ops) + 1] = {0};
    copse__device *device = NULL;
    copse__tune_known known = {0};
    double peak = 0;
    copse_status status;
    for (size_t i = 0; wanted->provider && i < COPSE__COUNT(ops); i++) {
        snprintf(pairs[i], sizeof pairs[i], "%s=%s", ops[i], wanted->provider);
        providers[i] = pairs[i];
    }
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    copse__device_options opening = {.cache_folder = cache,
                                     .providers = wanted->provider ? providers : NULL};
    COPSE__TRY(copse__device_open(&device, choice, &opening, err), out);
    COPSE__TRY(copse__tune_known_open(&known, device, wanted->tune, cache, err), out);
    if (known.count > 0)
        COPSE__TRY(
            copse__backend_of(device)->tune(device, known.entries, known.count, err),
            out);
    if (copse__backend_of(device)->peak_flops)
        COPSE__TRY(copse__backend_of(device)->peak_flops(&peak, device, err), out);
    if (table && peak > 0)
        printf("%s  %s: %.1f GFLOP/s of multiply-adds in registers\n", choice->label,
               choice->name, peak * 1e-9);
    status = bench_all(wanted, device, peak, table, err);
out:
    copse__device_close(device);
    copse__tune_known_close(&known);
    free(cache);
    return status;
}

static int run(const request *wanted) {
    copse_error error = {0};
    copse_devices devices;
    bool table = isatty(STDOUT_FILENO) && !wanted->json;
    int code = 0;
    if (copse_devices_open(&devices, wanted->selector, NULL, wanted->isolate, &error) !=
        COPSE_OK)
        return copse_report(&error);
    if (table)
        printf("%-8s %-40s %-9s %11s %9s %9s %8s\n", "device", "operation", "provider",
               "median (us)", "GFLOP/s", "best", "of peak");
    for (size_t i = 0; i < devices.count && code == 0; i++)
        if (bench_device(wanted, &devices.choices[i], table, &error) != COPSE_OK)
            code = copse_report(&error);
    copse_devices_close(&devices);
    return code;
}

static void use_default_sizes(request *wanted) {
    static const size_t sides[] = {256, 512, 1024, 2048};
    static const copse__bench_conv layers[] = {
        {8, 56, 56, 64, 64, 3, 1, 1, true},   {8, 56, 56, 64, 128, 3, 2, 1, true},
        {8, 28, 28, 128, 128, 3, 1, 1, true}, {8, 28, 28, 128, 256, 3, 2, 1, true},
        {8, 14, 14, 256, 256, 3, 1, 1, true}, {8, 14, 14, 256, 512, 3, 2, 1, true},
        {8, 7, 7, 512, 512, 3, 1, 1, true},
    };
    if (wanted->command == &gemm_command) {
        for (size_t i = 0; i < COPSE__COUNT(sides); i++)
            for (size_t j = 0; j < 3; j++)
                wanted->gemm[i][j] = sides[i];
        wanted->size_count = COPSE__COUNT(sides);
    } else {
        memcpy(wanted->conv, layers, sizeof layers);
        wanted->size_count = COPSE__COUNT(layers);
    }
}

static int bench(const tool_command *command, int argc, char **argv) {
    tool_parser parser;
    const char *value;
    request wanted = {
        .command = command, .isolate = true, .seconds = 0.5, .tune = "auto"};
    int id;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&wanted, id, value)) {
            if (id != OPT_ISOLATE)
                tool_complain(command, "'%s' is not what this option takes; see --help",
                              value);
            id = TOOL_USAGE;
            break;
        }
    tool_end(&parser);
    if (id != TOOL_END)
        return id == TOOL_DONE ? 0 : 2;
    if (wanted.size_count == 0)
        use_default_sizes(&wanted);
    return run(&wanted);
}

int copse_cmd_bench_gemm(int argc, char **argv) {
    return bench(&gemm_command, argc, argv);
}

int copse_cmd_bench_conv(int argc, char **argv) {
    return bench(&conv_command, argc, argv);
}
