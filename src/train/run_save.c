/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/run_private.h"

/* A run's state to and from checkpoints. */

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

copse_status copse__run_open_saver(copse__run *run, copse_error *err) {
    if (!run->config->checkpoint.enabled)
        return COPSE_OK;
    copse__safetensor *tensors = NULL;
    size_t count = copse__trainer_state_count(run->trainer);
    copse_status status = list_tensors(&tensors, run->trainer, err);
    if (status == COPSE_OK)
        status = copse__saver_open(&run->saver, run->folder, run->config->checkpoint.keep,
                                   run->log, tensors, count, err);
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

/* All of the trainer's state, or all but the optimizer's slots, from a checkpoint. */
static copse_status put_items(copse__run *run, const copse__checkpoint *from,
                              bool with_slots, copse_error *err) {
    copse_status status = COPSE_OK;
    size_t count = copse__trainer_state_count(run->trainer);
    for (size_t i = 0; i < count && status == COPSE_OK; i++) {
        copse__state_item item = copse__trainer_state_item(run->trainer, i);
        if (with_slots || !item.slot)
            status = put_item(run->trainer, i, copse__checkpoint_find(from, item.name),
                              copse__run_path(run), err);
    }
    return status;
}

copse_status copse__run_restore(copse__run *run, copse_error *err) {
    const copse__checkpoint *from = run->resumed;
    copse_status status = put_items(run, from, true, err);
    if (status != COPSE_OK)
        return status;
    copse__position at = {.epoch = from->epoch,
                          .batch = from->batch,
                          .step = from->step,
                          .score = {.loss_sum = from->epoch_loss,
                                    .hits = from->epoch_hits,
                                    .samples = from->epoch_samples},
                          .skipped = from->skipped};
    copse__trainer_seek(run->trainer, at);
    run->early_stopping = from->early_stopping;
    run->plateau = from->plateau;
    run->learning_rate = from->learning_rate;
    copse__trainer_set_rate(run->trainer, run->learning_rate);
    run->has_best = from->has_best;
    run->best = from->best;
    run->saved_step = from->step;
    run->saved_epoch = from->epoch;
    return COPSE_OK;
}

void copse__run_check_saved(copse__run *run) {
    copse__saved saved;
    if (!run->saver || !copse__saver_result(run->saver, false, &saved))
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
    copse__run_end_line(run);
}

bool copse__run_is_unsaved(const copse__run *run) {
    copse__position at = copse__trainer_position(run->trainer);
    return at.step != run->saved_step || at.epoch != run->saved_epoch;
}

static void describe(const copse__run *run, copse__checkpoint *copy) {
    copse__position at = copse__trainer_position(run->trainer);
    copy->step = at.step;
    copy->epoch = at.epoch;
    copy->batch = at.batch;
    copy->epoch_loss = at.score.loss_sum;
    copy->epoch_hits = at.score.hits;
    copy->epoch_samples = at.score.samples;
    copy->skipped = at.skipped;
    copy->seed = run->config->train.seed;
    copy->has_best = run->has_best;
    copy->best = run->best;
    copy->early_stopping = run->early_stopping;
    copy->plateau = run->plateau;
    copy->learning_rate = run->learning_rate;
    memcpy(copy->config_hash, run->config_hash, sizeof copy->config_hash);
    copy->plan = run->plan.data;
}

copse_status copse__run_put_plan(copse__run *run, copse_error *err) {
    copse__text text = {0};
    copse_status status = copse__trainer_plan(run->trainer, &text, err);
    if (status != COPSE_OK) {
        copse__text_free(&text);
        return status;
    }
    if (run->saver)
        copse__saver_begin(run->saver); /* it may still be reading the one before */
    copse__text_free(&run->plan);
    run->plan = text;
    return copse__run_folder_put(run->folder, "plan.json", text.data, text.length, err);
}

/* Once: a disk that is too slow holds up every checkpoint. */
static void tell_waited(copse__run *run, double seconds) {
    if (run->told_waited || seconds < 1)
        return;
    run->told_waited = true;
    copse__log(COPSE_LOG_WARN,
               "%s: training waited %.1f s for the checkpoint of step %" PRIu64
               " to be written before the next could begin; save less often "
               "(checkpoint.every), or to a faster disk",
               copse__run_path(run), seconds, run->saved_step);
}

copse_status copse__run_save(copse__run *run, copse_error *err) {
    if (!run->saver)
        return COPSE_OK;
    const uint64_t begun = copse__now_ns();
    copse__checkpoint *copy = copse__saver_begin(run->saver);
    tell_waited(run, (double)(copse__now_ns() - begun) * 1e-9);
    copse__run_check_saved(run);
    copy->log_bytes = copse__jsonl_bytes(run->log);
    copse_status status = COPSE_OK;
    for (size_t i = 0; i < copse__trainer_state_count(run->trainer); i++) {
        status = copse__trainer_state_read(run->trainer, i,
                                           copse__saver_memory(run->saver, i), err);
        if (status != COPSE_OK)
            return status;
    }
    describe(run, copy);
    copse__saver_submit(run->saver, run->new_best);
    run->new_best = false;
    run->saved_step = copy->step;
    run->saved_epoch = copy->epoch;
    run->saved_ns = copse__now_ns();
    return COPSE_OK;
}

/* The checkpoint of the best epoch, where it is the one that the run remembers. */
static copse_status load_best(copse__run *run, copse__checkpoint **out,
                              copse_error *err) {
    char *path;
    *out = NULL;
    copse_status status =
        copse__run_folder_find(copse__run_path(run), COPSE__CHECKPOINT_BEST, &path, err);
    if (status != COPSE_OK)
        return status;
    status = copse__checkpoint_read(out, path, err);
    if (status == COPSE_OK && (!(*out)->early_stopping.has_best ||
                               (*out)->early_stopping.best < run->early_stopping.best ||
                               (*out)->early_stopping.best > run->early_stopping.best))
        status = copse__fail(err, COPSE_IO, 0, path,
                             "it is not of the best epoch, whose checkpoint could not be "
                             "written");
    free(path);
    return status;
}

copse_status copse__run_restore_best(copse__run *run, bool *restored, copse_error *err) {
    const copse__config_early_stopping *stop = &run->config->train.early_stopping;
    *restored = false;
    if (!stop->enabled || !stop->restore_best_weights || !run->early_stopping.has_best)
        return COPSE_OK;
    copse_status status = COPSE_OK;
    copse__checkpoint *best = NULL;
    /* What is resumed one day are the last weights. */
    if (copse__run_is_unsaved(run))
        status = copse__run_save(run, err);
    if (status == COPSE_OK) {
        copse__saver_begin(run->saver); /* waits */
        status = load_best(run, &best, err);
    }
    if (status == COPSE_OK)
        status = put_items(run, best, false, err);
    *restored = status == COPSE_OK;
    copse__checkpoint_free(best);
    return status;
}
