/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_COPSE_SESSION_H
#define TOOLS_COPSE_SESSION_H

#include "command.h"
#include "progress.h"
#include "train/datasets.h"
#include "train/trainer.h"

/* What train, eval and predict have in common: a configuration, its data, the devices and a trainer
 * on them; and the signals that stop it. */
typedef struct copse_session {
    copse__config *config;
    copse__datasets sets;
    copse_devices devices;
    copse__trainer *trainer;
    progress progress;
} copse_session;

typedef struct copse_session_options {
    char *config_path; /* owned */
    copse_overrides overrides;
    const char *devices; /* NULL: the configuration's, else the default */
    bool isolate, selftest, training, quiet, verbose;
    bool only_check; /* everything but opening the trainer */
    const char
        *predict_input; /* a file to read samples from instead of the configured sets */
    const copse__trainer_hooks *hooks; /* user is the session */
} copse_session_options;

/* Parses the options that these subcommands share (OPT_DEVICES, OPT_SET, OPT_QUIET, OPT_VERBOSE,
 * OPT_ISOLATE, OPT_NO_SELFTEST) into options, the first operand into config_path; others go to `own`
 * (may be NULL), which returns false after it has complained. Returns -1, or the exit code with
 * which to leave. */
typedef bool copse_take_option(void *user, int id, const char *value);
int copse_session_parse(const tool_command *command, int argc, char **argv,
                        copse_session_options *options, copse_take_option *own,
                        void *user);
void copse_session_options_free(copse_session_options *options);

/* On failure everything is closed. */
copse_status copse_session_open(copse_session *out, const copse_session_options *options,
                                copse_error *err);
void copse_session_close(copse_session *session);

/* One line a replica: label, name, driver, shard. On stderr, unless quiet. */
void copse_session_print_devices(const copse_session *session, bool quiet);

/* SIGINT, SIGTERM and SIGHUP stop the trainer after the current step, a second one at once. */
void copse_session_catch_signals(copse_session *session);

#endif
