/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/jsonl.h"
#include "train/board.h"
#include "train/import_trainer.h"
#include "train/run_plan.h"
#include "train/saver.h"

struct copse__run {
    const copse__config *config;
    copse__run_folder *folder;
    copse__checkpoint *resumed; /* NULL: a new run, or restored already */
    copse__run_plan *recorded;  /* of the resumed run; NULL where there is none */
    bool resume, replanned;
    copse__trainer *trainer;
    copse__jsonl *log;
    copse__board *board;
    copse__saver *saver; /* NULL: no checkpoints are wanted */
    uint64_t start_ns, saved_ns;
    uint64_t saved_step;
    uint64_t epoch_steps; /* optimizer steps of the run so far */
    bool has_best;
    double best;
    bool log_failed; /* the last line could not be written, and that was said */
    bool new_best;   /* the next checkpoint is the best so far */
    char config_hash[33];
};

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
    return copse__run_plan_load(&run->recorded, run->folder, err);
}

copse_status copse__run_open(copse__run **out, const copse__config *config,
                             const char *path, bool resume, copse_error *err) {
    *out = NULL;
    copse__run *run;
    copse_status status = copse__calloc(&run, 1, sizeof *run, err);
    if (status != COPSE_OK)
        return status;
    run->config = config;
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
    copse__run_folder_close(run->folder);
    free(run);
}

const char *copse__run_path(const copse__run *run) {
    return copse__run_folder_path(run->folder);
}

const size_t *copse__run_shards(copse__run *run, const copse__device_choice *choices,
                                size_t choice_count) {
    if (!run->recorded)
        return NULL;
    const size_t *shards = copse__run_plan_match(run->recorded, choices, choice_count);
    run->replanned = shards == NULL;
    return shards;
}

/* ---- Starting -------------------------------------------------------------------------- */

/* All of the trainer's state as tensors without data, for a saver. free() it and its names. */
static void free_tensors(copse__safetensor *tensors, size_t count) {
    for (size_t i = 0; tensors && i < count; i++)
        free((char *)(size_t)tensors[i].name);
    free(tensors);
}

static copse_status list_tensors(copse__safetensor **out, const copse__trainer *trainer,
                                 copse_error *err) {
    size_t count = copse__trainer_state_count(trainer);
    copse_status status = copse__calloc(out, count, sizeof **out, err);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        copse__state_item item = copse__trainer_state_item(trainer, i);
        char *name = NULL;
        status = copse__strdup(&name, item.name, err);
        (*out)[i] =
            (copse__safetensor){.name = name, .dtype = COPSE_F32, .rank = item.rank};
        memcpy((*out)[i].shape, item.shape, sizeof item.shape);
    }
    return status;
}

static copse_status open_saver(copse__run *run, copse_error *err) {
    if (!run->config->checkpoint.enabled)
        return COPSE_OK;
    copse__safetensor *tensors = NULL;
    size_t count = copse__trainer_state_count(run->trainer);
    copse_status status = list_tensors(&tensors, run->trainer, err);
    if (status == COPSE_OK)
        status = copse__saver_open(&run->saver, run->folder, run->config->checkpoint.keep,
                                   tensors, count, err);
    free_tensors(tensors, count);
    return status;
}

/* Puts a state item from a file's tensor; NULL where it is not there. */
static copse_status put_item(copse__trainer *trainer, size_t index,
                             const copse__safetensor *tensor, const char *path,
                             copse_error *err) {
    copse__state_item item = copse__trainer_state_item(trainer, index);
    bool fits = tensor && tensor->dtype == COPSE_F32 && tensor->rank == item.rank &&
                memcmp(tensor->shape, item.shape, item.rank * sizeof *item.shape) == 0;
    if (!fits)
        return copse__fail(err, COPSE_CONFIG, 0, path,
                           "'%s' is %s; the file belongs to another network", item.name,
                           tensor ? "of another shape" : "missing");
    return copse__trainer_state_write(trainer, index, tensor->data, err);
}

static copse_status restore(copse__run *run, copse_error *err) {
    const copse__checkpoint *from = run->resumed;
    for (size_t i = 0; i < copse__trainer_state_count(run->trainer); i++) {
        copse__state_item item = copse__trainer_state_item(run->trainer, i);
        copse_status status =
            put_item(run->trainer, i, copse__checkpoint_find(from, item.name),
                     copse__run_path(run), err);
        if (status != COPSE_OK)
            return status;
    }
    copse__trainer_seek(run->trainer, (copse__position){.epoch = from->epoch,
                                                        .batch = from->batch,
                                                        .step = from->step});
    run->has_best = from->has_best;
    run->best = from->best;
    run->saved_step = from->step;
    return COPSE_OK;
}

static copse_status put_text(copse__run *run, const char *name, copse__text *text,
                             copse_error *err) {
    copse_status status = copse__text_check(text, err);
    if (status == COPSE_OK)
        status = copse__run_folder_put(run->folder, name, text->data, text->length, err);
    copse__text_free(text);
    return status;
}

static copse_status write_description(copse__run *run, copse_error *err) {
    copse__text text = {0};
    copse_status status = copse__config_write(run->config, &text, err);
    if (status == COPSE_OK)
        status = put_text(run, "config.yaml", &text, err);
    copse__text_free(&text);
    if (status == COPSE_OK)
        status = copse__trainer_plan(run->trainer, &text, err);
    if (status == COPSE_OK)
        status = put_text(run, "plan.json", &text, err);
    copse__text_free(&text);
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

copse_status copse__run_start(copse__run *run, copse__trainer *trainer,
                              copse_error *err) {
    copse_status status;
    run->trainer = trainer;
    run->start_ns = run->saved_ns = copse__now_ns();
    if (!run->resumed && run->config->init.file)
        COPSE__TRY(copse__import_into(trainer, &run->config->init, err), out);
    COPSE__TRY(open_log(run, err), out);
    if (run->resumed)
        COPSE__TRY(restore(run, err), out);
    COPSE__TRY(copse__board_open(&run->board, run->config, copse__run_path(run),
                                 copse__trainer_position(trainer), err),
               out);
    COPSE__TRY(open_saver(run, err), out);
    COPSE__TRY(write_description(run, err), out);
    COPSE__TRY(log_start(run, err), out);
    copse__checkpoint_free(run->resumed);
    run->resumed = NULL;
out:
    return status;
}

/* ---- Running --------------------------------------------------------------------------- */

/* Nor do curves that cannot be drawn. */
static void check_board(copse_status status, const copse_error *error) {
    if (status != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s", error->place, error->text);
}

/* A log that cannot be written does not end a training. */
static void end_line(copse__run *run) {
    copse_error error = {0};
    bool failed = copse__jsonl_end(run->log, &error) != COPSE_OK;
    if (failed && !run->log_failed) /* once, not every step */
        copse__log(COPSE_LOG_WARN, "%s: %s; training goes on without these lines",
                   error.place, error.text);
    run->log_failed = failed;
}

static void log_save(copse__run *run, bool wait) {
    copse__saved saved;
    if (!run->saver || !copse__saver_result(run->saver, wait, &saved))
        return;
    if (saved.status == COPSE_OK)
        return;
    copse__log(COPSE_LOG_WARN,
               "the checkpoint of step %" PRIu64
               " could not be written: %s: %s; training goes on, the one before is whole",
               saved.step, saved.error.place, saved.error.text);
    copse__jsonl_begin(run->log, "event");
    copse__jsonl_text(run->log, "what", "save_failed");
    copse__jsonl_count(run->log, "step", saved.step);
    copse__jsonl_text(run->log, "why", saved.error.text);
    end_line(run);
}

/* Hands a copy of the state to the saver; returns once the copy is made. */
static copse_status save(copse__run *run, copse_error *err) {
    if (!run->saver)
        return COPSE_OK;
    uint64_t log_bytes = 0;
    copse_status status = copse__jsonl_sync(run->log, &log_bytes, err);
    if (status != COPSE_OK) {
        copse__log(COPSE_LOG_WARN, "%s: %s", err->place, err->text);
        log_bytes = 0;
    }
    copse__checkpoint *copy = copse__saver_begin(run->saver);
    log_save(run, false);
    for (size_t i = 0; i < copse__trainer_state_count(run->trainer); i++) {
        status = copse__trainer_state_read(run->trainer, i,
                                           copse__saver_memory(run->saver, i), err);
        if (status != COPSE_OK)
            return status;
    }
    copse__position at = copse__trainer_position(run->trainer);
    copy->step = at.step;
    copy->epoch = at.epoch;
    copy->batch = at.batch;
    copy->seed = run->config->train.seed;
    copy->has_best = run->has_best;
    copy->best = run->best;
    copy->log_bytes = log_bytes;
    memcpy(copy->config_hash, run->config_hash, sizeof copy->config_hash);
    copse__saver_submit(run->saver, run->new_best);
    run->new_best = false;
    run->saved_step = at.step;
    run->saved_ns = copse__now_ns();
    return COPSE_OK;
}

copse_status copse__run_step(copse__run *run, const copse__progress *now,
                             copse_error *err) {
    const copse__config_checkpoint *when = &run->config->checkpoint;
    copse__jsonl_begin(run->log, "step");
    copse__jsonl_count(run->log, "step", now->step);
    copse__jsonl_count(run->log, "epoch", now->epoch);
    copse__jsonl_double(run->log, "loss", copse__score_loss(&now->last));
    copse__jsonl_double(run->log, "accuracy", copse__score_accuracy(&now->last));
    copse__jsonl_count(run->log, "samples", now->rows);
    copse__jsonl_double(run->log, "samples_per_s",
                        now->seconds > 0 ? (double)now->rows / now->seconds : 0);
    copse__jsonl_double(run->log, "lr", now->learning_rate);
    end_line(run);
    copse_error error = {0};
    check_board(copse__board_step(run->board, now, &error), &error);
    log_save(run, false);
    double minutes = (double)(copse__now_ns() - run->saved_ns) / 60e9;
    bool due = (when->every_steps > 0 && now->step % when->every_steps == 0) ||
               (when->every_minutes > 0 && minutes >= when->every_minutes);
    return due ? save(run, err) : COPSE_OK;
}

/* The value of the metric that checkpoint.best names, and whether less is better. */
static double best_metric(const char *name, const copse__epoch_report *report,
                          bool *lower_is_better) {
    bool validation = strncmp(name, "val_", 4) == 0;
    const copse__score *score = validation ? &report->validation : &report->train;
    const char *base = name + (validation ? 4 : 0);
    *lower_is_better = strcmp(base, "loss") == 0;
    return *lower_is_better ? copse__score_loss(score) : copse__score_accuracy(score);
}

static void keep_best(copse__run *run, const copse__epoch_report *report) {
    const char *name = run->config->checkpoint.best;
    bool lower;
    double value = name ? best_metric(name, report, &lower) : NAN;
    if (!isfinite(value) ||
        (run->has_best && (lower ? value >= run->best : value <= run->best)))
        return;
    run->has_best = true;
    run->best = value;
    run->new_best = true;
}

copse_status copse__run_epoch(copse__run *run, const copse__epoch_report *report,
                              copse_error *err) {
    const copse__config_checkpoint *when = &run->config->checkpoint;
    copse__jsonl_begin(run->log, "epoch");
    copse__jsonl_count(run->log, "epoch", report->epoch);
    copse__jsonl_count(run->log, "step", report->step);
    copse__jsonl_double(run->log, "loss", copse__score_loss(&report->train));
    copse__jsonl_double(run->log, "accuracy", copse__score_accuracy(&report->train));
    if (report->validated) {
        copse__jsonl_double(run->log, "val_loss", copse__score_loss(&report->validation));
        copse__jsonl_double(run->log, "val_accuracy",
                            copse__score_accuracy(&report->validation));
        copse__jsonl_text(run->log, "validation", report->validation_name);
    }
    copse__jsonl_double(run->log, "seconds", report->seconds);
    copse__jsonl_double(run->log, "samples_per_s", report->samples_per_s);
    copse__jsonl_double(run->log, "data_wait_seconds", report->data_wait_seconds);
    end_line(run);
    copse_error error = {0};
    check_board(copse__board_epoch(run->board, report, run->trainer, &error), &error);
    keep_best(run, report);
    bool due = when->every_epochs > 0 && (report->epoch + 1) % when->every_epochs == 0;
    return due || run->new_best ? save(run, err) : COPSE_OK;
}

static void log_shards(copse__run *run) {
    copse__text text = {0};
    copse__text_add(&text, "[");
    for (size_t r = 0; r < copse__trainer_replicas(run->trainer); r++)
        copse__text_add(&text, "%s%zu", r ? "," : "",
                        copse__trainer_shard(run->trainer, r));
    copse__text_add(&text, "]");
    if (copse__text_check(&text, NULL) == COPSE_OK)
        copse__jsonl_json(run->log, "shards", text.data);
    copse__text_free(&text);
}

static void rewrite_plan(copse__run *run) {
    copse__text text = {0};
    copse_error error = {0};
    copse_status status = copse__trainer_plan(run->trainer, &text, &error);
    if (status == COPSE_OK)
        status = put_text(run, "plan.json", &text, &error);
    copse__text_free(&text);
    if (status != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s", error.place, error.text);
}

void copse__run_event(copse__run *run, const copse__trainer_event *event) {
    bool resharded = strcmp(event->what, "resharded") == 0;
    copse__jsonl_begin(run->log, "event");
    copse__jsonl_text(run->log, "what", event->what);
    copse__jsonl_count(run->log, "step", event->step);
    if (resharded) {
        log_shards(run);
    } else {
        copse__jsonl_text(run->log, "device", event->device);
        copse__jsonl_text(run->log, "why", event->why);
    }
    end_line(run);
    if (resharded)
        rewrite_plan(run);
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
    end_line(run);
}

copse_status copse__run_end(copse__run *run, copse_status outcome, const copse_error *why,
                            const copse__score *test, copse_error *err) {
    copse_status status = COPSE_OK;
    bool changed = copse__trainer_position(run->trainer).step != run->saved_step;
    /* After a lost device the others still hold the weights. */
    bool savable = outcome == COPSE_OK || outcome == COPSE_INTERRUPTED ||
                   outcome == COPSE_NUMERIC || outcome == COPSE_DEVICE;
    if (savable && changed)
        status = save(run, err);
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

copse_status copse__run_load_weights(copse__trainer *trainer, const char *path,
                                     copse_error *err) {
    const copse__config_init from = {.file = (char *)(size_t)path};
    return copse__import_into(trainer, &from, err);
}
