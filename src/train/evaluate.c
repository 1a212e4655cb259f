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

void copse__score_add(copse__score *score, const copse__program *program,
                      const copse__graph *graph, size_t rows) {
    const float *metrics = copse__program_metrics(program);
    if (!metrics || rows == 0)
        return;
    copse__extents extents = copse__shard_extents(graph, rows);
    size_t count = copse__tensor_rows(&graph->tensors[graph->metrics], &extents);
    for (size_t i = 0; i < count; i++) {
        score->loss_sum += (double)metrics[2 * i];
        score->hits += (double)metrics[2 * i + 1];
    }
    score->samples += count;
}

/* One pass over a set, by all replicas, a batch at a time. */
typedef struct pass {
    copse__trainer *trainer;
    copse_pipeline *pipeline;
    copse__slot_memory memory;
    const copse_batch *now, *next;
    size_t slot;
    copse__predict_fn *predict;
    void *predict_user;
    float *outputs;
    size_t outputs_capacity;
} pass;

static copse_status upload_first(size_t rank, void *user, copse_error *err) {
    const pass *p = user;
    copse__replica *r = &p->trainer->replicas[rank];
    const copse_batch_part *part = &p->now->parts[rank];
    copse__extents extents = copse__shard_extents(r->eval_graph, part->rows);
    return copse__program_upload(r->eval, p->slot, part->features, part->labels, &extents,
                                 err);
}

static copse_status evaluate_one(size_t rank, void *user, copse_error *err) {
    const pass *p = user;
    copse__replica *r = &p->trainer->replicas[rank];
    copse__extents now = copse__shard_extents(r->eval_graph, p->now->parts[rank].rows);
    copse__extents next = {0};
    const copse_batch_part *part = p->next ? &p->next->parts[rank] : NULL;
    if (part)
        next = copse__shard_extents(r->eval_graph, part->rows);
    return copse__replica_evaluate(r, p->slot, &now, part ? part->features : NULL,
                                   part ? part->labels : NULL, &next, err);
}

static copse_status begin_pass(pass *p, copse_dataset *set, copse_error *err) {
    copse__trainer *t = p->trainer;
    p->memory.trainer = t;
    copse_pipeline_options options = {
        .batch = t->eval_batch,
        .epochs = 1,
        .held = COPSE__INPUT_SLOTS,
        .label_classes = copse__trainer_label_bound(t),
        .replica_count = t->replica_count,
        .weights = t->eval_weights,
        .alloc = copse__slot_alloc,
        .free = copse__slot_free,
        .alloc_user = &p->memory,
    };
    copse_status status = copse_pipeline_open(&p->pipeline, set, &options, err);
    if (status == COPSE_OK)
        status = copse__trainer_send_statistics(t, err);
    if (status == COPSE_OK)
        status = copse_pipeline_next(p->pipeline, &p->now, err);
    if (status == COPSE_OK && p->now)
        status = copse__workers_run(t->workers, upload_first, p, NULL, err);
    return status;
}

/* Runs the current batch while the next one travels. */
static copse_status run_batch(pass *p, copse_error *err) {
    copse_status status = copse_pipeline_next(p->pipeline, &p->next, err);
    if (status != COPSE_OK)
        return status;
    return copse__workers_run(p->trainer->workers, evaluate_one, p, NULL, err);
}

static void advance(pass *p) {
    copse_pipeline_release(p->pipeline, p->now);
    p->now = p->next;
    p->next = NULL;
    p->slot = (p->slot + 1) % COPSE__INPUT_SLOTS;
}

static void end_pass(pass *p) {
    /* Uploads that are still under way read the slots' memory. */
    for (size_t r = 0; r < p->trainer->replica_count; r++) {
        copse__device *device = p->trainer->replicas[r].device;
        (void)copse__backend_of(device)->finish(device, COPSE__QUEUE_UPLOAD, NULL);
    }
    copse_pipeline_close(p->pipeline);
    free(p->outputs);
}

copse_status copse__trainer_evaluate(copse__trainer *t, copse_dataset *set,
                                     const char *name, copse__score *out,
                                     copse_error *err) {
    *out = (copse__score){0};
    pass p = {.trainer = t};
    copse__progress progress = {.evaluating = true, .set = name};
    copse_status status = begin_pass(&p, set, err);
    progress.count = p.pipeline ? copse_pipeline_batches(p.pipeline) : 0;
    while (status == COPSE_OK && p.now) {
        uint64_t start = copse__now_ns();
        status = run_batch(&p, err);
        if (status != COPSE_OK)
            break;
        for (size_t r = 0; r < t->replica_count; r++)
            copse__score_add(out, t->replicas[r].eval, t->replicas[r].eval_graph,
                             p.now->parts[r].rows);
        progress.index++;
        progress.rows = p.now->rows;
        progress.seconds = (double)(copse__now_ns() - start) * 1e-9;
        progress.epoch_score = *out;
        if (t->hooks.on_evaluate)
            t->hooks.on_evaluate(t->hooks.user, &progress);
        advance(&p);
        if (atomic_exchange(&t->stop, false))
            status = copse__fail(err, COPSE_INTERRUPTED, 0, NULL,
                                 "stopped during the evaluation, as asked");
    }
    end_pass(&p);
    return status;
}

/* Brings the current batch's outputs together, in order, and hands them on. */
static copse_status hand_on(pass *p, copse_error *err) {
    copse__trainer *t = p->trainer;
    const copse__graph *graph = t->replicas[0].eval_graph;
    const copse__tensor *output = &graph->tensors[graph->output];
    copse__extents one = copse__shard_extents(graph, 1);
    size_t columns = copse__tensor_elements(output, &one);
    copse_status status = copse__grow(&p->outputs, &p->outputs_capacity,
                                      p->now->rows * columns, sizeof(float), err);
    for (size_t r = 0; r < t->replica_count && status == COPSE_OK; r++) {
        const copse_batch_part *part = &p->now->parts[r];
        copse__extents extents = copse__shard_extents(graph, part->rows);
        status = copse__program_read_output(t->replicas[r].eval, &extents,
                                            p->outputs + part->first_row * columns, err);
    }
    if (status == COPSE_OK)
        status = p->predict(p->predict_user, p->outputs, p->now->rows, columns, err);
    return status;
}

copse_status copse__trainer_predict(copse__trainer *t, copse_dataset *set,
                                    copse__predict_fn *fn, void *user, copse_error *err) {
    pass p = {.trainer = t, .predict = fn, .predict_user = user};
    copse__progress progress = {.evaluating = true, .set = "prediction"};
    copse_status status = begin_pass(&p, set, err);
    progress.count = p.pipeline ? copse_pipeline_batches(p.pipeline) : 0;
    while (status == COPSE_OK && p.now) {
        status = run_batch(&p, err);
        if (status == COPSE_OK)
            status = hand_on(&p, err);
        progress.index++;
        progress.rows = p.now->rows;
        if (t->hooks.on_evaluate)
            t->hooks.on_evaluate(t->hooks.user, &progress);
        advance(&p);
    }
    end_pass(&p);
    return status;
}
