/* SPDX-License-Identifier: Apache-2.0 */
#include "train/fit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* The training run: epochs of steps, over pipelines that are opened anew where the group of replicas
 * changes. */

static copse_status open_pipeline(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    const copse__config_data *data = &t->config->data;
    f->memory.trainer = t;
    f->grouping = t->grouping;
    f->waited_before_ns = 0;
    copse_pipeline_options options = {
        .batch = t->batch,
        .augment = t->augment,
        .augment_count = t->augment_count,
        .shuffle = data->shuffle,
        .shuffle_buffer = (size_t)data->shuffle_buffer,
        .seed = data->shuffle_seed,
        .drop_remainder = data->drop_remainder,
        .epochs = t->config->train.epochs,
        .start_epoch = t->position.epoch,
        .start_batch = t->position.batch,
        .prefetch = copse__fit_prefetch(t),
        .held = copse__fit_held(t),
        .label_classes = copse__trainer_label_bound(t),
        .label_outputs = copse__trainer_label_outputs(t),
        .replica_count = t->replica_count,
        .shards = t->shards,
        .unit = t->micro_shard,
        .alloc = copse__slot_alloc,
        .free = copse__slot_free,
        .alloc_user = &f->memory,
    };
    return copse_pipeline_open(&f->pipeline, t->sets->train, &options, err);
}

copse_status copse__fit_next(copse__fit *f, const copse_batch **out, copse_error *err) {
    copse_status status = copse_pipeline_next(f->pipeline, out, err);
    if (status == COPSE_OK && *out)
        f->given_skipped += (*out)->skipped;
    return status;
}

static copse_pipeline_stats stats_of(const copse__fit *f) {
    copse_pipeline_stats stats = {0};
    if (f->pipeline)
        copse_pipeline_get_stats(f->pipeline, &stats);
    return stats;
}

static uint64_t waited(const copse__fit *f) {
    return stats_of(f).wait_ns - f->waited_before_ns;
}

static void close_pipeline(copse__fit *f) {
    copse__trainer_finish_queues(f->trainer);
    f->waited_ns += waited(f);
    copse_pipeline_close(f->pipeline);
    f->pipeline = NULL;
    f->waited_before_ns = f->given_skipped = 0;
    f->before = f->now = f->next = NULL;
}

static copse_status load_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_load(&t->replicas[rank], true, &t->steps[rank].share, err);
}

/* Takes the next batch, with nothing of it on the devices yet. A device that fails at it is given up. */
static copse_status load_first(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_status status = copse__fit_next(f, &f->now, err);
    if (status != COPSE_OK || !f->now)
        return status;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            t->steps[r] = (copse__step){.share = copse__share_of(f->now, r)};
    status = copse__trainer_ask_all(t, load_one, t, err);
    return t->regroup_due && copse__is_loss(status) ? COPSE_OK : status;
}

/* After the group of replicas changed, or is to: goes on at the same batch. */
static copse_status regroup(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_status status = COPSE_OK;
    while (t->regroup_due || f->grouping != t->grouping) {
        close_pipeline(f);
        if (t->regroup_due)
            status = copse__trainer_regroup(t, err);
        if (status == COPSE_OK)
            status = open_pipeline(f, err);
        if (status == COPSE_OK)
            status = load_first(f, err);
        if (status != COPSE_OK)
            break;
    }
    return status;
}

static void advance(copse__fit *f) {
    if (f->now != f->before)
        copse_pipeline_release(f->pipeline, f->now);
    f->now = f->next;
    f->next = NULL;
}

static bool steps_are_done(const copse__fit *f) {
    const copse__trainer *t = f->trainer;
    return t->config->train.steps > 0 &&
           t->position.step + (f->before != NULL) >= t->config->train.steps;
}

/* The steps of the current epoch, from the current position. */
static copse_status run_epoch(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    f->waited_before_ns += waited(f);
    f->waited_ns = 0;
    f->epoch_samples = 0;
    f->epoch_start_ns = f->step_start_ns = copse__now_ns();
    bool ready = f->pipeline && f->grouping == t->grouping;
    copse_status status = ready ? load_first(f, err) : COPSE_OK;
    if (status == COPSE_OK)
        status = regroup(f, err);
    while (status == COPSE_OK && f->now) {
        bool stands;
        status = copse__fit_step(f, &stands, err);
        if (status != COPSE_OK)
            return status;
        if (stands)
            advance(f);
        if (stands && atomic_load(&t->stop))
            break;
        if (steps_are_done(f))
            break;
        status = regroup(f, err);
    }
    if (status == COPSE_OK)
        status = copse__fit_land(f, err);
    /* Only now: what was still under way may have asked for it, too. */
    if (status == COPSE_OK && atomic_exchange(&t->stop, false))
        return copse__fail(err, COPSE_INTERRUPTED, 0, NULL,
                           "stopped after step %" PRIu64 ", as asked", t->position.step);
    return status;
}

/* What was left out behind the epoch's last batch. */
static void count_skipped_rest(copse__fit *f) {
    uint64_t skipped = stats_of(f).skipped;
    f->trainer->position.score.skipped += skipped - f->given_skipped;
    f->given_skipped = skipped;
}

static copse_status end_epoch(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    bool whole = !steps_are_done(f) || !f->now;
    if (whole)
        count_skipped_rest(f);
    copse__epoch_report report = {
        .epoch = t->position.epoch,
        .step = t->position.step,
        .train = t->position.score,
        .validation_name = t->sets->validation_name,
        .seconds = (double)(copse__now_ns() - f->epoch_start_ns) * 1e-9,
        .data_wait_seconds = (double)(f->waited_ns + waited(f)) * 1e-9,
    };
    report.samples_per_s =
        report.seconds > 0 ? (double)f->epoch_samples / report.seconds : 0;
    report.partial = !whole;
    bool due = t->config->train.validate && t->sets->validation &&
               (report.epoch + 1) % t->config->train.validate_every == 0;
    if (due) {
        copse_status status = copse__trainer_evaluate(
            t, t->sets->validation, t->sets->validation_name, &report.validation, err);
        if (status != COPSE_OK)
            return status;
        report.validated = true;
    }
    /* Only now: where the validation is interrupted, the epoch's end is still to come. */
    if (whole) {
        t->position.epoch++;
        t->position.batch = 0;
        t->position.score = (copse__score){0};
    }
    return t->hooks.on_epoch ? t->hooks.on_epoch(t->hooks.user, &report, err) : COPSE_OK;
}

/* Where another epoch follows: with shards that the devices' speeds of now ask for. */
static copse_status replan(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    bool changed;
    if (t->position.batch > 0 || t->position.epoch >= t->config->train.epochs ||
        t->finished || steps_are_done(f))
        return COPSE_OK;
    copse_status status = copse__replan(t, &changed, err);
    if (status != COPSE_OK || !changed)
        return status;
    close_pipeline(f);
    return copse__trainer_recut(t, err);
}

copse_status copse__trainer_fit(copse__trainer *t, copse_error *err) {
    copse_status status;
    copse__fit f = {.trainer = t};
    if (t->regroup_due)
        COPSE__TRY(copse__trainer_regroup(t, err), out);
    COPSE__TRY(open_pipeline(&f, err), out);
    while (t->position.epoch < t->config->train.epochs && !steps_are_done(&f) &&
           !t->finished) {
        COPSE__TRY(run_epoch(&f, err), out);
        COPSE__TRY(end_epoch(&f, err), out);
        COPSE__TRY(replan(&f, err), out);
    }
out:
    t->finished = false;
    close_pipeline(&f);
    return status;
}
