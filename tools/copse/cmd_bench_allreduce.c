/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/bench.h"
#include "command.h"

enum { OPT_BYTES = OPT_OWN, OPT_PATH, OPT_CHUNK, OPT_THREADS, OPT_SECONDS, OPT_JSON };

static const tool_option options[] = {
    OPTION_DEVICES,
    {OPT_BYTES, "bytes", 'b', "SIZE[:SIZE]",
     "Bytes a rank gives: one size, or from:to in\npowers of 2 (default 4KiB:64MiB)"},
    {OPT_PATH, "path", 0, "auto|copied|mapped",
     "Through staging slots as on a discrete GPU, or\nin place (default auto)"},
    {OPT_CHUNK, "chunk", 0, "SIZE", "Bytes of a chunk (default: chosen)"},
    {OPT_THREADS, "threads", 't', "N", "Threads that sum (default: chosen)"},
    {OPT_SECONDS, "seconds", 0, "S", "Time to measure each size for (default 1)"},
    {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},
    OPTION_ISOLATE,
};

static const tool_command command = {
    .program = "copse bench allreduce",
    .usage = "[options]",
    .summary =
        "Time of one all-reduce over the devices, its bus bandwidth as nccl-tests define "
        "it,\nand eta: the machine's physical limit for the path taken (what binds is "
        "named)\ndivided by that time. Every result is compared bit by bit. An eta above "
        "1.05 means\nthat the model of the limit is wrong, and fails.",
    .options = options,
    .option_count = COPSE__COUNT(options),
};

typedef struct request {
    const char *selector;
    bool isolate, json;
    size_t from, to;
    copse__allreduce_bench_options bench;
} request;

/* "64MiB", "4096". */
static bool parse_bytes(const char *text, size_t *out, const char **end) {
    char *rest;
    const double value = strtod(text, &rest);
    double unit = 1;
    if (rest == text)
        return false;
    if (strncmp(rest, "KiB", 3) == 0)
        unit = 1024, rest += 3;
    else if (strncmp(rest, "MiB", 3) == 0)
        unit = 1048576, rest += 3;
    else if (strncmp(rest, "GiB", 3) == 0)
        unit = 1073741824, rest += 3;
    else if (*rest == 'B')
        rest++;
    if (!(value >= 1) || value * unit > 1e13)
        return false;
    *out = (size_t)(value * unit);
    *end = rest;
    return true;
}

static bool parse_range(const char *text, size_t *from, size_t *to) {
    const char *end;
    if (!parse_bytes(text, from, &end))
        return false;
    *to = *from;
    if (*end == ':' && !parse_bytes(end + 1, to, &end))
        return false;
    return *end == '\0' && *from % 4 == 0 && *to >= *from;
}

static bool parse_path(const char *text, copse__stage_path *out) {
    static const char *const names[] = {
        [COPSE__PATH_AUTO] = "auto",
        [COPSE__PATH_COPIED] = "copied",
        [COPSE__PATH_MAPPED] = "mapped",
    };
    for (size_t i = 0; i < COPSE__COUNT(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (copse__stage_path)i;
            return true;
        }
    return false;
}

static bool take(request *out, int id, const char *value) {
    const char *end = "";
    switch (id) {
    case OPT_DEVICES:
        out->selector = value;
        return true;
    case OPT_BYTES:
        return parse_range(value, &out->from, &out->to);
    case OPT_PATH:
        return parse_path(value, &out->bench.path);
    case OPT_CHUNK:
        return parse_bytes(value, &out->bench.chunk_bytes, &end) && *end == '\0';
    case OPT_THREADS:
        out->bench.reducer_threads = strtoul(value, NULL, 10);
        return out->bench.reducer_threads >= 1 && out->bench.reducer_threads <= 1024;
    case OPT_SECONDS:
        out->bench.seconds = strtod(value, NULL);
        return out->bench.seconds > 0 && out->bench.seconds <= 3600;
    case OPT_JSON:
        out->json = true;
        return true;
    default:
        return copse_parse_isolate(&command, value, &out->isolate);
    }
}

static void print_json(const request *wanted, const copse__allreduce_bench *got) {
    const copse__allreduce_limits *limits = &got->limits;
    const char *path = got->mapped == 0                          ? "copied"
                       : got->mapped == wanted->bench.rank_count ? "mapped"
                                                                 : "mixed";
    printf("{\"bench\":\"allreduce\",\"ranks\":%zu,\"bytes\":%zu,\"path\":\"%s\","
           "\"repetitions\":%zu,\"time_us\":{\"median\":%.3f,\"min\":%.3f,\"max\":%.3f},"
           "\"busbw_GBps\":%.4f,\"eta\":%.4f,\"bound\":\"%s\","
           "\"limit_us\":{\"mem\":%.3f,\"link\":%.3f,\"cpu\":%.3f},"
           "\"rate_GBps\":{\"mem\":%.3f,\"sum\":%.3f,\"down\":%.3f,\"up\":%.3f},"
           "\"verified\":true}\n",
           wanted->bench.rank_count, wanted->bench.bytes, path, got->repetitions,
           got->median_us, got->min_us, got->max_us, got->busbw * 1e-9, got->eta,
           got->bound, limits->memory * 1e6, limits->link * 1e6, limits->cores * 1e6,
           limits->memory_rate * 1e-9, limits->sum_rate * 1e-9, limits->down_rate * 1e-9,
           limits->up_rate * 1e-9);
}

static void print_row(const request *wanted, const copse__allreduce_bench *got) {
    char bytes[32];
    printf("%5zu %10s %7zu %12.1f %12.1f %12.1f %10.2f %7.2f %6s\n",
           wanted->bench.rank_count,
           copse__format_bytes(bytes, sizeof bytes, wanted->bench.bytes),
           got->repetitions, got->median_us, got->min_us, got->max_us, got->busbw * 1e-9,
           got->eta, got->bound);
}

static int run_sizes(request *wanted) {
    const bool table = !wanted->json && isatty(STDOUT_FILENO);
    int code = 0;
    if (table)
        printf("ranks      bytes    runs  median (us)     min (us)     max (us)  "
               "bus (GB/s)     eta  bound\n");
    for (size_t bytes = wanted->from; bytes <= wanted->to; bytes *= 2) {
        copse__allreduce_bench got;
        copse_error error = {0};
        wanted->bench.bytes = bytes;
        const copse_status status = copse__bench_allreduce(&got, &wanted->bench, &error);
        if (status == COPSE_TIMEOUT) { /* a driver hangs: its devices cannot be closed */
            const int failed = copse_report(&error);
            fflush(NULL);
            _exit(failed);
        }
        if (status != COPSE_OK)
            return copse_report(&error);
        if (table)
            print_row(wanted, &got);
        else
            print_json(wanted, &got);
        fflush(stdout);
        if (got.eta > 1.05) {
            fprintf(
                stderr,
                "copse bench allreduce: eta %.2f at %zu bytes: faster than the limit, "
                "so the model of the limit is wrong\n",
                got.eta, bytes);
            code = 1;
        }
        if (bytes > SIZE_MAX / 2)
            break;
    }
    return code;
}

static int run(request *wanted) {
    copse_error error = {0};
    copse_devices selected;
    copse__device **devices = NULL;
    int code = 0;
    if (copse_devices_open(&selected, wanted->selector, NULL, wanted->isolate, &error) !=
        COPSE_OK)
        return copse_report(&error);
    copse_status status =
        copse__calloc(&devices, selected.count, sizeof *devices, &error);
    const copse__device_options opening = {0};
    for (size_t i = 0; i < selected.count && status == COPSE_OK; i++)
        status = copse__device_open(&devices[i], &selected.choices[i], &opening, &error);
    if (status == COPSE_OK) {
        wanted->bench.devices = devices;
        wanted->bench.rank_count = selected.count;
        code = run_sizes(wanted);
    } else {
        code = copse_report(&error);
    }
    for (size_t i = 0; devices != NULL && i < selected.count; i++)
        copse__device_close(devices[i]);
    free(devices);
    copse_devices_close(&selected);
    return code;
}

int copse_cmd_bench_allreduce(int argc, char **argv) {
    tool_parser parser;
    const char *value;
    request wanted = {.isolate = true, .from = 4096, .to = (size_t)64 << 20};
    int id;
    copse_log_to_stderr(COPSE_LOG_WARN);
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&wanted, id, value)) {
            if (id != OPT_ISOLATE)
                tool_complain(&command, "'%s' is not what this option takes; see --help",
                              value);
            id = TOOL_USAGE;
            break;
        }
    tool_end(&parser);
    if (id != TOOL_END)
        return id == TOOL_DONE ? 0 : 2;
    return run(&wanted);
}
