/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/selftest.h"
#include "base/file.h"
#include "base/mem.h"
#include "command.h"
#include "topo/select.h"

enum { OPT_QUICK = OPT_OWN, OPT_SEED };

static const tool_option options[] = {
    OPTION_DEVICES,
    {OPT_QUICK, "quick", 0, NULL, "Only what `copse train` checks before a run"},
    {OPT_SEED, "seed", 0, "N", "Other operands (default 1)"},
    OPTION_ISOLATE,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse selftest",
    .usage = "[options]",
    .summary =
        "Runs every kernel on each device and compares it with the host reference. "
        "Leaves\nwith 1 where one is wrong: `copse train` refuses such a device.",
    .options = options,
    .option_count = COPSE__COUNT(options),
};

typedef struct selftest_options {
    const char *devices;
    bool isolate, verbose;
    copse__selftest_options run;
} selftest_options;

/* Results of one device, an operation a row. */
typedef struct report {
    size_t cases[COPSE__OP_COUNT], failed[COPSE__OP_COUNT], skipped[COPSE__OP_COUNT];
    double worst[COPSE__OP_COUNT];
    char providers[COPSE__OP_COUNT][128];
    bool verbose;
} report;

static void add_provider(char *list, size_t capacity, const char *name) {
    if (!name[0] || strstr(list, name))
        return;
    size_t used = strlen(list);
    snprintf(list + used, capacity - used, "%s%s", used ? " " : "", name);
}

static void on_result(const copse__selftest_result *result, void *user) {
    report *r = user;
    r->cases[result->op]++;
    add_provider(r->providers[result->op], sizeof r->providers[0], result->provider);
    if (result->status == COPSE_UNSUPPORTED)
        r->skipped[result->op]++;
    else if (result->status != COPSE_OK)
        r->failed[result->op]++;
    if (result->error > r->worst[result->op])
        r->worst[result->op] = result->error;
    if (result->status != COPSE_OK && (r->verbose || result->status != COPSE_UNSUPPORTED))
        printf("  %s, batch %zu, %s: %s\n", result->name, result->batch, result->provider,
               result->text);
}

static void print_report(const report *r) {
    printf("  %-22s %6s %7s %9s  %s\n", "operation", "cases", "failed", "worst/ok",
           "providers");
    for (int op = 0; op < COPSE__OP_COUNT; op++) {
        if (r->cases[op] == 0)
            continue;
        printf("  %-22s %6zu %7zu %9.3f  %s", copse__op_name((copse__op)op), r->cases[op],
               r->failed[op], r->worst[op], r->providers[op]);
        if (r->skipped[op])
            printf("  (%zu cannot run here)", r->skipped[op]);
        putchar('\n');
    }
}

static copse_status test_device(const copse__device_choice *choice,
                                const selftest_options *o, copse_error *err) {
    char *cache = NULL;
    copse__device *device = NULL;
    report *r = NULL;
    copse_status status;
    printf("%s  %s (%s %s)\n", choice->label, choice->name, choice->platform_name,
           choice->driver);
    fflush(stdout);
    COPSE__TRY(copse__calloc(&r, 1, sizeof *r, err), out);
    r->verbose = o->verbose;
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    copse__device_options opening = {.cache_folder = cache};
    COPSE__TRY(copse__device_open(&device, choice, &opening, err), out);
    status = copse__selftest_run(device, &o->run, on_result, r, err);
    print_report(r);
    printf("  %s\n", status == COPSE_OK ? "all right" : "FAILED");
out:
    copse__device_close(device);
    free(cache);
    free(r);
    return status;
}

/* Tests all devices, also after one failed. */
static int test_all(const selftest_options *o) {
    copse_error error = {0};
    copse_devices devices;
    if (copse_devices_open(&devices, o->devices, NULL, o->isolate, &error) != COPSE_OK)
        return copse_report(&error);
    int code = 0;
    for (size_t i = 0; i < devices.count; i++)
        if (test_device(&devices.choices[i], o, &error) != COPSE_OK) {
            fflush(stdout);
            copse_report(&error);
            code = 1;
        }
    copse_devices_close(&devices);
    return code;
}

static bool take(selftest_options *o, int id, const char *value) {
    char *end;
    switch (id) {
    case OPT_DEVICES:
        o->devices = value;
        return true;
    case OPT_QUICK:
        o->run.level = COPSE__SELFTEST_QUICK;
        return true;
    case OPT_SEED:
        o->run.seed = strtoull(value, &end, 10);
        if (value[0] && !*end)
            return true;
        tool_complain(&command, "--seed takes a number, not '%s'", value);
        return false;
    case OPT_VERBOSE:
        o->verbose = true;
        return true;
    default:
        return copse_parse_isolate(&command, value, &o->isolate);
    }
}

int copse_cmd_selftest(int argc, char **argv) {
    selftest_options o = {.isolate = true,
                          .run = {.level = COPSE__SELFTEST_FULL, .seed = 1}};
    tool_parser parser;
    const char *value;
    int id;
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&o, id, value)) {
            id = TOOL_USAGE;
            break;
        }
    tool_end(&parser);
    if (id != TOOL_END)
        return id == TOOL_DONE ? 0 : 2;
    copse_log_to_stderr(o.verbose ? COPSE_LOG_DEBUG : COPSE_LOG_WARN);
    return test_all(&o);
}
