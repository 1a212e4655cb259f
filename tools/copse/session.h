/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_SESSION_H
#define TOOLS_COPSE_SESSION_H

#include "base/stages.h"
#include "command.h"
#include "progress.h"
#include "train/datasets.h"
#include "train/run.h"
#include "train/tracer.h"
#include "train/trainer.h"

/* What train, eval and predict have in common: a configuration, its data, the devices and a trainer
 * on them; and the signals that stop it. */
typedef struct copse_session {
    copse__config *config;
    copse__datasets sets;
    copse_devices devices;
    copse__trainer *trainer;
    copse__run *run;       /* NULL: no run folder */
    copse__tracer *tracer; /* NULL: no trace is wanted */
    progress progress;
    copse__stages stages; /* of the start, until the first step is done */
    bool started;         /* it is */
    copse__epoch_report last_epoch;
    uint64_t stop_ns; /* of base/clock.h; 0: no such limit */
    bool time_is_up;
    bool restored; /* the weights are not the last ones, but the best */
} copse_session;

typedef enum copse_run_mode {
    COPSE_RUN_NONE,
    COPSE_RUN_NEW,
    COPSE_RUN_RESUME
} copse_run_mode;

typedef struct copse_session_options {
    char *config_path;   /* owned */
    const char *operand; /* as typed: a run folder or a configuration */
    copse_overrides overrides;
    const char *devices; /* NULL: the configuration's, else the default */
    bool isolate, selftest, training, quiet, verbose;
    bool profile;     /* see copse__trainer_options */
    bool plan_only;   /* check everything, allocate and write nothing */
    uint64_t stop_ns; /* 0: no limit */
    copse_run_mode run;
    const char *run_path; /* NULL: a new folder under runs/ */
    bool look_at_resumed; /* plan_only: as if run were COPSE_RUN_RESUME */
    bool need_weights;    /* load them: from checkpoint, or the run's latest */
    const char *
        checkpoint; /* a file, or "latest" or "best" of the run; NULL: what it ends with */
    const char
        *predict_input; /* a file to read samples from instead of the configured sets */
    const copse__trainer_hooks *hooks; /* user is the session */
} copse_session_options;

/* Parses the options that these subcommands share (OPT_DEVICES, OPT_SET, OPT_QUIET, OPT_VERBOSE,
 * OPT_ISOLATE, OPT_NO_SELFTEST) into options, the first operand (or what `own` put there) into
 * config_path; others go to `own` (may be NULL), which returns false after it has complained. Returns -1, or the exit code with
 * which to leave. */
typedef bool copse_take_option(void *user, int id, const char *value);
int copse_session_parse(const tool_command *command, int argc, char **argv,
                        copse_session_options *options, copse_take_option *own,
                        void *user);
void copse_session_options_free(copse_session_options *options);

/* Signals end the command from here on (signals.h). On failure everything is closed. */
copse_status copse_session_open(copse_session *out, const copse_session_options *options,
                                copse_error *err);
void copse_session_close(copse_session *session);
/* The same, and returns code; after half a minute, where a driver hangs even in closing, it leaves with
 * this code. Where a device was lost, its driver may hold up all that comes after, the process's end too:
 * then it leaves at once. */
int copse_session_leave(copse_session *session, int code);

/* Hooks that show progress; user is the session. */
void copse_session_on_prepare(void *user, const char *what);
void copse_session_on_evaluate(void *user, const copse__progress *now);
/* Ends the process: the line on stderr and in the log, exit code 1. */
void copse_session_on_hang(void *user, const copse_error *why);

/* One line a replica: label, name, driver, shard. On stderr, unless quiet. */
void copse_session_print_devices(const copse_session *session, bool quiet);

/* One line on stdout: "test: loss 0.1, accuracy 0.9 over 360 samples". */
void copse_session_print_score(const char *name, const copse__score *score);

/* Stops the trainer behind the current step where its time is up. */
void copse_session_watch_time(copse_session *session);

#endif
