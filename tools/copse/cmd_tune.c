/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/bench.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "common/parse_time.h"
#include "io/json.h"
#include "session.h"
#include "tune/clblast.h"
#include "tune/known.h"
#include "tune/tuner.h"

enum { OPT_BUDGET = OPT_OWN, OPT_CLBLAST, OPT_OUTPUT, OPT_JSON };

static const tool_option options[] = {
    {OPT_BUDGET, "budget", 'b', "TIME",
     "Time for each device: 90s, 10m (default 60s); compiling counts"},
    {OPT_CLBLAST, "clblast", 0, NULL,
     "Time CLBlast and its own parameters, too; each of its\nbuilds takes seconds"},
    {OPT_OUTPUT, "output", 'o', "FILE",
     "Keep the results there (for devices.tune: FILE), not in the\nuser's cache"},
    {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},
    OPTION_DEVICES,
    OPTION_SET,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_ISOLATE,
};

static const tool_command command = {
    .program = "copse tune",
    .usage = "[CONFIG] [options]",
    .summary =
        "Times what each device could run a configuration's products and convolutions "
        "with\n(without one: typical ones of every kind), checks the fastest against the "
        "host\nreference, and keeps what it found for later runs. Ctrl-C keeps what is "
        "there.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .most_operands = 1,
};

typedef struct request {
    const char *output, *devices;
    const char *config; /* NULL: none */
    copse_overrides overrides;
    double seconds;
    bool clblast, json, quiet, verbose, isolate;
} request;

typedef struct report {
    const request *wanted;
    const char *label;
    bool table;
} report;

static volatile sig_atomic_t stopped;

static void on_stop(int number) {
    if (stopped)
        _exit(128 + number);
    stopped = 1;
}

static void catch_stop(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_stop;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool wants_stop(void *user) {
    (void)user;
    return stopped != 0;
}

static void print_json(const report *r, const copse__tune_progress *p) {
    copse__text line = {0};
    copse__text_add(&line, "{\"tune\":");
    copse__json_text(&line, p->key);
    copse__text_add(&line, ",\"device\":");
    copse__json_text(&line, r->label);
    copse__text_add(&line, ",\"provider\":");
    copse__json_text(&line, p->result->tuned.provider);
    copse__text_add(&line, ",\"parameters\":");
    copse__json_text(&line, p->result->tuned.parameters);
    copse__text_add(&line,
                    ",\"us\":%.3f,\"default_us\":%.3f,\"tried\":%zu,\"wrong\":%zu}",
                    p->result->us, p->result->default_us, p->tried, p->wrong);
    if (copse__text_check(&line, NULL) == COPSE_OK)
        puts(line.data);
    copse__text_free(&line);
}

static void on_subject(const copse__tune_progress *p, void *user) {
    const report *r = user;
    if (!r->table)
        print_json(r, p);
    else
        printf(
            "%-8s %s\n         %9.1f us, was %9.1f (%.2f); %zu tried, %zu wrong: %s %s\n",
            r->label, p->key, p->result->us, p->result->default_us,
            p->result->us > 0 ? p->result->default_us / p->result->us : 0, p->tried,
            p->wrong, p->result->tuned.provider, p->result->tuned.parameters);
    fflush(stdout);
}

/* ---- What is typical -------------------------------------------------------------------- */

static copse_status list_products(copse__tune_list *list, copse_error *err) {
    static const size_t sizes[][3] = {
        {256, 256, 256}, {512, 512, 512}, {256, 128, 5408}, {64, 256, 784}};
    static const char *const forms[] = {"nn", "nt", "tn"};
    copse_status status = COPSE_OK;
    for (size_t f = 0; f < COPSE__COUNT(forms); f++)
        for (size_t i = 0; i < COPSE__COUNT(sizes) && status == COPSE_OK; i++) {
            copse__node_spec spec;
            copse__bench_gemm_spec(&spec, forms[f], sizes[i][0], sizes[i][1],
                                   sizes[i][2]);
            status = copse__tune_list_spec(list, copse__op_name(spec.op), &spec, 1, err);
        }
    return status;
}

static copse_status list_convolutions(copse__tune_list *list, copse_error *err) {
    static const copse__bench_conv layers[] = {{4, 28, 28, 64, 64, 3, 1, 1, true},
                                               {4, 14, 14, 128, 128, 3, 1, 1, true},
                                               {16, 30, 30, 32, 32, 3, 1, 1, false}};
    static const copse__op passes[] = {COPSE__OP_CONV2D, COPSE__OP_CONV2D_GRAD_INPUT,
                                       COPSE__OP_CONV2D_GRAD_FILTER};
    copse_status status = COPSE_OK;
    for (size_t p = 0; p < COPSE__COUNT(passes); p++)
        for (size_t i = 0; i < COPSE__COUNT(layers) && status == COPSE_OK; i++) {
            copse__node_spec spec;
            copse__bench_conv_spec(&spec, passes[p], &layers[i]);
            status = copse__tune_list_spec(list, copse__op_name(spec.op), &spec, 1, err);
        }
    return status;
}

/* ---- One device ------------------------------------------------------------------------- */

static copse_status keep(const request *wanted, copse__device *device,
                         const copse__tune_result *results, size_t count,
                         copse_error *err) {
    char *cache = NULL;
    copse_status status = COPSE_OK;
    if (count == 0)
        return COPSE_OK;
    if (wanted->output)
        return copse__tune_keep_in(wanted->output, device, results, count, err);
    status = copse__cache_folder(&cache, err);
    if (status == COPSE_OK && !cache)
        status = copse__fail(err, COPSE_INVALID, 0, "copse tune",
                             "there is no cache folder to keep results in; set "
                             "COPSE_CACHE or name a file with --output");
    if (status == COPSE_OK)
        status = copse__tune_keep(device, cache, results, count, true, err);
    free(cache);
    return status;
}

static copse_status tune_device(const request *wanted, copse__device *device,
                                const copse__tune_list *list, copse_error *err) {
    report r = {.wanted = wanted,
                .label = copse__device_get(device)->choice.label,
                .table = isatty(STDOUT_FILENO) && !wanted->json};
    copse__tune_options how = {.seconds = wanted->seconds,
                               .thorough = true,
                               .clblast = wanted->clblast,
                               .on_subject = wanted->quiet ? NULL : on_subject,
                               .stop = wants_stop,
                               .user = &r};
    copse__tune_result *results = NULL;
    copse__tuned *own = NULL; /* CLBlast's, for the rest */
    copse__pool pool = {0};
    size_t count = 0, first = 0;
    copse_status status = copse__calloc(
        &results, list->count + COPSE__TUNE_CLBLAST_KERNELS, sizeof *results, err);
    if (status == COPSE_OK && wanted->clblast) {
        bool spoilt;
        how.seconds = wanted->seconds / 2;
        status = copse__tune_clblast(results, &first, &pool, device, &how, &spoilt, err);
        if (status != COPSE_OK && status != COPSE_NOMEM && err) {
            fprintf(stderr, "copse: %s: CLBlast's parameters are left as they are: %s\n",
                    r.label, err->text);
            how.clblast = false;
            status = COPSE_OK;
        } else if (spoilt) {
            fprintf(stderr,
                    "copse: %s: CLBlast's own parameters were not beaten, and cannot be "
                    "set again in this process: it is not timed for single nodes\n",
                    r.label);
            how.clblast = false;
        }
        if (status == COPSE_OK)
            status = copse__calloc(&own, first, sizeof *own, err);
        for (size_t i = 0; i < first && status == COPSE_OK; i++)
            own[i] = results[i].tuned;
        how.known = own;
        how.known_count = first;
    }
    if (status == COPSE_OK)
        status = copse__tune_run(results + first, &count, &pool, device, list, &how, err);
    /* Also what was measured before something failed. */
    copse_status kept =
        keep(wanted, device, results, first + count, status == COPSE_OK ? err : NULL);
    status = status == COPSE_OK ? kept : status;
    if (status == COPSE_OK && !wanted->quiet && count < list->count)
        fprintf(stderr, "copse: %s: %zu of %zu were not timed%s\n", r.label,
                list->count - count, list->count,
                stopped ? "" : "; give more time with --budget");
    copse__pool_free(&pool);
    free(own);
    free(results);
    return status;
}

static bool can_tune(const copse__device *device) {
    if (copse__backend_of(device)->tune)
        return true;
    fprintf(stderr, "copse: %s has nothing to choose\n",
            copse__device_get(device)->choice.label);
    return false;
}

/* ---- With and without a configuration --------------------------------------------------- */

static copse_status tune_typical(const request *wanted,
                                 const copse__device_choice *choice, copse_error *err) {
    copse__tune_list list = {0};
    copse__device *device = NULL;
    char *cache = NULL;
    copse_status status;
    COPSE__TRY(copse__cache_folder(&cache, err), out);
    const copse__device_options opening = {.cache_folder = cache};
    COPSE__TRY(copse__device_open(&device, choice, &opening, err), out);
    if (!can_tune(device))
        goto out;
    COPSE__TRY(list_products(&list, err), out);
    COPSE__TRY(list_convolutions(&list, err), out);
    status = tune_device(wanted, device, &list, err);
out:
    copse__tune_list_free(&list);
    copse__device_close(device);
    free(cache);
    return status;
}

static int without_config(const request *wanted) {
    copse_error error = {0};
    copse_devices devices;
    if (copse_devices_open(&devices, wanted->devices, NULL, wanted->isolate, &error) !=
        COPSE_OK)
        return copse_report(&error);
    int code = 0;
    catch_stop();
    for (size_t i = 0; i < devices.count && !stopped; i++)
        if (tune_typical(wanted, &devices.choices[i], &error) != COPSE_OK)
            code = copse_report(&error);
    copse_devices_close(&devices);
    return code;
}

/* A device that fails does not keep the others from being tuned. The exit code. */
static int tune_network(const request *wanted, copse_session *s) {
    int code = 0;
    for (size_t r = 0; r < s->devices.count && !stopped; r++) {
        copse__tune_list list = {0};
        copse_error error = {0};
        copse__device *device = copse__trainer_device(s->trainer, r);
        if (!can_tune(device))
            continue;
        copse_status status = copse__trainer_list_nodes(s->trainer, r, &list, &error);
        if (status == COPSE_OK)
            status = tune_device(wanted, device, &list, &error);
        if (status != COPSE_OK)
            code = copse_report(&error);
        copse__tune_list_free(&list);
    }
    return code;
}

static int with_config(request *wanted) {
    copse_session session;
    copse_error error = {0};
    copse_session_options opening = {.devices = wanted->devices,
                                     .operand = wanted->config,
                                     .isolate = wanted->isolate,
                                     .quiet = wanted->quiet,
                                     .verbose = wanted->verbose,
                                     .plan_only = true,
                                     .training = true};
    copse_status status = copse_find_config(&opening.config_path, wanted->config, &error);
    /* Measured against what the devices choose by themselves. */
    if (status == COPSE_OK)
        status = copse_overrides_add(&wanted->overrides, "devices.tune=off", &error);
    opening.overrides = wanted->overrides;
    if (status == COPSE_OK)
        status = copse_session_open(&session, &opening, &error);
    int code = 0;
    if (status == COPSE_OK) {
        catch_stop();
        code = tune_network(wanted, &session);
        copse_session_close(&session);
    }
    free(opening.config_path);
    return status == COPSE_OK ? code : copse_report(&error);
}

static bool take(request *o, int id, const char *value) {
    copse_error error = {0};
    switch (id) {
    case OPT_BUDGET:
        if (tool_parse_time(value, &o->seconds))
            return true;
        tool_complain(&command, "--budget takes a time such as 90s or 10m, not '%s'",
                      value);
        return false;
    case OPT_CLBLAST:
        o->clblast = true;
        return true;
    case OPT_OUTPUT:
        o->output = value;
        return true;
    case OPT_JSON:
        o->json = true;
        return true;
    case OPT_DEVICES:
        o->devices = value;
        return true;
    case OPT_SET:
        if (copse_overrides_add(&o->overrides, value, &error) == COPSE_OK)
            return true;
        copse_report(&error);
        return false;
    case OPT_QUIET:
        o->quiet = true;
        return true;
    case OPT_VERBOSE:
        o->verbose = true;
        return true;
    default:
        return copse_parse_isolate(&command, value, &o->isolate);
    }
}

int copse_cmd_tune(int argc, char **argv) {
    request wanted = {.isolate = true, .seconds = 60};
    tool_parser parser;
    const char *value;
    int id, code;
    tool_begin(&parser, &command, argc, argv);
    while ((id = tool_next(&parser, &value)) > 0)
        if (!take(&wanted, id, value)) {
            id = TOOL_USAGE;
            break;
        }
    copse_log_to_stderr(wanted.verbose ? COPSE_LOG_DEBUG : COPSE_LOG_WARN);
    if (parser.operand_count > 0)
        wanted.config = parser.operands[0];
    if (id == TOOL_END && !wanted.config && wanted.overrides.count > 0) {
        tool_complain(&command, "--set changes a configuration, and none is named");
        id = TOOL_USAGE;
    }
    copse_error error = {0};
    if (id != TOOL_END)
        code = id == TOOL_DONE ? 0 : 2;
    else if (wanted.output && copse__tune_check_target(wanted.output, &error) != COPSE_OK)
        code = copse_report(&error);
    else if (wanted.config)
        code = with_config(&wanted);
    else
        code = without_config(&wanted);
    if (code == 0 && stopped)
        code = 130;
    tool_end(&parser);
    free(wanted.overrides.items);
    return code;
}
