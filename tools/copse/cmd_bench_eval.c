/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/json.h"
#include "session.h"
#include "spread.h"

enum { OPT_CONFIG = OPT_OWN, OPT_BATCH, OPT_SECONDS, OPT_PREDICT, OPT_JSON };

#define BLOCK_S 0.25
#define LEAST_BLOCKS 3

static const tool_option options[] = {
    {OPT_CONFIG, "config", 'c', "CONFIG", "The same as naming it without an option"},
    OPTION_DEVICES,
    {OPT_BATCH, "batch", 'b', "N", "Global batch (--set train.batch=N)"},
    {OPT_PREDICT, "predict", 'p', NULL,
     "Passes that give each sample's outputs, as `copse predict`"},
    {OPT_SECONDS, "seconds", 't', "S", "Time to measure for (default 4)"},
    {OPT_JSON, "json", 0, NULL, "JSON lines also on a terminal"},
    OPTION_SET,
    {OPT_NO_SELFTEST, "no-selftest", 0, NULL,
     "Skip the quick check of each device's kernels"},
    OPTION_ISOLATE,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse bench eval",
    .usage = "CONFIG [options]",
    .summary =
        "Samples a second of whole passes over the test set (or, without one, the "
        "validation\nset) as `copse eval` makes them: data, upload, forward pass, loss "
        "and "
        "metrics; or,\nwith --predict, as `copse predict`: the outputs instead of "
        "metrics, "
        "in the host's\nmemory. After a warm-up, the median of blocks of at least 0.25 "
        "s, "
        "with the least and\nthe most. The weights are those that training would begin "
        "with.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .most_operands = 1,
};

typedef struct request {
    copse_session_options session;
    double seconds;
    bool predict, json;
    char batch[48]; /* an override; the session's list borrows it */
} request;

typedef struct measuring {
    const request *wanted;
    copse__config *config;
    copse__datasets sets;
    copse_devices devices;
    copse__trainer *trainer;
    copse_dataset *set;
    double rates[SPREAD_MOST], cpu[SPREAD_MOST]; /* by block */
    size_t blocks;
    uint64_t passes;
    uint64_t pass_rows; /* that the last pass gave */
    long peak_kib;
} measuring;

/* ---- Measuring ------------------------------------------------------------------------- */

static double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static copse_status count_rows(void *user, const float *values, size_t rows,
                               size_t columns, copse_error *err) {
    measuring *m = user;
    (void)values;
    (void)columns;
    (void)err;
    m->pass_rows += rows;
    return COPSE_OK;
}

static copse_status run_pass(measuring *m, copse_error *err) {
    copse__score score;
    m->pass_rows = 0;
    if (m->wanted->predict)
        return copse__trainer_predict(m->trainer, m->set, count_rows, m, err);
    copse_status status =
        copse__trainer_evaluate(m->trainer, m->set, "test", &score, err);
    m->pass_rows = score.samples;
    return status;
}

static copse_status run_block(measuring *m, copse_error *err) {
    uint64_t begun_ns = copse__now_ns(), rows = 0;
    double cpu_begun = cpu_seconds(), seconds = 0;
    while (seconds < BLOCK_S) {
        copse_status status = run_pass(m, err);
        if (status != COPSE_OK)
            return status;
        rows += m->pass_rows;
        m->passes++;
        seconds = (double)(copse__now_ns() - begun_ns) * 1e-9;
    }
    m->rates[m->blocks] = (double)rows / seconds;
    m->cpu[m->blocks++] = (cpu_seconds() - cpu_begun) / (double)rows;
    return COPSE_OK;
}

static copse_status measure(measuring *m, copse_error *err) {
    copse_status status = run_pass(m, err); /* the first one warms up */
    uint64_t begun_ns = copse__now_ns();
    double seconds = 0;
    struct rusage usage;
    while (status == COPSE_OK && m->blocks < SPREAD_MOST &&
           (m->blocks < LEAST_BLOCKS || seconds < m->wanted->seconds)) {
        status = run_block(m, err);
        seconds = (double)(copse__now_ns() - begun_ns) * 1e-9;
    }
    getrusage(RUSAGE_SELF, &usage);
    m->peak_kib = usage.ru_maxrss;
    return status;
}

/* ---- Reporting ------------------------------------------------------------------------- */

static const char *mode_of(const measuring *m) {
    return m->wanted->predict ? "predict" : "evaluate";
}

static copse_status print_json(const measuring *m, copse_error *err) {
    copse__text out = {0};
    copse__text_add(&out, "{\"bench\":\"eval\",\"mode\":\"%s\",\"config\":", mode_of(m));
    copse__json_text(&out, m->config->path);
    copse__text_add(&out, ",\"devices\":[");
    for (size_t i = 0; i < m->devices.count; i++) {
        copse__text_add(&out, "%s", i ? "," : "");
        copse__json_text(&out, m->devices.choices[i].label);
    }
    copse__text_add(&out,
                    "],\"batch\":%" PRIu64 ",\"samples\":%" PRIu64 ",\"passes\":%" PRIu64,
                    m->config->train.validate_batch, m->pass_rows, m->passes);
    spread_add(&out, "samples_per_s", spread_of(m->rates, m->blocks, 1), 1, 1);
    spread_add(&out, "cpu_us_per_sample", spread_of(m->cpu, m->blocks, 1), 1e6, 2);
    copse__text_add(&out, ",\"peak_rss_bytes\":%lld}\n", (long long)m->peak_kib * 1024);
    copse_status status = copse__text_check(&out, err);
    if (status == COPSE_OK)
        fputs(out.data, stdout);
    copse__text_free(&out);
    return status;
}

static void print_table(const measuring *m) {
    spread rate = spread_of(m->rates, m->blocks, 1);
    char bytes[32];
    printf("%-10s %10s %8s %12s %22s %14s\n", "", "samples", "passes", "samples/s",
           "least to most", "cpu us/sample");
    printf("%-10s %10" PRIu64 " %8" PRIu64 " %12.1f %10.1f %11.1f %14.2f\n", mode_of(m),
           m->pass_rows, m->passes, rate.median, rate.least, rate.most,
           spread_of(m->cpu, m->blocks, 1).median * 1e6);
    printf(
        "peak memory %s\n",
        copse__format_bytes(bytes, sizeof bytes, (unsigned long long)m->peak_kib * 1024));
}

/* ---- The command ----------------------------------------------------------------------- */

static copse_status open_all(measuring *m, copse_error *err) {
    const copse_session_options *o = &m->wanted->session;
    copse_status status;
    COPSE__TRY(copse__config_load(&m->config, o->config_path, o->overrides.items,
                                  o->overrides.count, err),
               out);
    m->config->train.on_device_loss =
        COPSE__ON_FAULT_STOP; /* half of them is no result */
    COPSE__TRY(copse__datasets_open(&m->sets, m->config, false, err), out);
    m->set = m->sets.test ? m->sets.test : m->sets.validation;
    COPSE__TRY(copse_devices_open(&m->devices,
                                  o->devices ? o->devices : m->config->devices.select,
                                  m->config->devices.bench, o->isolate, err),
               out);
    copse__trainer_options opening = {.choices = m->devices.choices,
                                      .choice_count = m->devices.count,
                                      .topo = m->devices.topo,
                                      .selftest = o->selftest};
    COPSE__TRY(copse__trainer_open(&m->trainer, m->config, &m->sets, &opening, err), out);
out:
    return status;
}

static void close_all(measuring *m) {
    copse__trainer_close(m->trainer);
    copse_devices_close(&m->devices);
    copse__datasets_close(&m->sets);
    copse__config_free(m->config);
}

static bool any_lost(const measuring *m) {
    for (size_t r = 0; m->trainer && r < m->devices.count; r++)
        if (copse__trainer_is_lost(m->trainer, r))
            return true;
    return false;
}

static int run(const request *wanted) {
    copse_error error = {0};
    measuring m = {.wanted = wanted};
    copse_status status = open_all(&m, &error);
    if (status == COPSE_OK)
        status = measure(&m, &error);
    if (status == COPSE_OK && !wanted->json && isatty(STDOUT_FILENO))
        print_table(&m);
    else if (status == COPSE_OK)
        status = print_json(&m, &error);
    int code = status == COPSE_OK ? 0 : copse_report(&error);
    if (any_lost(&m)) { /* its driver may hold up all that comes after */
        fflush(NULL);
        _exit(code);
    }
    close_all(&m);
    return code;
}

static bool take(void *user, int id, const char *value) {
    request *r = user;
    char *end;
    copse_error error = {0};
    switch (id) {
    case OPT_CONFIG:
        r->session.operand = value;
        return true;
    case OPT_BATCH:
        snprintf(r->batch, sizeof r->batch, "train.batch=%s", value);
        if (strlen(value) < 32 &&
            copse_overrides_add(&r->session.overrides, r->batch, &error) == COPSE_OK)
            return true;
        tool_complain(&command, "--batch takes a number, not '%s'", value);
        return false;
    case OPT_SECONDS:
        r->seconds = strtod(value, &end);
        if (!*end && r->seconds > 0 && r->seconds <= 3600)
            return true;
        tool_complain(&command, "--seconds takes a time, not '%s'", value);
        return false;
    default:
        r->predict |= id == OPT_PREDICT;
        r->json |= id == OPT_JSON;
        return true;
    }
}

int copse_cmd_bench_eval(int argc, char **argv) {
    request wanted = {.session = {.isolate = true, .selftest = true}, .seconds = 4};
    int code = copse_session_parse(&command, argc, argv, &wanted.session, take, &wanted);
    if (code < 0)
        code = run(&wanted);
    copse_session_options_free(&wanted.session);
    return code;
}
