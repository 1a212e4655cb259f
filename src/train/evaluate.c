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

/* One pass over a set, by all replicas, a batch at a time. */
typedef struct pass {
    copse__trainer *trainer;
    copse_dataset *set;
    copse_pipeline *pipeline;
    copse__slot_memory memory;
    const copse_batch *now, *next;
    uint64_t index; /* batches that are done */
    uint64_t
        given_skipped; /* samples left out of the batches that the pipeline has given */
    copse__predict_fn *predict;
    void *predict_user;
    float *outputs;
    size_t outputs_capacity, columns;
} pass;

static copse_status load_first(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    return copse__replica_load(&t->replicas[rank], false, &t->steps[rank].share, err);
}

static copse_status evaluate_one(size_t rank, void *user, copse_error *err) {
    copse__trainer *t = user;
    const copse__step *step = &t->steps[rank];
    return copse__replica_evaluate(&t->replicas[rank], &step->share, &step->next,
                                   step->outputs, err);
}

static void describe(pass *p) {
    copse__trainer *t = p->trainer;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            t->steps[r] = (copse__step){.share = copse__share_of(p->now, r),
                                        .next = copse__share_of(p->next, r)};
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
    copse_pipeline_options options = {
        .batch = t->eval_batch,
        .epochs = 1,
        .start_batch = p->index,
        .held = COPSE__INPUT_SLOTS,
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
    p->now = p->next = NULL;
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
    p->columns = copse__tensor_elements(&graph->tensors[graph->output], &one);
    copse_status status = copse__grow(&p->outputs, &p->outputs_capacity,
                                      p->now->rows * p->columns, sizeof(float), err);
    for (size_t r = 0; r < p->trainer->replica_count && status == COPSE_OK; r++)
        if (copse__takes_part(p->trainer, r))
            p->trainer->steps[r].outputs =
                p->outputs + p->now->parts[r].first_row * p->columns;
    return status;
}

/* Runs the current batch while the next one travels. */
static copse_status run_batch(pass *p, copse_error *err) {
    copse_status status = COPSE_OK;
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

static void advance(pass *p) {
    copse_pipeline_release(p->pipeline, p->now);
    p->now = p->next;
    p->next = NULL;
}

/* Outputs stay where a driver that has not come back may still write. */
static void free_outputs(pass *p) {
    bool out = false;
    for (size_t r = 0; r < p->trainer->replica_count; r++)
        out |= copse__workers_is_out(p->trainer->workers, r) ||
               copse__trainer_is_lost(p->trainer, r);
    if (!out)
        free(p->outputs);
}

static copse_status finish_batch(pass *p, copse__score *score, copse_error *err) {
    copse__trainer *t = p->trainer;
    for (size_t r = 0; r < t->replica_count; r++)
        if (copse__takes_part(t, r))
            copse__score_add(score, &t->replicas[r]);
    score->skipped += p->now->skipped;
    p->index++;
    return p->predict
               ? p->predict(p->predict_user, p->outputs, p->now->rows, p->columns, err)
               : COPSE_OK;
}

static copse_status run_pass(pass *p, copse__score *score, copse__progress *progress,
                             copse_error *err) {
    copse__trainer *t = p->trainer;
    copse_status status = t->regroup_due ? copse__trainer_regroup(t, err) : COPSE_OK;
    if (status == COPSE_OK)
        status = go_on(p, begin_pass(p, err), err);
    progress->count = p->pipeline ? copse_pipeline_batches(p->pipeline) : 0;
    while (status == COPSE_OK && p->now) {
        uint64_t start = copse__now_ns();
        status = run_batch(p, err);
        if (copse__is_loss(status) && t->regroup_due) {
            status = go_on(p, status, err);
            continue;
        }
        if (status == COPSE_OK)
            status = finish_batch(p, score, err);
        if (status != COPSE_OK)
            break;
        progress->index++;
        progress->rows = p->now->rows;
        progress->seconds = (double)(copse__now_ns() - start) * 1e-9;
        progress->epoch_score = *score;
        if (t->hooks.on_evaluate)
            t->hooks.on_evaluate(t->hooks.user, progress);
        advance(p);
        if (atomic_exchange(&t->stop, false))
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
