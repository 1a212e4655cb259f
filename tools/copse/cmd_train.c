/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "session.h"

enum { OPT_STEPS = OPT_OWN };

static const tool_option options[] = {
    OPTION_DEVICES,
    OPTION_SET,
    OPTION_QUIET,
    OPTION_VERBOSE,
    OPTION_ISOLATE,
    {OPT_OUT, "out", 'o', "DIR", "The run folder (default runs/NAME-DATE)"},
    {OPT_DRY_RUN, "dry-run", 'n', NULL, "Check everything, train nothing"},
    {OPT_NO_SELFTEST, "no-selftest", 0, NULL, "Skip the check of each device's kernels"},
};

static const tool_command command = {
    .program = "copse train",
    .usage = "CONFIG [options]",
    .summary =
        "Trains the network that CONFIG describes, on every device or on those named.",
    .options = options,
    .option_count = COPSE__COUNT(options),
    .least_operands = 1,
    .most_operands = 1,
};

static copse_status on_step(void *user, const copse__progress *now, copse_error *err) {
    (void)err;
    copse_session *s = user;
    progress_step(&s->progress, now);
    return COPSE_OK;
}
static copse_status on_epoch(void *user, const copse__epoch_report *report,
                             copse_error *err) {
    (void)err;
    copse_session *s = user;
    progress_epoch(&s->progress, report, s->config->train.epochs);
    return COPSE_OK;
}
static void on_prepare(void *user, const char *what) {
    copse_session *s = user;
    progress_notice(&s->progress, what);
}
static void on_evaluate(void *user, const copse__progress *now) {
    copse_session *s = user;
    progress_step(&s->progress, now);
}

static int run(const copse_session_options *opening) {
    copse_error error = {0};
    copse_session session;
    if (copse_session_open(&session, opening, &error) != COPSE_OK)
        return copse_report(&error);
    copse_session_print_devices(&session, opening->quiet);
    copse_session_catch_signals(&session);
    copse_status status = copse__trainer_fit(session.trainer, &error);
    copse__score score = {0};
    if (status == COPSE_OK)
        status = copse__trainer_evaluate(session.trainer, session.sets.test, "test",
                                         &score, &error);
    progress_clear(&session.progress);
    if (status == COPSE_OK)
        printf("test loss %.4f accuracy %.4f\n", copse__score_loss(&score),
               copse__score_accuracy(&score));
    uint64_t hash = 0;
    if (status == COPSE_OK)
        status = copse__trainer_hash(session.trainer, &hash, &error);
    printf("hash %016lx\n", (unsigned long)hash);
    copse_session_close(&session);
    return status == COPSE_OK ? 0 : copse_report(&error);
}

int copse_cmd_train(int argc, char **argv) {
    copse__trainer_hooks hooks = {on_step, on_epoch, on_evaluate, on_prepare, NULL};
    copse_session_options opening = {
        .isolate = true, .selftest = true, .training = true, .hooks = &hooks};
    int code = copse_session_parse(&command, argc, argv, &opening, NULL, NULL);
    if (code < 0)
        code = run(&opening);
    copse_session_options_free(&opening);
    return code;
}
