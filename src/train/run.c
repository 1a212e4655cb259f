/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/import_trainer.h"
#include "train/monitor.h"
#include "train/run_private.h"

/* ---- Opening --------------------------------------------------------------------------- */

/* "fashion-mnist" of "examples/fashion-mnist.yaml". */
static void run_name(char *out, size_t capacity, const char *path) {
    const char *slash = strrchr(path, '/');
    snprintf(out, capacity, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = '\0';
}

static copse_status load_resumed(copse__run *run, copse_error *err) {
    const char *path = copse__run_folder_path(run->folder);
    copse_error why = {0};
    copse_status status = copse__run_folder_load(path, &run->resumed, &why);
    if (status == COPSE_IO && why.native == ENOENT) {
        copse__log(COPSE_LOG_WARN,
                   "%s: the run was stopped before its first checkpoint; it begins anew, "
                   "from step 0",
                   path);
        return COPSE_OK;
    }
    if (status != COPSE_OK) {
        if (err)
            *err = why;
        return status;
    }
    if (strcmp(run->resumed->config_hash, run->config_hash) != 0)
        return copse__fail(
            err, COPSE_CONFIG, 0, run->config->path,
            "the network, data, optimizer or seed are not those of the run in "
            "%s; resume with its own config.yaml, or start another run",
            path);
    return copse__run_plan_load(&run->recorded, run->folder, run->resumed->plan, err);
}

copse_status copse__run_look(const copse__config *config, const char *path, bool resume,
                             copse_error *err) {
    copse__run run = {.config = config};
    const copse__run_folder_options options = {
        .path = path, .resume = resume, .look = true};
    copse_status status = copse__config_hash(config, run.config_hash, err);
    if (status == COPSE_OK && path)
        status = copse__run_folder_open(&run.folder, &options, err);
    if (status == COPSE_OK && resume)
        status = load_resumed(&run, err);
    copse__checkpoint_free(run.resumed);
    copse__run_plan_free(run.recorded);
    copse__run_folder_close(run.folder);
    return status;
}

copse_status copse__run_open(copse__run **out, const copse__config *config,
                             const char *path, bool resume, copse_error *err) {
    *out = NULL;
    copse__run *run;
    copse_status status = copse__calloc(&run, 1, sizeof *run, err);
    if (status != COPSE_OK)
        return status;
    run->config = config;
    run->learning_rate = -1;
    run->resume = resume;
    char name[128];
    run_name(name, sizeof name, config->path);
    copse__run_folder_options options = {.path = path, .name = name, .resume = resume};
    COPSE__TRY(copse__config_hash(config, run->config_hash, err), fail);
    COPSE__TRY(copse__run_folder_open(&run->folder, &options, err), fail);
    if (resume)
        COPSE__TRY(load_resumed(run, err), fail);
    *out = run;
    return COPSE_OK;
fail:
    copse__run_close(run);
    return status;
}

void copse__run_close(copse__run *run) {
    if (!run)
        return;
    copse__saver_close(run->saver);
    copse__jsonl_close(run->log);
    copse__board_close(run->board);
    copse__checkpoint_free(run->resumed);
    copse__run_plan_free(run->recorded);
    copse__text_free(&run->plan);
    copse__run_folder_close(run->folder);
    free(run);
}

const char *copse__run_path(const copse__run *run) {
    return copse__run_folder_path(run->folder);
}

static void tell_replanned(const copse__run *run, const copse__device_choice *choices,
                           size_t choice_count) {
    copse__text text = {0};
    copse__run_plan_devices(run->recorded, &text);
    copse__text_add(&text, "; it goes on with ");
    for (size_t r = 0; r < choice_count; r++)
        copse__text_add(&text, "%s%s", r ? ", " : "", choices[r].label);
    if (copse__text_check(&text, NULL) == COPSE_OK)
        copse__log(COPSE_LOG_WARN,
                   "%s: it ran on %s: shards are chosen anew, and its numbers are equal "
                   "up to rounding only",
                   copse__run_path(run), text.data);
    copse__text_free(&text);
}

const size_t *copse__run_shards(copse__run *run, const copse__device_choice *choices,
                                size_t choice_count, const copse__cuts **cuts) {
    *cuts = NULL;
    if (!run->recorded)
        return NULL;
    const size_t *shards = copse__run_plan_match(run->recorded, choices, choice_count,
                                                 run->resumed ? run->resumed->step : 0);
    run->replanned = shards == NULL;
    *cuts = shards ? copse__run_plan_cuts(run->recorded) : NULL;
    if (run->replanned)
        tell_replanned(run, choices, choice_count);
    return shards;
}

const copse__tuned_list *copse__run_tuned(const copse__run *run) {
    return run->recorded && !run->replanned ? copse__run_plan_tuned(run->recorded) : NULL;
}

/* ---- Starting -------------------------------------------------------------------------- */

static copse_status write_description(copse__run *run, copse_error *err) {
    copse__text text = {0};
    copse_status status = copse__config_write(run->config, &text, err);
    if (status == COPSE_OK)
        status = copse__text_check(&text, err);
    if (status == COPSE_OK)
        status = copse__run_folder_put(run->folder, "config.yaml", text.data, text.length,
                                       err);
    copse__text_free(&text);
    if (status == COPSE_OK)
        status = copse__run_put_plan(run, err);
    if (status == COPSE_OK && run->recorded && !run->replanned &&
        !copse__run_plan_same_kernels(run->recorded, run->plan.data))
        copse__log(
            COPSE_LOG_WARN,
            "%s: it ran with other kernels (plan.json: providers): its numbers are "
            "equal up to rounding only",
            copse__run_path(run));
    return status;
}

static copse_status open_log(copse__run *run, copse_error *err) {
    if (!run->config->log.jsonl)
        return COPSE_OK;
    char *path;
    copse_status status = copse__run_folder_file(run->folder, "log.jsonl", &path, err);
    if (status != COPSE_OK)
        return status;
    status = run->resumed ? copse__jsonl_resume(&run->log, path, run->resumed->step,
                                                run->resumed->log_bytes, err)
                          : copse__jsonl_create(&run->log, path, err);
    free(path);
    return status;
}

static copse_status log_start(copse__run *run, copse_error *err) {
    if (!run->resume)
        return COPSE_OK;
    copse__jsonl_begin(run->log, "event");
    copse__jsonl_text(run->log, "what", "resumed");
    copse__jsonl_count(run->log, "step", run->saved_step);
    copse__jsonl_bool(run->log, "replanned", run->replanned);
    return copse__jsonl_end(run->log, err);
}

/* What opening the sets left out, which no epoch counts. */
static copse_status log_left_out(copse__run *run, copse_error *err) {
    const copse__datasets *sets = copse__trainer_sets(run->trainer);
    const struct {
        const char *name;
        const copse_dataset *set;
    } of[] = {{"train", sets->train},
              {"validation", sets->validation_is_test ? NULL : sets->validation},
              {"test", sets->test}};
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < COPSE__COUNT(of) && status == COPSE_OK; i++) {
        size_t count = of[i].set ? copse_dataset_left_out(of[i].set) : 0;
        if (count == 0)
            continue;
        copse__log(COPSE_LOG_WARN, "%zu samples of data.%s are left out", count,
                   of[i].name);
        copse__jsonl_begin(run->log, "event");
        copse__jsonl_text(run->log, "what", "samples_left_out");
        copse__jsonl_text(run->log, "set", of[i].name);
        copse__jsonl_count(run->log, "count", count);
        status = copse__jsonl_end(run->log, err);
    }
    return status;
}

copse_status copse__run_start(copse__run *run, copse__trainer *trainer,
                              copse_error *err) {
    copse_status status;
    run->trainer = trainer;
    run->start_ns = run->saved_ns = copse__now_ns();
    if (!run->resumed && run->config->init.file)
        COPSE__TRY(copse__import_into(trainer, &run->config->init, err), out);
    COPSE__TRY(open_log(run, err), out);
    if (run->resumed)
        COPSE__TRY(copse__run_restore(run, err), out);
    if (copse__early_stopping_stands(&run->config->train.early_stopping,
                                     &run->early_stopping))
        copse__trainer_finish(trainer);
    COPSE__TRY(copse__board_open(&run->board, run->config, copse__run_path(run),
                                 copse__trainer_position(trainer), err),
               out);
    COPSE__TRY(copse__run_open_saver(run, err), out);
    COPSE__TRY(write_description(run, err), out);
    COPSE__TRY(log_start(run, err), out);
    COPSE__TRY(log_left_out(run, err), out);
    copse__checkpoint_free(run->resumed);
    run->resumed = NULL;
out:
    return status;
}

/* ---- Ending ---------------------------------------------------------------------------- */

static const char *outcome_name(copse_status outcome) {
    return outcome == COPSE_OK            ? "done"
           : outcome == COPSE_INTERRUPTED ? "interrupted"
                                          : "failed";
}

static void log_end(copse__run *run, copse_status outcome, const copse_error *why,
                    const copse__score *test) {
    copse__jsonl_begin(run->log, "end");
    copse__jsonl_text(run->log, "status", outcome_name(outcome));
    copse__jsonl_count(run->log, "steps", copse__trainer_position(run->trainer).step);
    copse__jsonl_double(run->log, "seconds",
                        (double)(copse__now_ns() - run->start_ns) * 1e-9);
    if (test) {
        copse__jsonl_double(run->log, "test_loss", copse__score_loss(test));
        copse__jsonl_double(run->log, "test_accuracy", copse__score_accuracy(test));
        if (test->skipped > 0)
            copse__jsonl_count(run->log, "test_skipped", test->skipped);
    }
    if (outcome == COPSE_OK || outcome == COPSE_INTERRUPTED) {
        uint64_t hash;
        char text[20];
        if (copse__trainer_hash(run->trainer, &hash, NULL) == COPSE_OK) {
            snprintf(text, sizeof text, "%016" PRIx64, hash);
            copse__jsonl_text(run->log, "params_hash", text);
        }
    } else if (why) {
        copse__jsonl_text(run->log, "why", why->text);
    }
    copse__run_end_line(run);
}

copse_status copse__run_end(copse__run *run, copse_status outcome, const copse_error *why,
                            const copse__score *test, copse_error *err) {
    copse_status status = COPSE_OK;
    /* After a lost device the others still hold the weights; data that cannot be read hurts none. */
    bool savable = outcome == COPSE_OK || outcome == COPSE_INTERRUPTED ||
                   outcome == COPSE_NUMERIC || outcome == COPSE_DEVICE ||
                   outcome == COPSE_IO || outcome == COPSE_FORMAT;
    if (savable && copse__run_is_unsaved(run))
        status = copse__run_save(run, err);
    copse__saved saved;
    if (run->saver && copse__saver_result(run->saver, true, &saved) &&
        saved.status != COPSE_OK && status == COPSE_OK) {
        status = saved.status;
        if (err)
            *err = saved.error;
    }
    log_end(run, outcome, why, test);
    return status;
}

void copse__run_abandon(copse__run *run, const copse_error *why) {
    copse__saved saved;
    if (!run->trainer)
        return; /* not started */
    if (run->saver)
        (void)!copse__saver_result(run->saver, true, &saved);
    log_end(run, why->status, why, NULL);
}

copse_status copse__run_load_weights(copse__trainer *trainer, const char *path,
                                     copse_error *err) {
    const copse__config_init from = {.file = (char *)(size_t)path};
    return copse__import_into(trainer, &from, err);
}
