/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/trainer_private.h"

double copse__score_loss(const copse__score *score) {
    return score->samples ? score->loss_sum / (double)score->samples : NAN;
}

double copse__score_accuracy(const copse__score *score) {
    return score->samples ? score->hits / (double)score->samples : NAN;
}

void copse__score_add(copse__score *score, const copse__replica *r) {
    for (size_t i = 0; i < r->metric_rows; i++) {
        score->loss_sum += (double)r->metrics[2 * i];
        score->hits += (double)r->metrics[2 * i + 1];
    }
    score->samples += r->metric_rows;
}

/* One pass over a set, by all replicas, a batch at a time. A replica is given a batch while the one before it
 * is computed, whose results are taken then; so each batch goes through now, before and done. */
typedef struct pass {
    copse__trainer *trainer;
    copse_dataset *set;
    copse_pipeline *pipeline;
    copse__slot_memory memory;
    bool ahead; /* as just said; else a batch is done when it is over */
    const copse_batch *before, *now, *next;
    uint64_t index; /* batches that are done */
    uint64_t
        given_skipped; /* samples left out of the batches that the pipeline has given */
    uint64_t done_ns;  /* when the last one was */
    copse__predict_fn *predict;
    void *predict_user;
    float *outputs[2]; /* of batches by turns */
    size_t outputs_capacity[2], columns;
    size_t turn; /* whose turn the batch now is */
} pass;

static copse_status load_first(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_load(&t->replicas[rank], false, &t->steps[rank].share, err);
}

static copse_status evaluate_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_evaluate(&t->replicas[rank], &t->steps[rank], err);
}

static copse_status evaluated_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_evaluated(&t->replicas[rank], err);
}

/* Labels do not travel where only outputs are wanted. */
static copse__share share_of(const pass *p, const copse_batch *batch, size_t rank) {
    copse__share share = copse__share_of(batch, rank);
    if (p->predict)
        share.labels = NULL;
    return share;
}

static void describe(pass *p) {
    copse__trainer *t = p->trainer;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            t->steps[r] = (copse__step){.share = share_of(p, p->now, r),
                                        .next = share_of(p, p->next, r),
                                        .ahead = p->ahead};
}

bool copse__evaluation_runs_ahead(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r) && t->eval_shards[r] > t->replicas[r].sizes.eval_rows)
            return false;
    return true;
}

static void forget_under_way(copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            t->replicas[r].under_way = (copse__share){0};
}

static copse_status next_batch(pass *p, const copse_batch **out, copse_error *err) {
    copse_status status = copse_pipeline_next(p->pipeline, out, err);
    if (status == COPSE_OK && *out)
        p->given_skipped += (*out)->skipped;
    return status;
}

/* From batch p->index on. */
static copse_status begin_pass(pass *p, copse_error *err) {
    copse__trainer *t = p->trainer;
    p->memory.trainer = t;
    p->given_skipped = 0;
    p->ahead = copse__evaluation_runs_ahead(t);
    forget_under_way(t);
    copse_pipeline_options options = {
        .batch = t->eval_batch,
        .epochs = 1,
        .start_batch = p->index,
        .prefetch = COPSE__EVALUATION_PREFETCH,
        .held = COPSE__INPUT_SLOTS + p->ahead,
        .augment = t->eval_augment,
        .augment_count = t->eval_augment_count,
        .label_classes = copse__trainer_label_bound(t),
        .replica_count = t->replica_count,
        .shards = t->eval_shards,
        .unit = t->micro_shard,
        .alloc = copse__slot_alloc,
        .free = copse__slot_free,
        .alloc_user = &p->memory,
    };
    copse_status status = copse_pipeline_open(&p->pipeline, p->set, &options, err);
    if (status == COPSE_OK)
        status = copse__trainer_send_statistics(t, err);
    if (status == COPSE_OK)
        status = next_batch(p, &p->now, err);
    if (status != COPSE_OK || !p->now)
        return status;
    describe(p);
    return copse__trainer_ask_all(t, load_first, t, err);
}

static void end_pass(pass *p) {
    /* Uploads that are still under way read the slots' memory. */
    copse__trainer_finish_queues(p->trainer);
    copse_pipeline_close(p->pipeline);
    p->pipeline = NULL;
    p->before = p->now = p->next = NULL;
}

/* Where a device was lost, the others take the pass up at the batch of the moment. */
static copse_status go_on(pass *p, copse_status status, copse_error *err) {
    while (copse__is_loss(status) && p->trainer->regroup_due) {
        end_pass(p);
        status = copse__trainer_regroup(p->trainer, err);
        if (status == COPSE_OK)
            status = begin_pass(p, err);
        else
            break;
    }
    return status;
}

/* What was left out behind the last batch. */
static uint64_t skipped_rest(const pass *p) {
    copse_pipeline_stats stats = {0};
    if (p->pipeline)
        copse_pipeline_get_stats(p->pipeline, &stats);
    return stats.skipped - p->given_skipped;
}

static copse_status make_room(pass *p, copse_error *err) {
    const copse__graph *graph = copse__trainer_graph(p->trainer);
    copse__extents one = copse__shard_extents(graph, 1);
    float **outputs = &p->outputs[p->turn];
    p->columns = copse__tensor_elements(&graph->tensors[graph->output], &one);
    copse_status status = copse__grow(outputs, &p->outputs_capacity[p->turn],
                                      p->now->rows * p->columns, sizeof(float), err);
    for (size_t r = 0; r < p->trainer->replica_count && status == COPSE_OK; r++)
        if (copse__takes_part(p->trainer, r))
            p->trainer->steps[r].outputs =
                *outputs + p->now->parts[r].first_row * p->columns;
    return status;
}

/* Runs the current batch while the next one travels. */
static copse_status run_batch(pass *p, copse_error *err) {
    copse_status status = COPSE_OK;
    if (!p->now)
        return copse__trainer_ask_all(p->trainer, evaluated_one, p->trainer, err);
    if (!p->next)
        status = next_batch(p, &p->next, err);
    if (status != COPSE_OK)
        return status;
    describe(p);
    if (p->predict)
        status = make_room(p, err);
    return status == COPSE_OK
               ? copse__trainer_ask_all(p->trainer, evaluate_one, p->trainer, err)
               : status;
}

/* The batch whose results the replicas have after run_batch, and its outputs; NULL: there is none yet. */
static const copse_batch *done_batch(const pass *p, const float **outputs) {
    *outputs = p->outputs[p->ahead ? 1 - p->turn : p->turn];
    return p->ahead ? p->before : p->now;
}

static void advance(pass *p) {
    const float *outputs;
    const copse_batch *done = done_batch(p, &outputs);
    if (done)
        copse_pipeline_release(p->pipeline, done);
    p->before = p->ahead ? p->now : NULL;
    p->now = p->next;
    p->next = NULL;
    p->turn = 1 - p->turn;
}

static bool any_lost(const copse__trainer *t) {
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__workers_is_out(t->workers, r) || copse__trainer_is_lost(t, r))
            return true;
    return false;
}

/* Outputs stay where a driver that has not come back may still write. */
static void free_outputs(pass *p) {
    for (size_t i = 0; i < 2; i++) {
        if (!any_lost(p->trainer))
            free(p->outputs[i]);
        p->outputs[i] = NULL;
        p->outputs_capacity[i] = 0;
    }
}

static copse_status finish_batch(pass *p, const copse_batch *done, const float *outputs,
                                 copse__score *score, copse_error *err) {
    copse__trainer *t = p->trainer;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            copse__score_add(score, &t->replicas[r]);
    score->skipped += done->skipped;
    p->index++;
    return p->predict ? p->predict(p->predict_user, outputs, done->rows, p->columns, err)
                      : COPSE_OK;
}

static void report(pass *p, const copse_batch *done, const copse__score *score,
                   copse__progress *progress) {
    copse__trainer *t = p->trainer;
    uint64_t now_ns = copse__now_ns();
    progress->index++;
    progress->rows = done->rows;
    progress->seconds = (double)(now_ns - p->done_ns) * 1e-9;
    progress->epoch_score = *score;
    p->done_ns = now_ns;
    if (t->hooks.on_evaluate)
        t->hooks.on_evaluate(t->hooks.user, progress);
}

/* The next batch is begun, and one is ended. A device that is lost on the way leaves as many to do as
 * before. */
static copse_status turn(pass *p, copse__score *score, copse__progress *progress,
                         copse_error *err) {
    copse__trainer *t = p->trainer;
    const float *outputs;
    copse_status status = run_batch(p, err);
    if (copse__is_loss(status) && t->regroup_due) {
        free_outputs(p);
        return go_on(p, status, err);
    }
    const copse_batch *done = done_batch(p, &outputs);
    if (status == COPSE_OK && done)
        status = finish_batch(p, done, outputs, score, err);
    if (status != COPSE_OK)
        return status;
    if (done)
        report(p, done, score, progress);
    advance(p);
    return COPSE_OK;
}

static copse_status run_pass(pass *p, copse__score *score, copse__progress *progress,
                             copse_error *err) {
    copse__trainer *t = p->trainer;
    copse_status status = t->regroup_due ? copse__trainer_regroup(t, err) : COPSE_OK;
    if (status == COPSE_OK)
        status = go_on(p, begin_pass(p, err), err);
    progress->count = p->pipeline ? copse_pipeline_batches(p->pipeline) : 0;
    p->done_ns = copse__now_ns();
    while (status == COPSE_OK && (p->now || p->before)) {
        status = turn(p, score, progress, err);
        if (status == COPSE_OK && atomic_exchange(&t->stop, false))
            status = copse__fail(err, COPSE_INTERRUPTED, 0, NULL,
                                 "stopped during the evaluation, as asked");
    }
    score->skipped += skipped_rest(p);
    end_pass(p);
    free_outputs(p);
    return status;
}

copse_status copse__trainer_evaluate(copse__trainer *t, copse_dataset *set,
                                     const char *name, copse__score *out,
                                     copse_error *err) {
    *out = (copse__score){0};
    pass p = {.trainer = t, .set = set};
    copse__progress progress = {.evaluating = true, .set = name};
    return run_pass(&p, out, &progress, err);
}

copse_status copse__trainer_predict(copse__trainer *t, copse_dataset *set,
                                    copse__predict_fn *fn, void *user, copse_error *err) {
    copse__score unused = {0};
    pass p = {.trainer = t, .set = set, .predict = fn, .predict_user = user};
    copse__progress progress = {.evaluating = true, .set = "prediction"};
    return run_pass(&p, &unused, &progress, err);
}
