/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/monitor.h"
#include "train/run_private.h"

/* What a run does while it trains: log, save where it is due, decide at the end of epochs. */

/* Nor do curves that cannot be drawn. */
static void check_board(copse_status status, const copse_error *error) {
    if (status != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s", error->place, error->text);
}

void copse__run_end_line(copse__run *run) {
    copse_error error = {0};
    bool failed = copse__jsonl_end(run->log, &error) != COPSE_OK;
    if (failed && !run->log_failed) /* once, not every step */
        copse__log(COPSE_LOG_WARN, "%s: %s; training goes on without these lines",
                   error.place, error.text);
    run->log_failed = failed;
}

/* ---- Steps ----------------------------------------------------------------------------- */

static bool is_step_due(const copse__run *run, uint64_t step) {
    uint64_t every = run->config->checkpoint.every_steps;
    return every > 0 && step % every == 0;
}

bool copse__run_needs_state(copse__run *run, uint64_t step) {
    double every = run->config->checkpoint.every_minutes;
    double minutes = (double)(copse__now_ns() - run->saved_ns) / 60e9;
    bool wanted = atomic_exchange(&run->save_wanted, false);
    if (wanted || is_step_due(run, step) || (every > 0 && minutes >= every))
        run->save_step = step;
    return run->save_step == step;
}

copse_status copse__run_step(copse__run *run, const copse__progress *now,
                             copse_error *err) {
    copse__jsonl_begin(run->log, "step");
    copse__jsonl_count(run->log, "step", now->step);
    copse__jsonl_count(run->log, "epoch", now->epoch);
    copse__jsonl_double(run->log, "loss", copse__score_loss(&now->last));
    copse__jsonl_double(run->log, "accuracy", copse__score_accuracy(&now->last));
    copse__jsonl_count(run->log, "samples", now->rows);
    if (now->last.skipped > 0)
        copse__jsonl_count(run->log, "skipped", now->last.skipped);
    copse__jsonl_double(run->log, "samples_per_s",
                        now->seconds > 0 ? (double)now->rows / now->seconds : 0);
    copse__jsonl_double(run->log, "lr", now->learning_rate);
    copse__run_end_line(run);
    copse_error error = {0};
    check_board(copse__board_step(run->board, now, &error), &error);
    copse__run_check_saved(run);
    bool due = run->save_step == now->step || is_step_due(run, now->step);
    return due ? copse__run_save(run, err) : COPSE_OK;
}

void copse__run_want_save(copse__run *run) {
    atomic_store(&run->save_wanted, true);
}

/* ---- Epochs ---------------------------------------------------------------------------- */

/* NaN where the epoch was not validated, or had no samples. */
static double metric_of(const char *name, const copse__epoch_report *report) {
    bool validation = strncmp(name, "val_", 4) == 0;
    const copse__score *score = validation ? &report->validation : &report->train;
    return copse__metric_is_loss(name) ? copse__score_loss(score)
                                       : copse__score_accuracy(score);
}

static void log_epoch(copse__run *run, const copse__epoch_report *report) {
    copse__jsonl_begin(run->log, "epoch");
    copse__jsonl_count(run->log, "epoch", report->epoch);
    copse__jsonl_count(run->log, "step", report->step);
    if (report->partial)
        copse__jsonl_bool(run->log, "partial", true);
    copse__jsonl_double(run->log, "loss", copse__score_loss(&report->train));
    copse__jsonl_double(run->log, "accuracy", copse__score_accuracy(&report->train));
    if (report->validated) {
        copse__jsonl_double(run->log, "val_loss", copse__score_loss(&report->validation));
        copse__jsonl_double(run->log, "val_accuracy",
                            copse__score_accuracy(&report->validation));
        copse__jsonl_text(run->log, "validation", report->validation_name);
    }
    if (report->train.skipped > 0)
        copse__jsonl_count(run->log, "skipped", report->train.skipped);
    if (report->validation.skipped > 0)
        copse__jsonl_count(run->log, "val_skipped", report->validation.skipped);
    copse__jsonl_double(run->log, "seconds", report->seconds);
    copse__jsonl_double(run->log, "samples_per_s", report->samples_per_s);
    copse__jsonl_double(run->log, "data_wait_seconds", report->data_wait_seconds);
    copse__run_end_line(run);
}

static void keep_best(copse__run *run, const copse__epoch_report *report) {
    const char *name = run->config->checkpoint.best;
    double value = name ? metric_of(name, report) : NAN;
    if (!isfinite(value))
        return;
    bool lower = copse__metric_is_loss(name);
    if (run->has_best && (lower ? value >= run->best : value <= run->best))
        return;
    run->has_best = true;
    run->best = value;
    run->new_best = true;
}

static void log_decision(copse__run *run, const copse__epoch_report *report,
                         const char *what) {
    copse__jsonl_begin(run->log, "event");
    copse__jsonl_text(run->log, "what", what);
    copse__jsonl_count(run->log, "step", report->step);
    copse__jsonl_count(run->log, "epoch", report->epoch);
    if (run->learning_rate >= 0)
        copse__jsonl_double(run->log, "lr", run->learning_rate);
    copse__run_end_line(run);
}

static void watch_plateau(copse__run *run, const copse__epoch_report *report) {
    const copse__config_plateau *plateau = &run->config->train.plateau;
    double value = metric_of(plateau->monitor.metric, report);
    double rate = copse__trainer_rate(run->trainer, report->step);
    if (isnan(value)) /* not measured in this epoch */
        return;
    double lowered = copse__plateau_epoch(plateau, &run->plateau, value, rate);
    if (lowered >= rate)
        return;
    run->learning_rate = lowered;
    copse__trainer_set_rate(run->trainer, lowered);
    log_decision(run, report, "learning_rate_reduced");
    snprintf(run->decision, sizeof run->decision,
             "%s is on a plateau: the learning rate is %g from now on",
             plateau->monitor.metric, lowered);
}

static void watch_stopping(copse__run *run, const copse__epoch_report *report) {
    const copse__config_early_stopping *stop = &run->config->train.early_stopping;
    double value = metric_of(stop->monitor.metric, report);
    if (isnan(value))
        return;
    copse__early_decision made =
        copse__early_stopping_epoch(stop, &run->early_stopping, report->epoch, value);
    run->new_best |= made.better && stop->restore_best_weights;
    if (!made.stop)
        return;
    copse__trainer_finish(run->trainer);
    log_decision(run, report, "stopped_early");
    snprintf(run->decision, sizeof run->decision,
             "stopped early: %s was not better than %g for %" PRIu64 " epochs",
             stop->monitor.metric, run->early_stopping.best, run->early_stopping.wait);
}

copse_status copse__run_epoch(copse__run *run, const copse__epoch_report *report,
                              copse_error *err) {
    const copse__config_checkpoint *when = &run->config->checkpoint;
    const copse__config_train *train = &run->config->train;
    run->decision[0] = '\0';
    log_epoch(run, report);
    copse_error error = {0};
    check_board(copse__board_epoch(run->board, report, run->trainer, &error), &error);
    if (!train->early_stopping.enabled || !train->early_stopping.restore_best_weights)
        keep_best(run, report);
    if (train->plateau.enabled && !report->partial)
        watch_plateau(run, report);
    if (train->early_stopping.enabled && !report->partial)
        watch_stopping(run, report);
    bool due = when->every_epochs > 0 && (report->epoch + 1) % when->every_epochs == 0;
    return due || run->new_best ? copse__run_save(run, err) : COPSE_OK;
}

const char *copse__run_decision(const copse__run *run) {
    return run->decision[0] ? run->decision : NULL;
}

/* ---- Events ---------------------------------------------------------------------------- */

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

void copse__run_event(copse__run *run, const copse__trainer_event *event) {
    bool resharded =
        strcmp(event->what, "resharded") == 0 || strcmp(event->what, "replanned") == 0;
    copse__jsonl_begin(run->log, "event");
    copse__jsonl_text(run->log, "what", event->what);
    copse__jsonl_count(run->log, "step", event->step);
    if (resharded)
        log_shards(run);
    else if (event->device)
        copse__jsonl_text(run->log, "device", event->device);
    if (!resharded && event->why)
        copse__jsonl_text(run->log, "why", event->why);
    copse__run_end_line(run);
    copse_error error = {0};
    if (resharded && copse__run_put_plan(run, &error) != COPSE_OK)
        copse__log(COPSE_LOG_WARN, "%s: %s", error.place, error.text);
}
