/* SPDX-License-Identifier: Apache-2.0 */
#include "session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "signals.h"

static volatile sig_atomic_t code_to_leave_with;

static void on_alarm(int number) {
    (void)number;
    _exit(code_to_leave_with);
}

static bool any_lost(const copse_session *s) {
    for (size_t r = 0; s->trainer && r < copse__trainer_replicas(s->trainer); r++)
        if (copse__trainer_is_lost(s->trainer, r))
            return true;
    return false;
}

int copse_session_leave(copse_session *s, int code) {
    bool lost = any_lost(s);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    sigemptyset(&action.sa_mask);
    code_to_leave_with = code;
    sigaction(SIGALRM, &action, NULL);
    alarm(30);
    copse_session_close(s);
    alarm(0);
    if (!lost)
        return code;
    fflush(NULL);
    _exit(code);
}

void copse_session_on_hang(void *user, const copse_error *why) {
    copse_session *s = user;
    progress_clear(&s->progress);
    int code = copse_report(why);
    if (s->run)
        copse__run_abandon(s->run, why);
    fflush(NULL);
    _exit(code);
}

void copse_session_print_devices(const copse_session *s, bool quiet) {
    if (quiet)
        return;
    size_t batch = (size_t)s->config->train.batch;
    for (size_t r = 0; r < s->devices.count; r++) {
        const copse__device_choice *c = &s->devices.choices[r];
        fprintf(stderr, "replica %zu  %-8s %s (%s%s%s)", r, c->label, c->name,
                c->platform_name, c->driver[0] ? " " : "", c->driver);
        if (s->trainer)
            fprintf(stderr, "  shard %zu of %zu (%s)",
                    copse__trainer_shard(s->trainer, r), batch,
                    copse__trainer_shards_are(s->trainer));
        fputc('\n', stderr);
    }
}

void copse_session_print_score(const char *name, const copse__score *score) {
    printf("%s: loss %.4f, accuracy %.4f over %llu samples", name,
           copse__score_loss(score), copse__score_accuracy(score),
           (unsigned long long)score->samples);
    if (score->skipped > 0)
        printf(" (%llu left out)", (unsigned long long)score->skipped);
    putchar('\n');
}

/* One option; false after a complaint. */
static bool take_shared(const tool_command *command, int id, const char *value,
                        copse_session_options *options) {
    copse_error error = {0};
    switch (id) {
    case OPT_DEVICES:
        options->devices = value;
        return true;
    case OPT_SET:
        if (copse_overrides_add(&options->overrides, value, &error) == COPSE_OK)
            return true;
        copse_report(&error);
        return false;
    case OPT_QUIET:
        options->quiet = true;
        return true;
    case OPT_VERBOSE:
        options->verbose = true;
        return true;
    case OPT_NO_SELFTEST:
        options->selftest = false;
        return true;
    case OPT_ISOLATE:
        return copse_parse_isolate(command, value, &options->isolate);
    default:
        return false;
    }
}

int copse_session_parse(const tool_command *command, int argc, char **argv,
                        copse_session_options *options, copse_take_option *own,
                        void *user) {
    tool_parser parser;
    const char *value;
    copse_error error = {0};
    tool_begin(&parser, command, argc, argv);
    int id = tool_next(&parser, &value), code = -1;
    for (; id > 0; id = tool_next(&parser, &value)) {
        bool shared = id == OPT_DEVICES || id == OPT_SET || id == OPT_QUIET ||
                      id == OPT_VERBOSE || id == OPT_ISOLATE || id == OPT_NO_SELFTEST;
        if (!(shared ? take_shared(command, id, value, options) : own(user, id, value))) {
            id = TOOL_USAGE;
            break;
        }
    }
    copse_log_to_stderr(options->verbose ? COPSE_LOG_DEBUG
                        : options->quiet ? COPSE_LOG_ERROR
                                         : COPSE_LOG_WARN);
    if (parser.operand_count > 0)
        options->operand = parser.operands[0];
    if (id == TOOL_END && !options->operand) {
        tool_complain(command, "no configuration is named; usage: %s %s",
                      command->program, command->usage);
        id = TOOL_USAGE;
    }
    if (id != TOOL_END)
        code = id == TOOL_DONE ? 0 : 2;
    else if (copse_find_config(&options->config_path, options->operand, &error) !=
             COPSE_OK)
        code = copse_report(&error);
    tool_end(&parser);
    return code;
}

void copse_session_options_free(copse_session_options *options) {
    free(options->config_path);
    free(options->overrides.items);
}

static const char *wanted_devices(const copse_session *s,
                                  const copse_session_options *options) {
    return options->devices ? options->devices : s->config->devices.select;
}

/* A file of samples alone, for `predict`: .npy and .npz by their names, else in the configured format. */
static copse_status open_input(copse_session *s, const char *path, copse_error *err) {
    char *paths[] = {(char *)(size_t)path};
    const char *dot = strrchr(path, '.');
    bool numpy = dot && (strcmp(dot, ".npy") == 0 || strcmp(dot, ".npz") == 0);
    copse__config_source from = {.paths = paths, .path_count = 1};
    copse_data_source source = copse__config_data_source(s->config, &from);
    source.folder = NULL;
    if (numpy)
        source.format = COPSE_DATA_NPY;
    return copse_dataset_open(&s->sets.test, &source, err);
}

void copse_session_on_prepare(void *user, const char *what) {
    copse_session *s = user;
    if (what)
        copse__stages_next(&s->stages, what);
    progress_notice(&s->progress, what);
}

void copse_session_on_evaluate(void *user, const copse__progress *now) {
    copse_session *s = user;
    progress_step(&s->progress, now);
    copse_session_watch_time(s);
}

void copse_session_watch_time(copse_session *s) {
    if (s->stop_ns == 0 || s->time_is_up || copse__now_ns() < s->stop_ns)
        return;
    s->time_is_up = true;
    copse__trainer_stop(s->trainer);
}

/* A wrong model is found before any device is touched. */
static copse_status check_model(const copse_session *s, bool training, copse_error *err) {
    copse__graph *graph;
    copse_status status = copse__trainer_build_graph(
        &graph, s->config, &s->sets, (size_t)s->config->train.batch, training, err);
    if (status == COPSE_OK)
        copse__graph_free(graph);
    return status;
}

static copse_status open_trainer(copse_session *s, const copse_session_options *options,
                                 copse_error *err) {
    copse__trainer_hooks hooks =
        options->hooks ? *options->hooks : (copse__trainer_hooks){0};
    hooks.user = s;
    copse__trainer_options opening = {.choices = s->devices.choices,
                                      .choice_count = s->devices.count,
                                      .topo = s->devices.topo,
                                      .training = options->training,
                                      .profile = options->profile,
                                      .selftest =
                                          options->selftest && !options->plan_only,
                                      .plan_only = options->plan_only,
                                      .hooks = &hooks};
    if (s->run) {
        opening.shards = copse__run_shards(s->run, s->devices.choices, s->devices.count,
                                           &opening.cuts);
        opening.tuned = copse__run_tuned(s->run);
    }
    copse_status status =
        copse__trainer_open(&s->trainer, s->config, &s->sets, &opening, err);
    progress_clear(&s->progress);
    return status;
}

/* Weights of --checkpoint, or of the named run's latest checkpoint (its best, where it was to end with that
 * one's). */
static copse_status load_weights(copse_session *s, const copse_session_options *options,
                                 copse_error *err) {
    char *found = NULL;
    const char *path = options->checkpoint;
    copse_status status = COPSE_OK;
    const copse__config_early_stopping *stop = &s->config->train.early_stopping;
    bool best =
        path ? strcmp(path, "best") == 0 : stop->enabled && stop->restore_best_weights;
    if (!path || best || strcmp(path, "latest") == 0) {
        struct stat info;
        if (stat(options->operand, &info) != 0 || !S_ISDIR(info.st_mode))
            return copse__fail(err, COPSE_INVALID, 0, options->operand,
                               "a configuration has no weights; name a run folder, or "
                               "--checkpoint FILE");
        status = copse__run_folder_find(
            options->operand, best ? COPSE__CHECKPOINT_BEST : COPSE__CHECKPOINT_LATEST,
            &found, err);
        path = found;
    }
    if (status == COPSE_OK)
        status = copse__run_load_weights(s->trainer, path, err);
    free(found);
    return status;
}

/* The network is built for the samples at hand: where the weights are of other shapes, the samples are. */
static void blame_samples(const copse_session *s, const char *path, copse_error *err) {
    const copse_data_spec *spec = copse_dataset_get_features(s->sets.test);
    char shape[128] = "scalar", text[sizeof err->text];
    for (size_t d = 0, used = 0; d < spec->rank && used < sizeof shape; d++)
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu",
                                 d ? " x " : "", spec->shape[d]);
    snprintf(text, sizeof text, "%s", err->text);
    copse__fail(
        err, COPSE_CONFIG, 0, path,
        "its samples are %s, and the network was trained on others: for these, %s", shape,
        text);
}

copse_status copse_session_open(copse_session *s, const copse_session_options *options,
                                copse_error *err) {
    copse_status status;
    *s = (copse_session){.stop_ns = options->stop_ns};
    signals_catch(options->run != COPSE_RUN_NONE);
    progress_begin(&s->progress, options->quiet, options->verbose);
    copse__stages_next(&s->stages, "reading the configuration");
    COPSE__TRY(copse__config_load(&s->config, options->config_path,
                                  options->overrides.items, options->overrides.count,
                                  err),
               fail);
    COPSE__TRY(copse__trainer_check(s->config, err), fail);
    copse__stages_next(&s->stages, "opening the data");
    if (options->predict_input)
        COPSE__TRY(open_input(s, options->predict_input, err), fail);
    else
        COPSE__TRY(copse__datasets_begin(&s->sets, s->config, options->training, err),
                   fail);
    COPSE__TRY(check_model(s, options->training, err), fail);
    if (options->run != COPSE_RUN_RESUME && options->training)
        COPSE__TRY(
            copse__run_look(s->config, options->run_path, options->look_at_resumed, err),
            fail);
    copse__stages_next(&s->stages, "looking for devices");
    COPSE__TRY(copse_devices_open(&s->devices, wanted_devices(s, options),
                                  s->config->devices.bench, options->isolate, err),
               fail);
    if (s->devices.choices[0].api == COPSE__API_HOST && !wanted_devices(s, options)[0])
        copse__log(COPSE_LOG_WARN,
                   "no OpenCL device is usable: the host backend is used, "
                   "which is slow; `cltopo doctor` tells why");
    if (options->run == COPSE_RUN_RESUME) /* its plan says how to open the trainer */
        COPSE__TRY(copse__run_open(&s->run, s->config, options->run_path, true, err),
                   fail);
    COPSE__TRY(open_trainer(s, options, err), fail);
    copse__stages_next(&s->stages, "waiting for the data");
    COPSE__TRY(copse__datasets_arrive(&s->sets, err), fail);
    copse__stages_next(&s->stages, "opening the run");
    if (options->run == COPSE_RUN_NEW)
        COPSE__TRY(copse__run_open(&s->run, s->config, options->run_path, false, err),
                   fail);
    if (options->need_weights) {
        status = load_weights(s, options, err);
        if (status == COPSE_CONFIG && options->predict_input)
            blame_samples(s, options->predict_input, err);
        if (status != COPSE_OK)
            goto fail;
    }
    signals_attend(s->trainer, s->run);
    return COPSE_OK;
fail:
    progress_clear(&s->progress);
    /* A driver that hangs while it is opened may hold up the process's end, too. */
    if (status == COPSE_TIMEOUT) {
        int code = copse_report(err);
        fflush(NULL);
        _exit(code);
    }
    copse_session_close(s);
    return status;
}

void copse_session_close(copse_session *s) {
    signals_dismiss();
    copse__run_close(s->run);
    copse__trainer_close(s->trainer);
    copse_devices_close(&s->devices);
    copse__datasets_close(&s->sets);
    copse__config_free(s->config);
    *s = (copse_session){0};
}
