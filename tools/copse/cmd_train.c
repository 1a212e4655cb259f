/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "common/parse_time.h"
#include "session.h"
#include "signals.h"

enum { OPT_STOP_AFTER = OPT_OWN, OPT_TRACE, OPT_TRACE_STEPS };

/* The first steps are not like the others. */
#define TRACE_FIRST 11
#define TRACE_COUNT 10

static const tool_option options[] = {
    {OPT_OUT, "out", 'o', "DIR", "The run's folder (default: runs/NAME-DATE, a new one)"},
    OPTION_DEVICES,
    OPTION_SET,
    {OPT_RESUME, "resume", 'r', NULL,
     "Go on from the latest checkpoint in the folder of --out"},
    {OPT_STOP_AFTER, "stop-after", 0, "TIME",
     "Stop and save behind the first step after 3h50m, 90s, …, counted from\nthe start, "
     "and "
     "leave with 0: for queues with a time limit"},
    {OPT_TRACE, "trace", 0, NULL,
     "Write where the time of steps 11 to 20 goes to DIR/trace.json, which\n"
     "https://ui.perfetto.dev shows"},
    {OPT_TRACE_STEPS, "trace-steps", 0, "FIRST:COUNT",
     "The same of COUNT steps from step FIRST on"},
    {OPT_DRY_RUN, "dry-run", 'n', NULL,
     "Check the configuration, the data and the devices; train nothing"},
    {OPT_NO_SELFTEST, "no-selftest", 0, NULL,
     "Skip the quick check of each device's kernels"},
    OPTION_ISOLATE,
    OPTION_QUIET,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse train",
    .usage = "CONFIG [options]",
    .summary =
        "Trains the network that CONFIG describes, on every GPU and accelerator of the "
        "machine\n(where there is none, on its CPU), or on the devices named. Prints "
        "the test result on\nstdout; Ctrl-C finishes the step, saves and leaves with "
        "130, SIGUSR1 saves and goes on.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

typedef struct train_options {
    const char *out;
    bool resume, dry_run;
    uint64_t stop_ns;
    uint64_t trace_first, trace_count; /* 0: none */
} train_options;

/* "FIRST:COUNT", both above 0. */
static bool parse_steps(const char *text, uint64_t *first, uint64_t *count) {
    int length = 0;
    return strspn(text, "0123456789:") == strlen(text) && strlen(text) < 24 &&
           sscanf(text, "%" SCNu64 ":%" SCNu64 "%n", first, count, &length) == 2 &&
           text[length] == '\0' && *first > 0 && *count > 0;
}

static bool take(void *user, int id, const char *value) {
    train_options *o = user;
    if (id == OPT_OUT && !value[0]) {
        tool_complain(&command, "--out names no folder");
        return false;
    }
    double seconds;
    if (id == OPT_STOP_AFTER && !tool_parse_time(value, &seconds)) {
        tool_complain(&command, "--stop-after takes a time like 3h50m or 90s, not '%s'",
                      value);
        return false;
    }
    if (id == OPT_STOP_AFTER) /* a limit of 100 years is none */
        o->stop_ns = copse__now_ns() + (uint64_t)(fmin(seconds, 3e9) * 1e9);
    if (id == OPT_OUT)
        o->out = value;
    if (id == OPT_TRACE && o->trace_count == 0) {
        o->trace_first = TRACE_FIRST;
        o->trace_count = TRACE_COUNT;
    }
    if (id == OPT_TRACE_STEPS && !parse_steps(value, &o->trace_first, &o->trace_count)) {
        tool_complain(&command, "--trace-steps takes FIRST:COUNT like 100:5, not '%s'",
                      value);
        return false;
    }
    o->resume |= id == OPT_RESUME;
    o->dry_run |= id == OPT_DRY_RUN;
    return true;
}

/* ---- Hooks ----------------------------------------------------------------------------- */

/* Behind the first step that this process counts. */
static void tell_start(copse_session *s) {
    if (s->started)
        return;
    s->started = true;
    copse__stages_next(&s->stages, NULL);
    copse__stages_log(&s->stages, "to the first step");
    copse__tracer_start(s->tracer, &s->stages);
    copse__trainer_tell_memory(s->trainer);
}

static copse_status on_step(void *user, const copse__progress *now, copse_error *err) {
    copse_session *s = user;
    tell_start(s);
    progress_step(&s->progress, now);
    copse_session_watch_time(s);
    copse__tracer_step(s->tracer, s->trainer, now);
    return copse__run_step(s->run, now, err);
}

static bool needs_state(void *user, uint64_t step) {
    copse_session *s = user;
    copse__tracer_begin(s->tracer, s->trainer, step);
    return copse__run_needs_state(s->run, step);
}

static copse_status on_epoch(void *user, const copse__epoch_report *report,
                             copse_error *err) {
    copse_session *s = user;
    s->last_epoch = *report;
    progress_epoch(&s->progress, report, s->config->train.epochs);
    copse_status status = copse__run_epoch(s->run, report, err);
    progress_say(&s->progress, copse__run_decision(s->run));
    return status;
}

static void on_event(void *user, const copse__trainer_event *event) {
    copse_session *s = user;
    progress_clear(&s->progress);
    if (s->run)
        copse__run_event(s->run, event);
}

static const copse__trainer_hooks hooks = {.on_step = on_step,
                                           .needs_state = needs_state,
                                           .on_event = on_event,
                                           .on_epoch = on_epoch,
                                           .on_evaluate = copse_session_on_evaluate,
                                           .on_hang = copse_session_on_hang,
                                           .on_prepare = copse_session_on_prepare};

/* ---- The run --------------------------------------------------------------------------- */

/* The score on the test set; the last validation's where that was the test set after the last step. */
static copse_status test(copse_session *s, copse__score *score, copse_error *err) {
    const copse__epoch_report *last = &s->last_epoch;
    if (!s->restored && last->validated &&
        last->validation_name == s->sets.validation_name && s->sets.validation_is_test &&
        last->step == copse__trainer_position(s->trainer).step) {
        *score = last->validation;
        return COPSE_OK;
    }
    return copse__trainer_evaluate(s->trainer, s->sets.test, "test", score, err);
}

/* Stopped by --stop-after alone. */
static bool is_in_time(const copse_session *s) {
    return s->time_is_up && signals_seen() == 0;
}

static void restore_best(copse_session *s) {
    copse_error why = {0};
    if (copse__run_restore_best(s->run, &s->restored, &why) != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s; the run ends with its last weights",
                   why.place, why.text);
    else if (s->restored)
        progress_say(&s->progress, "the weights are those of the best epoch again");
}

static copse_status open_trace(copse_session *s, const train_options *o,
                               copse_error *err) {
    copse__text path = {0};
    if (o->trace_count == 0)
        return COPSE_OK;
    copse__text_add(&path, "%s/trace.json", copse__run_path(s->run));
    copse_status status = copse__text_check(&path, err);
    if (status == COPSE_OK)
        status = copse__tracer_open(&s->tracer, path.data, o->trace_first, o->trace_count,
                                    err);
    copse__text_free(&path);
    return status;
}

/* A trace that could not be written does not make the training fail. */
static void close_trace(copse_session *s) {
    copse_error error = {0};
    if (copse__tracer_close(s->tracer, &error) != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s", error.place, error.text);
    s->tracer = NULL;
}

static copse_status train(copse_session *s, copse_error *err) {
    copse_error why = {0}, end_error = {0};
    copse__score score = {0};
    copse_status status = copse__run_start(s->run, s->trainer, err);
    if (status != COPSE_OK)
        return status;
    bool tested = false;
    copse__stages_next(&s->stages, "the first step");
    status = copse__trainer_fit(s->trainer, &why);
    if (status == COPSE_OK)
        restore_best(s);
    if (status == COPSE_OK && s->sets.test) {
        status = test(s, &score, &why);
        tested = status == COPSE_OK;
    }
    progress_clear(&s->progress);
    copse_status ended =
        copse__run_end(s->run, status, &why, tested ? &score : NULL, &end_error);
    if (tested)
        copse_session_print_score("test", &score);
    if (status == COPSE_INTERRUPTED && ended != COPSE_OK)
        status = COPSE_OK; /* not saved: that is what is to be told */
    if (status == COPSE_INTERRUPTED)
        fprintf(stderr, "copse: %s%s; %s: copse train %s --out %s --resume\n",
                is_in_time(s) ? "time is up: " : "", why.text,
                is_in_time(s) ? "resume me" : "go on with", s->config->path,
                copse__run_path(s->run));
    *err = status != COPSE_OK ? why : end_error;
    return status != COPSE_OK ? status : ended;
}

static int run(copse_session_options *opening, const train_options *o) {
    copse_error error = {0};
    copse_session session;
    opening->plan_only = o->dry_run;
    opening->profile = o->trace_count > 0;
    opening->run = o->dry_run  ? COPSE_RUN_NONE
                   : o->resume ? COPSE_RUN_RESUME
                               : COPSE_RUN_NEW;
    opening->run_path = o->out;
    opening->look_at_resumed = o->resume;
    opening->stop_ns = o->stop_ns;
    if (copse_session_open(&session, opening, &error) != COPSE_OK)
        return copse_report(&error);
    copse_session_print_devices(&session, opening->quiet);
    copse_status status = COPSE_OK;
    if (!o->dry_run) {
        status = open_trace(&session, o, &error);
        if (status == COPSE_OK)
            status = train(&session, &error);
        close_trace(&session);
        if (!opening->quiet)
            fprintf(stderr, "run folder: %s\n", copse__run_path(session.run));
    }
    int code = copse_exit_code(status);
    if (status == COPSE_INTERRUPTED && is_in_time(&session))
        code = 0;
    else if (status != COPSE_OK && status != COPSE_INTERRUPTED)
        copse_report(&error);
    return copse_session_leave(&session, code);
}

int copse_cmd_train(int argc, char **argv) {
    train_options o = {0};
    copse_session_options opening = {
        .isolate = true, .selftest = true, .training = true, .hooks = &hooks};
    int code = copse_session_parse(&command, argc, argv, &opening, take, &o);
    if (code < 0 && o.resume && !o.out) {
        tool_complain(&command, "--resume needs --out DIR, the run to go on with");
        code = 2;
    }
    if (code < 0)
        code = run(&opening, &o);
    copse_session_options_free(&opening);
    return code;
}
