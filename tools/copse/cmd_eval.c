/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "session.h"

enum { OPT_CHECKPOINT = OPT_OWN };

static const tool_option options[] = {
    {OPT_CHECKPOINT, "checkpoint", 'c', "FILE",
     "Weights to evaluate: a file, or the run's latest (default) or best"},
    OPTION_DEVICES,
    OPTION_SET,
    OPTION_ISOLATE,
    OPTION_QUIET,
    OPTION_VERBOSE,
};

static const tool_command command = {
    .program = "copse eval",
    .usage = "RUN|CONFIG [options]",
    .summary =
        "Prints loss and metrics of a trained network on its test set. RUN is the folder "
        "that\n`copse train` wrote; a CONFIG needs --checkpoint.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

static bool take(void *user, int id, const char *value) {
    const char **checkpoint = user;
    if (id == OPT_CHECKPOINT)
        *checkpoint = value;
    return true;
}

static copse_status evaluate(copse_session *s, copse_error *err) {
    copse_dataset *set = s->sets.test ? s->sets.test : s->sets.validation;
    const char *name = s->sets.test ? "test" : s->sets.validation_name;
    copse__score score;
    copse_status status = copse__trainer_evaluate(s->trainer, set, name, &score, err);
    progress_clear(&s->progress);
    if (status == COPSE_OK)
        copse_session_print_score(name, &score);
    return status;
}

static const copse__trainer_hooks hooks = {.on_evaluate = copse_session_on_evaluate,
                                           .on_hang = copse_session_on_hang,
                                           .on_prepare = copse_session_on_prepare};

int copse_cmd_eval(int argc, char **argv) {
    copse_error error = {0};
    copse_session session;
    copse_session_options opening = {
        .isolate = true, .selftest = true, .need_weights = true, .hooks = &hooks};
    int code =
        copse_session_parse(&command, argc, argv, &opening, take, &opening.checkpoint);
    if (code < 0) {
        copse_status status = copse_session_open(&session, &opening, &error);
        if (status == COPSE_OK) {
            status = evaluate(&session, &error);
            code = status == COPSE_OK ? 0 : copse_report(&error);
            code = copse_session_leave(&session, code);
        } else {
            code = copse_report(&error);
        }
    }
    copse_session_options_free(&opening);
    return code;
}
