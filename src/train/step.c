/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/fit.h"

/* One optimizer step by all replicas at once. It stands as soon as every gradient is summed and finite;
 * whatever fails before leaves it undone. */

/* How many rows the loss is a mean over: the global batch's, on whichever replica they are. */
static double loss_denominator(const copse__trainer *t, size_t batch_rows) {
    const copse__graph *graph = copse__trainer_main_graph(t);
    copse__extents extents = copse__shard_extents(graph, batch_rows);
    return (double)copse__tensor_rows(&graph->tensors[graph->metrics], &extents);
}

static bool hash_is_due(const copse__trainer *t) {
    uint64_t every = t->config->train.hash_every;
    return copse__trainer_active(t) > 1 && every > 0 &&
           (t->position.step + 1) % every == 0;
}

static bool host_adds(const copse__trainer *t) {
    return t->micro_shard > 0 && copse__trainer_active(t) > 1;
}

static copse_scalars make_scalars(const copse__fit *f, uint64_t step) {
    const copse__trainer *t = f->trainer;
    uint64_t seed = t->config->train.seed;
    copse_scalars scalars = {
        .seed0 = (uint32_t)seed,
        .seed1 = (uint32_t)(seed >> 32),
        .step = (uint32_t)step,
        .loss_scale = (float)(1.0 / loss_denominator(t, f->now->rows)),
        .gradient_scale = 1,
    };
    copse__optimizer_scalars(&t->optimizer, step, copse__trainer_rate(t, step), &scalars);
    return scalars;
}

static void describe_step(copse__fit *f, bool ahead) {
    copse__trainer *t = f->trainer;
    uint64_t step = t->position.step + (f->before != NULL);
    copse_scalars scalars = make_scalars(f, step);
    size_t unit = t->micro_shard;
    bool timed =
        t->times_steps || copse__drift_wants(t, f->now->rows, f->now->index,
                                             copse_pipeline_batches(f->pipeline));
    t->attempt++;
    for (size_t r = 0; r < t->replica_count; r++) {
        copse__share share = copse__share_of(f->now, r);
        if (!copse__takes_part(t, r))
            continue;
        t->steps[r] = (copse__step){
            .step = step,
            .share = share,
            .next = copse__share_of(f->next, r),
            .scalars = scalars,
            .allreduce = t->allreduce,
            .engine_rank = t->engine_ranks[r],
            .left = &t->left,
            .attempt = t->attempt,
            .tree_leaves = unit ? (f->now->rows + unit - 1) / unit : 0,
            .first_leaf = unit ? share.first_row / unit : 0,
            .host_adds = host_adds(t),
            .hash = hash_is_due(t),
            .update = true,
            .timed = timed,
            .ahead = ahead,
            .patience_ns = copse__trainer_active(t) > 1 ? t->stall_ns : 0,
            .failed_rank = SIZE_MAX,
        };
    }
}

/* ---- The attempt ----------------------------------------------------------------------- */

/* A rank that its all-reduce named as lost is not waited for long. */
static void doubt(copse__trainer *t, size_t rank) {
    size_t named = t->steps[rank].failed_rank;
    for (size_t r = 0; named != SIZE_MAX && r < t->replica_count; r++)
        if (r != rank && copse__takes_part(t, r) && t->engine_ranks[r] == named)
            copse__workers_doubt(t->workers, r);
}

static copse_status step_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    copse__replica *r = &t->replicas[rank];
    copse_status status = copse__replica_step(r, &t->steps[rank], err);
    if (status != COPSE_OK && !atomic_load(&r->lost))
        doubt(t, rank);
    return status;
}

static copse_status apply_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_apply(&t->replicas[rank], &t->steps[rank], err);
}

/* Where the host adds: the sum, which is the commit, then the update. */
static copse_status combine(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    uint64_t nonfinite;
    copse_status status =
        copse__combine(t, t->steps[t->lead].tree_leaves, &nonfinite, err);
    if (status != COPSE_OK)
        return status;
    for (size_t r = 0; r < t->replica_count; r++) {
        if (!copse__takes_part(t, r))
            continue;
        t->steps[r].committed = true;
        t->steps[r].nonfinite = nonfinite;
    }
    return nonfinite > 0 ? COPSE_OK
                         : copse__workers_run(t->workers, apply_one, t, t->statuses, err);
}

static copse_status attempt(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse_status status = copse__workers_run(t->workers, step_one, t, t->statuses, err);
    return status == COPSE_OK && host_adds(t) ? combine(f, err) : status;
}

/* What a thread that is out has left in its step is not looked at. */
static bool is_committed(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r) && !copse__workers_is_out(t->workers, r) &&
            t->steps[r].committed)
            return true;
    return false;
}

/* ---- The commit ------------------------------------------------------------------------ */

/* Names the first replica and layer whose numbers are not finite. */
static copse_status name_nonfinite(copse__fit *f, double loss, copse_error *err) {
    copse__trainer *t = f->trainer;
    for (size_t r = 0; r < t->replica_count; r++) {
        const char *node =
            copse__takes_part(t, r)
                ? copse__replica_find_nonfinite(&t->replicas[r], &t->steps[r])
                : NULL;
        if (node)
            return copse__fail(err, COPSE_NUMERIC, 0, t->choices[r].label,
                               "step %" PRIu64 ": the first number that is not finite "
                               "comes from '%s'; lower the learning rate or look at the "
                               "data of this batch",
                               t->position.step + 1, node);
    }
    return copse__fail(err, COPSE_NUMERIC, 0, NULL,
                       "step %" PRIu64 ": %" PRIu64
                       " gradients are not finite (loss %g); "
                       "lower the learning rate",
                       t->position.step + 1, t->steps[t->lead].nonfinite, loss);
}

static copse_status check_step(copse__fit *f, const copse__score *score,
                               copse_error *err) {
    copse__trainer *t = f->trainer;
    double loss = copse__score_loss(score);
    const copse__step *first = &t->steps[t->lead];
    if (first->nonfinite > 0 || !isfinite(loss)) {
        if (t->config->train.on_nonfinite == COPSE__ON_FAULT_CONTINUE &&
            first->nonfinite > 0)
            return COPSE_OK;
        return name_nonfinite(f, loss, err);
    }
    return first->hash ? copse__hashes_compare(t, t->position.step + 1, err) : COPSE_OK;
}

static copse_status report_step(copse__fit *f, const copse_batch *batch,
                                const copse__score *score, copse_error *err) {
    copse__trainer *t = f->trainer;
    if (!t->hooks.on_step)
        return COPSE_OK;
    uint64_t now = copse__now_ns();
    copse__progress progress = {
        .step = t->position.step,
        .epoch = batch->epoch,
        .epochs = t->config->train.epochs,
        .index = batch->index + 1,
        .count = copse_pipeline_batches(f->pipeline),
        .last = *score,
        .epoch_score = t->position.score,
        .rows = batch->rows,
        .seconds = (double)(now - f->step_start_ns) * 1e-9,
        .data_seconds = (double)f->step_wait_ns * 1e-9,
        .learning_rate = copse__trainer_rate(t, t->position.step - 1),
    };
    f->step_start_ns = now;
    return t->hooks.on_step(t->hooks.user, &progress, err);
}

/* The log has each; it is said after 1, 2, 4, 8, … of them. */
static void count_skipped(copse__trainer *t) {
    uint64_t count = ++t->position.skipped;
    char why[96];
    snprintf(why, sizeof why, "%" PRIu64 " gradients are not finite",
             t->steps[t->lead].nonfinite);
    if ((count & (count - 1)) == 0)
        copse__log(COPSE_LOG_WARN,
                   "step %" PRIu64 " left out: %s (%" PRIu64 " left out so far)",
                   t->position.step + 1, why, count);
    copse__trainer_event event = {
        .what = "step_skipped", .step = t->position.step + 1, .why = why};
    if (t->hooks.on_event)
        t->hooks.on_event(t->hooks.user, &event);
}

static void count_step(copse__trainer *t, const copse_batch *batch) {
    t->position.step++;
    t->position.batch = batch->index + 1;
}

/* Adds a step to the epoch's. One that was left out may have a loss that is not finite. */
static void add_score(copse__fit *f, const copse_batch *batch,
                      const copse__score *score) {
    copse__score *sum = &f->trainer->position.score;
    if (isfinite(score->loss_sum)) {
        sum->loss_sum += score->loss_sum;
        sum->hits += score->hits;
        sum->samples += score->samples;
    }
    sum->skipped += score->skipped;
    f->epoch_samples += batch->rows;
}

/* Metrics, moving statistics and position change together with the weights. */
static copse_status commit(copse__fit *f, const copse_batch *batch, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse__score score = {.skipped = batch->skipped};
    bool updated = t->steps[t->lead].nonfinite == 0;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__trainer_measured(t, r))
            copse__score_add(&score, &t->replicas[r]);
    copse_status status = check_step(f, &score, err);
    bool skipped = status == COPSE_OK && t->steps[t->lead].nonfinite > 0;
    if (skipped)
        count_skipped(t);
    else if (status == COPSE_OK)
        status = copse__trainer_move_statistics(t, err);
    if (status == COPSE_NUMERIC && updated) /* the loss alone is not finite */
        count_step(t, batch);
    if (status != COPSE_OK)
        return status;
    add_score(f, batch, &score);
    if (!skipped) /* else nothing was updated */
        copse__drift_add(t);
    count_step(t, batch);
    return report_step(f, batch, &score, err);
}

/* ---- Running ahead --------------------------------------------------------------------- */

/* A replica by itself need not wait for a step's end before the next one is enqueued: an update whose
 * gradients are not finite does nothing by itself, and then nor do later ones. */
static bool may_run_ahead(const copse__fit *f) {
    const copse__trainer *t = f->trainer;
    return copse__trainer_active(t) == 1 &&
           f->now->rows <= t->replicas[t->lead].sizes.train_rows &&
           t->config->train.on_nonfinite == COPSE__ON_FAULT_STOP && !t->times_steps;
}

/* Whether somebody will look at the weights right behind the step. */
static bool is_looked_at(const copse__fit *f, uint64_t step) {
    const copse__trainer_hooks *hooks = &f->trainer->hooks;
    return hooks->on_step &&
           (!hooks->needs_state || hooks->needs_state(hooks->user, step));
}

static copse_status finish_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_finish(&t->replicas[rank], &t->steps[rank], err);
}

static copse_status finish(copse__trainer *t, const copse__step *step, copse_error *err) {
    t->steps[t->lead] = *step;
    t->steps[t->lead].attempt = t->attempt;
    return copse__workers_run(t->workers, finish_one, t, t->statuses, err);
}

/* A step that was enqueued behind one that failed stands where it has changed the weights. */
static void finish_unseen(copse__fit *f, const copse__step *step) {
    copse__trainer *t = f->trainer;
    copse__score score = {.skipped = f->now->skipped};
    if (finish(t, step, NULL) != COPSE_OK || t->steps[t->lead].nonfinite > 0 ||
        copse__trainer_move_statistics(t, NULL) != COPSE_OK)
        return;
    copse__score_add(&score, &t->replicas[t->lead]);
    add_score(f, f->now, &score);
    count_step(t, f->now);
}

copse_status copse__fit_land(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    const copse_batch *batch = f->before;
    if (!batch || t->lead == SIZE_MAX)
        return COPSE_OK;
    uint64_t wait_ns = f->step_wait_ns;
    f->before = NULL;
    f->step_wait_ns = f->before_wait_ns;
    copse_status status = finish(t, &f->before_step, err);
    if (status == COPSE_OK)
        status = commit(f, batch, err);
    f->step_wait_ns = wait_ns;
    copse_pipeline_release(f->pipeline, batch);
    return status;
}

/* The step of f->now is enqueued: ends the one before it. */
static copse_status land_before(copse__fit *f, copse_error *err) {
    copse__trainer *t = f->trainer;
    copse__step step = t->steps[t->lead];
    copse_status status = copse__fit_land(f, err);
    if (status == COPSE_OK) {
        f->before = f->now;
        f->before_step = step;
        f->before_wait_ns = f->step_wait_ns;
    } else if (t->lead != SIZE_MAX && t->statuses[t->lead] == COPSE_OK) {
        finish_unseen(f, &step);
    }
    return status;
}

static copse_status attempt_ahead(copse__fit *f, bool rests, copse_error *err) {
    copse_status status = attempt(f, err);
    if (status == COPSE_OK)
        status = land_before(f, err);
    else if (!copse__is_loss(status)) /* the one before has nothing to do with it */
        (void)!copse__fit_land(f, NULL);
    return status == COPSE_OK && rests ? copse__fit_land(f, err) : status;
}

/* ---- The step -------------------------------------------------------------------------- */

/* After a failure. *stands: the step was committed, by a replica that is not lost. */
static copse_status recover(copse__trainer *t, copse_status failure, bool *stands,
                            copse_error *err) {
    if (!copse__trainer_blame(t))
        return failure;
    *stands = is_committed(t);
    copse__trainer_give_up(t, !*stands);
    if (*stands && t->lead == SIZE_MAX) /* nobody is left to have made it */
        return copse__trainer_regroup(t, err);
    return COPSE_OK;
}

copse_status copse__fit_step(copse__fit *f, bool *stands, copse_error *err) {
    copse__trainer *t = f->trainer;
    *stands = false;
    copse_status status = COPSE_OK;
    uint64_t begun = copse__now_ns();
    if (!f->next)
        status = copse__fit_next(f, &f->next, err);
    f->step_wait_ns = copse__now_ns() - begun;
    if (status != COPSE_OK) { /* the step that is still under way is made all the same */
        copse_error why = {0};
        copse_status landed = copse__fit_land(f, &why);
        if (landed == COPSE_OK)
            return status;
        if (err) /* its failure came first */
            *err = why;
        return recover(t, landed, stands, err);
    }
    bool rests = is_looked_at(f, t->position.step + (f->before != NULL) + 1);
    bool ahead = may_run_ahead(f);
    if (!ahead)
        status = copse__fit_land(f, err);
    if (status != COPSE_OK)
        return recover(t, status, stands, err);
    describe_step(f, ahead);
    if (ahead) {
        status = attempt_ahead(f, rests, err);
        if (status == COPSE_OK)
            *stands = true;
        return status == COPSE_OK ? status : recover(t, status, stands, err);
    }
    status = attempt(f, err);
    if (status != COPSE_OK) {
        status = recover(t, status, stands, err);
        if (status != COPSE_OK || !*stands)
            return status;
    }
    *stands = true;
    return commit(f, f->now, err);
}
